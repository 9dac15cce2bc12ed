"""iSCSI by the kernel's initiator, over TCP (ISCSI) and over RDMA (ISER).

Several portals are tried in their order or, where multipath was chosen, are all used at once. Data that name one portal
only leave it to multipath to ask that one for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import ClassVar

import msgspec

from quartermaster.connectors.context import Context, Joined
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
from quartermaster.connectors.drivers.multipath import foreign_maps
from quartermaster.connectors.drivers.paths import disks_away, find_disks, goes, grow_disks, remove_disks, use_disks
from quartermaster.connectors.drivers.scsi import (
    NO_LUN,
    Scan,
    addressed_lun,
    appear,
    disk_at,
    first_lun,
    require_luns,
)
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import AccessMode, DriverType
from quartermaster.connectors.secret import Secret
from quartermaster.support.errors import QuartermasterError
from quartermaster.support.log import logger
from quartermaster.support.tasks import TaskGroup

log = logger("connectors")

_DISCOVERED = "iscsi_portals"
_PORTAL = 'for example "192.0.2.1:3260"'
_IQN = 'for example "iqn.2026-01.org.example:disk"'


class IscsiConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`target_portals`, `target_iqns` and `target_luns` stand side by side, for a volume with several ways to it."""

    target_portal: str = ""
    target_iqn: str = ""
    target_lun: int = NO_LUN
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
    access_mode: AccessMode = AccessMode.READ_WRITE
    addressing_mode: str = ""
    wwid: str = ""
    # As the specification has them; a LUN is text there.
    always: ClassVar[Mapping[str, type]] = {
        **{"target_discovered": bool, "target_iqn": str, "target_portal": str, "target_lun": str},
        **{"volume_id": str, "auth_username": str, "auth_password": str},
    }

    def __post_init__(self) -> None:
        wrong = Mistakes()
        if not self.target_portal and not self.target_portals:
            wrong.add("targetPortal", "is missing", _PORTAL, unless=["targetPortals"])
        if not self.target_iqn and not self.target_iqns:
            wrong.add("targetIqn", "is missing", _IQN, unless=["targetIqns"])
        count = len(self.target_portals)
        for name, values in (("targetIqns", self.target_iqns), ("targetLuns", self.target_luns)):
            if count and values and len(values) != count:
                wrong.add(name, f"has {len(values)} entries for {count} targetPortals", "give one for each")
        with wrong.about("targetLun", "for example 1", unless=["targetLuns"]):
            require_luns(first_lun(self.target_lun, self.target_luns), self.target_luns)
        for key, portals in (("targetPortal", (self.target_portal,)), ("targetPortals", self.target_portals)):
            for portal in filter(None, portals):
                with wrong.about(key, _PORTAL):
                    parse_portal(portal)
        for key, names in (("targetIqn", (self.target_iqn,)), ("targetIqns", self.target_iqns)):
            for text in names:
                if "/" in text or any(character.isspace() for character in text):
                    wrong.add(key, f'"{text}" is no iSCSI name', _IQN)
        texts = {
            "authUsername": self.auth_username,
            "authPassword": self.auth_password.reveal(),
            "discoveryAuthUsername": self.discovery_auth_username,
            "discoveryAuthPassword": self.discovery_auth_password.reveal(),
        }
        for key, text in texts.items():
            if any(ord(character) < 32 for character in text):
                wrong.add(key, "has a control character in it", "leave it out")
        wrong.tell()


class IscsiPath(msgspec.Struct, frozen=True):
    target: Target
    lun: int

    @property
    def thing(self) -> str:
        return f"lun {self.lun} of {self.target.name}"


