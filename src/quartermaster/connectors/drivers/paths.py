"""A volume that is here as one or several SCSI disks: what iSCSI and Fibre Channel have in common.

The drivers say where the disks are and how they are made to appear; the rest is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Found
from quartermaster.connectors.drivers.multipath import make_map, map_over, remove_map, resize_map
from quartermaster.connectors.drivers.scsi import (
    ask,
    is_ours,
    make_read_only,
    node,
    remove_disk,
    require_disk,
    rescan_disk,
)


async def use_disks(context: Context, disks: Sequence[str], *, wwid: str, multipath: bool, read_only: bool) -> Found:
    """The device to use: the first disk, or the map over all of them. Each is asked what it is."""
    told = {disk: await ask(context, disk, strict=True) for disk in (disks if multipath else disks[:1])}
    first = next(iter(told))
    if multipath:
        device = await make_map(context, told, wwid=wwid)
    else:
        require_disk(context, first, told[first], wwid=wwid)
        device = map_over(context, [first]) or first
    if read_only:
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


async def remove_disks(context: Context, disks: Sequence[str], *, wwid: str, force: bool) -> None:
    """The map first, then each path. A disk of another volume stays where it is."""
    told = {disk: await ask(context, disk, strict=False) for disk in disks}
    ours = [disk for disk, says in told.items() if is_ours(context, says, wwid=wwid)]
    changed = [disk for disk in ours if told[disk].changed]
    if changed and not force:
        require_disk(context, changed[0], told[changed[0]], wwid=wwid)
    mapped = bool(map_over(context, ours))
    await remove_map(context, ours, force=force)
    for disk in ours:
        await remove_disk(context, disk, force=force, flush=not mapped and disk not in changed)


async def grow_disks(context: Context, disks: Sequence[str]) -> None:
    for disk in disks:
        await rescan_disk(context, disk)
    device = map_over(context, disks)
    if device:
        await resize_map(context, device)
