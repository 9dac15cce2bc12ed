"""NVMe over Fabrics. A host connects to a subsystem, and sees as namespaces all volumes that it may use there.

A controller (one connection to one portal of a subsystem) is shared by the volumes that are its namespaces; which of
them is ours is told by its UUID or NGUID, or its number where the storage system gives nothing better.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Foreign, Found, Route, Settings
from quartermaster.connectors.errors import AuthenticationError, ConnectorError, NotAnsweringError, UnreachableError
from quartermaster.connectors.fabrics import (
    Controller,
    Portal,
    controllers,
    namespaces,
    node_of,
    parse_portal,
    rescan,
)
from quartermaster.connectors.identity import read_identity
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.secret import Secret
from quartermaster.connectors.usage import refuse_if_used, users_of
from quartermaster.host.commands import Command
from quartermaster.host.tools import Tool, register
from quartermaster.support.errors import CommandDeadlineError, CommandError, QuartermasterError

_LOAD = "load it: modprobe nvme-tcp"

register(Tool("nvme", "nvme-cli", "connects to NVMe subsystems"))

_UNREACHABLE = ("refused", "timed out", "No route to host", "unreachable", "Host is down")
_UNKNOWN_HOST = ("Key was rejected", "Permission denied", "Operation not permitted", "authentication")
_GONE_S = 30.0


class NvmeofConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Portals as `[address, port, transport]`; or one by `targetPortal`, `targetPort` and `transportType`."""

    target_nqn: str
    portals: tuple[tuple[str, int, str], ...] = ()
    target_portal: str = ""
    target_port: int = 4420
    transport_type: str = "tcp"
    ns_id: int = 0
    vol_uuid: str = ""
    volume_nguid: str = ""
    host_nqn: str = ""
    dhchap_secret: Secret = Secret()  # of this host
    dhchap_controller_secret: Secret = Secret()  # which the subsystem has to know
    volume_id: str = ""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        if not self.portals and not self.target_portal:
            wrong.add("portals", "are missing", 'for example [["192.0.2.1", 4420, "tcp"]]', unless=["targetPortal"])
        texts = {
            "targetNqn": self.target_nqn,
            "hostNqn": self.host_nqn,
            "dhchapSecret": self.dhchap_secret.reveal(),
            "dhchapControllerSecret": self.dhchap_controller_secret.reveal(),
        }
        for key, text in texts.items():
            if set(text) & set(",\n "):
                wrong.add(key, "has a comma or a space in it", "leave it out")
        for key, text in (("volUuid", self.vol_uuid), ("volumeNguid", self.volume_nguid)):
            if text:
                with wrong.about(key, "for example f2f7d8b0-5b0e-4c39-9a53-7f1f5f1f2f3a"):
                    UUID(text)
        wrong.tell()


class NvmeofPlace(msgspec.Struct, frozen=True):
    nqn: str
    portals: tuple[Portal, ...]
    uuid: str = ""
    nguid: str = ""
    nsid: int = 0
    host_nqn: str = ""

    def thing(self, portal: Portal) -> str:
        return f"controller {portal} {self.nqn}"


