"""Programs on their way: forked, and not executed yet.

A process that is killed while it starts a program leaves a child that becomes the program nevertheless. Until then the
child looks like its parent: whoever looks for the program by its arguments or its environment does not find it, and on
a busy machine that lasts. So whoever starts a program has a name of its own meanwhile, which the child inherits and
loses when it is executed; from there on, until the kernel has laid out the new program, it has no environment at all,
which can be said of no other process. Who takes over from the dead waits for these first, whomever they belong to: it
is a matter of milliseconds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from quartermaster.host import procfs

NAME = "qm-starting"
_OWN_NAME = "/proc/thread-self/comm"
_LONGEST = 16  # of a name, with a line end
_LOOK_S = 0.005


@contextmanager
def starting() -> Iterator[None]:
    """Around the start of a program."""
    before = b""
    # Where the name cannot be changed, the program is found from its execution on.
    with suppress(OSError):
        before = _rename(NAME.encode())
    try:
        yield
    finally:
        if before:
            with suppress(OSError):
                _rename(before)


def being_started() -> list[procfs.ProcessStat]:
    return [found for found in procfs.processes() if _is_starting(found)]


async def until_started(*, timeout_s: float) -> tuple[int, ...]:
    """Wait until those that are on their way now are programs, or have ended; which are not when the time is up.

    One that sets out later was not started by anybody who is dead already.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout_s
    left = being_started()
    while left and loop.time() < ends:
        await asyncio.sleep(_LOOK_S)
        left = [now for found in left if (now := _same(found)) is not None and _is_starting(now)]
    return tuple(found.pid for found in left)


def _same(found: procfs.ProcessStat) -> procfs.ProcessStat | None:
    now = procfs.process_stat(found.pid)
    return now if now is not None and now.started == found.started else None


def _is_starting(found: procfs.ProcessStat) -> bool:
    if not found.lives:
        return False
    # Threads of the kernel have no environment and no program; of a process that is not ours neither is seen.
    return found.name == NAME or (found.environment_end == 0 and bool(procfs.executable(found.pid)))


def _rename(name: bytes) -> bytes:
    """What it was before."""
    fd = os.open(_OWN_NAME, os.O_RDWR | os.O_CLOEXEC)
    try:
        before = os.read(fd, _LONGEST).rstrip(b"\n")
        os.write(fd, name)
    finally:
        os.close(fd)
    return before
