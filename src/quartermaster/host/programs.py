"""Programs that run on this host, whoever started them: found by their files, and ended.

For what a daemon has set free in a session of its own and leaves behind: nobody has a record of that.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Protocol

import msgspec

from quartermaster.host import procfs
from quartermaster.support.deadlines import within
from quartermaster.support.errors import HostError

_KILL_WAIT_S = 2.0


class Program(msgspec.Struct, frozen=True):
    pid: int
    started: int  # with the number it is one process for good, until the host is started again
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        return PurePosixPath(self.arguments[0]).name

    def after(self, option: str) -> str:
        """The word behind an option; "" where there is none."""
        pairs = zip(self.arguments, self.arguments[1:], strict=False)
        return next((value for word, value in pairs if word == option), "")


class Programs(Protocol):
    async def running(self, *names: str) -> tuple[Program, ...]:
        """By the names of their files."""
        ...

    async def end(self, program: Program, *, timeout_s: float = 10.0) -> bool:
        """False when it has ended already. HostError when it cannot be killed."""
        ...


class HostPrograms:
    async def running(self, *names: str) -> tuple[Program, ...]:
        found = [
            Program(one.pid, one.started, arguments)
            for one in procfs.processes()
            if one.lives and (arguments := procfs.arguments(one.pid))
        ]
        return tuple(one for one in found if one.name in names)

    async def end(self, program: Program, *, timeout_s: float = 10.0) -> bool:
        ended = await end_process(program.pid, program.started, timeout_s)
        if ended is None:
            raise HostError(
                f"cannot end {program.name}: process {program.pid} does not end, not even by SIGKILL",
                hint="it waits in the kernel for a disk or server that does not answer",
            )
        return ended


async def end_process(pid: int, started: int, timeout_s: float) -> bool | None:
    """By SIGTERM, and after that time by SIGKILL. False: it had ended; None: it does not end."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The number may have changed hands between the look and the open.
        now = procfs.process_stat(pid)
        if now is None or now.started != started:
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            if not await _exit_within(pidfd, timeout_s):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return True if await _exit_within(pidfd, _KILL_WAIT_S) else None
    finally:
        os.close(pidfd)


async def _exit_within(pidfd: int, timeout_s: float) -> bool:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        async with within(timeout_s):
            await ended.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(pidfd)
    return True
