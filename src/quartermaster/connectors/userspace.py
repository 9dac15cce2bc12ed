"""Block devices without the kernel's help: a program opens the volume and shows it as a file, and a loop device makes
the file a block device again.

A kernel may have no SCSI or NBD at all. qemu-storage-daemon speaks these protocols itself, and all that it needs of the
kernel is FUSE. It has to live as long as the device does, and so longer than whoever asks for it: it is a daemon of
this host (see `quartermaster.host.daemons`), known again by its process and the time at which that was started.

Two volume ids that mean one place share one daemon and one device: two would each have a cache of their own.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Found, Route, Settings
from quartermaster.connectors.errors import (
    AuthenticationError,
    ConnectorError,
    IdentityMismatchError,
    NotAnsweringError,
    NotAppearingError,
    UnreachableError,
)
from quartermaster.connectors.identity import require_identity, same_identity
from quartermaster.connectors.loops import attach_loop, loops, note_loops, noted_loops
from quartermaster.connectors.names import digest_of
from quartermaster.connectors.secret import Secret
from quartermaster.connectors.usage import refuse_if_used
from quartermaster.host.commands import Command
from quartermaster.host.daemons import Daemon, DaemonRuntime, choose_runtime
from quartermaster.host.events import Changes
from quartermaster.host.mountinfo import mounted_at
from quartermaster.host.tools import Tool, register
from quartermaster.support.errors import CommandError, DeadlineError
from quartermaster.support.redaction import HIDDEN

register(
    Tool("qemu-storage-daemon", "qemu-system-common", "opens volumes without the kernel's clients"),
    Tool("blockdev", "util-linux", "writes back what a device still has in memory"),
)

SECRET = "secret"  # noqa: S105 - what the object with the secret is called in the daemon
_NODE = "volume"
_DAEMONS = "daemons"
_GONE_S = 10.0
_LOOK_S = 5.0
_NOWHERE = "/"  # the file behind a loop device whose file system is gone
# What a device has in memory is written back before its daemon is stopped. One that hangs in a login hears no signal.
_STOP_S = 3.0
_SAYS_NOTHING = ("", "Exiting.")  # the last words of nbd-client
_REFUSED = ("authentication", "not permitted", "permission denied")
_UNREACHABLE = (
    *("connection refused", "no route to host", "network is unreachable", "timed out", "failed to connect to socket"),
    "can not reconnect",  # libiscsi, of a portal that refuses the connection
    "failed to connect to '",  # qemu, of a socket that is not there
    *("could not resolve", "name or service not known", "failed to resolve"),
)


class ExportedPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place that this route can serve."""

    read_only: bool = False


D = TypeVar("D", bound=msgspec.Struct)
P = TypeVar("P", bound=ExportedPlace)
T = TypeVar("T")


class Export(msgspec.Struct, frozen=True):
    """Where on this host a place is shown as a file, and by whom."""

    directory: Path
    key: str
    read_only: bool

    @property
    def thing(self) -> str:
        return f"export {self.key}"

    @property
    def daemon(self) -> str:
        return f"connector-{self.key}"

    @property
    def file(self) -> Path:
        return self.directory / "volume"

    @property
    def pid_file(self) -> Path:
        return self.directory / "pid"

    @property
    def secret_file(self) -> Path:
        return self.directory / "secret"


class Source(msgspec.Struct, frozen=True):
    """What the daemon opens: a driver of qemu's with its options, which hold no secret but may name SECRET."""

    name: str  # in sentences
    options: Mapping[str, Any]
    secret: Secret = Secret()
    encoded: bool = False  # the secret is bytes, written in base64


Tell = Callable[[Context, D | None, P], Awaitable[str]]
"""What a volume says it is: with its data when it is attached, and without them at every later look. Empty where nobody
can tell, which is then known by the file that shows it alone."""


