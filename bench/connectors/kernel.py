"""What a kernel shows of disks that storage systems give it, as files: sysfs, /dev, and the links that udev makes.

Numbers follow from the order in which targets were declared and not from who comes first, so that the commands of one
attach can be run again, word by word. Everything appears as late as its volume says.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import msgspec

from bench.connectors.images import Images
from bench.connectors.mounts import MountTable
from bench.connectors.tree import Tree

FIRST_HOST = 2


class Lun(msgspec.Struct):
    wwid: str
    late_s: float = 0.0  # between the scan and the device


class Target(msgspec.Struct):
    """An iSCSI target or, without a portal, a port of Fibre Channel: `bus` is where this host's adapter is then."""

    number: int
    name: str
    luns: dict[int, Lun]
    portal: str = ""
    chap: tuple[str, str] | None = None
    bus: str = ""
    link: str = "pci-{bus}-fc-0x{name}-lun-{lun}"

    @property
    def host(self) -> int:
        return FIRST_HOST + self.number

    @property
    def device(self) -> str:
        """The adapter's directory in sysfs."""
        return f"devices/{self.bus or 'platform'}/host{self.host}"

    @property
    def place(self) -> str:
        """The directory of the SCSI target."""
        way = f"session{self.number}" if self.portal else f"rport-{self.host}:0-1"
        return f"{self.device}/{way}/target{self.host}:0:0"

    def disk(self, lun: int) -> str:
        """The name of the disk that a LUN becomes."""
        return disk_name(8 * self.number + lun)


def disk_name(number: int) -> str:
    letters = ""
    while number >= 0:
        letters = chr(ord("a") + number % 26) + letters
        number = number // 26 - 1
    return f"sd{letters}"


