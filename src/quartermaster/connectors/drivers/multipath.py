"""Several paths to one volume as one device. The paths are made one device only if they are the same volume.

The map belongs to multipathd: we tell it that the volume is to have one, hand it the paths, and wait. A map without a
path left may hold every writer until one comes back, so queueing is switched off before a map is taken away.
"""

from __future__ import annotations

from collections.abc import Sequence

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Foreign
from quartermaster.connectors.drivers.scsi import Told, flush_buffers, host_of, node, require_disk
from quartermaster.connectors.errors import IdentityMismatchError, NotAppearingError
from quartermaster.host.commands import Command
from quartermaster.host.events import wait_until
from quartermaster.host.tools import Tool, register
from quartermaster.support.errors import CommandError, DeadlineError

register(
    Tool("multipath", "multipath-tools", "takes a multipath device away"),
    Tool("multipathd", "multipath-tools", "makes several paths one device"),
    Tool("dmsetup", "dmsetup", "switches the queueing of a multipath device off"),
)

_GONE_S = 20.0
_AGAIN_S = 2.0
_ADDED = "multipath_wwid"
_PREFIX = "mpath-"


def map_over(context: Context, disks: Sequence[str]) -> str:
    """dm-0, where a multipath device is built on one of the disks and has a node; empty without one."""
    for disk in disks:
        for holder in context.files.names(context.roots.sysfs / "class/block" / disk / "holders"):
            if _uuid(context, holder).startswith(_PREFIX) and context.files.exists(context.roots.dev / holder):
                return holder
    return ""


def foreign_maps(context: Context, driver: str, hosts: Sequence[int]) -> list[Foreign]:
    """Every map with a path at one of these adapters."""
    found = []
    names = context.files.names(context.roots.sysfs / "class/block")
    for device in [name for name in names if _uuid(context, name).startswith(_PREFIX)]:
        if any(host_of(context, disk) in hosts for disk in paths_of(context, device)):
            name = context.files.text(context.roots.sysfs / "class/block" / device / "dm/name")
            found.append(Foreign(driver, "map", name, node(context, device)))
    return found


def paths_of(context: Context, device: str) -> list[str]:
    """The disks that a map is built on, whoever brought them here."""
    return context.files.names(context.roots.sysfs / "class/block" / device / "slaves")


async def make_map(context: Context, told: dict[str, Told], *, wwid: str) -> str:
    """The multipath device over the disks, which all say that they are the same volume."""
    _require_agreement(context, told, wwid=wwid)
    disks = tuple(told)
    loose = [disk for disk in disks if not map_over(context, [disk])]
    async with context.watch(context.roots.dev) as changes:
        if loose and len(loose) == len(disks) and not _is_known(context, told[disks[0]].name):
            # It is taken out of multipath's list again if it was not there before us.
            context.note(**{_ADDED: "added"})
            await _run(context, "multipath", "-a", node(context, disks[0]), verb="make the volume a multipath device")

        async def made() -> str | None:
            maps = [map_over(context, [disk]) for disk in disks]
            return maps[0] if all(maps) and len(dict.fromkeys(maps)) == 1 else None

        while True:
            refused = await _hand_over(context, [disk for disk in disks if not map_over(context, [disk])])
            device = await wait_until(made, changes, timeout_s=min(_AGAIN_S, context.left_s()), poll_s=0.25)
            if device is not None:
                return device
            if context.left_s() <= 0:
                raise NotAppearingError(
                    f"cannot wait for a multipath device over {', '.join(disks)}: "
                    f"{refused or 'multipathd has made none'}",
                    hint="look at what multipathd says: its configuration may exclude the storage system",
                )


async def _hand_over(context: Context, disks: Sequence[str]) -> str:
    """What multipathd has against them. It refuses a disk that udev has not looked at yet, so it is asked again."""
    refused = ""
    for disk in disks:
        try:
            await _run(context, "multipathd", "add", "path", disk, verb=f"hand {disk} to multipathd")
        except (CommandError, DeadlineError) as error:
            refused = str(error)
    return refused


async def remove_map(context: Context, disks: Sequence[str], *, force: bool) -> None:
    """The paths stay. Nothing where there is no map."""
    device = map_over(context, disks)
    if device:
        name = context.files.text(context.roots.sysfs / "class/block" / device / "dm/name")
        await _quietly(context, force, "dmsetup", "message", name, "0", "fail_if_no_path", verb=f"stop queueing {name}")
        await flush_buffers(context, device, force=force)

        async def gone() -> bool | None:
            return None if context.files.exists(context.roots.sysfs / "class/block" / device) else True

        async with context.watch(context.roots.dev) as changes:
            if not await _quietly(context, force, "multipath", "-f", name, verb=f"take {name} away"):
                await _run(context, "dmsetup", "remove", "--force", name, verb=f"take {name} away by force")
            await context.until(gone, changes, what=f"{name} to go away", most_s=_GONE_S)
    if context.notes.get(_ADDED):
        if disks:
            await _run(context, "multipath", "-w", node(context, disks[0]), verb="take it out of multipath's list")
        context.note(**{_ADDED: ""})


async def resize_map(context: Context, device: str) -> None:
    name = context.files.text(context.roots.sysfs / "class/block" / device / "dm/name")
    await _run(context, "multipathd", "resize", "map", name, verb=f"resize {name}")


def _require_agreement(context: Context, told: dict[str, Told], *, wwid: str) -> None:
    first = next(iter(told))
    for disk, says in told.items():
        require_disk(context, disk, says, wwid=wwid or told[first].name)
        sizes = [context.files.text(context.roots.sysfs / "class/block" / each / "size") for each in (first, disk)]
        if sizes[0] != sizes[1]:
            raise IdentityMismatchError(
                f"cannot make {first} and {disk} one device for the volume {context.volume_id}: "
                f"they have {sizes[0]} and {sizes[1]} sectors",
                expected=f"{sizes[0]} sectors",
                found=f"{sizes[1]} sectors",
                hint="the storage system exports different volumes on its ports, or is resizing this one",
            )


def _is_known(context: Context, identity: str) -> bool:
    """multipath keeps what it has to handle as /3600…/, one per line."""
    wanted = f"/3{identity.removeprefix('naa.')}/"
    return wanted in context.files.text(context.roots.etc / "multipath/wwids").splitlines()


def _uuid(context: Context, device: str) -> str:
    return context.files.text(context.roots.sysfs / "class/block" / device / "dm/uuid")


async def _run(context: Context, *argv: str, verb: str) -> None:
    await context.commands.run(Command(argv, verb=verb))


async def _quietly(context: Context, force: bool, *argv: str, verb: str) -> bool:
    try:
        await _run(context, *argv, verb=verb)
    except (CommandError, DeadlineError):
        if not force:
            raise
        return False
    return True
