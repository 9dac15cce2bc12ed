"""A volume that is here as one or several SCSI disks: what iSCSI and Fibre Channel have in common.

The drivers say where the disks are and how they are made to appear; the rest is the same. A disk is a shared thing as a
session is: two volume ids may mean one LUN, and whoever runs this host may have found it before us. It goes with the
last volume that uses it; and a connect that fails leaves what it has met.
"""

from __future__ import annotations

from collections.abc import Sequence

from quartermaster.connectors.context import Context, Joined, Leaving
from quartermaster.connectors.driver import Found
from quartermaster.connectors.drivers.multipath import make_map, map_over, paths_of, remove_map, resize_map
from quartermaster.connectors.drivers.scsi import (
    ask,
    cut_off,
    is_ours,
    make_read_only,
    node,
    remove_disk,
    require_disk,
    rescan_disk,
)
from quartermaster.connectors.errors import AttachmentConflictError
from quartermaster.connectors.usage import refuse_if_used, users_of


def goes(context: Context, thing: str, leaving: Leaving) -> bool:
    """Whether a disk is taken away with this volume.

    A record that cannot be read does not keep it, as it does a session: what uses the disk is seen, and one that stays
    here after its volume was withdrawn is a danger of its own.
    """
    stays = leaving.shared or (context.takes_back and not leaving.ours)
    if stays:
        context.leave_here(thing)
    return not stays


async def use_disks(
    context: Context, disks: Sequence[str], *, wwid: str, multipath: bool, read_only: bool, met: Sequence[Joined]
) -> Found:
    """The device to use: the first disk, or the map over all of them. Each is asked what it is. `met` is how they were
    found."""
    told = {disk: await ask(context, disk, strict=True) for disk in (disks if multipath else disks[:1])}
    first = next(iter(told))
    if multipath:
        device = await make_map(context, told, wwid=wwid)
    else:
        require_disk(context, first, told[first], wwid=wwid)
        device = map_over(context, [first]) or first
    if read_only and context.files.text(context.roots.sysfs / "class/block" / device / "ro") != "1":
        _refuse_for_writers(context, device, met)
        await make_read_only(context, device)
    return Found(device=node(context, device), identity=told[first].name)


async def find_disks(
    context: Context, disks: Sequence[str], *, wwid: str, multipath: bool, claimed: bool
) -> Found | None:
    """None without the volume. Another volume at its address is an error only for one that has been attached."""
    device = map_over(context, disks)
    if not disks or (multipath and not device):
        return None
    told = await ask(context, disks[0], strict=False)
    if not claimed and not is_ours(context, told, wwid=wwid):
        return None
    require_disk(context, disks[0], told, wwid=wwid)
    return Found(device=node(context, device or disks[0]), identity=told.name)


def disks_away(context: Context, disks: Sequence[str]) -> str:
    """Why none of the paths leads to the volume now. The kernel marks a disk whose session or port is lost."""
    directory = context.roots.sysfs / "class/block"
    states = {disk: context.files.text(directory / disk / "device/state") for disk in disks}
    if not states or not {"running", ""}.isdisjoint(states.values()):
        return ""
    return f"the kernel says that {' and '.join(f'{disk} is {state}' for disk, state in states.items())}"


async def remove_disks(context: Context, disks: Sequence[str], *, wwid: str, force: bool) -> None:
    """The map first, then each path. A disk of another volume stays where it is, and so does a map with a path that is
    not taken away: it is somebody else's device too, and goes on without ours."""
    told = {disk: await ask(context, disk, strict=False) for disk in disks}
    ours = [disk for disk, says in told.items() if is_ours(context, says, wwid=wwid)]
    changed = [disk for disk in ours if told[disk].changed]
    if changed and not force:
        require_disk(context, changed[0], told[changed[0]], wwid=wwid)
    device = map_over(context, ours)
    if not force:
        for each in [device] if device else ours:
            refuse_if_used(context.volume_id, node(context, each), context.roots, verb="disconnect")
    for disk in changed:
        # Before anything is flushed: what the host still has in memory is not for the volume that is there now.
        await cut_off(context, disk)
    if not device or set(paths_of(context, device)) <= set(ours):
        await remove_map(context, ours, force=force)
    for disk in ours:
        await remove_disk(context, disk, force=force, flush=not device and disk not in changed)


async def grow_disks(context: Context, disks: Sequence[str]) -> None:
    for disk in disks:
        await rescan_disk(context, disk)
    device = map_over(context, disks)
    if device:
        await resize_map(context, device)


def _refuse_for_writers(context: Context, device: str, met: Sequence[Joined]) -> None:
    """A device that is to be read only, and that somebody uses already to write."""
    others = ["another volume is attached to it"] if any(each.shared for each in met) else []
    if any(each.present for each in met):
        others += users_of(node(context, device), context.roots)
    if others:
        raise AttachmentConflictError(
            f"cannot make {node(context, device)} read-only for the volume {context.volume_id}: {', '.join(others)}",
            hint="disconnect the other volume first, or connect this one to read and write",
        )
