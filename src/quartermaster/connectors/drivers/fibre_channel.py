"""Fibre Channel. The fabric shows a storage system's ports by itself; a LUN behind them has to be looked for.

A disk is found by the remote port that leads to it, which is the same on every platform; where a host adapter does not
list its remote ports, by the link that udev makes, whose name differs: `pci-…-fc-0xWWN-lun-L`, `platform-…-pci-…`,
`fc-0xWWN-lun-L` on PPC64, `ccw-…-zfcp-0xWWN:0xLUN` on S390. There a LUN appears when it is added to the port as a unit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Foreign, Found, Route, Settings
from quartermaster.connectors.drivers.multipath import foreign_maps, map_over
from quartermaster.connectors.drivers.paths import disks_away, find_disks, goes, grow_disks, remove_disks, use_disks
from quartermaster.connectors.drivers.scsi import (
    NO_LUN,
    Scan,
    addressed_lun,
    addresses,
    appear,
    disk_at,
    first_lun,
    node,
    require_luns,
)
from quartermaster.connectors.errors import ConnectorError, UnreachableError
from quartermaster.connectors.identity import read_identity
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import AccessMode, DriverType, Platform
from quartermaster.support.errors import CommandError
from quartermaster.support.log import logger

log = logger("connectors")

_SCANNED = "fibre_channel"
_ONE_LEVEL = 0xFFFF
_HEX = "0123456789abcdef"
_WWN = '"500a098280feeba5"'


class FibreChannelConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    target_wwn: str | tuple[str, ...] = ()
    target_lun: int = NO_LUN
    target_wwns: tuple[str, ...] = ()
    target_luns: tuple[int, ...] = ()
    initiator_target_map: dict[str, tuple[str, ...]] = {}
    addressing_mode: str = ""
    enable_wildcard_scan: bool = True
    target_discovered: bool = False
    access_mode: AccessMode = AccessMode.READ_WRITE
    wwid: str = ""
    volume_id: str = ""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        names = self.names()
        if not names:
            wrong.add("targetWwn", "is missing", f"for example {_WWN}", unless=["targetWwns"])
        with wrong.about("targetLun", "for example 1", unless=["targetLuns"]):
            require_luns(first_lun(self.target_lun, self.target_luns), self.target_luns)
        if names and self.target_luns and len(self.target_luns) not in (1, len(names)):
            wrong.add(
                "targetLuns",
                f"has {len(self.target_luns)} entries for {len(names)} ports",
                "give one for each port, or targetLun",
                unless=["targetWwn", "targetWwns"],
            )
        for name in names:
            plain = normal_wwn(name)
            if len(plain) != 16 or any(character not in _HEX for character in plain):
                wrong.add(
                    "targetWwn", f'"{name}" is no world wide name: it has 16 hexadecimal digits', f"for example {_WWN}"
                )
        wrong.tell()

    def names(self) -> tuple[str, ...]:
        if self.target_wwns:
            return self.target_wwns
        return (self.target_wwn,) if isinstance(self.target_wwn, str) and self.target_wwn else tuple(self.target_wwn)


class FibreChannelPath(msgspec.Struct, frozen=True, order=True):
    wwn: str
    lun: int

    @property
    def thing(self) -> str:
        return f"lun {self.lun} of {self.wwn}"


class FibreChannelPlace(msgspec.Struct, frozen=True):
    paths: tuple[FibreChannelPath, ...]
    initiators: dict[str, tuple[str, ...]] = {}  # our ports, and the ports that each may use
    wildcard: bool = True
    multipath: bool = False
    wwid: str = ""

    def only(self, *paths: FibreChannelPath) -> FibreChannelPlace:
        return msgspec.structs.replace(self, paths=paths)


class Port(msgspec.Struct, frozen=True):
    """One of this host's, that is up."""

    host: int
    wwn: str
    bus: str  # the device that it is on, as its bus calls it


class Way(msgspec.Struct, frozen=True):
    """From a port of this host to a port of the storage system."""

    host: int
    channel: str
    target: str
    path: FibreChannelPath