class NvmeofDriver:
    route = Route(
        DriverType.NVMEOF,
        NvmeofConnectionData,
        NvmeofPlace,
        aliases={
            "nqn": "target_nqn",
            "transport": "transport_type",
            "uuid": "vol_uuid",
            "nguid": "volume_nguid",
            "dhchap_ctrl_secret": "dhchap_controller_secret",
        },
    )

    def identify(self, data: NvmeofConnectionData, settings: Settings) -> NvmeofPlace:  # noqa: ARG002
        given = [Portal(host, port, _transport(kind)) for host, port, kind in data.portals] or [
            parse_portal(data.target_portal, data.target_port, _transport(data.transport_type))
        ]
        return NvmeofPlace(
            data.target_nqn,
            tuple(dict.fromkeys(given)),
            uuid=str(UUID(data.vol_uuid)) if data.vol_uuid else "",
            nguid=UUID(data.volume_nguid).hex if data.volume_nguid else "",
            nsid=data.ns_id,
            host_nqn=data.host_nqn,
        )

    async def attach(self, context: Context, data: NvmeofConnectionData, place: NvmeofPlace) -> Found:
        async def appeared() -> str | None:
            return _node(context, place, place.portals) or None

        async with context.watch(context.roots.dev) as changes:
            await _connect(context, data, place)
            what = f"{_named(place)} of {place.nqn}"
            hint = "look whether the subsystem lets this host see it: nvme list-subsys, nvme list"
            device = await context.until(appeared, changes, what=what, hint=hint)
        return Found(device=device, identity=read_identity(device, context.roots, context.files))

    async def find(self, context: Context, place: NvmeofPlace) -> Found | None:
        ours = [portal for portal in place.portals if context.uses(place.thing(portal))]
        device = _node(context, place, ours)
        if not device:
            return None
        return Found(device=device, identity=read_identity(device, context.roots, context.files))

    async def away(self, context: Context, place: NvmeofPlace) -> str:
        directory = context.roots.sysfs / "class/nvme"
        ours = [controller.name for controller in _controllers(context, place, place.portals)]
        states = {name: context.files.text(directory / name / "state") for name in ours}
        if not states or not {"live", ""}.isdisjoint(states.values()):
            return ""
        return f"the kernel says that {' and '.join(f'{name} is {state}' for name, state in states.items())}"

    async def detach(self, context: Context, place: NvmeofPlace, *, force: bool) -> None:
        for device in () if force else _nodes(context, place, place.portals):
            refuse_if_used(context.volume_id, device, context.roots, verb="disconnect")
        for portal in place.portals:
            async with context.leaving(place.thing(portal)) as leaving:
                if leaving.last and leaving.ours is not False:
                    for controller in _controllers(context, place, [portal]):
                        if _is_free(context, place, controller, known=leaving.ours is True):
                            await _disconnect(context, controller)

    async def extend(self, context: Context, place: NvmeofPlace) -> None:
        """The kernel looks at the namespaces on its own time, so the size that the subsystem says is waited for."""
        device = _node(context, place, place.portals)
        if not device:
            return
        verb = f"ask for the size of {device}"
        argv = ("nvme", "id-ns", device, "--output-format=json")
        answer = (await context.commands.run(Command(argv, verb=verb, changes=False))).json(verb=verb)
        block = 1 << answer["lbafs"][answer["flbas"] & 0xF]["ds"]
        wanted = answer["nsze"] * block // 512
        size = context.roots.sysfs / "class/block" / Path(device).name / "size"

        async def grown() -> bool | None:
            return True if context.files.text(size) == str(wanted) else None

        async with context.watch(context.roots.dev) as changes:
            for controller in _controllers(context, place, place.portals):
                await rescan(context, controller)
            await context.until(grown, changes, what=f"the new size of {device}", most_s=_GONE_S)

    async def foreign(self, context: Context) -> Sequence[Foreign]:
        return [
            Foreign(self.route.driver_type, "controller", f"{controller.portal} {controller.nqn}")
            for controller in controllers(context)
        ]


async def _connect(context: Context, data: NvmeofConnectionData, place: NvmeofPlace) -> None:
    """To every portal with multipath, else to the first that answers. One that answers is enough."""
    problems: list[QuartermasterError] = []
    reached = False
    for number, portal in enumerate(place.portals):
        most_s = context.left_s() / (len(place.portals) - number + 1)
        try:
            await _connect_portal(context, data, place, portal, most_s)
        except (CommandError, ConnectorError) as error:
            problems.append(error)
        else:
            reached = True
            if not context.settings.multipath:
                return
    if not reached:
        raise problems[0]


async def _connect_portal(
    context: Context, data: NvmeofConnectionData, place: NvmeofPlace, portal: Portal, most_s: float
) -> None:
    async def present() -> bool:
        return bool(_controllers(context, place, [portal]))

    async with context.joining(place.thing(portal), present=present) as joined:
        if not joined.present:
            await _make_controller(context, data, place, portal, most_s)
    if joined.present and not _node(context, place, [portal]):
        for controller in _controllers(context, place, [portal]):
            await rescan(context, controller)


async def _make_controller(
    context: Context, data: NvmeofConnectionData, place: NvmeofPlace, portal: Portal, most_s: float
) -> None:
    verb = f"connect to {place.nqn} at {portal}"
    argv = ["nvme", "connect", "-t", portal.transport, "-n", place.nqn, "-a", portal.host, "-s", str(portal.port)]
    argv += ["-q", place.host_nqn] if place.host_nqn else []
    command = Command(tuple(argv), verb=verb, timeout_s=most_s)
    device = context.roots.dev / "nvme-fabrics"
    if data.dhchap_secret or data.dhchap_controller_secret:
        # nvme takes the secrets as arguments. This is what it would write to the kernel itself.
        if not context.files.exists(device):
            raise ConnectorError(f"cannot {verb}: the kernel has no {device}", hint=_LOAD)
        text = _options(context, data, place, portal).encode()
        command = Command(("tee", str(device)), verb=verb, timeout_s=most_s, stdin=text)
    try:
        await context.commands.run(command)
    except CommandDeadlineError as error:
        raise NotAnsweringError(
            f"cannot {verb}: it did not answer in time", hint="look whether the portal is up and reached from here"
        ) from error
    except CommandError as error:
        if any(words in error.stderr for words in _UNREACHABLE):
            raise UnreachableError(str(error), hint="look whether the portal is up and reached from here") from error
        if data.dhchap_secret and any(words in error.stderr for words in _UNKNOWN_HOST):
            raise AuthenticationError(
                str(error), hint="look at the secrets of this host's NQN on both sides"
            ) from error
        if not context.files.exists(device):
            # The program's own words are of a directory that it has not found.
            raise ConnectorError(f"{error.message}; the kernel has no {device}", hint=_LOAD) from error
        raise


