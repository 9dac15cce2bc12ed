"""On what the figures were measured; nothing that names a host or a path."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import msgspec

from bench.running import BenchFailedError


class Machine(msgspec.Struct, frozen=True):
    cores: int
    memory_gib: float
    processor: str
    kernel: str
    python: str
    load: float  # before the run: what others did meanwhile is part of the figures

    def describe(self) -> str:
        processor = f" ({self.processor})" if self.processor else ""
        return (
            f"{self.cores} cores{processor}, {self.memory_gib:.0f} GiB, Linux {self.kernel}, "
            f"Python {self.python}, load {self.load:.1f} before the run;"
        )


def this_machine() -> Machine:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cores=os.cpu_count() or 1,
        memory_gib=pages / 2**30,
        processor=_processor(),
        kernel=platform.release(),
        python=platform.python_version(),
        load=os.getloadavg()[0],
    )


def package_versions(*names: str) -> tuple[str, ...]:
    return tuple(f"{name} {version(name)}" for name in names)


def program_version(program: Path | str) -> str:
    """What a program says of itself: which one was found differs from machine to machine."""
    shown = subprocess.run([str(program), "--version"], capture_output=True, text=True, timeout=20, check=False)
    found = re.search(r"\d+\.\d+\.\d+", shown.stdout + shown.stderr)
    if found is None:
        raise BenchFailedError(f"{Path(program).name} does not say its version")
    return found[0]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return ""