class FibreChannelDriver:
    route = Route(
        DriverType.FIBRE_CHANNEL,
        FibreChannelConnectionData,
        FibreChannelPlace,
        platforms=(Platform.X86, Platform.AARCH64, Platform.PPC64, Platform.S390),
    )

    def identify(self, data: FibreChannelConnectionData, settings: Settings) -> FibreChannelPlace:
        names = [normal_wwn(name) for name in data.names()]
        luns = data.target_luns or (data.target_lun,)
        luns = luns * len(names) if len(luns) == 1 else luns
        paths = {
            FibreChannelPath(name, addressed_lun(lun, data.addressing_mode)): None
            for name, lun in zip(names, luns, strict=True)
        }
        initiators = {
            normal_wwn(own): tuple(sorted(normal_wwn(other) for other in others))
            for own, others in sorted(data.initiator_target_map.items())
        }
        return FibreChannelPlace(
            tuple(sorted(paths)), initiators, data.enable_wildcard_scan, settings.multipath, data.wwid
        )

    async def attach(self, context: Context, data: FibreChannelConnectionData, place: FibreChannelPlace) -> Found:
        ports = _ports(context, place)
        if not ports:
            raise ConnectorError(
                "cannot use Fibre Channel: no port of this host is online", hint="look at the cables and the zoning"
            )
        async with AsyncExitStack() as held:
            met = []
            for path in sorted(place.paths, key=lambda path: path.thing):
                here = partial(_is_here, context, place.only(path), ports)
                met.append(await held.enter_async_context(context.awaiting(path.thing, present=here)))
            context.note(**{_SCANNED: "yes"})
            disks = await _appeared(context, place, ports)
            read_only = data.access_mode is AccessMode.READ
            return await use_disks(
                context, disks, wwid=place.wwid, multipath=place.multipath, read_only=read_only, met=met
            )

    async def find(self, context: Context, place: FibreChannelPlace) -> Found | None:
        claimed = bool(context.notes.get(_SCANNED))
        disks = _disks(context, place.only(*(path for path in place.paths if not context.is_left_here(path.thing))))
        return await find_disks(context, disks, wwid=place.wwid, multipath=place.multipath, claimed=claimed)

    async def away(self, context: Context, place: FibreChannelPlace) -> str:
        return disks_away(context, _disks(context, place))

    async def detach(self, context: Context, place: FibreChannelPlace, *, force: bool) -> None:
        async with context.leaving_all([path.thing for path in place.paths]) as leaving:
            going = place.only(*(path for path in place.paths if goes(context, path.thing, leaving[path.thing])))
            await remove_disks(context, _disks(context, going, ready=False), wwid=place.wwid, force=force)
            if context.platform is Platform.S390:
                await _remove_units(context, going)
        context.note(**{_SCANNED: ""})

    async def extend(self, context: Context, place: FibreChannelPlace) -> None:
        await grow_disks(context, _disks(context, place))

    async def foreign(self, context: Context) -> Sequence[Foreign]:
        names = context.files.names(context.roots.sysfs / "class/fc_host")
        hosts = [int(name.removeprefix("host")) for name in names]
        found = []
        for address in [address for host in hosts for address in addresses(context, host)]:
            disk = disk_at(context, address)
            if disk and not map_over(context, [disk]):
                device = node(context, disk)
                name = read_identity(device, context.roots, context.files) or address
                found.append(Foreign(self.route.driver_type, "device", name, device))
        return [*found, *foreign_maps(context, self.route.driver_type, hosts)]


async def _appeared(context: Context, place: FibreChannelPlace, ports: list[Port]) -> list[str]:
    on_s390 = context.platform is Platform.S390
    if on_s390:
        await _show_ports(context, place, ports)
    ways = list(_ways(context, place))
    if not ways and not place.wildcard:
        raise UnreachableError(
            f"cannot find {_named(place)}: no port of this host sees it",
            hint="look at the zoning, and whether the storage system is on",
        )
    refused: dict[str, None] = {}

    async def before() -> None:
        if on_s390:
            refused.update(await _add_units(context, place, ports))

    return await appear(
        context,
        lambda: _disks(context, place),
        lambda: _scans(context, place, ports) if not on_s390 or refused else (),
        wanted=max(1, len(ways)) if place.multipath else 1,
        what=_named(place),
        hint="look whether the storage system has exported the volume to this host's ports",
        before=before,
    )


def normal_wwn(text: str) -> str:
    return text.strip().lower().removeprefix("0x").replace(":", "")


def unit_lun(lun: int) -> str:
    """The 64 bits of a LUN as zfcp writes them. Above 16 bits the number is two levels, the first one in front."""
    return f"0x{lun:04x}000000000000" if lun <= _ONE_LEVEL else f"0x{lun:08x}00000000"


def kernel_lun(lun: int, platform: Platform) -> int:
    """The number of a LUN in the kernel's addresses, where the first level is the low half."""
    if platform is not Platform.S390 or lun <= _ONE_LEVEL:
        return lun
    return lun >> 16 | (lun & _ONE_LEVEL) << 16


def link_endings(path: FibreChannelPath, platform: Platform) -> tuple[str, ...]:
    """How udev's names for the disk end, on every platform."""
    lun = kernel_lun(path.lun, platform)
    shown = str(lun) if lun < 256 else f"0x{lun & _ONE_LEVEL:04x}{lun >> 16 & _ONE_LEVEL:04x}00000000"
    return (f"fc-0x{path.wwn}-lun-{shown}", f"zfcp-0x{path.wwn}:{unit_lun(path.lun)}")


def _ports(context: Context, place: FibreChannelPlace) -> list[Port]:
    """Those that the storage system has exported to, or all where it names none of ours."""
    files, directory = context.files, context.roots.sysfs / "class/fc_host"
    found = []
    for name in files.names(directory):
        if files.text(directory / name / "port_state") == "Online":
            parts = os.path.realpath(directory / name).split("/")
            bus = parts[parts.index(name) - 1] if name in parts[:-1] else ""
            wwn = normal_wwn(files.text(directory / name / "port_name"))
            found.append(Port(int(name.removeprefix("host")), wwn, bus))
    return [port for port in found if port.wwn in place.initiators] or found


