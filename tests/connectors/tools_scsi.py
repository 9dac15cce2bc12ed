"""SCSI disks and Fibre Channel of a fake host.

What the storage systems have is in the facts: `luns` = {target: {LUN: {"wwid": …, "size": …}}}, where a target is an
iSCSI name or a port's name. A disk in sysfs keeps what it was when it was found; `sg_vpd` asks the storage system. What
is flushed to a disk that is another volume by now is in the fact `spoiled`.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

from tests.connectors import tools_multipath
from tests.connectors.harness.tool import Answer
from tests.connectors.harness.world import World
from tests.connectors.tools_multipath import BLOCK, WWIDS

_MODULE = __name__
TOOLS = {"sg_vpd": f"{_MODULE}:sg_vpd", "blockdev": f"{_MODULE}:blockdev", **tools_multipath.TOOLS}
HOOKS = {
    "/scan": f"{_MODULE}:scan",
    "device/delete": f"{_MODULE}:delete",
    "device/rescan": f"{_MODULE}:rescan",
    "device/state": f"{_MODULE}:change_state",
    "/port_rescan": f"{_MODULE}:port_rescan",
    "/unit_add": f"{_MODULE}:unit_add",
    "/unit_remove": f"{_MODULE}:unit_remove",
}
SCSI = "sys/class/scsi_device"
WWID = "60014051234567001122334455667701"
OTHER_WWID = "60014051234567001122334455667702"


def page_83(wwid: str) -> bytes:
    body = b"\x01\x03\x00" + bytes([len(wwid) // 2]) + bytes.fromhex(wwid)
    return b"\x00\x83" + len(body).to_bytes(2, "big") + body


def prepare_scsi(world: World, **luns: Any) -> None:
    for name in (SCSI, "sys/class/scsi_host", "etc/multipath", "etc/iscsi/nodes", "run/lock/iscsi", "state/iscsi"):
        world.path(name).mkdir(parents=True, exist_ok=True)
    world.path(WWIDS).write_text("# Valid WWIDs:\n")
    world.set_fact("attributes", HOOKS)
    world.set_fact("luns", luns)


def lun(wwid: str = WWID, size: str = "20480") -> dict[str, str]:
    return {"wwid": wwid, "size": size}


def make_host(world: World, host: int) -> None:
    directory = world.path(f"sys/class/scsi_host/host{host}")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "scan").write_text("")


def drop_host(world: World, host: int) -> None:
    for address in _addresses(world, host):
        _drop_disk(world, address)
    shutil.rmtree(world.path(f"sys/class/scsi_host/host{host}"), ignore_errors=True)


def target_of(world: World, address: str) -> str:
    """The storage system's name for what is at host:channel:target."""
    host, channel, number, _ = address.split(":")
    for session in world.path("sys/class/iscsi_session").glob("session*"):
        if (session / "device").resolve().parent.name == f"host{host}":
            return (session / "targetname").read_text()
    for port in world.path("sys/class/fc_remote_ports").glob(f"rport-{host}:{channel}-*"):
        if (port / "scsi_target_id").read_text() == number:
            return (port / "port_name").read_text().removeprefix("0x")
    return str(world.fact("hidden", {}).get(f"{host}:{channel}:{number}", ""))


def add_disk(world: World, address: str) -> str:
    """What the storage system has at an address appears, if it has something; its name."""
    known = world.fact("luns", {}).get(target_of(world, address), {}).get(address.split(":")[3])
    with world.alone():
        if known is None or (world.path(SCSI) / address).exists():
            return ""
        used = [path.name for path in world.path(BLOCK).iterdir()]
        # By its adapter and not by who comes first: paths appear at once, and their names have to be known.
        own = "bcdefgh"[int(address.split(":", maxsplit=1)[0]) - 3]
        name = next(f"sd{letter}" for letter in f"{own}mnopqr" if f"sd{letter}" not in used)
        (world.path(SCSI) / address / "device/block" / name).mkdir(parents=True)
        world.add_device(
            name,
            size=known["size"],
            device__vpd_pg83=page_83(known["wwid"]),
            device__state="running",
            device__delete="",
            device__rescan="",
        )
    return name


def scan(world: World, path: Path, text: str) -> None:
    host = path.parent.name.removeprefix("host")
    channel, target, number = text.split()
    places = [f"{channel}:{target}"] if channel != "-" else _places(world, host)
    for place in places:
        name = add_disk(world, f"{host}:{place}:{number}")
        link = world.fact("links", {}).get(f"{host}:{place}:{number}")
        if name and link:
            world.path(f"dev/disk/by-path/{link}").symlink_to(f"../../{name}")


