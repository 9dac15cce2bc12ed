"""Devices of the kernel's NBD, each served by a program that stays for as long as the device does.

Such a device says nothing about what is behind it, but it says which process serves it. That process is a daemon of
this library (see `quartermaster.host.daemons`), so the device is known by the daemon and never by its number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from quartermaster.connectors import userspace
from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Found, Roots
from quartermaster.connectors.drivers.modules import kernel_has
from quartermaster.connectors.errors import ConnectorError
from quartermaster.connectors.files import Files
from quartermaster.connectors.names import digest_of
from quartermaster.connectors.secret import Secret
from quartermaster.connectors.usage import refuse_if_used
from quartermaster.host.commands import Command
from quartermaster.host.daemons import Daemon
from quartermaster.host.tools import Tool, register
from quartermaster.support.errors import CommandError, DeadlineError

register(Tool("modprobe", "kmod", "loads the kernel's NBD"))

_GONE_S = 20.0
_STOP_S = 3.0
_TAKEN = ("busy", "in use", "already")


class Serving(msgspec.Struct, frozen=True):
    """How a volume becomes an NBD device, and how it leaves it: both get the device's node."""

    key: str
    name: str  # in sentences
    argv: Callable[[str], tuple[str, ...]]
    leave: Callable[[str], tuple[str, ...]]
    secret: Secret = Secret()

    @property
    def thing(self) -> str:
        return f"nbd {self.key}"

    @property
    def daemon(self) -> str:
        return f"connector-{self.key}"


def key_of(type: str, client: str, place: msgspec.Struct) -> str:
    return digest_of(f"{type} {client} {msgspec.json.encode(place, order='sorted').decode()}")


def has_nbd(roots: Roots, files: Files) -> bool:
    return kernel_has("nbd", roots.sysfs / "class/block/nbd0", roots, files)


async def attach_nbd(context: Context, serving: Serving) -> Found:
    async def present() -> bool:
        return bool(await _device(context, serving))

    async with context.joining(serving.thing, present=present) as joined:
        if not joined.present:
            # What a daemon that died has left would be in the way.
            await _take_away(context, serving, force=True)
            await _serve(context, serving)
    found = await find_nbd(context, serving)
    if found is None:
        raise ConnectorError(f"cannot use {serving.name}: its block device went away again")
    return found


async def find_nbd(context: Context, serving: Serving) -> Found | None:
    device = await _device(context, serving) if context.uses(serving.thing) else ""
    return Found(device=device, identity=f"nbd:{serving.key}") if device else None


async def detach_nbd(context: Context, serving: Serving, *, force: bool) -> None:
    async with context.leaving(serving.thing) as leaving:
        # Whoever made it: the daemon is the library's own.
        if leaving.last:
            await _take_away(context, serving, force=force)


async def _serve(context: Context, serving: Serving) -> None:
    """By the first device that is free. Somebody else may take it at the same moment: then by the next."""
    if not _names(context):
        await context.commands.run(Command(("modprobe", "nbd"), verb="load the kernel's NBD"))
    for name in _names(context):
        if not _is_free(context, name):
            continue
        try:
            async with context.locks.hold(f"nbd device {name}", timeout_s=0.0):
                if _is_free(context, name) and await _start(context, serving, str(context.roots.dev / name)):
                    return
        except DeadlineError:
            # Another volume is on its way to this device; our own time is looked at by whoever waits.
            if context.left_s() <= 0:
                raise
    raise ConnectorError(
        f"cannot open {serving.name}: every NBD device of this host is in use",
        hint="load the module nbd with a larger nbds_max, or disconnect volumes",
    )


async def _start(context: Context, serving: Serving, device: str) -> bool:
    """False where the device was taken by somebody else."""
    daemons = userspace.runtime_of(context)

    async def ready() -> str | None:
        if await _device(context, serving):
            return device
        if (await daemons.status(serving.daemon)).running:
            return None
        return await daemons.logs(serving.daemon, lines=5) or "\n"

    async with context.watch(context.roots.dev) as changes:
        await daemons.ensure(Daemon(serving.daemon, serving.argv(device), stop_timeout_s=_STOP_S))
        said = await userspace.answered(context, ready, changes, name=serving.name)
    if said == device:
        return True
    await daemons.stop(serving.daemon)
    if any(words in said.lower() for words in _TAKEN):
        return False
    raise userspace.failure_of(serving.name, said, secret=serving.secret)


async def _take_away(context: Context, serving: Serving, *, force: bool) -> None:
    daemons = userspace.runtime_of(context)
    device = await _device(context, serving)
    if device:
        if not force:
            refuse_if_used(context.volume_id, device, context.roots, verb="disconnect")
        await _leave(context, serving, device, force=force)
    await daemons.stop(serving.daemon)
    context.files.remove(userspace.log_of(context, serving.daemon))


async def _leave(context: Context, serving: Serving, device: str, *, force: bool) -> None:
    async def gone() -> bool | None:
        return None if await _device(context, serving) else True

    flush = Command(("blockdev", "--flushbufs", device), verb=f"write back what {device} has in memory")
    leave = Command(serving.leave(device), verb=f"disconnect {device}")
    async with context.watch(context.roots.dev) as changes:
        for command in (flush, leave):
            try:
                await context.commands.run(command)
            except (CommandError, DeadlineError):
                # The end of the daemon is the end of the device as well.
                if not force:
                    raise
        if not force:
            await context.until(gone, changes, what=f"{device} to go away", most_s=_GONE_S)


async def _device(context: Context, serving: Serving) -> str:
    """The one that the daemon serves, once it has a size."""
    status = await userspace.runtime_of(context).status(serving.daemon)
    if not status.running:
        return ""
    for name in _names(context):
        directory = _directory(context) / name
        mine = context.files.text(directory / "pid") == str(status.pid)
        if mine and context.files.text(directory / "size") not in ("", "0"):
            return str(context.roots.dev / name)
    return ""


def _names(context: Context) -> list[str]:
    names = [name for name in context.files.names(_directory(context)) if re.fullmatch(r"nbd\d+", name)]
    return sorted(names, key=lambda name: int(name[3:]))


def _is_free(context: Context, name: str) -> bool:
    return not context.files.exists(_directory(context) / name / "pid")


def _directory(context: Context) -> Path:
    return context.roots.sysfs / "class/block"
