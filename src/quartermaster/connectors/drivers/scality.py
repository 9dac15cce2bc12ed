"""Scality: one file system of the whole ring, described by a file on this host, and volumes as files in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Foreign, Found, Route, Settings
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.mounting import (
    MountPlace,
    find_mount,
    foreign_mounts,
    is_corrupted,
    join_mount,
    leave_mount,
    mount_away,
    target_of,
)
from quartermaster.host.tools import Tool, register

register(Tool("mount.sofs", "scality-sfused, of the storage system", "mounts Scality's file system"))

_TYPE = "sofs"
_SHOWN_AS = ("sofs", "fuse.sofs", "fuse.sfused", "fuse")
_SPREAD = "00"  # under every export the ring spreads its files over numbered directories


class ScalityConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`export` and `name`, or the path of the volume as older storage drivers gave it."""

    export: str = ""
    name: str = ""
    sofs_path: str = ""
    sofs_config: str = "/etc/sfused.conf"
    mount_point_base: str = ""
    volume_id: str = ""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        parts = {"export": self.export, "name": self.name, "sofsPath": self.sofs_path}
        for key, text in parts.items():
            if not text and key != "sofsPath" and not self.sofs_path:
                wrong.add(key, "is missing", "give it, or sofsPath", unless=["sofsPath"])
            if ".." in PurePosixPath(text).parts:
                wrong.add(key, "leads out of the file system", "name it without ..")
        wrong.tell()


class ScalityDriver:
    route = Route(
        DriverType.SCALITY,
        ScalityConnectionData,
        MountPlace,
        aliases={"scality_mount_point_base": "mount_point_base", "scality_sofs_config": "sofs_config"},
    )

    def identify(self, data: ScalityConnectionData, settings: Settings) -> MountPlace:
        base = Path(data.mount_point_base) if data.mount_point_base else settings.mount_directory
        target = target_of(base, _TYPE, data.sofs_config, ())
        file = data.sofs_path.strip("/") or f"{data.export.strip('/')}/{_SPREAD}/{data.name.strip('/')}"
        return MountPlace(data.sofs_config, target, _SHOWN_AS, name=PurePosixPath(file).name, file=file)

    async def attach(self, context: Context, data: ScalityConnectionData, place: MountPlace) -> Found:  # noqa: ARG002
        async def mount() -> None:
            await context.mounts.mount(place.source, place.target, type=_TYPE)

        return await join_mount(context, place, mount)

    async def find(self, context: Context, place: MountPlace) -> Found | None:
        return find_mount(context, place)

    async def broken(self, context: Context, place: MountPlace) -> bool:
        return await is_corrupted(context, place)

    async def away(self, context: Context, place: MountPlace) -> str:
        return await mount_away(context, place)

    async def detach(self, context: Context, place: MountPlace, *, force: bool) -> None:
        await leave_mount(context, place, force=force)

    async def foreign(self, context: Context) -> Sequence[Foreign]:
        return foreign_mounts(context, self.route.driver_type, _SHOWN_AS[:-1])


DRIVER = ScalityDriver()
