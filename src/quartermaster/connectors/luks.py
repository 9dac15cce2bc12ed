"""Encrypted volumes: a LUKS container on the device, opened by a key that goes in by standard input and nowhere else.

A container is made only where there is nothing, and is complete when its label says so (see `filesystems`).
"""

from __future__ import annotations

from pathlib import Path

from quartermaster.connectors.context import Context
from quartermaster.connectors.drivers.modules import kernel_has
from quartermaster.connectors.errors import AuthenticationError, ConnectorError, IdentityMismatchError
from quartermaster.connectors.filesystems import LUKS, identity_on, is_begun, refuse_blank, remove_beginning
from quartermaster.connectors.identity import kernel_name
from quartermaster.connectors.making import Making
from quartermaster.connectors.names import digest_of
from quartermaster.connectors.secret import Secret
from quartermaster.host.commands import Command
from quartermaster.host.devices.signatures import everything_found
from quartermaster.host.formatting import BEGUN_LABEL
from quartermaster.host.tools import Tool, register
from quartermaster.support.errors import CommandError, DeviceRefusedError

register(Tool("cryptsetup", "cryptsetup-bin", "opens encrypted volumes"))

_TIMEOUT_S = 120.0  # deriving the key is slow on purpose
_WRONG_KEY = 2
_ABSENT = 4


def luks_name(volume_id: str) -> str:
    return f"quartermaster-{digest_of(volume_id)}"


def luks_device(context: Context) -> str:
    """The opened container of the volume; empty where it is not open."""
    node = _plain(context)
    return node if context.files.exists(Path(node)) else ""


def _plain(context: Context) -> str:
    return str(context.roots.dev / "mapper" / luks_name(context.volume_id))


async def open_luks(context: Context, device: str, key: Secret, *, read_only: bool, making: Making) -> str:
    """The device in which the plain data are."""
    context.hide(key.reveal())
    opened = luks_device(context)
    if opened:
        _require_over(context, opened, device)
        return opened
    found = await everything_found(context.commands, device)
    if not found or is_begun(found, context.volume_id):
        if read_only:
            refuse_blank(device)
        if not found:
            await making.require_room(device)
        _require_mapper(context, device)
        if found:
            async with making.writing(device):
                await remove_beginning(context.commands, device)
        async with making.writing(device):
            await _make(context, device, key)
        # What is in a new container is noise until it is written. That is noted before the container is complete.
        making.begin(_plain(context))
        await _complete(context, device)
    elif len(found) > 1 or found[0].type != LUKS:
        names = " and ".join(signature.type for signature in found)
        raise DeviceRefusedError(
            f"cannot encrypt {device}: it holds {names}",
            code="ForeignData",
            hint="mount it without a key; nothing was changed",
        )
    elif found[0].uuid != identity_on(context.volume_id)[0]:
        making.end()
    # Without the kernel's keyring, a container can be resized by somebody who does not have the key.
    flags = ["--disable-keyring", *(["--readonly"] if read_only else [])]
    argv = ("cryptsetup", "open", "--type", "luks", "--key-file", "-", *flags, device, luks_name(context.volume_id))
    await _run(context, *argv, verb=f"open the encrypted {device}", key=key)
    return _plain(context)


async def close_luks(context: Context, *, deferred: bool = False) -> bool:
    """False where it was not open. One that is `deferred` closes with its last user."""
    if not luks_device(context):
        return False
    argv = ("cryptsetup", "close", *(["--deferred"] if deferred else []), luks_name(context.volume_id))
    command = Command(argv, verb=f"close {luks_device(context)}", accept=(0, _ABSENT))
    await context.commands.run(command)
    return True


async def grow_luks(context: Context) -> None:
    if luks_device(context):
        await _run(context, "cryptsetup", "resize", luks_name(context.volume_id), verb="grow the encrypted volume")


async def _make(context: Context, device: str, key: Secret) -> None:
    own, _ = identity_on(context.volume_id)
    words = ("--batch-mode", "--type", "luks2", "--uuid", own, "--label", BEGUN_LABEL, "--key-file", "-")
    await _run(context, "cryptsetup", "luksFormat", *words, device, verb=f"encrypt {device}", key=key)


async def _complete(context: Context, device: str) -> None:
    _, label = identity_on(context.volume_id)
    await _run(context, "cryptsetup", "config", "--label", label, device, verb=f"label {device}")


async def _run(context: Context, *argv: str, verb: str, key: Secret | None = None) -> None:
    stdin = key.reveal().encode(errors="surrogateescape") if key is not None else b""
    try:
        await context.commands.run(Command(argv, verb=verb, stdin=stdin, timeout_s=_TIMEOUT_S))
    except CommandError as error:
        if error.exit_code != _WRONG_KEY or key is None:
            if "still in use" in error.stderr or "device-mapper" in error.stderr:
                error.hint = "look whether this kernel has the device mapper (`modprobe dm-crypt`)"
            raise
        raise AuthenticationError(
            f"cannot {verb}: the key does not fit", hint="look whether it is the volume's"
        ) from error


def _require_mapper(context: Context, device: str) -> None:
    """Before anything is written: without it there is a container that this host cannot open."""
    sign = context.roots.sysfs / "class/misc/device-mapper"
    if not kernel_has("dm-mod", sign, context.roots, context.files):
        raise ConnectorError(
            f"cannot encrypt {device}: this kernel has no device mapper, which opens encrypted volumes",
            hint="load it (`modprobe dm-crypt`), or mount the volume without a key; nothing was changed",
        )


def _require_over(context: Context, opened: str, device: str) -> None:
    """The container of that name may be left from an earlier attachment, over a device that is another by now."""
    directory = context.roots.sysfs / "class/block" / kernel_name(opened, context.roots) / "slaves"
    below = context.files.names(directory)
    wanted = kernel_name(device, context.roots)
    if below and wanted not in below:
        raise IdentityMismatchError(
            f"cannot use {opened} for the volume {context.volume_id}: it lies on {', '.join(below)}, not on {wanted}",
            expected=wanted,
            found=", ".join(below),
            hint=f"close it first: cryptsetup close {luks_name(context.volume_id)}",
        )
