"""SCSI disks of this host, whoever brought them here: where they are, what they are, how they come and go.

A disk is known by its address (host, channel, target, LUN), and an address proves nothing: a LUN may be given to
another volume while the kernel keeps the disk that it found there first. So a disk is asked what it is, over the wire,
before it is used and before it is deleted. One that has changed under the kernel is never handed out, and never
flushed: what is in its buffers belongs to the volume that it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.errors import IdentityMismatchError, NotAppearingError, UnreachableError
from quartermaster.connectors.identity import parse_page_83, read_identity, require_identity, same_identity
from quartermaster.host.commands import Command
from quartermaster.host.events import wait_until
from quartermaster.host.tools import Tool, register
from quartermaster.support.errors import CommandError, DeadlineError, QuartermasterError
from quartermaster.support.log import logger
from quartermaster.support.tasks import TaskGroup

register(
    Tool("sg_vpd", "sg3-utils", "asks a SCSI disk what it is"),
    Tool("blockdev", "util-linux", "flushes a disk before it is taken away"),
)

log = logger("connectors")

_ASK_S = 10.0
_GONE_S = 20.0
_NO_SUCH_PAGE = (5, 83)  # sg_vpd's codes for a disk that refuses the request, and for one whose list has no such page
_FIRST_WAIT_S = 2.0
_LONGEST_WAIT_S = 16.0
_FOR_OTHERS_S = 5.0  # how long the paths that are here wait for the ones that are not
_FLAT = 0x4000
NO_LUN = -1


class Scan(msgspec.Struct, frozen=True):
    """What to look for at a host adapter; "-" stands for all."""

    host: int
    channel: str
    target: str
    lun: str


class Told(msgspec.Struct, frozen=True):
    """What a disk says it is now, and what it was when the kernel found it. Empty: it does not say."""

    now: str
    first: str

    @property
    def changed(self) -> bool:
        return bool(self.now and self.first) and not same_identity(self.now, self.first)

    @property
    def name(self) -> str:
        return self.now or self.first


def first_lun(lun: int, luns: Sequence[int]) -> int:
    """The one that is meant where the data do not name one for each way to the volume."""
    return lun if lun != NO_LUN or not luns else luns[0]


def require_luns(lun: int, luns: Sequence[int]) -> None:
    """ValueError without one. Nobody means LUN 0 by saying nothing, and there may be another volume."""
    if lun == NO_LUN:
        raise ValueError("is missing")
    if min((lun, *luns)) < 0:
        raise ValueError("is less than 0")


def addressed_lun(lun: int, mode: str) -> int:
    """The number that the kernel uses for a LUN, in the addressing mode that a storage system asks for."""
    return lun + _FLAT if mode == "SAM3-flat" or (mode == "SAM2" and lun >= 256) else lun


def node(context: Context, disk: str) -> str:
    return str(context.roots.dev / disk)


def disk_at(context: Context, address: str, *, ready: bool = True) -> str:
    """The kernel's name of the disk at an address, once it has a node if it has to be `ready`; empty without one."""
    names = context.files.names(context.roots.sysfs / "class/scsi_device" / address / "device/block")
    return next((name for name in names if not ready or context.files.exists(context.roots.dev / name)), "")


def addresses(context: Context, host: int) -> list[str]:
    """Of every disk at a host adapter, with a node or without."""
    directory = context.roots.sysfs / "class/scsi_device"
    found = [name for name in context.files.names(directory) if name.partition(":")[0] == str(host)]
    return [name for name in found if context.files.names(directory / name / "device/block")]


def host_of(context: Context, disk: str) -> int:
    """The number of the adapter that a disk is at; -1 for what is no SCSI disk."""
    directory = context.roots.sysfs / "class/scsi_device"
    for address in context.files.names(directory):
        if context.files.exists(directory / address / "device/block" / disk):
            return int(address.partition(":")[0])
    return -1


async def appear(
    context: Context,
    look: Callable[[], Sequence[str]],
    scans: Callable[[], Sequence[Scan]],
    *,
    wanted: int,
    what: str,
    hint: str,
    before: Callable[[], Awaitable[None]] | None = None,
) -> list[str]:
    """The disks that `look` finds: all that are wanted, or at least one when the others are late.

    A storage system may not have finished when we look first, so it is looked for again, ever more rarely.
    """

    async def all_here() -> list[str] | None:
        here = list(look())
        return here if len(here) >= wanted else None

    async with context.watch(context.roots.dev) as changes:
        waited_s, wait_s = 0.0, _FIRST_WAIT_S
        while (here := await all_here()) is None:
            if before is not None:
                await before()
            try:
                await _scan_all(context, scans())
            except DeadlineError as error:
                if context.left_s() > 0:
                    raise
                raise _not_appearing(context, what, hint) from error
            wait_s = min(wait_s, context.left_s())
            here = await wait_until(all_here, changes, timeout_s=wait_s, poll_s=0.25)
            if here is not None:
                break
            waited_s, wait_s = waited_s + wait_s, min(wait_s * 2, _LONGEST_WAIT_S)
            here = list(look())
            if here and (waited_s >= _FOR_OTHERS_S or context.left_s() <= 0):
                log.warning("some paths are missing", volume=context.volume_id, here=len(here), wanted=wanted)
                break
            if context.left_s() <= 0:
                raise _not_appearing(context, what, hint)
    return here


