"""iSCSI by the kernel's initiator, over TCP (ISCSI) and over RDMA (ISER).

Several portals are tried in their order or, where multipath was chosen, are all used at once. Data that name one portal
only leave it to multipath to ask that one for the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Foreign, Found, Route, Settings
from quartermaster.connectors.drivers.iscsi_discovery import discover, forget_discovery
from quartermaster.connectors.drivers.iscsi_records import Target
from quartermaster.connectors.drivers.iscsi_sessions import (
    Session,
    find_session,
    join_session,
    leave_session,
    parse_portal,
    sessions,
)
from quartermaster.connectors.drivers.paths import find_disks, grow_disks, remove_disks, use_disks
from quartermaster.connectors.drivers.scsi import Scan, addressed_lun, appear, disk_at
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.secret import Secret
from quartermaster.support.errors import QuartermasterError
from quartermaster.support.log import logger
from quartermaster.support.tasks import TaskGroup

log = logger("connectors")

_DISCOVERED = "iscsi_portals"


class IscsiConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`target_portals`, `target_iqns` and `target_luns` stand side by side, for a volume with several ways to it."""

    target_portal: str = ""
    target_iqn: str = ""
    target_lun: int = 0
    target_portals: tuple[str, ...] = ()
    target_iqns: tuple[str, ...] = ()
    target_luns: tuple[int, ...] = ()
    target_discovered: bool = False
    volume_id: str = ""
    auth_method: str = ""  # a user name means CHAP, whatever this says
    auth_username: str = ""
    auth_password: Secret = Secret()
    discovery_auth_method: str = ""
    discovery_auth_username: str = ""
    discovery_auth_password: Secret = Secret()
    access_mode: str = "rw"
    addressing_mode: str = ""
    wwid: str = ""

    def __post_init__(self) -> None:
        if not self.target_portal and not self.target_portals:
            raise ValueError("targetPortal is missing")
        if not self.target_iqn and not self.target_iqns:
            raise ValueError("targetIqn is missing")
        count = len(self.target_portals)
        for name, values in (("targetIqns", self.target_iqns), ("targetLuns", self.target_luns)):
            if count and values and len(values) != count:
                raise ValueError(f"{name} has {len(values)} entries for {count} targetPortals")
        for portal in (self.target_portal, *self.target_portals):
            if portal:
                parse_portal(portal)
        for text in (self.target_iqn, *self.target_iqns):
            if "/" in text or any(character.isspace() for character in text):
                raise ValueError(f'"{text}" is no iSCSI name')
        for who, secret in (
            (self.auth_username, self.auth_password),
            (self.discovery_auth_username, self.discovery_auth_password),
        ):
            if any(ord(character) < 32 for text in (who, secret.reveal()) for character in text):
                raise ValueError("a user name or a password has a control character in it")


class IscsiPath(msgspec.Struct, frozen=True):
    target: Target
    lun: int


class IscsiPlace(msgspec.Struct, frozen=True):
    paths: tuple[IscsiPath, ...]
    multipath: bool = False
    wwid: str = ""


