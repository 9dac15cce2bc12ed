"""Daemons on a modelled machine: they live in it and not in the agent, so a new agent finds them."""

from __future__ import annotations

from collections.abc import Sequence

from quartermaster.host.commands import Command, Commands, Result
from quartermaster.host.daemons.base import Daemon, DaemonState, DaemonStatus
from quartermaster.host.fake.commands import FakeCommands
from quartermaster.host.fake.faults import Faults
from quartermaster.host.fake.machine import FakeMachine, FakeProcess
from quartermaster.host.tools import hint_for
from quartermaster.support.errors import ToolMissingError


class FakeDaemons:
    def __init__(self, machine: FakeMachine, faults: Faults | None = None, *, commands: Commands | None = None) -> None:
        self._machine = machine
        self._faults = faults or Faults()
        self._commands = commands or FakeCommands(self._faults)
        self.starts = 0

    async def ensure(self, daemon: Daemon) -> DaemonStatus:
        process = self._machine.processes.get(daemon.name)
        if process is None or not process.lives:
            name = daemon.argv[0]
            if name in self._machine.missing_tools:
                raise ToolMissingError(f"cannot start {daemon.name}: {name} is not installed", hint=hint_for(name))
            async with self._faults.step(f"start {daemon.name}"):
                self.starts += 1
                self._machine.processes[daemon.name] = FakeProcess(daemon, 1000 + self._machine.next_number())
        return self._status(daemon.name)

    async def replace(self, daemon: Daemon) -> DaemonStatus:
        if self._status(daemon.name).outdated(daemon):
            await self.stop(daemon.name)
        return await self.ensure(daemon)

    async def stop(self, name: str) -> bool:
        process = self._machine.processes.get(name)
        if process is None:
            return False
        async with self._faults.step(f"stop {name}"):
            del self._machine.processes[name]
        return process.lives

    async def status(self, name: str) -> DaemonStatus:
        async with self._faults.step(f"ask about {name}"):
            return self._status(name)

    async def list(self) -> tuple[DaemonStatus, ...]:
        async with self._faults.step("list daemons"):
            return tuple(self._status(name) for name in sorted(self._machine.processes))

    async def run(self, name: str, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes = b"") -> Result:
        process = self._machine.processes.get(name)
        environment = dict(process.daemon.environment) if process is not None else {}
        command = Command(
            tuple(argv), verb=f"run {argv[0]} for {name}", timeout_s=timeout_s, stdin=stdin, environment=environment
        )
        return await self._commands.run(command)

    async def logs(self, name: str, *, lines: int = 100) -> str:
        process = self._machine.processes.get(name)
        text = process.log if process is not None else ""
        return "".join(text.splitlines(keepends=True)[-lines:])

    def _status(self, name: str) -> DaemonStatus:
        process = self._machine.processes.get(name)
        if process is None:
            return DaemonStatus(name, DaemonState.ABSENT)
        fingerprint = process.daemon.fingerprint
        if process.lives:
            return DaemonStatus(name, DaemonState.RUNNING, process.pid, fingerprint)
        code = process.exit_code
        return DaemonStatus(name, DaemonState.DEAD, fingerprint=fingerprint, exit_code=code, message="it has ended")