def _not_appearing(context: Context, what: str, hint: str) -> NotAppearingError:
    return NotAppearingError(f"cannot find {what}: it did not appear within {context.timeout_s:.3g} s", hint=hint)


async def ask(context: Context, disk: str, *, strict: bool) -> Told:
    """What the disk says it is. One that does not answer is an error if `strict`, and else what it was."""
    directory = context.roots.sysfs / "class/block" / disk / "device"
    device = node(context, disk)
    first = parse_page_83(context.files.data(directory / "vpd_pg83"))
    state = context.files.text(directory / "state")
    if state not in ("", "running"):
        if strict:
            raise UnreachableError(
                f"cannot use {device}: the kernel says that it is {state}",
                hint="the storage system does not answer on this path",
            )
        return Told(now="", first=first)
    argv = ("sg_vpd", "--page=0x83", "--raw", device)
    command = Command(
        argv, verb=f"ask {device} what it is", timeout_s=_ASK_S, accept=(0, *_NO_SUCH_PAGE), changes=False
    )
    try:
        now = parse_page_83((await context.commands.run(command)).stdout)
    except (CommandError, DeadlineError):
        if strict:
            raise
        now = ""
    return Told(now=now or read_identity(device, context.roots, context.files), first=first)


def require_disk(context: Context, disk: str, told: Told, *, wwid: str) -> None:
    """IdentityMismatchError unless the disk is this volume and nothing else before."""
    device = node(context, disk)
    for expected in (wwid, context.identity):
        require_identity(context.volume_id, device, expected=expected, found=told.name)
    if told.changed:
        raise IdentityMismatchError(
            f"cannot use {device} as the volume {context.volume_id}: it was {told.first} when this host found it, "
            f"and it is {told.now} by now",
            expected=told.first,
            found=told.now,
            hint="disconnect the volume that it was by force, so that this host looks at the address anew",
        )


def is_ours(context: Context, told: Told, *, wwid: str) -> bool:
    """Whether a disk at the volume's address may be taken away: it was found as this volume, or as nothing else."""
    expected = wwid or context.identity
    first = told.first or told.now
    return same_identity(first, expected) if expected and first else not told.changed


async def remove_disk(context: Context, disk: str, *, force: bool, flush: bool) -> None:
    """Nothing where it is gone already. With `force` what cannot be flushed is given up."""
    directory = context.roots.sysfs / "class/block" / disk
    if not context.files.exists(directory):
        return
    if flush and context.files.exists(context.roots.dev / disk):
        await flush_buffers(context, disk, force=force)

    async def gone() -> bool | None:
        return None if context.files.exists(directory) else True

    async with context.watch(context.roots.dev) as changes:
        await context.write_attribute(directory / "device/delete", "1", verb=f"take {node(context, disk)} away")
        await context.until(gone, changes, what=f"{node(context, disk)} to go away", most_s=_GONE_S)


async def cut_off(context: Context, disk: str) -> None:
    """Nothing reaches the disk any more; whatever is still to be written to it fails."""
    path = context.roots.sysfs / "class/block" / disk / "device/state"
    if context.files.text(path) != "offline":
        # The kernel takes the word only as a whole line.
        await context.write_attribute(path, "offline\n", verb=f"cut {node(context, disk)} off")


async def flush_buffers(context: Context, disk: str, *, force: bool) -> None:
    device = node(context, disk)
    # A disk that does not answer must leave time to take it away.
    timeout_s = context.left_s() / 3 if force else context.left_s()
    command = Command(("blockdev", "--flushbufs", device), verb=f"flush {device}", timeout_s=timeout_s)
    try:
        await context.commands.run(command)
    except (CommandError, DeadlineError) as error:
        if not force:
            raise
        log.warning("given up without a flush", volume=context.volume_id, device=device, error=str(error))


async def make_read_only(context: Context, disk: str) -> None:
    device = node(context, disk)
    await context.commands.run(Command(("blockdev", "--setro", device), verb=f"make {device} read-only"))


async def rescan_disk(context: Context, disk: str) -> None:
    """The kernel asks the disk for its size again."""
    path = context.roots.sysfs / "class/block" / disk / "device/rescan"
    await context.write_attribute(path, "1", verb=f"look at the size of {node(context, disk)} again")


async def _scan_all(context: Context, scans: Sequence[Scan]) -> None:
    """At once: one path that does not answer holds no other up. It is an error only where none of them answers."""

    async def attempt(scan: Scan) -> QuartermasterError | None:
        path = context.roots.sysfs / f"class/scsi_host/host{scan.host}/scan"
        verb = f"look for LUN {scan.lun} at host{scan.host}"
        try:
            await context.write_attribute(path, f"{scan.channel} {scan.target} {scan.lun}", verb=verb)
        except QuartermasterError as error:
            return error
        return None

    async with TaskGroup() as group:
        tasks = [group.start(attempt(scan)) for scan in scans]
    failures = [error for task in tasks if (error := task.result()) is not None]
    if failures and len(failures) == len(tasks):
        raise failures[0]
