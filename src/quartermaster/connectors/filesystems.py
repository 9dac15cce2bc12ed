"""A file system on an attached volume: found as it is, or made where there is nothing, and never over anything else.

A device is blank only when neither blkid nor wipefs finds something, and its ends are zero (see `making`). What we make
carries a UUID that follows from the volume, and a label that says "begun" until it is complete: one that was
interrupted is recognised and begun anew, since nobody was ever given it. Whatever else is on a device stays there.
"""

from __future__ import annotations

import uuid

from quartermaster.connectors.making import Making
from quartermaster.connectors.names import digest_of
from quartermaster.host.commands import Command, Commands
from quartermaster.host.devices.judging import LABEL_PREFIX
from quartermaster.host.devices.model import PARTITION_TABLE, Signature
from quartermaster.host.devices.signatures import everything_found
from quartermaster.host.formatting import BEGUN_LABEL, LEAST_SIZE, FileSystem, Format, labelling
from quartermaster.host.formatting import making as making_of
from quartermaster.host.tools import Tool, register
from quartermaster.support.errors import CommandError, DeadlineError, DeviceRefusedError, HostError, InvalidError

register(
    Tool("fsck.ext4", "e2fsprogs", "looks at ext4 before it is mounted"),
    Tool("resize2fs", "e2fsprogs", "grows ext4"),
    Tool("xfs_growfs", "xfsprogs", "grows XFS"),
)

LUKS = "crypto_LUKS"
_MAKING_S = 600.0
_CHECK_S = 600.0
_MENDED = 1  # of fsck: what was wrong is right now
_NAMESPACE = uuid.UUID("5b0f5d0e-3c0e-4f0a-9a53-7f1f5f1f2f3a")


def identity_on(volume_id: str) -> tuple[str, str]:
    """The UUID and the label of what we make on a volume."""
    return str(uuid.uuid5(_NAMESPACE, volume_id)), f"{LABEL_PREFIX}{digest_of(volume_id)[:8]}"


def known_file_system(name: str) -> FileSystem:
    try:
        return FileSystem(name)
    except ValueError:
        raise InvalidError(
            f'cannot make the file system "{name}"', hint=f"it is one of {', '.join(FileSystem)}"
        ) from None


async def prepare_file_system(
    commands: Commands, device: str, *, volume_id: str, wanted: str, read_only: bool, idle: bool, making: Making
) -> str:
    """The type of the file system on the device, made if there is nothing, and looked at if nobody uses it yet."""
    found = await everything_found(commands, device)
    if not found or is_begun(found, volume_id):
        chosen = wanted or FileSystem.EXT4
        await _make(commands, device, found, volume_id=volume_id, wanted=chosen, read_only=read_only, making=making)
        return chosen
    making.end()
    _refuse_other(device, found, wanted)
    if found[0].type == FileSystem.EXT4 and idle and not read_only:
        await _check(commands, device)
    return found[0].type


def is_begun(found: tuple[Signature, ...], volume_id: str) -> bool:
    own, _ = identity_on(volume_id)
    return len(found) == 1 and found[0].uuid == own and found[0].label == BEGUN_LABEL


def refuse_blank(device: str) -> None:
    raise DeviceRefusedError(
        f"cannot mount {device}: there is nothing on it, and it may only be read",
        code="Blank",
        hint="mount it once to read and write, so that a file system can be made",
    )


async def remove_beginning(commands: Commands, device: str) -> None:
    await _change(commands, ("wipefs", "--all", "--quiet", device), f"remove an interrupted beginning from {device}")


async def grow_file_system(commands: Commands, device: str, target: str, type: str) -> None:
    """While it is mounted."""
    match type:
        case FileSystem.EXT4:
            argv: tuple[str, ...] = ("resize2fs", device)
        case FileSystem.XFS:
            argv = ("xfs_growfs", target)
        case FileSystem.BTRFS:
            argv = ("btrfs", "filesystem", "resize", "max", target)
        case _:
            raise HostError(
                f"cannot grow {type} on {target}: only {', '.join(FileSystem)} can be",
                hint="the device itself has grown",
            )
    try:
        await _change(commands, argv, f"grow the file system on {target}")
    except CommandError as error:
        if "Permission denied" in error.stderr:
            error.hint = "it takes CAP_SYS_RESOURCE, which a container may not have; the device itself has grown"
        raise


async def _make(
    commands: Commands,
    device: str,
    found: tuple[Signature, ...],
    *,
    volume_id: str,
    wanted: str,
    read_only: bool,
    making: Making,
) -> None:
    own, label = identity_on(volume_id)
    made = Format(known_file_system(wanted), own, label)
    if read_only:
        refuse_blank(device)
    if not found:
        await making.require_room(device)
    if found:
        async with making.writing(device):
            await remove_beginning(commands, device)
    async with making.writing(device):
        try:
            await _change(commands, making_of(made, device), f"make {wanted} on {device}")
        except CommandError as error:
            raise _explained(error, made.file_system, size=making.size_of(device)) from error
    # From here on the label of a beginning says it.
    making.end()
    await _change(commands, labelling(made, device), f"label {device}")


def _explained(error: CommandError, wanted: FileSystem, *, size: int) -> CommandError:
    """With all that the program says, in one line: its last words alone are seldom the reason."""
    if isinstance(error, DeadlineError):
        return error
    least = LEAST_SIZE[wanted]
    hint = "mend what it says, and mount the volume again; nobody was given what was begun"
    if size < least:
        hint = f"the volume has {size >> 20} MiB and {wanted} needs about {least >> 20}: extend it, or choose another"
    begin, ended = error.message.split(": ")[:2]
    said = "; ".join(line.strip() for line in error.stderr.splitlines())
    message = f"{begin}: {ended}: {said}" if said else error.message
    return CommandError(message, hint=hint, argv=error.argv, exit_code=error.exit_code, stderr=error.stderr)


def _refuse_other(device: str, found: tuple[Signature, ...], wanted: str) -> None:
    names = " and ".join(signature.type for signature in found)
    if found[0].type == LUKS:
        cause, hint = "it is encrypted", "give the key"
    elif any(signature.usage == PARTITION_TABLE for signature in found):
        cause, hint = f"it has a partition table ({names})", "mount one of its partitions yourself"
    elif len(found) > 1 or found[0].usage != "filesystem":
        cause, hint = f"it holds {names}", "look what it is; nothing was changed"
    elif wanted and found[0].type != wanted:
        cause, hint = f"it holds {names} and not {wanted}", f"ask for {names}; nothing was changed"
    else:
        return
    raise DeviceRefusedError(f"cannot mount {device}: {cause}", code="ForeignData", hint=hint)


async def _check(commands: Commands, device: str) -> None:
    """What can be mended without a question is. XFS and btrfs do so when they are mounted."""
    argv = ("fsck.ext4", "-p", device)
    await commands.run(Command(argv, verb=f"check {device}", timeout_s=_CHECK_S, accept=(0, _MENDED)))


async def _change(commands: Commands, argv: tuple[str, ...], verb: str) -> None:
    await commands.run(Command(argv, verb=verb, timeout_s=_MAKING_S))
