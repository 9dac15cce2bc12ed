"""A file on a GlusterFS volume as a block device: qemu-storage-daemon opens it without a mount of the volume."""

from __future__ import annotations

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import USERSPACE, Route
from quartermaster.connectors.drivers.shares import ShareConnectionData
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.mounting import check_inside
from quartermaster.connectors.options import parse_options, value_of
from quartermaster.connectors.userspace import ExportedPlace, Source, UserspaceDriver

_PORT = "24007"
_BACKUPS = ("backup-volfile-servers", "backupvolfile-server")


class GlusterFileData(ShareConnectionData, frozen=True, rename="camel", omit_defaults=True):
    """As for the mount; `name` is the file that becomes the device."""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        host, _, volume = self.export.partition(":")
        if not host or not volume.strip("/"):
            wrong.add("export", f'"{self.export}" is not HOST:/VOLUME', 'for example "192.0.2.1:/gv0"')
        if not self.name:
            wrong.add("name", "is missing: it is the file that becomes a block device", 'for example "volume-1"')
        check_inside(wrong, self.mount_point_base, name=self.name.lstrip("/"))
        wrong.tell()


class GlusterFilePlace(ExportedPlace, frozen=True):
    servers: tuple[str, ...]
    volume: str
    file: str

    @property
    def uri(self) -> str:
        return f"gluster://{self.servers[0]}/{self.volume}/{self.file}"


def place_of(data: GlusterFileData) -> GlusterFilePlace:
    host, _, path = data.export.strip().partition(":")
    volume, _, below = path.strip("/").partition("/")
    options = parse_options(data.options)
    others = [name for name in value_of(options, *_BACKUPS).split(":") if name]
    file = "/".join(part for part in (below, data.name.strip("/")) if part)
    return GlusterFilePlace(tuple(dict.fromkeys([host, *others])), volume, file, read_only="ro" in options)


def _sources(_context: Context, _data: GlusterFileData, place: GlusterFilePlace) -> list[Source]:
    servers = [{"type": "inet", "host": host, "port": _PORT} for host in place.servers]
    options = {"driver": "gluster", "volume": place.volume, "path": place.file, "server": servers}
    return [Source(place.uri, options)]


def _uri(data: GlusterFileData) -> str:
    return place_of(data).uri


_ROUTE = Route(DriverType.GLUSTERFS, GlusterFileData, GlusterFilePlace, client=USERSPACE, aliases={"share": "export"})
DRIVER = UserspaceDriver(_ROUTE, place_of, _sources, _uri)
