"""The mounts that this library has made of a volume.

A note says on which directories, and the host's own table which of them are still there: a note alone proves nothing,
for somebody may have unmounted it by hand. Mounts of a device that somebody else has made are seen by its number; a
directory may be bound by anybody, whom it is no concern of ours.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from quartermaster.connectors.context import Context
from quartermaster.connectors.errors import VolumeBusyError
from quartermaster.connectors.identity import device_directory
from quartermaster.connectors.luks import close_luks, luks_device
from quartermaster.connectors.records import MOUNT_NOTE, Record
from quartermaster.host.mountinfo import Mount, mounted_at
from quartermaster.host.mounts import canonical, refuse_other_bind
from quartermaster.support.errors import MountConflictError, QuartermasterError
from quartermaster.support.log import logger

log = logger("connectors")


def is_noted(context: Context, target: str) -> bool:
    return _mounted(target) in context.notes


def note_mount(context: Context, target: str, *, made: bool) -> None:
    """Before it is mounted; `made` where the directory has to be made too, and goes with the mount."""
    context.note(**{_mounted(target): "here", **({_made(target): "made"} if made else {})})


def forget_mount(context: Context, target: str) -> None:
    context.note(**{_mounted(target): "", _made(target): ""})


def is_made(context: Context, target: str) -> bool:
    return _made(target) in context.notes


def own_mounts(context: Context, record: Record) -> list[str]:
    """The directories on which we have mounted the volume, and it still is."""
    table = context.mounts.table()
    noted = [key.removeprefix(MOUNT_NOTE) for key in record.notes if key.startswith(MOUNT_NOTE)]
    found = [(target, mounted_at(table, canonical(table, target))) for target in noted]
    return [target for target, mount in found if mount is not None and belongs(context, record, table, mount)]


def refuse_if_bound(context: Context, record: Record) -> None:
    """A directory is on this host whether it is bound or not, so that nobody else would notice."""
    bound = own_mounts(context, record)
    if bound:
        where = ", ".join(f"mounted on {target}" for target in bound)
        raise VolumeBusyError(
            f"cannot disconnect the volume {record.volume_id}: {record.path} is in use: {where}",
            hint="unmount it first; nothing was changed",
        )


async def give_up_mounts(context: Context, targets: Sequence[str]) -> None:
    """Whoever has files open there keeps them for as long as he can read them; nobody else comes to them."""
    for target in targets:
        try:
            timeout_s = context.left_s() / 4
            await context.mounts.unmount(target, lazy=True, remove=is_made(context, target), timeout_s=timeout_s)
        except (QuartermasterError, OSError) as error:
            log.warning("a mount could not be given up", volume=context.volume_id, target=target, error=str(error))
    if luks_device(context):
        try:
            await close_luks(context, deferred=True)
        except QuartermasterError as error:
            log.warning("the container could not be closed", volume=context.volume_id, error=str(error))


def belongs(context: Context, record: Record, table: Sequence[Mount], mount: Mount) -> bool:
    if not record.device:
        return _is_bound(record, table, mount)
    devices = [device for device in (record.device, luks_device(context)) if device]
    numbers = [context.files.text(device_directory(device, context.roots) / "dev") for device in devices]
    if mount.number in numbers or os.path.realpath(mount.source) in [os.path.realpath(device) for device in devices]:
        return True
    # As that of a volume is that was connected anew: nobody else can have it mounted.
    return _is_gone(context, mount)


def _is_gone(context: Context, mount: Mount) -> bool:
    """Whether the kernel has no such device any more. A name that is not in /dev proves nothing: `/dev/root` never is,
    and a container has only some. btrfs and what has no device have numbers of their own, of which nothing is known.
    """
    known = context.files.names(context.roots.sysfs / "dev/block")
    return bool(known) and not mount.number.startswith("0:") and mount.number not in known


def _is_bound(record: Record, table: Sequence[Mount], mount: Mount) -> bool:
    """Of a volume that is a file or directory itself. What lies on a server is not looked at: it may be dead."""
    server = record.place.get("target")
    if server:
        base = mounted_at(table, canonical(table, server))
        return base is not None and base.number == mount.number
    try:
        refuse_other_bind(table, mount, record.path)
    except MountConflictError:
        return False
    return True


def _mounted(target: str) -> str:
    return f"{MOUNT_NOTE}{target}"


def _made(target: str) -> str:
    return f"directory {target}"
