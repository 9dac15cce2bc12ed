"""GPFS: the file system is mounted on every host of its cluster, and a volume is a file in it. Nothing is changed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Found, Route, Settings
from quartermaster.connectors.errors import ConnectorError
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import DriverType


class GpfsConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    device_path: str
    volume_id: str = ""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        if not self.device_path.startswith("/"):
            wrong.add("devicePath", f'"{self.device_path}" does not begin with /', "name it by its whole path")
        wrong.tell()


class GpfsPlace(msgspec.Struct, frozen=True):
    path: str

    @property
    def thing(self) -> str:
        return f"file {self.path}"


class GpfsDriver:
    route = Route(DriverType.GPFS, GpfsConnectionData, GpfsPlace)

    def identify(self, data: GpfsConnectionData, settings: Settings) -> GpfsPlace:  # noqa: ARG002
        return GpfsPlace(data.device_path)

    async def attach(self, context: Context, data: GpfsConnectionData, place: GpfsPlace) -> Found:  # noqa: ARG002
        async def present() -> bool:
            return context.files.exists(Path(place.path))

        async with context.joining(place.thing, present=present) as joined:
            if not joined.present:
                raise ConnectorError(
                    f"cannot find {place.path}: there is no such file on this host",
                    hint="look whether the file system is mounted here (mmlsmount) and the volume was made",
                )
        return Found(path=place.path)

    async def find(self, context: Context, place: GpfsPlace) -> Found | None:
        here = context.uses(place.thing) and context.files.exists(Path(place.path))
        return Found(path=place.path) if here else None

    async def detach(self, context: Context, place: GpfsPlace, *, force: bool) -> None:  # noqa: ARG002
        async with context.leaving(place.thing):
            pass


DRIVER = GpfsDriver()