class UserspaceDriver(msgspec.Struct, Generic[D, P], frozen=True):
    """A driver of this route: all that is its own is what the data mean, and what the daemon is to open."""

    route: Route
    place_of: Callable[[D], P]
    sources: Callable[[Context, D, P], Sequence[Source]]
    uri_of: Callable[[D], str]
    tell: Tell[D, P] | None = None

    def identify(self, data: D, settings: Settings) -> P:  # noqa: ARG002
        return self.place_of(data)

    async def attach(self, context: Context, data: D, place: P) -> Found:
        sources = self.sources(context, data, place)
        # Before anything is opened: what is not this volume is left alone.
        told = await self.tell(context, data, place) if self.tell is not None else ""
        require_identity(context.volume_id, sources[0].name, expected=context.identity, found=told)
        found = await attach_export(context, self._export(context, place), sources)
        return msgspec.structs.replace(found, identity=told) if told else found

    async def find(self, context: Context, place: P) -> Found | None:
        found = await find_export(context, self._export(context, place))
        told = await self.tell(context, None, place) if self.tell is not None and found is not None else ""
        return msgspec.structs.replace(found, identity=told) if found is not None and told else found

    async def away(self, context: Context, place: P) -> str:
        """By a block of the file that shows the volume, past all caches: a read of that one can be given up."""
        file = self._export(context, place).file
        block = ("bs=4096", "count=1", "iflag=direct", "status=none")
        argv = ("dd", f"if={file}", "of=/dev/null", *block)
        command = Command(argv, verb=f"read {file}", timeout_s=min(_LOOK_S, context.left_s() / 2), changes=False)
        try:
            await context.commands.run(command)
        except DeadlineError:
            return "its storage system does not answer"
        except CommandError as error:
            return f"it cannot be read: {error.message.rpartition(': ')[2]}"
        return ""

    async def detach(self, context: Context, place: P, *, force: bool) -> None:
        lost = force and bool(context.identity) and await self._is_another(context, place)
        await detach_export(context, self._export(context, place), force=force, lost=lost)

    async def extend(self, context: Context, place: P) -> None:  # noqa: ARG002
        refuse_growth(context.volume_id)

    def uri(self, data: D) -> str:
        return self.uri_of(data)

    async def _is_another(self, context: Context, place: P) -> bool:
        try:
            told = await self.tell(context, None, place) if self.tell is not None else ""
        except IdentityMismatchError:
            return True
        return bool(told and context.identity) and not same_identity(told, context.identity)

    def _export(self, context: Context, place: P) -> Export:
        return export_of(context, self.route.driver_type, place)


def export_of(context: Context, type: str, place: ExportedPlace) -> Export:
    # Whoever does not name what the volume is means the same one, and so does who names its portals in another order.
    known = {key: _in_one_order(value) for key, value in msgspec.to_builtins(place).items() if key != "wwid"}
    key = digest_of(f"{type} {msgspec.json.encode(known, order='sorted').decode()}")
    # The directory as the kernel writes it: a look at the file itself may hang while the storage system is away.
    return Export(Path(os.path.realpath(context.directory)) / "userspace" / key, key, place.read_only)


def _in_one_order(value: Any) -> Any:
    return sorted(value, key=repr) if isinstance(value, list | tuple) else value


async def attach_export(context: Context, export: Export, sources: Sequence[Source]) -> Found:
    """The volume by the first of its sources that can be reached."""

    async def present() -> bool:
        return await _runs(context, export) and bool(_device(context, export))

    async with context.joining(export.thing, present=present) as joined:
        if not joined.present:
            await _open_first(context, export, sources)
            # Through the page cache: with direct I/O on the daemon's file, mkfs on an iSCSI LUN wrote a file system
            # that fsck and mount refuse (qemu 7.2, tgt 1.0.85).
            await attach_loop(context, str(export.file), read_only=export.read_only)
    device = _device(context, export)
    if not device:
        raise ConnectorError(f"cannot use {export.file}: its block device went away again")
    if device not in noted_loops(context):
        note_loops(context, [device])
    return Found(device=device, identity=f"loop:{export.file}")


async def find_export(context: Context, export: Export) -> Found | None:
    device = _device(context, export)
    if not context.uses(export.thing) or not device or not await _runs(context, export):
        return None
    return Found(device=device, identity=f"loop:{export.file}")


async def detach_export(context: Context, export: Export, *, force: bool, lost: bool = False) -> None:
    """What the device still has in memory is not for a volume that is `lost`: another has taken its place."""
    async with context.leaving(export.thing) as leaving:
        # Whoever made it: it lies in the library's own directory.
        if leaving.last:
            if lost:
                await runtime_of(context).stop(export.daemon)
            await _take_away(context, export, force=force)


def runtime_of(context: Context) -> DaemonRuntime:
    return choose_runtime(context.commands, context.directory / _DAEMONS)


async def _open_first(context: Context, export: Export, sources: Sequence[Source]) -> None:
    for place, source in enumerate(sources):
        # What a daemon that died has left would be in the way, and its device leads nowhere.
        await _take_away(context, export, force=True)
        if _device(context, export):
            raise ConnectorError(
                f"cannot open {source.name}: the device {_device(context, export)} of a daemon that died is still used",
                hint="unmount it and stop what uses it first",
            )
        try:
            await _open(context, export, source, most_s=context.left_s() / (len(sources) - place))
        except UnreachableError:
            if source is sources[-1]:
                raise
        else:
            return


async def _open(context: Context, export: Export, source: Source, *, most_s: float) -> None:
    daemons = runtime_of(context)

    async def ready() -> bool | None:
        # It is written when everything that the command line asks for is there.
        if context.files.exists(export.pid_file):
            return True
        if not (await daemons.status(export.daemon)).running:
            raise failure_of(source.name, await daemons.logs(export.daemon, lines=5), secret=source.secret)
        return None

    context.files.make_directory(export.directory)
    context.files.write(export.file, b"")
    try:
        if source.secret:
            context.files.write(export.secret_file, source.secret.reveal().encode())
        async with context.watch(export.directory) as changes:
            await daemons.ensure(Daemon(export.daemon, _argv(export, source), stop_timeout_s=_STOP_S))
            await answered(context, ready, changes, name=source.name, most_s=most_s)
    finally:
        context.files.remove(export.secret_file)
    if not _is_mounted(context, export):
        raise ConnectorError(
            f"cannot open {source.name}: the daemon's file {export.file} is not seen here",
            hint="the daemon must run in the same mount namespace; look whether this host has /dev/fuse",
        )


