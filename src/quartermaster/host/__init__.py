"""The only room that touches the machine: commands, devices, mounts, formatting, daemons, locks, facts.

Each part is a Protocol with one implementation for real hosts here and a twin in `quartermaster.host.fake`. It knows
nothing of stores and resources, so that the attach library can stand on it alone. Each name is imported when it is
used: a program that attaches a volume needs neither daemons nor formatting.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quartermaster.host.commands import Command, Commands, HostCommands, Result, Retry, inside
    from quartermaster.host.daemons import Daemon, DaemonRuntime, DaemonState, DaemonStatus
    from quartermaster.host.devices import Device, Devices, HostDevices, Surroundings, Verdict, judge
    from quartermaster.host.directories import Directories, HostDirectories, Space
    from quartermaster.host.events import Change, Changes, DeviceEvents, HostEvents, wait_until
    from quartermaster.host.facts import Facts, gather_facts
    from quartermaster.host.formatting import FileSystem, Format, Formatting, HostFormatting
    from quartermaster.host.locks import FileLocks, Locks
    from quartermaster.host.machine import Host, open_host
    from quartermaster.host.mounts import HostMounts, MountHealth, Mounts, MountState, Propagation
    from quartermaster.host.tools import Tool, register

_PLACES = {
    "Change": "events",
    "Changes": "events",
    "Command": "commands",
    "Commands": "commands",
    "Daemon": "daemons",
    "DaemonRuntime": "daemons",
    "DaemonState": "daemons",
    "DaemonStatus": "daemons",
    "Device": "devices",
    "DeviceEvents": "events",
    "Devices": "devices",
    "Directories": "directories",
    "Facts": "facts",
    "FileLocks": "locks",
    "FileSystem": "formatting",
    "Format": "formatting",
    "Formatting": "formatting",
    "Host": "machine",
    "HostCommands": "commands",
    "HostDevices": "devices",
    "HostDirectories": "directories",
    "HostEvents": "events",
    "HostFormatting": "formatting",
    "HostMounts": "mounts",
    "Locks": "locks",
    "MountHealth": "mounts",
    "MountState": "mounts",
    "Mounts": "mounts",
    "Propagation": "mounts",
    "Result": "commands",
    "Retry": "commands",
    "Space": "directories",
    "Surroundings": "devices",
    "Tool": "tools",
    "Verdict": "devices",
    "gather_facts": "facts",
    "inside": "commands",
    "judge": "devices",
    "open_host": "machine",
    "register": "tools",
    "wait_until": "events",
}

__all__ = [
    "Change",
    "Changes",
    "Command",
    "Commands",
    "Daemon",
    "DaemonRuntime",
    "DaemonState",
    "DaemonStatus",
    "Device",
    "DeviceEvents",
    "Devices",
    "Directories",
    "Facts",
    "FileLocks",
    "FileSystem",
    "Format",
    "Formatting",
    "Host",
    "HostCommands",
    "HostDevices",
    "HostDirectories",
    "HostEvents",
    "HostFormatting",
    "HostMounts",
    "Locks",
    "MountHealth",
    "MountState",
    "Mounts",
    "Propagation",
    "Result",
    "Retry",
    "Space",
    "Surroundings",
    "Tool",
    "Verdict",
    "gather_facts",
    "inside",
    "judge",
    "open_host",
    "register",
    "wait_until",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
