"""Network block devices: what their data mean, and the route through qemu-storage-daemon."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import USERSPACE, Found, Route, Settings
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.userspace import Export, Source, attach_export, detach_export, export_of, find_export

ALIASES = {"export_name": "export", "server": "host", "unix": "socket"}
# While the server is away, requests wait this long for it before they fail; a SCSI session gives up after two minutes.
_RECONNECT_S = 120
_PORT = 10809


class NbdConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A server by its address, or by a socket on this host."""

    host: str = ""
    port: int = _PORT
    socket: str = ""
    export: str = ""  # empty for the server's default
    access_mode: str = "rw"
    volume_id: str = ""

    def __post_init__(self) -> None:
        if bool(self.host) == bool(self.socket):
            raise ValueError("it has to have host or socket, and not both")
        if not 0 < self.port < 65536:
            raise ValueError(f"port {self.port} is not between 1 and 65535")


class NbdPlace(msgspec.Struct, frozen=True):
    host: str
    port: int
    socket: str
    export: str
    read_only: bool = False

    @property
    def uri(self) -> str:
        name = quote(self.export, safe="")
        if self.socket:
            return f"nbd+unix:///{name}?socket={quote(self.socket)}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"nbd://{host}:{self.port}/{name}"


def place_of(data: NbdConnectionData) -> NbdPlace:
    port = 0 if data.socket else data.port
    return NbdPlace(data.host.strip("[]"), port, data.socket, data.export, read_only=data.access_mode == "ro")


class NbdUserspaceDriver:
    route = Route(DriverType.NBD, NbdConnectionData, NbdPlace, client=USERSPACE, aliases=ALIASES)

    def identify(self, data: NbdConnectionData, settings: Settings) -> NbdPlace:  # noqa: ARG002
        return place_of(data)

    async def attach(self, context: Context, data: NbdConnectionData, place: NbdPlace) -> Found:  # noqa: ARG002
        return await attach_export(context, _export(context, place), [_source(place)])

    async def find(self, context: Context, place: NbdPlace) -> Found | None:
        return await find_export(context, _export(context, place))

    async def detach(self, context: Context, place: NbdPlace, *, force: bool) -> None:
        await detach_export(context, _export(context, place), force=force)

    def uri(self, data: NbdConnectionData) -> str:
        return place_of(data).uri


def _export(context: Context, place: NbdPlace) -> Export:
    return export_of(context, DriverType.NBD, place, read_only=place.read_only)


def _source(place: NbdPlace) -> Source:
    server = (
        {"type": "unix", "path": place.socket}
        if place.socket
        else {"type": "inet", "host": place.host, "port": str(place.port)}
    )
    options = {"driver": "nbd", "server": server, "export": place.export, "reconnect-delay": _RECONNECT_S}
    return Source(place.uri, options)


USERSPACE_CLIENT = NbdUserspaceDriver()