class Way(msgspec.Struct, frozen=True):
    """A path with the session that it leads over, and the disk at its end as it was met."""

    path: IscsiPath
    session: Session
    met: Joined

    @property
    def address(self) -> str:
        return self.session.address(self.path.lun)

    @property
    def scan(self) -> Scan:
        return Scan(self.session.host, "0", str(self.session.target), str(self.path.lun))


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
        one = first_lun(data.target_lun, data.target_luns)
        luns = (data.target_luns if data.target_portals else ()) or (one,) * len(portals)
        paths = {
            IscsiPath(
                Target(*parse_portal(portal), iqn, self.interface), addressed_lun(lun, data.addressing_mode)
            ): None
            for portal, iqn, lun in zip(portals, iqns, luns, strict=True)
        }
        return IscsiPlace(tuple(paths), multipath=settings.multipath, wwid=data.wwid)

    async def attach(self, context: Context, data: IscsiConnectionData, place: IscsiPlace) -> Found:
        join = self._join_all if place.multipath else self._join_first
        paths = await self._ask_for_more(context, data, place)
        async with AsyncExitStack() as held:
            ways = await join(context, data, paths, held)
            disks = await appear(
                context,
                # By the sessions that we have just joined: this runs whenever any device of the host appears.
                lambda: [disk for way in ways if (disk := disk_at(context, way.address))],
                lambda: [way.scan for way in ways if not disk_at(context, way.address)],
                wanted=len(ways),
                what=" and ".join(
                    f"LUN {way.path.lun} of {way.path.target.iqn} at {way.path.target.portal}" for way in ways
                ),
                hint="look whether the storage system has exported the volume to this initiator",
            )
            return await use_disks(
                context,
                disks,
                wwid=place.wwid,
                multipath=place.multipath,
                read_only=data.access_mode is AccessMode.READ,
                met=[way.met for way in ways],
            )

    async def find(self, context: Context, place: IscsiPlace) -> Found | None:
        paths = [path for path in _paths(context, place) if not context.is_left_here(path.thing)]
        claimed = any(context.uses(path.target.thing) for path in paths)
        disks = _disks(context, paths)
        return await find_disks(context, disks, wwid=place.wwid, multipath=place.multipath, claimed=claimed)

    async def away(self, context: Context, place: IscsiPlace) -> str:
        return disks_away(context, _disks(context, _paths(context, place)))

    async def detach(self, context: Context, place: IscsiPlace, *, force: bool) -> None:
        paths = _paths(context, place)
        async with context.leaving_all([path.thing for path in paths]) as leaving:
            going = [path for path in paths if goes(context, path.thing, leaving[path.thing])]
            await remove_disks(context, _disks(context, going, ready=False), wwid=place.wwid, force=force)
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
        own = [
            (session, targets[0])
            for session, targets in sessions(context)
            if targets and targets[0].interface == self.interface
        ]
        found = [Foreign(self.route.driver_type, "session", target.name) for _, target in own]
        return [*found, *foreign_maps(context, self.route.driver_type, [session.host for session, _ in own])]

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
        self, context: Context, data: IscsiConnectionData, paths: Sequence[IscsiPath], held: AsyncExitStack
    ) -> list[Way]:
        failures: list[QuartermasterError] = []
        for path in paths:
            try:
                async with AsyncExitStack() as attempt:
                    met = await attempt.enter_async_context(_awaiting(context, path))
                    session = await self._join(context, data, path)
                    held.push_async_exit(attempt.pop_all())
                    return [Way(path, session, met)]
            except QuartermasterError as error:
                failures.append(error)
                if path is paths[-1]:
                    break
                log.warning("a portal fails, the next is tried", volume=context.volume_id, error=str(error))
                await leave_session(context, path.target)
                async with context.leaving(path.thing):
                    pass
        raise failures[0]

    async def _join_all(
        self, context: Context, data: IscsiConnectionData, paths: Sequence[IscsiPath], held: AsyncExitStack
    ) -> list[Way]:
        """Each portal by itself: one that fails leaves the volume with a path less."""

        async def attempt(path: IscsiPath) -> Session | QuartermasterError:
            try:
                return await self._join(context, data, path)
            except QuartermasterError as error:
                log.warning("a path fails", volume=context.volume_id, error=str(error))
                return error

        # One after the other and in one order for everybody, so that nobody waits for somebody who waits for him.
        ordered = sorted(paths, key=lambda path: path.thing)
        met = {path: await held.enter_async_context(_awaiting(context, path)) for path in ordered}
        async with TaskGroup() as group:
            tasks = {path: group.start(attempt(path)) for path in paths}
        outcomes = {path: task.result() for path, task in tasks.items()}
        ways = [Way(path, found, met[path]) for path, found in outcomes.items() if isinstance(found, Session)]
        if not ways:
            raise next(outcome for outcome in outcomes.values() if isinstance(outcome, QuartermasterError))
        return ways

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


def _awaiting(context: Context, path: IscsiPath) -> AbstractAsyncContextManager[Joined]:
    return context.awaiting(path.thing, present=lambda: bool(_disks(context, [path], ready=False)))


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
