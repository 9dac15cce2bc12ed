"""One child process: its pipes, its end, and the end of everything that it started.

asyncio's own subprocesses keep a thread per child on Python 3.11 and wait for their pipes without a bound, so a daemon
that keeps its parent's standard error would hold a command for ever. Here the end of a child is a readable pidfd, pipes
are bounded, and whoever cannot be killed (state D, waiting for a dead server) is left behind and reaped later.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress

import msgspec

from quartermaster.host.procfs import processes
from quartermaster.host.starting import starting

# How long after the end of a process the pipes that its children still hold are read.
_LINGER_S = 0.1
_KILL_WAIT_S = 0.2, 1.0  # at least and at most
_GROUP_LOOK_S = 0.01
_GROUP_LOOKS = 50
_CHUNK = 65536


class Ending(msgspec.Struct, frozen=True):
    """How a process ended. Without an exit code it has not: it is `stuck` in the kernel."""

    pid: int
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool
    deadline: bool


async def run_process(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdin: bytes,
    timeout_s: float,
    output_limit: int,
    grace_s: float,
) -> Ending:
    """Run to the end. At the deadline, or when the caller is cancelled, the group is ended: SIGTERM, then SIGKILL."""
    child = _Child(argv, environment, stdin, output_limit)
    deadline = False
    try:
        # One that has ended while a child of its own keeps the pipes is not late.
        if not await child.finished_within(timeout_s) and not child.exited:
            deadline = True
            await child.end(grace_s)
    except asyncio.CancelledError:
        await child.end(grace_s)
        raise
    finally:
        exit_code = child.close()
    return Ending(
        pid=child.pid,
        exit_code=exit_code,
        stdout=bytes(child.stdout.kept),
        stderr=bytes(child.stderr.kept),
        truncated=child.stdout.truncated,
        deadline=deadline,
    )


def kill_wait_s(grace_s: float) -> float:
    """How long a process that was killed is waited for: whoever has little time for the first signal has as little."""
    least, most = _KILL_WAIT_S
    return min(most, max(least, grace_s))


class _Child:
    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], stdin: bytes, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        with ExitStack() as childs_ends:
            stdout, stdout_of_child = _pipe(childs_ends)
            stderr, stderr_of_child = _pipe(childs_ends)
            stdin_of_child, self._stdin = os.pipe() if stdin else (subprocess.DEVNULL, -1)
            if stdin:
                childs_ends.callback(os.close, stdin_of_child)
            try:
                with starting():
                    self._popen = subprocess.Popen(
                        argv,
                        stdin=stdin_of_child,
                        stdout=stdout_of_child,
                        stderr=stderr_of_child,
                        env=dict(environment),
                        # Not the caller's directory: a child that lives on would keep that file system busy.
                        cwd="/",
                        start_new_session=True,
                    )
            except OSError:
                for fd in (stdout, stderr, self._stdin):
                    if fd >= 0:
                        os.close(fd)
                raise
        self.pid = self._popen.pid
        self._pidfd = os.pidfd_open(self.pid)
        self._exited = self._loop.create_future()
        self._finished = self._loop.create_future()
        # Standard output is read from its start (truncated JSON is noticed), standard error for its last lines.
        self.stdout = _Reader(self._loop, stdout, limit, self._check, keep_end=False)
        self.stderr = _Reader(self._loop, stderr, limit, self._check, keep_end=True)
        self._unwritten = memoryview(stdin)
        if self._stdin >= 0:
            os.set_blocking(self._stdin, False)
            self._loop.add_writer(self._stdin, self._write)
        self._loop.add_reader(self._pidfd, self._on_exit)

    @property
    def exited(self) -> bool:
        return self._exited.done()

    async def finished_within(self, timeout_s: float) -> bool:
        return bool((await asyncio.wait([self._finished], timeout=timeout_s))[0])

    async def end(self, grace_s: float) -> None:
        """The leader is not reaped before the last signal: until then no other process can have its number."""
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait([self._exited], timeout=grace_s)
        finally:
            self._signal(signal.SIGKILL)
        await asyncio.wait([self._exited], timeout=kill_wait_s(grace_s))
        for _ in range(_GROUP_LOOKS):
            if not self._group_lives():
                return
            await asyncio.sleep(_GROUP_LOOK_S)

    def close(self) -> int | None:
        """The exit code; None for a process that has not ended, which is reaped whenever it does."""
        self._stop_writing()
        self.stdout.stop()
        self.stderr.stop()
        if self.exited:
            self._reap()
            return self._popen.returncode
        self._loop.remove_reader(self._pidfd)
        self._loop.add_reader(self._pidfd, self._reap)
        return None

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _group_lives(self) -> bool:
        """Whether children of the leader are still on their way out."""
        return any(found.group == self.pid and found.lives for found in processes() if found.pid != self.pid)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._exited.set_result(None)
        self.stdout.drain()
        self.stderr.drain()
        self._check()
        if not self._finished.done():
            self._loop.call_later(_LINGER_S, self._finish)

    def _check(self) -> None:
        if self.exited and self.stdout.ended and self.stderr.ended:
            self._finish()

    def _finish(self) -> None:
        if not self._finished.done():
            self._finished.set_result(None)

    def _reap(self) -> None:
        self._popen.wait()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)

    def _write(self) -> None:
        try:
            written = os.write(self._stdin, self._unwritten[:_CHUNK])
        except BlockingIOError:
            return
        except BrokenPipeError:
            # It did not want all of it; its exit code tells whether that is a failure.
            self._stop_writing()
            return
        self._unwritten = self._unwritten[written:]
        if not self._unwritten:
            self._stop_writing()

    def _stop_writing(self) -> None:
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1


def _pipe(childs_ends: ExitStack) -> tuple[int, int]:
    """Our end for reading, and the child's, which the stack closes."""
    ours, childs = os.pipe()
    childs_ends.callback(os.close, childs)
    return ours, childs


class _Reader:
    """Reads one pipe to its end and keeps a bounded part: the child never waits for us, nor we for memory."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fd: int, limit: int, on_end: Callable[[], None], *, keep_end: bool
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._limit = limit
        self._on_end = on_end
        self._keep_end = keep_end
        self.kept = bytearray()
        self.truncated = False
        self.ended = False
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    def drain(self) -> None:
        """Take what is there now; an endless writer is cut off after the kept size."""
        for _ in range(self._limit // _CHUNK + 2):
            if self.ended or not self._read():
                return

    def stop(self) -> None:
        if not self.ended:
            self.ended = True
            self._loop.remove_reader(self._fd)
            os.close(self._fd)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.stop()
            self._on_end()
            return False
        self._keep(data)
        return True

    def _keep(self, data: bytes) -> None:
        self.kept += data
        excess = len(self.kept) - self._limit
        if excess <= 0:
            return
        self.truncated = True
        if self._keep_end:
            del self.kept[:excess]
        else:
            del self.kept[self._limit :]
