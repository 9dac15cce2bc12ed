"""One server process: started in its own group, logging to a file, and certain to be gone afterwards.

Three nets hold it: `kill` ends the whole group; an exit handler ends every group that is still registered; and the
kernel sends SIGKILL when the parent dies without running that handler (a test run that was itself killed).
"""

import asyncio
import atexit
import os
import shutil
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from quartermaster.support.deadlines import within
from quartermaster.support.errors import QuartermasterError

REAP_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.05
SHOWN_LOG_LINES = 20

_running_groups: set[int] = set()


class ServerFailedError(QuartermasterError):
    """A server did not start, or ended when it should run."""

    reason = "ServerFailed"


@atexit.register
def _kill_all_groups() -> None:
    for group in list(_running_groups):
        _kill_group(group)


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    _running_groups.discard(group)


class ServerProcess:
    """A command that can be started again after it was killed."""

    def __init__(self, name: str, command: Sequence[str | Path], log_path: Path, *, directory: Path) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.log_path = log_path
        self.directory = directory
        self._process: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerFailedError(f"cannot tell the process id of {self.name}: it is not running")
        return self._process.pid

    async def start(self) -> None:
        if self.running:
            raise ServerFailedError(f"cannot start {self.name}: it is running already")
        setpriv = shutil.which("setpriv")
        follow_parent = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *follow_parent,
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        _running_groups.add(self._process.pid)

    async def kill(self) -> None:
        """SIGKILL to the whole group, then wait until the kernel has taken it away."""
        await self._end(signal.SIGKILL, REAP_TIMEOUT_S)

    async def stop(self, timeout_s: float = REAP_TIMEOUT_S) -> None:
        """SIGTERM, and SIGKILL for one that does not end in time."""
        await self._end(signal.SIGTERM, timeout_s)

    def pause(self) -> None:
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def kill_now(self) -> None:
        """Send SIGKILL without waiting: safe to call while a task is being cancelled."""
        if self._process is not None:
            _kill_group(self._process.pid)

    async def _end(self, first: signal.Signals, timeout_s: float) -> None:
        process = self._process
        if process is None:
            return
        try:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, first)
                    # A paused process acts on no signal but SIGKILL until it continues.
                    os.killpg(process.pid, signal.SIGCONT)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), timeout_s)
        finally:
            _kill_group(process.pid)
        try:
            await asyncio.wait_for(process.wait(), REAP_TIMEOUT_S)
        except TimeoutError:
            raise ServerFailedError(f"cannot end {self.name}: process {process.pid} stays after SIGKILL") from None
        self._process = None

    def last_log_lines(self) -> str:
        try:
            with self.log_path.open(errors="replace") as log:
                return "".join(deque(log, maxlen=SHOWN_LOG_LINES)).rstrip()
        except FileNotFoundError:
            return "(no log)"

    async def until(self, condition: Callable[[], Awaitable[bool]], timeout_s: float) -> None:
        """Wait until the condition holds; an error shows the end of the log if the time or the process ends first."""
        try:
            async with within(timeout_s):
                while not await condition():
                    if not self.running:
                        self._fail("it ended")
                    await asyncio.sleep(POLL_INTERVAL_S)
        except TimeoutError:
            self._fail(f"it was not ready after {timeout_s:.0f} s")

    def _fail(self, cause: str) -> None:
        raise ServerFailedError(f"cannot use {self.name}: {cause}. {self.log_path} ends with:\n{self.last_log_lines()}")


async def run_tool(
    command: Sequence[str | Path], *, timeout_s: float, environment: Mapping[str, str], stdin: str
) -> str:
    """Run a client program and return its output; a failure is an error with what it printed."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
    )
    name = Path(command[0]).name
    try:
        output, errors = await asyncio.wait_for(process.communicate(stdin.encode()), timeout_s)
    except TimeoutError:
        raise ServerFailedError(f"cannot run {name}: no answer within {timeout_s:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise ServerFailedError(f"{name} failed with code {process.returncode}: {errors.decode().strip()}")
    return output.decode()