def page_83(wwid: str) -> bytes:
    body = b"\x01\x03\x00" + bytes([len(wwid) // 2]) + bytes.fromhex(wwid)
    return b"\x00\x83" + len(body).to_bytes(2, "big") + body


class Kernel:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = Tree(root)
        self.images = Images(self.tree)
        self.mounts = MountTable(root)
        self.targets: dict[str, Target] = {}
        self.appeared: dict[str, float] = {}  # disk → when its node was there
        self.unflushable: set[str] = set()

    def add_target(
        self, name: str, luns: dict[int, Lun], *, portal: str, chap: tuple[str, str] | None = None
    ) -> Target:
        target = Target(len(self.targets) + 1, name, luns, portal=portal, chap=chap)
        self.targets[name] = target
        return target

    def add_port(self, name: str, luns: dict[int, Lun], *, bus: str, link: str = "") -> Target:
        """A port of a storage system, and the adapter of this host that sees it."""
        target = Target(len(self.targets) + 1, name, luns, bus=bus)
        target.link = link or target.link
        self.targets[name] = target
        own = f"{target.device}/fc_host/host{target.host}"
        self.tree.attributes(
            own, port_name=f"0x2100{target.number:012x}", node_name="0x2000000000000001", port_state="Online"
        )
        self.tree.enlist("fc_host", f"host{target.host}", own)
        port = f"class/fc_remote_ports/rport-{target.host}:0-1"
        self.tree.attributes(port, port_name=f"0x{name}", scsi_target_id="0", port_state="Online")
        self._adapter(target)
        return target

    def session(self, name: str) -> bool:
        target = self.targets[name]
        return (self.root / f"sys/class/iscsi_session/session{target.number}").exists()

    def log_in(self, target: Target, interface: str = "default") -> None:
        address, _, port = target.portal.rpartition(":")
        number = target.number
        self._adapter(target)
        self.tree.enlist(
            "iscsi_host", f"host{target.host}", f"{target.device}/iscsi_host/host{target.host}", device=target.device
        )
        ways = {"persistent_address": address, "persistent_port": port, "address": address, "port": port}
        self.tree.attributes(f"class/iscsi_connection/connection{number}:0", **ways)
        own = f"{target.device}/session{number}"
        self.tree.attributes(
            f"{own}/iscsi_session/session{number}",
            ifacename=interface,
            target_id="0",
            state="LOGGED_IN",
            targetname=target.name,
        )
        self.tree.enlist("iscsi_session", f"session{number}", f"{own}/iscsi_session/session{number}", device=own)

    def log_out(self, target: Target) -> None:
        for lun in target.luns:
            self.delete(target.disk(lun))
        for name in (
            f"iscsi_session/session{target.number}",
            f"iscsi_host/host{target.host}",
            f"scsi_host/host{target.host}",
        ):
            (self.root / "sys/class" / name).unlink(missing_ok=True)
        shutil.rmtree(self.root / f"sys/class/iscsi_connection/connection{target.number}:0", ignore_errors=True)
        shutil.rmtree(self.root / "sys" / target.device, ignore_errors=True)

    def scan(self, host: int, lun: int) -> None:
        target = next((each for each in self.targets.values() if each.host == host), None)
        if target is None or lun not in target.luns or target.luns[lun].late_s == float("inf"):
            return
        if target.luns[lun].late_s:
            asyncio.get_running_loop().call_later(target.luns[lun].late_s, self.appear, target, lun)
        else:
            self.appear(target, lun)

    def appear(self, target: Target, lun: int) -> None:
        address, name, wwid = f"{target.host}:0:0:{lun}", target.disk(lun), target.luns[lun].wwid
        scsi = f"{target.place}/{address}"
        if (self.root / "sys/class/block" / name).is_symlink() or not (self.root / "sys" / target.device).exists():
            return
        self.tree.attributes(scsi, wwid=f"naa.{wwid}", state="running", delete="", rescan="", vpd_pg83=page_83(wwid))
        self.tree.attributes(f"{scsi}/block/{name}", dev=f"250:{8 * target.number + lun}", size="20480")
        (self.root / "sys" / scsi / "block" / name / "holders").mkdir()
        self.tree.link(f"sys/{scsi}/block/{name}/device", f"sys/{scsi}")
        (self.root / "sys/class/scsi_device" / address).mkdir(parents=True, exist_ok=True)
        self.tree.link(f"sys/class/scsi_device/{address}/device", f"sys/{scsi}")
        for place in ("class/block", "block"):
            self.tree.link(f"sys/{place}/{name}", f"sys/{scsi}/block/{name}")
        for link in self._links(target, lun):
            self.tree.link(f"dev/disk/{link}", f"dev/{name}")
        self.tree.node(name)
        self.appeared[name] = time.monotonic()

    def delete(self, name: str) -> None:
        found = self.root / "sys/class/block" / name
        if not found.is_symlink():
            return
        scsi = found.resolve().parent.parent
        (self.root / "dev" / name).unlink(missing_ok=True)
        for directory in ("by-id", "by-path"):
            for link in (self.root / "dev/disk" / directory).iterdir():
                if link.is_symlink() and os.readlink(link).rpartition("/")[2] == name:
                    link.unlink()
        shutil.rmtree(self.root / "sys/class/scsi_device" / scsi.name, ignore_errors=True)
        for place in ("class/block", "block"):
            (self.root / "sys" / place / name).unlink(missing_ok=True)
        shutil.rmtree(scsi, ignore_errors=True)

    def lun_of(self, name: str) -> Lun | None:
        """What the storage system has by now where the kernel found this disk."""
        for target in self.targets.values():
            for lun, known in target.luns.items():
                if target.disk(lun) == name:
                    return known
        return None

    def disks(self) -> list[str]:
        return sorted(path.name for path in (self.root / "sys/class/block").iterdir())

    def _adapter(self, target: Target) -> None:
        own = f"{target.device}/scsi_host/host{target.host}"
        self.tree.attributes(own, scan="")
        self.tree.enlist("scsi_host", f"host{target.host}", own, device=target.device)

    def _links(self, target: Target, lun: int) -> tuple[str, str]:
        by_id = f"by-id/scsi-3{target.luns[lun].wwid}"
        if target.portal:
            return by_id, f"by-path/ip-{target.portal}-iscsi-{target.name}-lun-{lun}"
        return by_id, "by-path/" + target.link.format(bus=target.bus.rpartition("/")[2], name=target.name, lun=lun)
