"""Everything that may be done to one host, in one hand: what an agent is given, real or modelled."""

from __future__ import annotations

from pathlib import Path

import msgspec

from quartermaster.host.commands import Commands, HostCommands
from quartermaster.host.daemons import DaemonRuntime, choose_runtime
from quartermaster.host.devices import Devices, HostDevices
from quartermaster.host.directories import Directories, HostDirectories
from quartermaster.host.events import DeviceEvents, HostEvents
from quartermaster.host.formatting import Formatting, HostFormatting
from quartermaster.host.locks import FileLocks, Locks
from quartermaster.host.mounts import HostMounts, Mounts
from quartermaster.host.programs import HostPrograms, Programs


class Host(msgspec.Struct, frozen=True):
    commands: Commands
    mounts: Mounts
    devices: Devices
    events: DeviceEvents
    formatting: Formatting
    daemons: DaemonRuntime
    locks: Locks
    directories: Directories = msgspec.field(default_factory=lambda: HostDirectories(HostCommands()))
    programs: Programs = msgspec.field(default_factory=HostPrograms)


def open_host(directory: Path, *, device_root: Path | None = None) -> Host:
    """This host. `directory` keeps the records of daemons and the locks; a virtual host has a `device_root`."""
    commands = HostCommands()
    mounts = HostMounts(commands)
    devices = HostDevices(commands, mounts, device_root=device_root)
    return Host(
        commands=commands,
        mounts=mounts,
        devices=devices,
        events=HostEvents(),
        formatting=HostFormatting(commands, devices),
        daemons=choose_runtime(commands, directory / "daemons"),
        locks=FileLocks(directory / "locks"),
        directories=HostDirectories(commands),
    )
