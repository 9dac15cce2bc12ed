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

FIRST_HOST = 2
FSID = "0f1e2d3c-aaaa-bbbb-cccc-123456789abc"
ROOT_LINE = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"


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
        self.targets: dict[str, Target] = {}
        self.appeared: dict[str, float] = {}  # disk → when its node was there
        self.unflushable: set[str] = set()
        self.mounts: dict[str, str] = {}  # target → source
        self._images = 0

    # What the storage systems have

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
        self._attributes(
            own, port_name=f"0x2100{target.number:012x}", node_name="0x2000000000000001", port_state="Online"
        )
        self._class("fc_host", f"host{target.host}", own)
        port = f"class/fc_remote_ports/rport-{target.host}:0-1"
        self._attributes(port, port_name=f"0x{name}", scsi_target_id="0", port_state="Online")
        self._adapter(target)
        return target

    # Sessions

    def session(self, name: str) -> bool:
        target = self.targets[name]
        return (self.root / f"sys/class/iscsi_session/session{target.number}").exists()

    def log_in(self, target: Target, interface: str = "default") -> None:
        address, _, port = target.portal.rpartition(":")
        number = target.number
        self._adapter(target)
        self._class(
            "iscsi_host", f"host{target.host}", f"{target.device}/iscsi_host/host{target.host}", device=target.device
        )
        ways = {"persistent_address": address, "persistent_port": port, "address": address, "port": port}
        self._attributes(f"class/iscsi_connection/connection{number}:0", **ways)
        own = f"{target.device}/session{number}"
        self._attributes(
            f"{own}/iscsi_session/session{number}",
            ifacename=interface,
            target_id="0",
            state="LOGGED_IN",
            targetname=target.name,
        )
        self._class("iscsi_session", f"session{number}", f"{own}/iscsi_session/session{number}", device=own)

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

    # Disks

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
        self._attributes(scsi, wwid=f"naa.{wwid}", state="running", delete="", rescan="", vpd_pg83=page_83(wwid))
        self._attributes(f"{scsi}/block/{name}", dev=f"250:{8 * target.number + lun}", size="20480")
        (self.root / "sys" / scsi / "block" / name / "holders").mkdir()
        self._link(f"sys/{scsi}/block/{name}/device", f"sys/{scsi}")
        (self.root / "sys/class/scsi_device" / address).mkdir(parents=True, exist_ok=True)
        self._link(f"sys/class/scsi_device/{address}/device", f"sys/{scsi}")
        for place in ("class/block", "block"):
            self._link(f"sys/{place}/{name}", f"sys/{scsi}/block/{name}")
        for link in self._links(target, lun):
            self._link(f"dev/disk/{link}", f"dev/{name}")
        self._node(name)
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

    # Images of Ceph

    def map_image(self, pool: str, image: str, monitors: str, user: str) -> str:
        number, self._images = self._images, self._images + 1
        name = f"rbd{number}"
        own = f"devices/rbd/{number}"
        attributes = {
            "pool": pool,
            "pool_ns": "",
            "name": image,
            "current_snap": "-",
            "cluster_fsid": FSID,
            "refresh": "",
        }
        self._attributes(own, **attributes, config_info=f"{monitors} name={user},key=client.{user} {pool} {image} -")
        self._attributes(f"{own}/block/{name}", dev=f"251:{number}", size="20480")
        self._link(f"sys/{own}/block/{name}/device", f"sys/{own}")
        for place in ("class/block", "block"):
            self._link(f"sys/{place}/{name}", f"sys/{own}/block/{name}")
        self._node(name)
        (self.root / "dev/rbd" / pool).mkdir(parents=True, exist_ok=True)
        self._link(f"dev/rbd/{pool}/{image}", f"dev/{name}", replace=True)
        return f"/dev/{name}"

    def images(self) -> list[dict[str, str]]:
        found = []
        for name in self.disks():
            directory = (self.root / "sys/class/block" / name).resolve().parent.parent
            if name.startswith("rbd"):
                pool, image = ((directory / part).read_text() for part in ("pool", "name"))
                number = name.removeprefix("rbd")
                found.append(
                    {"id": number, "pool": pool, "namespace": "", "name": image, "snap": "-", "device": f"/dev/{name}"}
                )
        return found

    def unmap_image(self, device: str) -> bool:
        name = os.path.basename(os.path.realpath(self.root / device.lstrip("/")))
        found = self.root / "sys/class/block" / name
        if not found.is_symlink():
            return False
        own = found.resolve().parent.parent
        pool, image = ((own / part).read_text() for part in ("pool", "name"))
        for place in (f"dev/rbd/{pool}/{image}", f"dev/{name}", f"sys/class/block/{name}", f"sys/block/{name}"):
            (self.root / place).unlink(missing_ok=True)
        shutil.rmtree(own)
        return True

    # Mounts

    def write_mounts(self) -> None:
        lines = [
            f"{number} 1 0:{number} / {target} rw - nfs4 {source} rw\n"
            for number, (target, source) in enumerate(self.mounts.items(), 2)
        ]
        file = self.root / "proc/self/mountinfo"
        temporary = file.with_name("mountinfo.new")
        temporary.write_text(ROOT_LINE + "".join(lines))
        temporary.rename(file)

    # Files

    def _adapter(self, target: Target) -> None:
        own = f"{target.device}/scsi_host/host{target.host}"
        self._attributes(own, scan="")
        self._class("scsi_host", f"host{target.host}", own, device=target.device)

    def _links(self, target: Target, lun: int) -> tuple[str, str]:
        by_id = f"by-id/scsi-3{target.luns[lun].wwid}"
        if target.portal:
            return by_id, f"by-path/ip-{target.portal}-iscsi-{target.name}-lun-{lun}"
        return by_id, "by-path/" + target.link.format(bus=target.bus.rpartition("/")[2], name=target.name, lun=lun)

    def _class(self, kind: str, name: str, place: str, *, device: str = "") -> None:
        (self.root / "sys" / place).mkdir(parents=True, exist_ok=True)
        if device:
            self._link(f"sys/{place}/device", f"sys/{device}", replace=True)
        self._link(f"sys/class/{kind}/{name}", f"sys/{place}", replace=True)

    def _attributes(self, place: str, **values: str | bytes) -> None:
        directory = self.root / "sys" / place
        directory.mkdir(parents=True, exist_ok=True)
        for name, value in values.items():
            (directory / name).write_bytes(value if isinstance(value, bytes) else value.encode())

    def _node(self, name: str) -> None:
        """Whole at once: whoever waits for it may read it."""
        temporary = self.root / "dev" / f".{name}"
        temporary.write_bytes(bytes(512))
        temporary.rename(self.root / "dev" / name)

    def _link(self, place: str, to: str, *, replace: bool = False) -> None:
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if replace:
            path.unlink(missing_ok=True)
        path.symlink_to(os.path.relpath(self.root / to, path.parent))