def _ways(context: Context, place: FibreChannelPlace) -> Iterator[Way]:
    files, directory = context.files, context.roots.sysfs / "class/fc_remote_ports"
    ports = {port.host: port for port in _ports(context, place)}
    for name in files.names(directory):
        host, _, rest = name.removeprefix("rport-").partition(":")
        target = files.text(directory / name / "scsi_target_id")
        if not host.isdecimal() or int(host) not in ports or not target.isdecimal():
            continue
        wwn = normal_wwn(files.text(directory / name / "port_name"))
        allowed = place.initiators.get(ports[int(host)].wwn)
        if allowed is None or wwn in allowed:
            for path in place.paths:
                if path.wwn == wwn:
                    yield Way(int(host), rest.partition("-")[0], target, path)


def _address(context: Context, way: Way) -> str:
    return f"{way.host}:{way.channel}:{way.target}:{kernel_lun(way.path.lun, context.platform)}"


def _disks(context: Context, place: FibreChannelPlace, *, ready: bool = True) -> list[str]:
    found = {disk_at(context, _address(context, way), ready=ready): None for way in _ways(context, place)}
    links = context.roots.dev / "disk/by-path"
    endings = tuple(ending for path in place.paths for ending in link_endings(path, context.platform))
    for name in context.files.names(links):
        if any(name == ending or name.endswith(f"-{ending}") for ending in endings):
            disk = os.path.basename(context.files.leads_to(links / name))
            if not ready or context.files.exists(context.roots.dev / disk):
                found[disk] = None
    found.pop("", None)
    return list(found)


def _is_here(context: Context, place: FibreChannelPlace, ports: list[Port]) -> bool:
    """As a disk, or as the unit by which S390 has been told of it."""
    units = _units(context, place, ports) if context.platform is Platform.S390 else ()
    return bool(_disks(context, place, ready=False)) or any(
        context.files.exists(directory / lun) for directory, lun in units
    )


def _scans(context: Context, place: FibreChannelPlace, ports: list[Port]) -> list[Scan]:
    """Only where the volume is; everywhere where no adapter says which remote ports it sees."""
    ways = list(_ways(context, place))
    luns = dict.fromkeys(str(kernel_lun(path.lun, context.platform)) for path in place.paths)
    if not ways:
        return [Scan(port.host, "-", "-", lun) for port in ports for lun in luns]
    return [
        Scan(way.host, way.channel, way.target, str(kernel_lun(way.path.lun, context.platform)))
        for way in ways
        if not disk_at(context, _address(context, way))
    ]


def _units(context: Context, place: FibreChannelPlace, ports: list[Port]) -> Iterator[tuple[Path, str]]:
    """The directory of each remote port on each adapter of S390, and the LUN there."""
    for port in ports:
        allowed = place.initiators.get(port.wwn)
        for path in place.paths:
            if port.bus and (allowed is None or path.wwn in allowed):
                yield _adapter(context, port) / f"0x{path.wwn}", unit_lun(path.lun)


def _adapter(context: Context, port: Port) -> Path:
    return context.roots.sysfs / "bus/ccw/drivers/zfcp" / port.bus


async def _show_ports(context: Context, place: FibreChannelPlace, ports: list[Port]) -> None:
    """An adapter that does not know a remote port yet looks at the fabric again."""
    for port in ports:
        missing = [path for path in place.paths if not context.files.exists(_adapter(context, port) / f"0x{path.wwn}")]
        if missing and port.bus:
            attribute = _adapter(context, port) / "port_rescan"
            await context.write_attribute(attribute, "1", verb=f"look for remote ports at {port.bus}")


async def _add_units(context: Context, place: FibreChannelPlace, ports: list[Port]) -> Mapping[str, None]:
    """The units that were refused: an adapter that finds LUNs by itself takes none."""
    refused: dict[str, None] = {}
    for directory, lun in _units(context, place, ports):
        if context.files.exists(directory) and not context.files.exists(directory / lun):
            try:
                await context.write_attribute(
                    directory / "unit_add", lun, verb=f"add the unit {lun} at {directory.name}"
                )
            except CommandError as error:
                log.warning("a unit is refused", volume=context.volume_id, error=str(error))
                refused[str(directory / lun)] = None
    return refused


async def _remove_units(context: Context, place: FibreChannelPlace) -> None:
    for directory, lun in _units(context, place, _ports(context, place)):
        if context.files.exists(directory / lun):
            attribute = directory / "unit_remove"
            await context.write_attribute(attribute, lun, verb=f"remove the unit {lun} at {directory.name}")


def _named(place: FibreChannelPlace) -> str:
    return " and ".join(f"LUN {path.lun} of {path.wwn}" for path in place.paths)


DRIVER = FibreChannelDriver()
