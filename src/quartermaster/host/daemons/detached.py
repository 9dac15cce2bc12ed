"""Daemons as processes of their own, for hosts without systemd.

Each leads a session of its own, so nothing that happens to the agent reaches it. It is a child of the agent that
started it, which then knows its exit code; after that agent's end it belongs to init, and its end is seen but not its
code.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from quartermaster.host import procfs
from quartermaster.host.commands import Command, Commands, Result
from quartermaster.host.daemons.base import Daemon, DaemonState, DaemonStatus
from quartermaster.host.daemons.logfile import LogFile
from quartermaster.host.daemons.records import TOKEN_VARIABLE, Record, Records, leftovers, live_process
from quartermaster.host.programs import end_process
from quartermaster.host.starting import starting, until_started
from quartermaster.host.tools import hint_for
from quartermaster.support import entropy
from quartermaster.support.errors import DaemonError, ToolMissingError

_START_WAIT_S = 30.0


class DetachedDaemons:
    """Keeps its records in `directory`/records and the daemons' output in `directory`/logs."""

    def __init__(self, commands: Commands, directory: Path, *, search_path: str = "") -> None:
        self._commands = commands
        self._records = Records(directory / "records")
        self._logs = directory / "logs"
        self._search_path = search_path or os.environ.get("PATH", os.defpath)
        self._children: dict[int, int | None] = {}  # those we started, with the exit code of those that ended

    async def ensure(self, daemon: Daemon) -> DaemonStatus:
        record = self._records.read(daemon.name)
        if record is not None:
            await _settle(record)
        if record is None or self._look(record) is None:
            if record is not None:
                _kill_leftovers(record)
            self._start(daemon)
        return await self.status(daemon.name)

    async def replace(self, daemon: Daemon) -> DaemonStatus:
        if (await self.status(daemon.name)).outdated(daemon):
            await self.stop(daemon.name)
        return await self.ensure(daemon)

    async def stop(self, name: str) -> bool:
        record = self._records.read(name)
        if record is None:
            return False
        await _settle(record)
        process = self._look(record)
        if process is not None:
            await self._end(record.daemon, process)
        _kill_leftovers(record)
        self._look(record)
        self._children.pop(record.pid, None)
        self._records.remove(name)
        return process is not None

    async def status(self, name: str) -> DaemonStatus:
        record = self._records.read(name)
        if record is None:
            return DaemonStatus(name, DaemonState.ABSENT)
        self._log(record.daemon).bound()
        process = self._look(record)
        if process is not None:
            return DaemonStatus(name, DaemonState.RUNNING, process.pid, record.daemon.fingerprint)
        record = self._ended(record)
        return DaemonStatus(
            name,
            DaemonState.DEAD,
            fingerprint=record.daemon.fingerprint,
            exit_code=record.exit_code,
            message=_ending(record),
        )

    async def list(self) -> tuple[DaemonStatus, ...]:
        return tuple([await self.status(name) for name in self._records.names()])

    async def run(self, name: str, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes = b"") -> Result:
        record = self._records.read(name)
        environment = dict(record.daemon.environment) if record is not None else {}
        command = Command(
            tuple(argv), verb=f"run {argv[0]} for {name}", timeout_s=timeout_s, stdin=stdin, environment=environment
        )
        return await self._commands.run(command)

    async def logs(self, name: str, *, lines: int = 100) -> str:
        return LogFile(self._logs / f"{name}.log").tail(lines)

    def _start(self, daemon: Daemon) -> None:
        program = shutil.which(daemon.argv[0], path=self._search_path)
        if program is None:
            name = daemon.argv[0]
            raise ToolMissingError(f"cannot start {daemon.name}: {name} is not installed", hint=hint_for(name))
        record = Record(daemon, token=entropy.new_uid(), boot=procfs.boot_id())
        self._records.write(record)
        try:
            pid = self._spawn(daemon, program, record.token)
        except OSError as error:
            self._records.write(msgspec.structs.replace(record, ended=True))
            raise DaemonError(f"cannot start {daemon.name}: {program}: {error.strerror}") from error
        self._children[pid] = None
        stat = procfs.process_stat(pid)
        self._records.write(
            msgspec.structs.replace(
                record,
                pid=pid,
                # Our own child is there at least as a zombie.
                started=stat.started if stat is not None else 0,
                executable=procfs.executable(pid),
            )
        )

    def _spawn(self, daemon: Daemon, program: str, token: str) -> int:
        with self._log(daemon).open() as output, starting():
            child = subprocess.Popen(
                [program, *daemon.argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"PATH": self._search_path, "LC_ALL": "C", **daemon.environment, TOKEN_VARIABLE: token},
                cwd=daemon.directory,
                start_new_session=True,
            )
        # It is reaped by its number, and is meant to live on without this object.
        child.returncode = 0
        return child.pid

    def _log(self, daemon: Daemon) -> LogFile:
        return LogFile(self._logs / f"{daemon.name}.log", limit=daemon.log_limit)

    def _look(self, record: Record) -> procfs.ProcessStat | None:
        stat = procfs.process_stat(record.pid) if record.pid else None
        if stat is not None and stat.parent == os.getpid() and stat.started == record.started:
            # Started by this process, perhaps through another object.
            self._children.setdefault(record.pid, None)
        self._reap()
        process = live_process(record)
        if process is not None and record.pid == 0:
            adopted = msgspec.structs.replace(
                record, pid=process.pid, started=process.started, executable=procfs.executable(process.pid)
            )
            self._records.write(adopted)
        return process

    def _ended(self, record: Record) -> Record:
        """What is known of the end is kept, for the agents after this one."""
        code = self._children.pop(record.pid, None)
        if record.ended or code is None:
            return record
        ended = msgspec.structs.replace(record, ended=True, exit_code=code)
        self._records.write(ended)
        return ended

    def _reap(self) -> None:
        for pid, code in self._children.items():
            if code is None:
                with suppress(ChildProcessError):
                    reaped, status = os.waitpid(pid, os.WNOHANG)
                    self._children[pid] = os.waitstatus_to_exitcode(status) if reaped else None

    async def _end(self, daemon: Daemon, process: procfs.ProcessStat) -> None:
        if await end_process(process.pid, process.started, daemon.stop_timeout_s) is None:
            raise DaemonError(
                f"cannot stop {daemon.name}: process {process.pid} does not end, not even by SIGKILL",
                hint="it waits in the kernel for a disk or server that does not answer",
            )


async def _settle(record: Record) -> None:
    """Whoever was about to start it may be dead, and the daemon not have its program yet: it cannot be found then."""
    if record.pid == 0 and not record.ended and (left := await until_started(timeout_s=_START_WAIT_S)):
        raise DaemonError(
            f"cannot tell whether the daemon {record.daemon.name} runs: process {left[0]} may become it",
            hint="try again when that has its program",
        )


def _kill_leftovers(record: Record) -> None:
    """What the daemon started and did not set free in a session of its own."""
    if not record.daemon.keep_children:
        for found in leftovers(record):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(found.pid, signal.SIGKILL)


def _ending(record: Record) -> str:
    if record.boot != procfs.boot_id():
        return "the host was started again"
    if record.exit_code is None:
        return "it has ended"
    return f"ended by signal {-record.exit_code}" if record.exit_code < 0 else f"exited with {record.exit_code}"
