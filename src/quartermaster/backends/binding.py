"""Handing out a directory of this host as a volume: bound to a target, or as it is where nothing can be mounted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from quartermaster.backends.unmounting import IsVolume, is_there, unmount_volume
from quartermaster.host import Host, MountState
from quartermaster.host.mountinfo import Mount, covering
from quartermaster.host.mounts import is_bind_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume
from quartermaster.support.errors import HostError, MountConflictError


async def bind_volume(machine: Host, volume: PersistentVolume, source: str, target: Path) -> Path:
    """The path to use: `target`, or without root the directory itself."""
    if not source or not await machine.directories.exists(source):
        raise HostError(
            f"cannot mount {volume.metadata.name}: {source or 'its directory'} is not on this host",
            hint="a volume of this class can be used on its own host only",
        )
    if os.geteuid() != 0:
        return Path(source)
    await _refuse_dead(machine, volume.metadata.name, source)
    await machine.mounts.bind(source, str(target))
    return target


async def _refuse_dead(machine: Host, name: str, source: str) -> None:
    """A disk that does not answer any more stays mounted all the same, and what was read of it is remembered."""
    below = covering(machine.mounts.table(), source)
    try:
        health = await machine.mounts.health(below.target) if below is not None else None
    except HostError:
        return  # in a container even root may not open the disk below: that says nothing of it
    if health is not None and health.state is not MountState.HEALTHY:
        raise HostError(
            f"cannot mount {name}: the file system that {source} is on is {health}",
            hint="`qm status` and `qm devices` show its disk; look at the kernel's log too",
        )


def is_bound(machine: Host, volume: PersistentVolume, source: str, target: Path) -> bool:
    return is_there(machine, target, _is_bind_of(volume.metadata.name, source))


async def unbind_volume(machine: Host, volume: PersistentVolume, source: str, target: Path) -> bool:
    name = volume.metadata.name
    return await unmount_volume(machine, name, target, _is_bind_of(name, source))


def _is_bind_of(name: str, source: str) -> IsVolume:
    def is_volume(table: Sequence[Mount], mount: Mount) -> bool:
        # So the kernel writes a directory that was removed since.
        root = mount.root.removesuffix("//deleted")
        if is_bind_of(table, replace(mount, root=root), source):
            return True
        if PurePosixPath(root).name == PurePosixPath(source).name:
            # Bound before its disk was unmounted, or was found again as another device. Or a copy that somebody made.
            raise MountConflictError(
                f"cannot tell whether {root} of {mount.source}, which is mounted on {mount.target}, is {name}:"
                f" {source} is on another file system by now",
                hint=f"look what it is; after `umount {mount.target}` the same command goes on; nothing was changed",
            )
        return False

    return is_volume
