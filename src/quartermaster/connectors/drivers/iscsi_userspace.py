"""iSCSI without the kernel's initiator: qemu-storage-daemon logs in, one session for each volume.

Several portals are tried in their order. There is no path to fail over to: the daemon logs in again by itself when its
portal comes back.
"""

from __future__ import annotations

from itertools import cycle

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import USERSPACE, Route
from quartermaster.connectors.drivers.iscsi import IscsiConnectionData
from quartermaster.connectors.errors import AuthenticationError
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.properties import initiator_name
from quartermaster.connectors.secret import Secret
from quartermaster.connectors.userspace import SECRET, ExportedPlace, Source, UserspaceDriver

_PORT = 3260


class IscsiPath(msgspec.Struct, frozen=True):
    portal: str
    iqn: str
    lun: int

    @property
    def uri(self) -> str:
        return f"iscsi://{self.portal}/{self.iqn}/{self.lun}"


class IscsiUserspacePlace(ExportedPlace, frozen=True):
    paths: tuple[IscsiPath, ...]


def place_of(data: IscsiConnectionData) -> IscsiUserspacePlace:
    portals = data.target_portals or (data.target_portal,)
    iqns = data.target_iqns or (data.target_iqn,)
    luns = data.target_luns or (data.target_lun,)
    paths = [
        IscsiPath(_with_port(portal), iqn, lun)
        for portal, iqn, lun in zip(portals, cycle(iqns), cycle(luns), strict=False)
    ]
    return IscsiUserspacePlace(tuple(dict.fromkeys(paths)), read_only=data.access_mode == "ro")


def _sources(context: Context, data: IscsiConnectionData, place: IscsiUserspacePlace) -> list[Source]:
    if data.auth_username and not data.auth_password:
        raise AuthenticationError(
            f"cannot log in to {place.paths[0].iqn}: the user {data.auth_username} comes without a password",
            hint="the storage system has to give authPassword",
        )
    initiator = context.settings.initiator or initiator_name(context.roots.etc, context.files)
    return [_source(path, data, initiator) for path in place.paths]


def _source(path: IscsiPath, data: IscsiConnectionData, initiator: str) -> Source:
    options: dict[str, object] = {
        "driver": "iscsi",
        "transport": "tcp",
        "portal": path.portal,
        "target": path.iqn,
        "lun": path.lun,
    }
    if initiator:
        options["initiator-name"] = initiator
    if data.auth_username:
        options |= {"user": data.auth_username, "password-secret": SECRET}
    secret = data.auth_password if data.auth_username else Secret()
    return Source(f"LUN {path.lun} of {path.iqn} at {path.portal}", options, secret)


def _with_port(portal: str) -> str:
    """As qemu wants it: without the portal group, with the port, and an IPv6 address in brackets."""
    address = portal.partition(",")[0].strip()
    if address.startswith("["):
        return address if address.rpartition("]")[2] else f"{address}:{_PORT}"
    if address.count(":") > 1:
        return f"[{address}]:{_PORT}"
    return address if ":" in address else f"{address}:{_PORT}"


def _uri(data: IscsiConnectionData) -> str:
    return place_of(data).paths[0].uri


DRIVER = UserspaceDriver(
    Route(DriverType.ISCSI, IscsiConnectionData, IscsiUserspacePlace, client=USERSPACE), place_of, _sources, _uri
)
