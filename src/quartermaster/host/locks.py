"""Locks that hold across processes, one per resource: a slow attach of one volume never holds back another.

A lock is a file with flock on it, so the kernel takes it away from whoever dies. flock cannot be awaited without a
thread; a waiter therefore tries again after a few milliseconds, more rarely the longer it waits. The file says who has
the lock, and is gone when nobody has it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from quartermaster.support.backoff import Backoff
from quartermaster.support.errors import DeadlineError

_PAUSE = Backoff(first_s=0.001, factor=1.5, limit_s=0.025)
_PLAIN = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST = 100
_PID_DIGITS = 10


class Locks(Protocol):
    def hold(self, resource: str, *, timeout_s: float) -> AbstractAsyncContextManager[None]:
        """Alone with the resource inside the block. DeadlineError, with who has it, when the time is up."""
        ...


class FileLocks:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @asynccontextmanager
    async def hold(self, resource: str, *, timeout_s: float) -> AsyncIterator[None]:
        path = self._directory / lock_name(resource)
        fd = await _acquire(path, resource, timeout_s)
        try:
            _announce(fd)
            yield
        finally:
            # While we still have it: whoever opened it meanwhile finds out that it is no longer the file of that name.
            path.unlink(missing_ok=True)
            os.close(fd)


def lock_name(resource: str) -> str:
    """Readable, and different for different resources."""
    plain = _PLAIN.sub("_", resource)
    if plain == resource and len(plain) <= _LONGEST:
        return f"{plain}.lock"
    import hashlib

    return f"{plain[:_LONGEST]}-{hashlib.sha256(resource.encode()).hexdigest()[:12]}.lock"


async def _acquire(path: Path, resource: str, timeout_s: float) -> int:
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout_s
    tries = 0
    while True:
        fd = _try(path)
        if fd is not None:
            return fd
        if loop.time() >= ends:
            raise DeadlineError(
                f"cannot lock {resource}: {_holder(path)} has had it for all of {timeout_s:g} s",
                hint="try again when it has finished",
            )
        await asyncio.sleep(min(_PAUSE.delay_s(tries), max(0.0, ends - loop.time())))
        tries += 1


def _try(path: Path) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        now = os.stat(path)
        if os.path.samestat(now, os.fstat(fd)):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(fd)
    return None


def _announce(fd: int) -> None:
    # Always as long, in place of cutting off what was there: ext4 writes a file that was cut to the disk when it is
    # closed, and everybody would wait for that.
    os.pwrite(fd, f"{os.getpid():<{_PID_DIGITS}}".encode(), 0)


def _holder(path: Path) -> str:
    try:
        pid = path.read_text().strip()
    except OSError:
        pid = ""
    return f"process {pid}" if pid else "another process"
