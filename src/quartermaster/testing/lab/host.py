"""One virtual host, as tests and the command line use it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from quartermaster.host.commands import Command, HostCommands, Result
from quartermaster.host.devices.roots import StandIn
from quartermaster.host.places import DEVICE_ROOT_VARIABLE, STATE_VARIABLE
from quartermaster.resources.quantity import Amount
from quartermaster.testing.lab import disks, network
from quartermaster.testing.lab.core import LabCore
from quartermaster.testing.lab.plans import DEVICE_ROOT, HOME_DIRECTORY, STATE_DIRECTORY
from quartermaster.testing.lab.processes import HUB, LabProcess, entering
from quartermaster.testing.lab.state import DiskState, LabError, new_disk

LEAST_DISK = 1 << 20
# They name directories of this machine.
_FOREIGN_VARIABLES = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


class VirtualHost:
    def __init__(self, core: LabCore, name: str) -> None:
        self.name = name
        self._core = core
        self._spawned: list[LabProcess] = []

    def __repr__(self) -> str:
        return f"VirtualHost({self.name!r})"

    @property
    def address(self) -> str:
        """Reachable from the other hosts of the lab, and from the machine."""
        return self._core.state.address(self._core.state.host(self.name))

    @property
    def device_root(self) -> Path:
        """Where its disks are, as processes on the host see it."""
        return DEVICE_ROOT

    @property
    def state(self) -> Path:
        """The directory, as seen from the machine, that is /var/lib/quartermaster on the host."""
        return self.directory / "state"

    @property
    def directory(self) -> Path:
        """All that the host keeps, as seen from the machine."""
        return self._core.host_directory(self.name)

    @property
    def disks(self) -> tuple[DiskState, ...]:
        return self._core.state.host(self.name).disks

    @property
    def up(self) -> bool:
        return self._core.keeper(f"host {self.name}") is not None

    @property
    def is_cut(self) -> bool:
        return self._core.state.host(self.name).cut

    @property
    def pid(self) -> int:
        """Of its first process, in the machine's own counting. LabError when the host is down."""
        return self._core.host_keeper(self.name).pid

    @property
    def environment(self) -> dict[str, str]:
        """By which a process finds out that it is on this host."""
        return {
            DEVICE_ROOT_VARIABLE: str(self.device_root),
            STATE_VARIABLE: str(STATE_DIRECTORY),
            # Of its own: two hosts do not share the files of one user. What was built or downloaded they may share.
            "HOME": str(HOME_DIRECTORY),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser()),
        }

    @property
    def prefix(self) -> tuple[str, ...]:
        """What goes before a command so that it runs on the host. It is another one after every start."""
        variables = (f"{name}={value}" for name, value in self.environment.items())
        foreign = (f"--unset={name}" for name in _FOREIGN_VARIABLES)
        return (*entering(self.pid), "env", *foreign, *variables)

    def argv(self, argv: Sequence[str]) -> list[str]:
        """For those who start processes by themselves. A signal to nsenter does not reach the command behind it."""
        return [*self.prefix, *argv]

    @property
    def commands(self) -> HostCommands:
        """As `quartermaster.host` takes it, for work on the host from outside; until its next start."""
        return HostCommands(prefix=self.prefix)

    async def run(
        self,
        argv: Sequence[str],
        timeout_s: float = 30.0,
        environment: Mapping[str, str] | None = None,
        *,
        accept: tuple[int, ...] = (0,),
        stdin: bytes = b"",
    ) -> Result:
        """CommandError when it fails, CommandDeadlineError when it takes too long."""
        command = Command(
            tuple(argv),
            verb=f"run {argv[0]} on {self.name}",
            timeout_s=timeout_s,
            environment=dict(environment or {}),
            accept=accept,
            stdin=stdin,
        )
        return await self.commands.run(command)

    async def spawn(
        self, argv: Sequence[str], *, log: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> LabProcess:
        """Started and left running until it is stopped or the host ends; its output goes to `log`."""
        self._spawned = [process for process in self._spawned if process.running]
        log = log or self.directory / "logs" / f"{Path(argv[0]).name}.log"
        process = LabProcess(self.argv(argv), {"PATH": os.environ.get("PATH", os.defpath), **(environment or {})}, log)
        self._spawned.append(process)
        return process

    async def cut(self) -> None:
        """Pull the cable: connections hang and nothing is told to anybody."""
        await self._set_cut(True)

    async def heal(self) -> None:
        await self._set_cut(False)

    async def kill(self) -> None:
        """As by the loss of power, but what was written is on the disks. It may be down already."""
        async with self._core.changing():
            await self._core.end(self.name)
        await self.reap()

    async def boot(self) -> None:
        """Start it again with the disks and the directories that it had. It may be up already."""
        async with self._core.changing():
            await self._core.boot(self.name)

    async def add_disk(
        self, size: str | int, *, serial: str = "", wwn: str = "", rotational: bool = False
    ) -> DiskState:
        stand_in = StandIn(serial=serial, wwn=wwn, model="lab disk", rotational=rotational)
        async with self._core.changing() as state:
            host, disk = new_disk(state.host(self.name), disk_bytes(size), stand_in, lab=state.id)
            self._core.save(state.with_host(host))
            await self._appear(disk)
        return disk

    async def lose_disk(self, which: int | str) -> DiskState:
        """It dies: discovery no longer finds it, a file system on it answers with errors, its content is gone."""
        async with self._core.changing():
            return await self._lose(which)

    async def replace_disk(self, which: int | str, *, size: str | int | None = None, serial: str = "") -> DiskState:
        """A blank one, with a serial number of its own, where the lost one was; one that lives is lost first."""
        async with self._core.changing():
            old = await self._lose(which)
            stand_in = msgspec.structs.replace(old.stand_in, serial=serial, wwn="")
            wanted = old.size if size is None else disk_bytes(size)
            state = self._core.state
            host, disk = new_disk(state.host(self.name), wanted, stand_in, lab=state.id, name=old.name)
            self._core.save(state.with_host(host))
            await self._appear(disk)
        return disk

    async def reap(self) -> None:
        """Nobody else waits for those that the end of the host has ended."""
        for process in self._spawned:
            await process.wait(10.0)
        self._spawned.clear()

    async def _appear(self, disk: DiskState) -> None:
        disks.make_disk(self.directory, disk)
        await self._core.refresh(self.name)

    async def _lose(self, which: int | str) -> DiskState:
        state = self._core.state
        disk = state.host(self.name).disk(which)
        if not disk.lost:
            disk = msgspec.structs.replace(disk, lost=True)
            self._core.save(state.with_host(state.host(self.name).with_disk(disk)))
        # Also after an earlier try that ended before this.
        await self._core.refresh(self.name)
        disks.remove_disk(self.directory, disk)
        return disk

    async def _set_cut(self, cut: bool) -> None:
        async with self._core.changing() as state:
            host = msgspec.structs.replace(state.host(self.name), cut=cut)
            self._core.save(state.with_host(host))
            if self._core.keeper(HUB) is not None and self.up:
                await network.set_cable(await self._core.in_hub(), host, up=not cut)


def disk_bytes(size: str | int) -> int:
    found = Amount.of(size).bytes
    if found < LEAST_DISK:
        raise LabError(f"cannot make a disk of {size}: the least is 1Mi")
    return found
