"""Daemons that outlive whoever starts them."""

import os
from pathlib import Path

from quartermaster.host.commands import Commands
from quartermaster.host.daemons.base import Daemon, DaemonRuntime, DaemonState, DaemonStatus
from quartermaster.host.daemons.detached import DetachedDaemons
from quartermaster.host.daemons.systemd import SystemdDaemons, systemd_is_running

__all__ = [
    "Daemon",
    "DaemonRuntime",
    "DaemonState",
    "DaemonStatus",
    "DetachedDaemons",
    "SystemdDaemons",
    "choose_runtime",
    "systemd_is_running",
]


def choose_runtime(commands: Commands, directory: Path) -> DaemonRuntime:
    """What this host has: systemd, or else processes of their own, with their records in the directory.

    Units are for root to make; whoever else brings up a host has processes of their own.
    """
    if systemd_is_running() and os.geteuid() == 0:
        return SystemdDaemons(commands)
    return DetachedDaemons(commands, directory)
