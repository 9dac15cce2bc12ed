"""What is on this host already: a block device, a directory, or a file that becomes a device by a loop device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Foreign, Found, Route, Settings
from quartermaster.connectors.errors import ConnectorError
from quartermaster.connectors.identity import device_directory, read_identity
from quartermaster.connectors.loops import attach_loop, detach_loop, find_loop, grow_loop, loops
from quartermaster.connectors.model import DriverType


class LocalConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    device_path: str
    access_mode: str = "rw"
    volume_id: str = ""


class LocalPlace(msgspec.Struct, frozen=True):
    path: str
    read_only: bool = False

    @property
    def thing(self) -> str:
        return f"local {self.path}"


class LocalDriver:
    route = Route(
        DriverType.LOCAL, LocalConnectionData, LocalPlace, aliases={"directory": "device_path", "path": "device_path"}
    )

    def identify(self, data: LocalConnectionData, settings: Settings) -> LocalPlace:  # noqa: ARG002
        return LocalPlace(os.path.normpath(data.device_path), read_only=data.access_mode == "ro")

    async def attach(self, context: Context, data: LocalConnectionData, place: LocalPlace) -> Found:  # noqa: ARG002
        async def present() -> bool:
            return _here(context, place) is not None

        if not context.files.exists(Path(place.path)):
            raise ConnectorError(
                f"cannot find {place.path}: there is nothing of that name on this host",
                hint="name a device, a directory or a file that is here",
            )
        async with context.joining(place.thing, present=present) as joined:
            if not joined.present:
                await attach_loop(context, _real(place), read_only=place.read_only)
        found = _here(context, place)
        if found is None:
            raise ConnectorError(f"cannot use {place.path}: it went away again")
        return found

    async def find(self, context: Context, place: LocalPlace) -> Found | None:
        return _here(context, place) if context.uses(place.thing) else None

    async def detach(self, context: Context, place: LocalPlace, *, force: bool) -> None:
        async with context.leaving(place.thing) as leaving:
            if leaving.last and leaving.ours is not False and not _is_device(context, place):
                await detach_loop(context, place.path, force=force)

    async def extend(self, context: Context, place: LocalPlace) -> None:
        if not _is_device(context, place) and find_loop(context, place.path):
            await grow_loop(context, place.path)

    async def foreign(self, context: Context) -> Sequence[Foreign]:
        return [Foreign(self.route.driver_type, "device", backing, device) for device, backing in loops(context)]


def _here(context: Context, place: LocalPlace) -> Found | None:
    real = _real(place)
    if _is_device(context, place):
        return Found(device=real, identity=read_identity(real, context.roots, context.files))
    if os.path.isdir(real):
        return Found(path=place.path)
    device = find_loop(context, real)
    return Found(device=device, identity=f"loop:{real}") if device else None


def _real(place: LocalPlace) -> str:
    return os.path.realpath(place.path)


def _is_device(context: Context, place: LocalPlace) -> bool:
    return device_directory(place.path, context.roots).is_dir()


DRIVER = LocalDriver()