def delete(world: World, path: Path, _text: str) -> None:
    _drop_disk(world, address_of(world, path.parent.parent.name))


def rescan(world: World, path: Path, _text: str) -> None:
    name = path.parent.parent.name
    (world.path(BLOCK) / name / "size").write_text(_live(world, name)["size"])


def change_state(_world: World, path: Path, text: str) -> None:
    if text not in ("offline\n", "running\n"):
        raise OSError(errno.EINVAL, "Invalid argument")
    path.write_text(text.strip())


def address_of(world: World, disk: str) -> str:
    return next(path.parents[2].name for path in world.path(SCSI).glob(f"*/device/block/{disk}"))


def sg_vpd(world: World, arguments: list[str], _stdin: str) -> Answer:
    name = Path(arguments[-1]).name
    if not (world.path(BLOCK) / name).exists():
        return 15, "", f"sg_vpd: error opening file: {arguments[-1]}: No such file or directory"
    if code := world.fact("no_page", 0):
        return code, "", "sg_vpd: fetching VPD page failed"
    return 0, page_83(_live(world, name)["wwid"]).decode(errors="surrogateescape"), ""


def blockdev(world: World, arguments: list[str], _stdin: str) -> Answer:
    device = Path(arguments[-1])
    directory = world.path(BLOCK) / device.name
    disks = [path.name for path in (directory / "slaves").glob("*")] or [device.name]
    running = [disk for disk in disks if _state(world, disk) != "offline"]
    if not device.exists() or not running or device.name in world.fact("unflushable", []):
        return 1, "", f"blockdev: {device}: Input/output error"
    if arguments[0] == "--setro":
        (directory / "ro").write_text("1")
    for disk in running if arguments[0] == "--flushbufs" else ():
        if _state(world, disk) and page_83(_live(world, disk)["wwid"]) != _found_as(world, disk):
            world.set_fact("spoiled", disk)
    return 0, "", ""


def port_rescan(world: World, path: Path, _text: str) -> None:
    for wwn in world.fact("luns", {}):
        directory = path.parent / f"0x{wwn}"
        directory.mkdir(exist_ok=True)
        for name in ("unit_add", "unit_remove"):
            (directory / name).write_text("")


def unit_add(world: World, path: Path, text: str) -> None:
    (path.parent / text).mkdir(exist_ok=True)
    value = int(text, 16)
    number = value >> 48 | (value >> 32 & 0xFFFF) << 16
    wwn = path.parent.name.removeprefix("0x")
    for port in world.path("sys/class/fc_remote_ports").iterdir():
        if (port / "port_name").read_text() == f"0x{wwn}":
            host, _, rest = port.name.removeprefix("rport-").partition(":")
            add_disk(world, f"{host}:{rest.partition('-')[0]}:{(port / 'scsi_target_id').read_text()}:{number}")


def unit_remove(_world: World, path: Path, text: str) -> None:
    shutil.rmtree(path.parent / text, ignore_errors=True)


def _state(world: World, disk: str) -> str:
    """Empty for what is no SCSI disk."""
    file = world.path(BLOCK) / disk / "device/state"
    return file.read_text() if file.exists() else ""


def _found_as(world: World, disk: str) -> bytes:
    return (world.path(BLOCK) / disk / "device/vpd_pg83").read_bytes()


def _live(world: World, disk: str) -> dict[str, str]:
    address = address_of(world, disk)
    known: dict[str, str] = world.fact("luns")[target_of(world, address)][address.split(":")[3]]
    return known


def _places(world: World, host: str) -> list[str]:
    return [key.partition(":")[2] for key in world.fact("hidden", {}) if key.startswith(f"{host}:")]


def _addresses(world: World, host: int) -> list[str]:
    return [path.name for path in world.path(SCSI).iterdir() if path.name.split(":")[0] == str(host)]


def _drop_disk(world: World, address: str) -> None:
    with world.alone():
        directory = world.path(SCSI) / address
        for disk in directory.glob("device/block/*"):
            for link in world.path("dev/disk/by-path").iterdir():
                if link.is_symlink() and link.readlink().name == disk.name:
                    link.unlink()
            for slave in world.path(BLOCK).glob(f"dm-*/slaves/{disk.name}"):
                slave.rmdir()
            world.drop_device(disk.name)
        shutil.rmtree(directory, ignore_errors=True)