async def answered(
    context: Context, ready: Callable[[], Awaitable[T | None]], changes: Changes, *, name: str, most_s: float = 0.0
) -> T:
    """What `ready` finds when the daemon has opened the volume. All that one which runs waits for is its server."""
    try:
        return await context.until(ready, changes, what=f"a daemon to open {name}", most_s=most_s)
    except NotAppearingError as error:
        raise NotAnsweringError(
            f"cannot open {name}: the storage system did not answer in time",
            hint="look whether it runs, whether its address is right, and whether a firewall is between",
        ) from error


async def _take_away(context: Context, export: Export, *, force: bool) -> None:
    """From the device to the daemon, so that everything that was written can still pass."""
    daemons = runtime_of(context)
    device = _device(context, export)
    if device and not force:
        refuse_if_used(context.volume_id, device, context.roots, verb="disconnect")
        if await _runs(context, export):
            flush = Command(("blockdev", "--flushbufs", device), verb=f"write back what {device} has in memory")
            await context.commands.run(flush)
    if device:
        await _detach_device(context, export, device, wait=not force)
    await daemons.stop(export.daemon)
    if _is_mounted(context, export):
        # Of a daemon that was killed.
        await context.mounts.unmount(str(export.file), lazy=True)
    for file in (export.secret_file, export.pid_file, export.file, log_of(context, export.daemon)):
        context.files.remove(file)
    if context.files.exists(export.directory):
        context.files.remove_directory(export.directory)


async def _detach_device(context: Context, export: Export, device: str, *, wait: bool) -> None:
    async def gone() -> bool | None:
        return True if _device(context, export) != device else None

    async with context.watch(context.roots.dev) as changes:
        await context.commands.run(Command(("losetup", "--detach", device), verb=f"detach {device}"))
        if wait:
            await context.until(gone, changes, what=f"{device} to go away", most_s=_GONE_S)


def _argv(export: Export, source: Source) -> tuple[str, ...]:
    node = {"node-name": _NODE, "read-only": export.read_only, "discard": "unmap", **source.options}
    shown = {
        "type": "fuse",
        "id": "export",
        "node-name": _NODE,
        "mountpoint": str(export.file),
        "writable": not export.read_only,
        "allow-other": "off",
    }
    secret = {"qom-type": "secret", "id": SECRET, "file": str(export.secret_file)}
    if source.encoded:
        secret["format"] = "base64"
    return (
        "qemu-storage-daemon",
        *(("--object", _json(secret)) if source.secret else ()),
        *("--blockdev", _json(node), "--export", _json(shown), "--pidfile", str(export.pid_file)),
    )


def failure_of(name: str, text: str, *, secret: Secret) -> ConnectorError:
    """What the last words of a daemon mean that could not open the volume."""
    lines = [line.strip() for line in text.splitlines() if line.strip() not in _SAYS_NOTHING]
    cause = lines[-1].removeprefix("qemu-storage-daemon: ") if lines else "the daemon ended without a word"
    if secret:
        cause = cause.replace(secret.reveal(), HIDDEN)
    _, option, behind = cause.partition("}: ")
    cause = behind if option else cause
    message = f"cannot open {name}: {cause}"
    lowered = cause.lower()
    if any(words in lowered for words in _REFUSED):
        return AuthenticationError(message, hint="look whether the user and its secret are right")
    if any(words in lowered for words in _UNREACHABLE):
        return UnreachableError(message, hint="look whether the storage system runs and its address is right")
    return ConnectorError(message, hint="look whether the storage system has the volume under this name")


def refuse_growth(volume_id: str) -> None:
    """The daemon has asked for the size once, and nobody can make it ask again."""
    raise ConnectorError(
        f"cannot extend the volume {volume_id}: its client has read the size when it was connected",
        hint="disconnect it and connect it again; its new size is there then",
    )


async def _runs(context: Context, export: Export) -> bool:
    return (await runtime_of(context).status(export.daemon)).running


def _device(context: Context, export: Export) -> str:
    """By the daemon's file; by the note once that is gone, for a daemon that ends takes its file away."""
    backings = dict(loops(context))
    shown = [device for device, backing in backings.items() if backing == str(export.file)]
    return next(iter(shown or [device for device in noted_loops(context) if backings.get(device) == _NOWHERE]), "")


def _is_mounted(context: Context, export: Export) -> bool:
    return mounted_at(context.mounts.table(), str(export.file)) is not None


def log_of(context: Context, daemon: str) -> Path:
    """Of a detached daemon; systemd keeps those of its units itself."""
    return context.directory / _DAEMONS / "logs" / f"{daemon}.log"


def _json(value: Mapping[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