def _options(context: Context, data: NvmeofConnectionData, place: NvmeofPlace, portal: Portal) -> str:
    etc = context.roots.etc / "nvme"
    values = {
        "nqn": place.nqn,
        "transport": portal.transport,
        "traddr": portal.host,
        "trsvcid": str(portal.port),
        "hostnqn": place.host_nqn or context.files.text(etc / "hostnqn"),
        "hostid": context.files.text(etc / "hostid"),
        "dhchap_secret": data.dhchap_secret.reveal(),
        "dhchap_ctrl_secret": data.dhchap_controller_secret.reveal(),
    }
    return ",".join(f"{key}={value}" for key, value in values.items() if value)


async def _disconnect(context: Context, controller: Controller) -> None:
    async def gone() -> bool | None:
        return True if all(each.name != controller.name for each in controllers(context)) else None

    async with context.watch(context.roots.dev) as changes:
        argv = ("nvme", "disconnect", "-d", controller.name)
        await context.commands.run(Command(argv, verb=f"disconnect {controller.name} from {controller.nqn}"))
        await context.until(gone, changes, what=f"{controller.name} to go away", most_s=_GONE_S)


def _is_free(context: Context, place: NvmeofPlace, controller: Controller, *, known: bool) -> bool:
    """Whether nobody on this host needs the controller. One that no record knows may be there for other namespaces."""
    own = _nodes(context, place, place.portals)
    known_own = own[0] if len(own) == 1 else ""
    nodes = [node_of(context, name) for name in namespaces(context, controller)]
    others = [node for node in nodes if node not in ("", known_own)]
    return not others if not known else not any(users_of(node, context.roots) for node in others)


def _controllers(context: Context, place: NvmeofPlace, portals: Sequence[Portal]) -> list[Controller]:
    return [
        controller
        for controller in controllers(context)
        if controller.nqn == place.nqn
        and controller.portal in portals
        and (not place.host_nqn or controller.host_nqn in ("", place.host_nqn))
    ]


def _node(context: Context, place: NvmeofPlace, portals: Sequence[Portal]) -> str:
    """The device of the volume. Which of several it is is not guessed."""
    found = _nodes(context, place, portals)
    if len(found) > 1:
        raise ConnectorError(
            f"cannot tell which namespace of {place.nqn} is the volume: there are {', '.join(found)}",
            hint="the storage system has to give vol_uuid, volume_nguid or ns_id",
        )
    return found[0] if found else ""


def _nodes(context: Context, place: NvmeofPlace, portals: Sequence[Portal]) -> list[str]:
    """The devices that may be the volume: with nothing that tells it, every namespace."""
    names = dict.fromkeys(
        name for controller in _controllers(context, place, portals) for name in namespaces(context, controller)
    )
    told = place.uuid or place.nguid or place.nsid
    found = [name for name in names if not told or _is_volume(context, place, name)]
    return [node for name in found if (node := node_of(context, name))]


def _is_volume(context: Context, place: NvmeofPlace, name: str) -> bool:
    directory = context.roots.sysfs / "class/block" / name
    if place.uuid:
        return context.files.text(directory / "uuid").lower() == place.uuid
    if place.nguid:
        return context.files.text(directory / "nguid").replace("-", "").lower() == place.nguid
    return context.files.text(directory / "nsid") == str(place.nsid)


def _named(place: NvmeofPlace) -> str:
    """What is waited for."""
    number = f"the namespace {place.nsid}" if place.nsid else "the namespace"
    return f"the namespace {place.uuid or place.nguid}" if place.uuid or place.nguid else number


def _transport(text: str) -> str:
    return "rdma" if text in ("rdma", "RoCEv2") else "tcp"


DRIVER = NvmeofDriver()
