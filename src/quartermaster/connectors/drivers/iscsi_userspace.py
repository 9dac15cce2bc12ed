"""iSCSI without the kernel's initiator: qemu-storage-daemon logs in, one session for each volume.

Several portals are tried in their order. There is no path to fail over to: the daemon logs in again by itself when its
portal comes back.

The target is asked what the LUN is before it is opened, and again at every later look: a LUN may be given to another
volume while the daemon goes on with it. Behind a password that can be done only when the volume is connected, since no
record keeps a secret.
"""

from __future__ import annotations

from itertools import cycle

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import USERSPACE, Route
from quartermaster.connectors.drivers.iscsi import IscsiConnectionData
from quartermaster.connectors.drivers.iscsi_inquiry import Lun, ask_lun
from quartermaster.connectors.drivers.iscsi_sessions import parse_portal
from quartermaster.connectors.drivers.scsi import first_lun
from quartermaster.connectors.errors import AuthenticationError, ConnectorError, UnreachableError
from quartermaster.connectors.identity import require_identity, same_identity
from quartermaster.connectors.model import AccessMode, DriverType
from quartermaster.connectors.properties import initiator_name
from quartermaster.connectors.secret import Secret
from quartermaster.connectors.userspace import SECRET, ExportedPlace, Source, UserspaceDriver
from quartermaster.support.errors import DeadlineError
from quartermaster.support.log import logger

log = logger("connectors")

_PORT = 3260
_LOGIN = "iscsi_login"  # the note that it needs a password
_ANSWER_S = 30.0
_LOOK_S = 5.0
_NAMELESS = "a LUN that does not say what it is"


class IscsiPath(msgspec.Struct, frozen=True):
    portal: str
    iqn: str
    lun: int

    @property
    def uri(self) -> str:
        return f"iscsi://{self.portal}/{self.iqn}/{self.lun}"

    @property
    def name(self) -> str:
        return f"LUN {self.lun} of {self.iqn} at {self.portal}"

    @property
    def asked(self) -> Lun:
        return Lun(*parse_portal(self.portal), self.iqn, self.lun, self.name)


class IscsiUserspacePlace(ExportedPlace, frozen=True):
    paths: tuple[IscsiPath, ...]
    wwid: str = ""


def place_of(data: IscsiConnectionData) -> IscsiUserspacePlace:
    portals = data.target_portals or (data.target_portal,)
    iqns = data.target_iqns or (data.target_iqn,)
    luns = (data.target_luns if data.target_portals else ()) or (first_lun(data.target_lun, data.target_luns),)
    paths = [
        IscsiPath(_with_port(portal), iqn, lun)
        for portal, iqn, lun in zip(portals, cycle(iqns), cycle(luns), strict=False)
    ]
    read_only = data.access_mode is AccessMode.READ
    return IscsiUserspacePlace(tuple(dict.fromkeys(paths)), data.wwid, read_only=read_only)


def _sources(context: Context, data: IscsiConnectionData, place: IscsiUserspacePlace) -> list[Source]:
    if data.auth_username and not data.auth_password:
        raise AuthenticationError(
            f"cannot log in to {place.paths[0].iqn}: the user {data.auth_username} comes without a password",
            hint="the storage system has to give authPassword",
        )
    initiator = _initiator(context)
    return [_source(path, data, initiator) for path in place.paths]


async def _tell(context: Context, data: IscsiConnectionData | None, place: IscsiUserspacePlace) -> str:
    if data is None and context.notes.get(_LOGIN):
        return context.identity
    wwid = place.wwid
    if data is not None:
        context.note(**{_LOGIN: "needed" if data.auth_username else ""})
    try:
        names = await _ask_first(context, data, place)
    except (ConnectorError, DeadlineError) as error:
        if data is not None:
            raise
        # While the storage system is away the volume is what it was, as the daemon is. So it is when its LUN or the
        # access to it was withdrawn: it has to go from this host then.
        log.warning("the target does not say what the LUN is", volume=context.volume_id, error=str(error))
        return context.identity
    where = place.paths[0].uri
    if not names and not context.identity.startswith("loop:"):
        require_identity(context.volume_id, where, expected=context.identity, found=_NAMELESS)
    if wwid and not names and data is not None:
        raise ConnectorError(
            f"cannot tell whether {where} is the volume {wwid}: the LUN does not say what it is",
            hint="leave wwid out if the storage system has no other way, and it is used as it is found",
        )
    if wwid and names and not any(same_identity(wwid, name) for name in names):
        require_identity(context.volume_id, where, expected=wwid, found=names[0])
    return names[0] if names else ""


async def _ask_first(context: Context, data: IscsiConnectionData | None, place: IscsiUserspacePlace) -> tuple[str, ...]:
    """By the first path that answers."""
    initiator = _initiator(context)
    username, password = (data.auth_username, data.auth_password) if data is not None else ("", Secret())
    limit_s = _LOOK_S if data is None else _ANSWER_S
    for path in place.paths:
        most_s = min(limit_s, context.left_s() / 2)
        try:
            return await ask_lun(
                context, path.asked, initiator=initiator, username=username, password=password, most_s=most_s
            )
        except UnreachableError:
            if path is place.paths[-1]:
                raise
    return ()


def _initiator(context: Context) -> str:
    return context.settings.initiator or initiator_name(context.roots.etc, context.files)


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
    return Source(path.name, options, secret)


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
    Route(DriverType.ISCSI, IscsiConnectionData, IscsiUserspacePlace, client=USERSPACE),
    place_of,
    _sources,
    _uri,
    _tell,
)
