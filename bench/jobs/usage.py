"""What a job measures of its own process, and the answer with which it ends."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import msgspec

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Reading(msgspec.Struct, frozen=True):
    """One look at the clock, the processor time and the memory of this process."""

    at_s: float
    cpu_s: float
    rss_bytes: int


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """`before`: it has loaded and connected what it needs. `after`: it has seen all of its writes."""

    reconciled: int
    written: int
    began_s: float  # the process was started
    before: Reading
    synced_s: float = 0.0
    first_s: float  # the first call of the handler
    last_s: float  # the last status was acknowledged, or seen where the framework does not tell
    after: Reading
    peak_rss_bytes: int
    loop: str
    idle_s: float = 0.0
    idle_cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        """Statuses per second while writing."""
        return self.written / (self.last_s - self.first_s)

    @property
    def rate_from_start(self) -> float:
        return self.written / (self.last_s - self.began_s)

    @property
    def cpu_ms(self) -> float:
        """Processor time of the client per object: list, cache, reconcile, write, and the echo of the write."""
        return 1000 * (self.after.cpu_s - self.before.cpu_s) / self.written

    @property
    def growth_mib(self) -> float:
        return (self.after.rss_bytes - self.before.rss_bytes) / 2**20

    @property
    def peak_growth_mib(self) -> float:
        return (self.peak_rss_bytes - self.before.rss_bytes) / 2**20

    @property
    def idle_share(self) -> float:
        """Of one core, in percent."""
        return 100 * self.idle_cpu_s / self.idle_s if self.idle_s else 0.0


def reading() -> Reading:
    used = resource.getrusage(resource.RUSAGE_SELF)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    return Reading(at_s=time.monotonic(), cpu_s=used.ru_utime + used.ru_stime, rss_bytes=resident)


def peak_rss_bytes() -> int:
    """Of this program alone: what getrusage says is inherited from the process that started it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