class IscsiDriver(msgspec.Struct, frozen=True):
    route: Route
    interface: str

    def identify(self, data: IscsiConnectionData, settings: Settings) -> IscsiPlace:
        portals = data.target_portals or (data.target_portal,)
        iqns = (data.target_iqns if data.target_portals else ()) or (data.target_iqn or data.target_iqns[0],) * len(
            portals
        )
        luns = (data.target_luns if data.target_portals else ()) or (data.target_lun,) * len(portals)
        paths = {
            IscsiPath(
                Target(*parse_portal(portal), iqn, self.interface), addressed_lun(lun, data.addressing_mode)
            ): None
            for portal, iqn, lun in zip(portals, iqns, luns, strict=True)
        }
        return IscsiPlace(tuple(paths), multipath=settings.multipath, wwid=data.wwid)

    async def attach(self, context: Context, data: IscsiConnectionData, place: IscsiPlace) -> Found:
        join = self._join_all if place.multipath else self._join_first
        joined = await join(context, data, await self._ask_for_more(context, data, place))
        disks = await appear(
            context,
            # By the sessions that we have just joined: this runs whenever any device of the host appears.
            lambda: [disk for path, session in joined.items() if (disk := disk_at(context, session.address(path.lun)))],
            lambda: [
                Scan(session.host, "0", str(session.target), str(path.lun))
                for path, session in joined.items()
                if not disk_at(context, session.address(path.lun))
            ],
            wanted=len(joined),
            what=" and ".join(f"LUN {path.lun} of {path.target.iqn} at {path.target.portal}" for path in joined),
            hint="look whether the storage system has exported the volume to this initiator",
        )
        return await use_disks(
            context, disks, wwid=place.wwid, multipath=place.multipath, read_only=data.access_mode == "ro"
        )

    async def find(self, context: Context, place: IscsiPlace) -> Found | None:
        paths = _paths(context, place)
        claimed = any(context.uses(path.target.thing) for path in paths)
        disks = _disks(context, paths)
        return await find_disks(context, disks, wwid=place.wwid, multipath=place.multipath, claimed=claimed)

    async def detach(self, context: Context, place: IscsiPlace, *, force: bool) -> None:
        paths = _paths(context, place)
        await remove_disks(context, _disks(context, paths, ready=False), wwid=place.wwid, force=force)
        for target in dict.fromkeys(path.target for path in paths):
            await leave_session(context, target)
        await forget_discovery(context, place.paths[0].target)

    async def extend(self, context: Context, place: IscsiPlace) -> None:
        await grow_disks(context, _disks(context, _paths(context, place)))

    def uri(self, data: IscsiConnectionData) -> str:
        # Imported here: it costs as much as a driver, and hardly anybody asks.
        from urllib.parse import quote

        path = self.identify(data, Settings()).paths[0]
        user = f"{quote(data.auth_username, safe='')}@" if data.auth_username else ""
        return f"{self.interface.replace('default', 'iscsi')}://{user}{path.target.portal}/{path.target.iqn}/{path.lun}"

    async def foreign(self, context: Context) -> Sequence[Foreign]:
        return [
            Foreign(self.route.driver_type, "session", targets[0].name)
            for _, targets in sessions(context)
            if targets and targets[0].interface == self.interface
        ]

    async def _ask_for_more(
        self, context: Context, data: IscsiConnectionData, place: IscsiPlace
    ) -> Sequence[IscsiPath]:
        """Known to the record before anybody logs in. A portal that does not tell leaves the volume with one path."""
        if not place.multipath or data.target_portals:
            return place.paths
        first = place.paths[0]
        try:
            found = await discover(
                context,
                first.target,
                username=data.discovery_auth_username,
                password=data.discovery_auth_password.reveal(),
            )
        except QuartermasterError as error:
            log.warning("a portal does not tell of others", volume=context.volume_id, error=str(error))
            return place.paths
        context.note(**{_DISCOVERED: " ".join(target.portal for target in found)})
        return [IscsiPath(target, first.lun) for target in found]

    async def _join_first(
        self, context: Context, data: IscsiConnectionData, paths: Sequence[IscsiPath]
    ) -> dict[IscsiPath, Session]:
        failures: list[QuartermasterError] = []
        for path in paths:
            try:
                return {path: await self._join(context, data, path)}
            except QuartermasterError as error:
                failures.append(error)
                if path is paths[-1]:
                    break
                log.warning("a portal fails, the next is tried", volume=context.volume_id, error=str(error))
                await leave_session(context, path.target)
        raise failures[0]

    async def _join_all(
        self, context: Context, data: IscsiConnectionData, paths: Sequence[IscsiPath]
    ) -> dict[IscsiPath, Session]:
        """Each portal by itself: one that fails leaves the volume with a path less."""

        async def attempt(path: IscsiPath) -> Session | QuartermasterError:
            try:
                return await self._join(context, data, path)
            except QuartermasterError as error:
                log.warning("a path fails", volume=context.volume_id, error=str(error))
                return error

        async with TaskGroup() as group:
            tasks = {path: group.start(attempt(path)) for path in paths}
        outcomes = {path: task.result() for path, task in tasks.items()}
        joined = {path: outcome for path, outcome in outcomes.items() if isinstance(outcome, Session)}
        if not joined:
            raise next(outcome for outcome in outcomes.values() if isinstance(outcome, QuartermasterError))
        return joined

    async def _join(self, context: Context, data: IscsiConnectionData, path: IscsiPath) -> Session:
        return await join_session(
            context, path.target, username=data.auth_username, password=data.auth_password.reveal()
        )


def _paths(context: Context, place: IscsiPlace) -> Sequence[IscsiPath]:
    """With those that were discovered. Without a record of it, any session to the target may be one."""
    first = place.paths[0]
    if not place.multipath or len(place.paths) > 1:
        return place.paths
    told = context.notes.get(_DISCOVERED, "").split()
    more = [Target(*parse_portal(portal), first.target.iqn, first.target.interface) for portal in told]
    if not told:
        here = [target for _, targets in sessions(context, only=first.target.iqn) for target in targets[:1]]
        more = [target for target in here if target.interface == first.target.interface]
    return [IscsiPath(target, first.lun) for target in dict.fromkeys([first.target, *more])]


def _disks(context: Context, paths: Sequence[IscsiPath], *, ready: bool = True) -> list[str]:
    """The disks of the paths that are here, in their order."""
    found: dict[str, None] = {}
    for path in paths:
        session = find_session(context, path.target)
        disk = disk_at(context, session.address(path.lun), ready=ready) if session is not None else ""
        if disk:
            found[disk] = None
    return list(found)


def _route(type: DriverType) -> Route:
    return Route(type, IscsiConnectionData, IscsiPlace)


ISCSI = IscsiDriver(_route(DriverType.ISCSI), "default")
ISER = IscsiDriver(_route(DriverType.ISER), "iser")
