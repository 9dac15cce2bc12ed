"""Handing out a directory of this host as a volume: bound to a target, or as it is where nothing can be mounted."""

from __future__ import annotations

import os
from pathlib import Path

from quartermaster.host import Host
from quartermaster.resources.kubernetes.volumes import PersistentVolume
from quartermaster.support.errors import HostError


async def bind_volume(machine: Host, volume: PersistentVolume, source: str, target: Path) -> Path:
    """The path to use: `target`, or without root the directory itself."""
    if not source or not await machine.directories.exists(source):
        raise HostError(
            f"cannot mount {volume.metadata.name}: {source or 'its directory'} is not on this host",
            hint="a volume of this class can be used on its own host only",
        )
    if os.geteuid() != 0:
        return Path(source)
    await machine.mounts.bind(source, str(target))
    return target


async def unbind_volume(machine: Host, target: Path) -> None:
    await machine.mounts.unmount(str(target), remove=True)
