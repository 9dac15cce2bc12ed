"""Daemons as systemd units, for hosts where systemd is process 1.

Units lie in /run: they are gone after a boot, as are the mounts that the daemons need, and the agent brings both back
in the right order. The unit of a lasting daemon, which is the agent, lies in /etc and is enabled.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from quartermaster.host import files
from quartermaster.host.commands import Command, Commands, Result
from quartermaster.host.daemons.base import Daemon, DaemonState, DaemonStatus
from quartermaster.host.daemons.units import environment_of, fingerprint_of, unit_name, unit_text
from quartermaster.host.tools import hint_for
from quartermaster.support.errors import CommandError, DaemonError, ToolMissingError

_SYSTEMD_RUNS = Path("/run/systemd/system")
_LASTING = Path("/etc/systemd/system")
_PROPERTIES = "LoadState,ActiveState,SubState,MainPID,ExecMainCode,ExecMainStatus,Result,NeedDaemonReload"
# One that is being stopped still runs; one that has ended and waits for systemd to start it again does not.
_ACTIVE = ("active", "activating", "reloading", "deactivating")
_WAITING = "auto-restart"
_KILLED = ("2", "3")  # CLD_KILLED and CLD_DUMPED
# systemd's own exit codes: the program could not be started.
_NEVER_RAN = range(200, 256)
_TIMEOUT_S = 30.0


def systemd_is_running() -> bool:
    """As sd_booted(3) finds out."""
    return _SYSTEMD_RUNS.is_dir()


class SystemdDaemons:
    def __init__(
        self,
        commands: Commands,
        *,
        directory: Path = _SYSTEMD_RUNS,
        lasting: Path = _LASTING,
        search_path: str = "",
    ) -> None:
        self._commands = commands
        self._directory = directory
        self._lasting = lasting
        self._search_path = search_path or os.environ.get("PATH", os.defpath)

    async def ensure(self, daemon: Daemon) -> DaemonStatus:
        status = await self.status(daemon.name)
        if status.running:
            return status
        program = shutil.which(daemon.argv[0], path=self._search_path)
        if program is None:
            name = daemon.argv[0]
            raise ToolMissingError(f"cannot start {daemon.name}: {name} is not installed", hint=hint_for(name))
        unit = unit_name(daemon.name)
        place = self._lasting if daemon.lasting else self._directory
        files.write_whole(place / unit, unit_text(daemon, program).encode(), mode=0o644)
        await self._change("daemon-reload", verb="make units known")
        if daemon.lasting:
            await self._change("enable", unit, verb=f"have {daemon.name} started at boot")
        if status.state is DaemonState.DEAD:
            # Its end counts against systemd's limit on starts, and how often to try is the caller's affair.
            await self._change("reset-failed", unit, verb=f"forget how {daemon.name} ended", accept=(0, 1))
        try:
            await self._change("start", unit, verb=f"start {daemon.name}")
        except CommandError as error:
            # A program that ran and ended at once fails the start as well, or not, as chance will have it.
            ended = await self.status(daemon.name)
            if ended.exit_code is None or ended.exit_code in _NEVER_RAN:
                raise DaemonError(f"{error.message}", hint=f"`journalctl -u {unit}` says more") from error
        return await self.status(daemon.name)

    async def replace(self, daemon: Daemon) -> DaemonStatus:
        if (await self.status(daemon.name)).outdated(daemon):
            await self.stop(daemon.name)
        return await self.ensure(daemon)

    async def stop(self, name: str) -> bool:
        status = await self.status(name)
        if status.state is DaemonState.ABSENT:
            return False
        unit = unit_name(name)
        # Its own limit on time is in the unit; ours is only for a systemd that does not answer.
        if status.lasting:
            await self._change("disable", unit, verb=f"have {name} started no more at boot")
        await self._change("stop", unit, verb=f"stop {name}", timeout_s=120.0, accept=(0, 5))
        for place in (self._directory, self._lasting):
            files.remove(place / unit)
        await self._change("daemon-reload", verb="make units known")
        await self._change("reset-failed", unit, verb=f"forget how {name} ended", accept=(0, 1))
        return status.running

    async def status(self, name: str) -> DaemonStatus:
        unit = unit_name(name)
        text = self._unit_file(unit)
        shown = await self._look("show", unit, f"--property={_PROPERTIES}", verb=f"ask about {name}")
        values = dict(line.partition("=")[::2] for line in shown.splitlines())
        waiting = values.get("SubState", "").startswith(_WAITING)
        active = values.get("ActiveState") in _ACTIVE and not waiting
        if text is None and not active:
            return DaemonStatus(name, DaemonState.ABSENT)
        fingerprint = fingerprint_of(text or "")
        lasting = (self._lasting / unit).exists()
        if active:
            pid = int(values.get("MainPID", "0"))
            return DaemonStatus(name, DaemonState.RUNNING, pid, fingerprint, lasting=lasting)
        code = _exit_code(values)
        message = "it has ended" if code is None else f"ended by signal {-code}" if code < 0 else f"exited with {code}"
        return DaemonStatus(
            name, DaemonState.DEAD, fingerprint=fingerprint, exit_code=code, message=message, lasting=lasting
        )

    async def list(self) -> tuple[DaemonStatus, ...]:
        prefix, suffix = unit_name("|").split("|")
        places = (self._directory, self._lasting)
        units = sorted({file.name for place in places for file in place.glob(unit_name("*"))})
        return tuple([await self.status(unit.removeprefix(prefix).removesuffix(suffix)) for unit in units])

    async def run(self, name: str, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes = b"") -> Result:
        environment = environment_of(self._unit_file(unit_name(name)) or "")
        command = Command(
            tuple(argv), verb=f"run {argv[0]} for {name}", timeout_s=timeout_s, stdin=stdin, environment=environment
        )
        return await self._commands.run(command)

    async def logs(self, name: str, *, lines: int = 100) -> str:
        # By who wrote it: with --unit there would be what systemd says about the unit, too.
        match = f"_SYSTEMD_UNIT={unit_name(name)}"
        argv = ("journalctl", match, f"--lines={lines}", "--output=cat", "--no-pager", "--quiet")
        command = Command(argv, verb=f"read the log of {name}", timeout_s=_TIMEOUT_S, changes=False)
        return (await self._commands.run(command)).text

    def _unit_file(self, unit: str) -> str | None:
        for place in (self._directory, self._lasting):
            try:
                return (place / unit).read_text()
            except FileNotFoundError:
                continue
        return None

    async def _look(self, *arguments: str, verb: str) -> str:
        command = Command(("systemctl", *arguments), verb=verb, timeout_s=_TIMEOUT_S, changes=False)
        return (await self._commands.run(command)).text

    async def _change(
        self, *arguments: str, verb: str, timeout_s: float = _TIMEOUT_S, accept: tuple[int, ...] = (0,)
    ) -> None:
        await self._commands.run(Command(("systemctl", *arguments), verb=verb, timeout_s=timeout_s, accept=accept))


def _exit_code(values: dict[str, str]) -> int | None:
    """None where systemd no longer knows, because the unit was loaded anew."""
    code, status = values.get("ExecMainCode", "0"), int(values.get("ExecMainStatus", "0") or 0)
    if code == "0":
        return None
    return -status if code in _KILLED else status
