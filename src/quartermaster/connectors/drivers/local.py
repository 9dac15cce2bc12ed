"""What is on this host already: a block device, a directory, or a file that becomes a device by a loop device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Foreign, Found, Route, Settings
from quartermaster.connectors.errors import AttachmentConflictError, ConnectorError, VolumeBusyError
from quartermaster.connectors.identity import device_directory, read_identity
from quartermaster.connectors.loops import (
    attach_loop,
    detach_loop,
    find_loop,
    grow_loop,
    is_leaving,
    is_read_only,
    loops,
    note_loops,
    noted_loops,
)
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import AccessMode, DriverType
from quartermaster.connectors.usage import refuse_if_used


class LocalConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    device_path: str
    access_mode: AccessMode = AccessMode.READ_WRITE
    volume_id: str = ""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        if not self.device_path.startswith("/"):
            wrong.add("devicePath", f'"{self.device_path}" does not begin with /', "name it by its whole path")
        wrong.tell()


class LocalPlace(msgspec.Struct, frozen=True):
    path: str
    read_only: bool = False

    @property
    def thing(self) -> str:
        return f"local {self.path}"

    @property
    def reading(self) -> str:
        """The loop device over a device that may only be read. Whoever writes to the device does without."""
        return f"{self.thing} to be read"


class LocalDriver:
    route = Route(
        DriverType.LOCAL, LocalConnectionData, LocalPlace, aliases={"directory": "device_path", "path": "device_path"}
    )

    def identify(self, data: LocalConnectionData, settings: Settings) -> LocalPlace:  # noqa: ARG002
        return LocalPlace(os.path.normpath(data.device_path), read_only=data.access_mode is AccessMode.READ)

    async def attach(self, context: Context, data: LocalConnectionData, place: LocalPlace) -> Found:  # noqa: ARG002
        async def present() -> bool:
            return _here(context, place) is not None

        if not context.files.exists(Path(place.path)):
            raise ConnectorError(
                f"cannot find {place.path}: there is nothing of that name on this host",
                hint="name a device, a directory or a file that is here",
            )
        _refuse_empty_loop(context, place)
        thing = _thing(context, place)
        known = context.uses(thing)
        # Of a file that has been replaced since. What was noted before a boot is not here any more.
        earlier = noted_loops(context) if known else []
        async with context.joining(thing, present=present) as joined:
            if joined.present:
                _refuse_other_loop(context, place)
                if not known and not joined.shared:
                    _refuse_if_taken(context, place)
            else:
                await attach_loop(context, _real(place), read_only=place.read_only)
            if joined.ours and _has_loop(context, place):
                note_loops(context, [*earlier, find_loop(context, place.path)])
        found = _here(context, place)
        if found is None:
            raise ConnectorError(f"cannot use {place.path}: it went away again")
        return found

    async def find(self, context: Context, place: LocalPlace) -> Found | None:
        return _here(context, place) if context.uses(_thing(context, place)) else None

    async def detach(self, context: Context, place: LocalPlace, *, force: bool) -> None:
        async with context.leaving(_thing(context, place)) as leaving:
            if leaving.last and leaving.ours is not False and _has_loop(context, place):
                await detach_loop(context, place.path, force=force)

    async def extend(self, context: Context, place: LocalPlace) -> None:
        if _has_loop(context, place) and find_loop(context, place.path):
            await grow_loop(context, place.path)

    async def foreign(self, context: Context) -> Sequence[Foreign]:
        return [Foreign(self.route.driver_type, "device", backing, device) for device, backing in loops(context)]


def _here(context: Context, place: LocalPlace) -> Found | None:
    real = _real(place)
    if os.path.isdir(real):
        return Found(path=place.path)
    device = find_loop(context, real) if _has_loop(context, place) else real
    if not _is_device(context, place):
        return Found(device=device, identity=f"loop:{real}") if device else None
    identity = read_identity(real, context.roots, context.files)
    # A loop device without a file is a number and nothing else.
    return Found(device=device, identity=identity) if device and (identity or not _is_loop(real)) else None


def _thing(context: Context, place: LocalPlace) -> str:
    """What is shared by those who name this path; of a device that is gone, what was."""
    if not place.read_only or context.uses(place.thing):
        return place.thing
    return place.reading if context.uses(place.reading) or _is_device(context, place) else place.thing


def _has_loop(context: Context, place: LocalPlace) -> bool:
    """A file has one, and a device that may only be read: who opens that cannot write, whatever the device allows."""
    return place.read_only or not _is_device(context, place)


def _refuse_empty_loop(context: Context, place: LocalPlace) -> None:
    real = _real(place)
    if _is_device(context, place) and _is_loop(real) and not read_identity(real, context.roots, context.files):
        raise ConnectorError(
            f"cannot use {place.path}: it is a loop device without a file", hint="losetup gives it one"
        )


def _refuse_other_loop(context: Context, place: LocalPlace) -> None:
    """There is one device over it, which may be another volume's too."""
    if not _has_loop(context, place):
        return
    device = find_loop(context, place.path)
    if device and is_leaving(context, device):
        raise VolumeBusyError(
            f"cannot connect {place.path}: its device {device} was taken away by force and is still in use",
            hint="unmount it and stop what uses it first",
        )
    if device and is_read_only(context, device) != place.read_only:
        how = "to be read" if is_read_only(context, device) else "to be written"
        raise AttachmentConflictError(
            f"cannot connect {place.path}: it is {device} already, {how}",
            hint="disconnect that one first, or connect it with the same accessMode",
        )


def _refuse_if_taken(context: Context, place: LocalPlace) -> None:
    """A device that somebody else has mounted is no volume to hand out: whoever gets it may write beneath the mount.
    What is to be read does no harm."""
    device = find_loop(context, place.path) if _has_loop(context, place) else _real(place)
    if device and not place.read_only and not os.path.isdir(_real(place)):
        refuse_if_used(context.volume_id, device, context.roots, verb="connect")


def _is_loop(device: str) -> bool:
    return os.path.basename(device).startswith("loop")


def _real(place: LocalPlace) -> str:
    return os.path.realpath(place.path)


def _is_device(context: Context, place: LocalPlace) -> bool:
    return device_directory(place.path, context.roots).is_dir()


DRIVER = LocalDriver()
