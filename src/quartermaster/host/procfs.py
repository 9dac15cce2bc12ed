"""What /proc says about processes.

A process number alone proves nothing, for numbers are used again: only with the start time and the boot does it name
one process for good.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_GONE = "ZX"  # a zombie has ended; only its number is still taken


class ProcessStat(msgspec.Struct, frozen=True):
    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: int  # in clock ticks since the boot
    name: str = ""
    environment_end: int = 0  # its address; 0 where there is none yet, or where it is not shown to us

    @property
    def lives(self) -> bool:
        return self.state not in _GONE


def process_stat(pid: int) -> ProcessStat | None:
    """None for a process that is not there."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in brackets and may hold brackets and spaces itself.
    before, _, behind = text.rpartition(")")
    fields = behind.split()
    return ProcessStat(
        pid=pid,
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        started=int(fields[19]),
        name=before.partition("(")[2],
        environment_end=int(fields[48]),
    )


def processes() -> Iterator[ProcessStat]:
    for name in os.listdir(_PROC):
        if name.isdecimal():
            found = process_stat(int(name))
            if found is not None:
                yield found


def executable(pid: int) -> str:
    """The program's file, also where a newer version has replaced it; empty where that cannot be known."""
    with suppress(OSError):
        return os.readlink(_PROC / str(pid) / "exe").removesuffix(" (deleted)")
    return ""


def arguments(pid: int) -> tuple[str, ...]:
    with suppress(OSError):
        data = (_PROC / str(pid) / "cmdline").read_bytes()
        return tuple(part.decode(errors="surrogateescape") for part in data.split(b"\0")[:-1])
    return ()


def environment_value(pid: int, name: str) -> str:
    """A variable as the process was started with it; empty where it has none."""
    with suppress(OSError):
        start = f"{name}=".encode()
        for part in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            if part.startswith(start):
                return part[len(start) :].decode(errors="surrogateescape")
    return ""


def boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
