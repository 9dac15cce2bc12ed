"""Programs that outlive the process which started them.

A process that is killed leaves the program it waits for at work: a mount or a login may come true seconds later, when
nobody expects it any more. Every program that a connector starts therefore carries in its environment what it works
for and a digest of its arguments; whoever takes over waits for those to end. A daemon that such a program leaves behind
inherits the mark but has other arguments, so nobody waits for it. One that is not executed yet has no mark, and is
waited for as well. A volume is one of a directory of records: of another directory it is another, with its own locks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from quartermaster.connectors.errors import LeftoverError
from quartermaster.connectors.names import digest_of
from quartermaster.host import procfs
from quartermaster.host.starting import until_started

VARIABLE = "QM_CONNECTOR_WORK"
_LOOK_S = 0.05
_ENVIRONMENT = 1 << 17  # ours is small and has the mark near its start


def token(directory: Path, thing: str) -> str:
    return digest_of(f"{os.path.realpath(directory)}\0{thing}")


def mark(directory: Path, things: Sequence[str], argv: Sequence[str]) -> str:
    """The value of the variable for a program that works for these things."""
    return f"{len(argv) - 1}:{_digest(argv[1:])}:{','.join(token(directory, thing) for thing in things)}"


def at_work_for(directory: Path, thing: str) -> list[int]:
    """The programs that were started for a volume or a shared thing and have not ended."""
    wanted = token(directory, thing)
    return [pid for pid, text in _marked() if wanted in text.rpartition(":")[2].split(",") and _matches(pid, text)]


def _marked() -> Iterator[tuple[int, str]]:
    """Every process with a mark. The environment is looked at first: of hundreds of processes hardly one has it."""
    start = f"{VARIABLE}=".encode()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                fd = os.open(f"/proc/{name}/environ", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    data = os.read(fd, _ENVIRONMENT)
                finally:
                    os.close(fd)
                if start in data:
                    yield int(name), procfs.environment_value(int(name), VARIABLE)


async def wait_for_leftovers(directory: Path, thing: str, *, timeout_s: float, what: str) -> None:
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout_s
    starting = await until_started(timeout_s=timeout_s)
    while left := [*starting, *at_work_for(directory, thing)]:
        if loop.time() >= ends:
            numbers = ", ".join(map(str, left))
            raise LeftoverError(
                f"cannot take over {what}: a program that was started for it is still at work (process {numbers})",
                hint="try again when it has ended",
            )
        await asyncio.sleep(_LOOK_S)


def _matches(pid: int, text: str) -> bool:
    count, digest, _ = text.split(":", 2)
    # Before the arguments stand the program and, for a script, its interpreter. One that has ended has none.
    given = procfs.arguments(pid)
    return len(given) > int(count) and _digest(given[len(given) - int(count) :]) == digest


def _digest(arguments: Sequence[str]) -> str:
    return digest_of("\0".join(arguments))
