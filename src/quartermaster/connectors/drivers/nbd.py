"""Network block devices: by nbd-client and the kernel, or by qemu-storage-daemon without it."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import KERNEL, USERSPACE, Found, Roots, Route, Settings
from quartermaster.connectors.files import Files
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import AccessMode, DriverType
from quartermaster.connectors.nbds import Serving, attach_nbd, detach_nbd, find_nbd, has_nbd, key_of
from quartermaster.connectors.userspace import ExportedPlace, Source, UserspaceDriver, refuse_growth
from quartermaster.host.tools import Tool, register

register(Tool("nbd-client", "nbd-client", "connects NBD devices of the kernel"))

_ALIASES = {"export_name": "export", "server": "host", "unix": "socket"}
# While the server is away, requests wait this long for it before they fail; a SCSI session gives up after two minutes.
_RECONNECT_S = 120
_PORT = 10809


class NbdConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A server by its address, or by a socket on this host."""

    host: str = ""
    port: int = _PORT
    socket: str = ""
    export: str = ""  # empty for the server's default
    access_mode: AccessMode = AccessMode.READ_WRITE
    volume_id: str = ""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        if bool(self.host) == bool(self.socket):
            wrong.add("", "it has to have host or socket, and not both", "give one of them", unless=["host", "socket"])
        if not 0 < self.port < 65536:
            wrong.add("port", f"{self.port} is not between 1 and 65535", f"for example {_PORT}")
        wrong.tell()


class NbdPlace(ExportedPlace, frozen=True):
    host: str
    port: int
    socket: str
    export: str

    @property
    def uri(self) -> str:
        name = quote(self.export, safe="")
        if self.socket:
            return f"nbd+unix:///{name}?socket={quote(self.socket)}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"nbd://{host}:{self.port}/{name}"


def place_of(data: NbdConnectionData) -> NbdPlace:
    port = 0 if data.socket else data.port
    read_only = data.access_mode is AccessMode.READ
    return NbdPlace(data.host.strip("[]"), port, data.socket, data.export, read_only=read_only)


def _uri(data: NbdConnectionData) -> str:
    return place_of(data).uri


def _route(client: str) -> Route:
    return Route(DriverType.NBD, NbdConnectionData, NbdPlace, client=client, aliases=_ALIASES)


class NbdKernelDriver:
    route = _route(KERNEL)

    def identify(self, data: NbdConnectionData, settings: Settings) -> NbdPlace:  # noqa: ARG002
        return place_of(data)

    def usable(self, roots: Roots, files: Files) -> bool:
        return has_nbd(roots, files)

    async def attach(self, context: Context, data: NbdConnectionData, place: NbdPlace) -> Found:  # noqa: ARG002
        return await attach_nbd(context, _serving(place))

    async def find(self, context: Context, place: NbdPlace) -> Found | None:
        return await find_nbd(context, _serving(place))

    async def detach(self, context: Context, place: NbdPlace, *, force: bool) -> None:
        await detach_nbd(context, _serving(place), force=force)

    async def extend(self, context: Context, place: NbdPlace) -> None:  # noqa: ARG002
        refuse_growth(context.volume_id)

    def uri(self, data: NbdConnectionData) -> str:
        return _uri(data)


def _serving(place: NbdPlace) -> Serving:
    where = ("-unix", place.socket) if place.socket else (place.host, str(place.port))
    named = ("-name", place.export) if place.export else ()
    flags = ("-readonly",) if place.read_only else ()

    def argv(device: str) -> tuple[str, ...]:
        # It stays, so that the kernel can say who serves the device, and to log in again when the server comes back.
        return ("nbd-client", "-nonetlink", "-nofork", "-persist", *flags, *named, *where, device)

    return Serving(key_of(DriverType.NBD, KERNEL, place), place.uri, argv, lambda device: ("nbd-client", "-d", device))


def _sources(_context: Context, _data: NbdConnectionData, place: NbdPlace) -> list[Source]:
    server = (
        {"type": "unix", "path": place.socket}
        if place.socket
        else {"type": "inet", "host": place.host, "port": str(place.port)}
    )
    options = {"driver": "nbd", "server": server, "export": place.export, "reconnect-delay": _RECONNECT_S}
    return [Source(place.uri, options)]


KERNEL_CLIENT = NbdKernelDriver()
USERSPACE_CLIENT = UserspaceDriver(_route(USERSPACE), place_of, _sources, _uri)
