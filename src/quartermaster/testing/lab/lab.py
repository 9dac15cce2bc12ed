"""A lab: some virtual hosts on a network of their own, made quickly and taken away without a trace."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from quartermaster.host import procfs
from quartermaster.host.devices.roots import StandIn
from quartermaster.host.mounts import HostMounts
from quartermaster.host.targets import unprotect
from quartermaster.support import entropy
from quartermaster.support.errors import HostError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.lab import disks, network
from quartermaster.testing.lab.core import LabCore, Progress, silent
from quartermaster.testing.lab.host import VirtualHost, disk_bytes
from quartermaster.testing.lab.plans import HOSTS_FILE, write_hosts_file
from quartermaster.testing.lab.processes import end_keepers
from quartermaster.testing.lab.state import (
    HOSTS,
    STATE_FILE,
    HostState,
    LabError,
    LabState,
    Owner,
    new_disk,
    new_host,
    read_state,
    refuse_directory,
    refuse_name,
    write_state,
)


class Lab:
    """Made by `create`, or found by `open`. Leaving an `async with` block destroys it."""

    def __init__(self, core: LabCore) -> None:
        self._core = core
        self._hosts: dict[str, VirtualHost] = {}

    @classmethod
    async def create(
        cls,
        directory: Path | str,
        *,
        hosts: int = 3,
        disks: int = 2,
        disk_size: str | int = "2Gi",
        name: str = "lab",
        keep: bool = False,
        subnet: str = "",
        progress: Progress = silent,
    ) -> Self:
        """Returns when all hosts are up. Unless it is to be kept, it ends with this process, however that ends."""
        refuse_unprivileged("make virtual hosts")
        refuse_name(name, "lab")
        state = LabState(entropy.name_suffix(8), name, subnet, Owner() if keep else _this_process())
        for _ in range(hosts):
            state, host = new_host(state, "")
            state = state.with_host(_with_disks(state.id, host, disks, disk_bytes(disk_size)))
        lab = cls(LabCore(_empty_directory(Path(directory)), state))
        write_state(lab.directory, state)
        progress("the plan is written down")
        try:
            async with lab._core.changing():
                await lab._boot_all(progress)
        except BaseException:
            await lab.destroy()
            raise
        return lab

    @classmethod
    def open(cls, directory: Path | str) -> Self:
        """A lab that somebody has made, whether that succeeded or not."""
        directory = Path(directory).resolve()
        return cls(LabCore(directory, read_state(directory)))

    @property
    def name(self) -> str:
        return self._core.state.name

    @property
    def directory(self) -> Path:
        return self._core.directory

    @property
    def subnet(self) -> str:
        return self._core.state.subnet

    @property
    def machine_address(self) -> str:
        """This machine's own address in the lab."""
        return self._core.state.machine_address

    @property
    def hosts(self) -> tuple[VirtualHost, ...]:
        """In the order in which they were made."""
        return tuple(self.host(host.name) for host in self._core.state.hosts)

    def host(self, name: str) -> VirtualHost:
        self._core.state.host(name)
        return self._hosts.setdefault(name, VirtualHost(self._core, name))

    async def add_host(self, name: str = "", *, disks: int = 2, disk_size: str | int = "2Gi") -> VirtualHost:
        async with self._core.changing() as state:
            grown, host = new_host(state, name)
            self._core.save(grown.with_host(_with_disks(state.id, host, disks, disk_bytes(disk_size))))
            write_hosts_file(self._core.state, self.directory)
            await self._core.boot(host.name)
        return self.host(host.name)

    async def remove_host(self, host: VirtualHost) -> None:
        """For good, with its disks."""
        async with self._core.changing() as state:
            state.host(host.name)
            await self._core.end(host.name)
            await host.reap()
            _remove_tree(host.directory)
            self._core.save(state.without_host(host.name))
            write_hosts_file(self._core.state, self.directory)
        self._hosts.pop(host.name, None)

    async def boot(self, progress: Progress = silent) -> None:
        """All hosts up, for example after a start of the machine."""
        refuse_unprivileged("start virtual hosts")
        async with self._core.changing():
            await self._boot_all(progress)

    async def destroy(self) -> None:
        """Nothing is left: no process, mount, disk, namespace, interface or file. It may be repeated."""
        refuse_unprivileged("take away virtual hosts")
        if not (self.directory / STATE_FILE).exists():
            return
        async with self._core.changing() as state:
            await end_keepers(state.id)
            for host in self._hosts.values():
                await host.reap()
            await network.remove_machine_cable(self._core.commands, state)
            await disks.release(self._core.commands, HostMounts(self._core.commands), self.directory)
            _remove_tree(self.directory / HOSTS)
            for file in (HOSTS_FILE, STATE_FILE):
                (self.directory / file).unlink(missing_ok=True)
        for left in (self.directory / "locks", self.directory):
            with suppress(OSError):
                left.rmdir()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.destroy()

    async def _boot_all(self, progress: Progress) -> None:
        await self._core.in_hub(progress)
        write_hosts_file(self._core.state, self.directory)

        async def boot(name: str) -> None:
            await self._core.boot(name)
            progress(f"{name} is up")

        async with TaskGroup() as group:
            for host in self._core.state.hosts:
                group.start(boot(host.name))


def refuse_unprivileged(verb: str) -> None:
    if os.geteuid() != 0:
        raise HostError(f"cannot {verb}: that needs root", hint="run it with sudo, or as root in a virtual machine")


def _empty_directory(directory: Path) -> Path:
    directory = directory.resolve()
    refuse_directory(directory)
    directory.mkdir(parents=True, exist_ok=True)
    entries = [entry.name for entry in directory.iterdir() if entry.name != "locks"]
    if entries:
        cause = "there is one already" if STATE_FILE in entries else "it is not empty"
        raise LabError(
            f"cannot make a lab in {directory}: {cause}", hint="choose another directory, or destroy it first"
        )
    return directory


def _this_process() -> Owner:
    stat = procfs.process_stat(os.getpid())
    return Owner(os.getpid(), stat.started if stat is not None else 0)


def _with_disks(lab: str, host: HostState, count: int, size: int) -> HostState:
    for _ in range(count):
        host, _disk = new_disk(host, size, StandIn(model="lab disk"), lab=lab)
    return host


def _remove_tree(directory: Path) -> None:
    """What is mounted below it is somebody's data, and was to be unmounted before."""
    inside = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for target in inside:
        if Path(target).is_relative_to(directory):
            raise LabError(f"cannot remove {directory}: {target} is mounted", hint=f"unmount {target}")
    if directory.exists():
        shutil.rmtree(directory, onerror=_unprotect_and_retry)


def _unprotect_and_retry(remove: Callable[[str], object], path: str, _: object) -> None:
    """Targets of mounts on the hosts are protected from being written to, and so from being removed."""
    unprotect(Path(path))
    remove(path)
