"""The kernel's own iSCSI target, set up through configfs: what targetcli does, without D-Bus."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.hostlab.programs import STATE, alive, load, read, run, wait_for

CONFIG = Path("/sys/kernel/config/target")
CORE = CONFIG / "core/fileio_0"
SESSIONS = Path("/sys/class/iscsi_session")
RECORDS = Path("/etc/iscsi/nodes")
DISCOVERED = Path("/etc/iscsi/send_targets")
PORTAL = "127.0.0.1:3260"
SIZE = 32 << 20
USER, PASSWORD = "host-1", "a-secret-for-chap"


def start_iscsi() -> None:
    """Both ends: the initiator's daemon, and the target's modules."""
    load("iscsi_tcp", "sd_mod", "target_core_file", "iscsi_target_mod")
    if not alive("iscsid"):
        run("iscsid")
        wait_for(lambda: alive("iscsid"))


class Disk:
    """A file that is served."""

    def __init__(self, name: str, *, size: int = SIZE) -> None:
        self.name = name
        self.file = STATE / f"{name}.img"
        self.directory = CORE / name
        self.serial = hashlib.sha256(name.encode()).hexdigest()[:32]
        self.file.touch()
        os.truncate(self.file, size)
        self.directory.mkdir(parents=True)
        write(self.directory / "control", f"fd_dev_name={self.file},fd_dev_size={size}")
        write(self.directory / "wwn/vpd_unit_serial", self.serial)
        write(self.directory / "enable", "1")

    @property
    def wwid(self) -> str:
        """What initiators know it by: NAA 6, the vendor number of LIO, and the serial."""
        return f"naa.6001405{self.serial[:25]}"

    def grow(self, size: int) -> None:
        os.truncate(self.file, size)
        write(self.directory / "control", f"fd_dev_size={size}")

    def remove(self) -> None:
        self.directory.rmdir()
        self.file.unlink()


class Target:
    """One iSCSI target for every initiator that knows the password, where it has one."""

    def __init__(
        self, name: str, *, portals: Sequence[str] = (PORTAL,), chap: bool = False, iser: bool = False
    ) -> None:
        self.iqn = f"iqn.2026-01.example:{name}"
        self.portals = portals
        self.chap = chap
        self.directory = CONFIG / "iscsi" / self.iqn / "tpgt_1"
        self.directory.mkdir(parents=True)
        settings = {"generate_node_acls": "1", "demo_mode_write_protect": "0", "cache_dynamic_acls": "1"}
        settings["authentication"] = "1" if chap else "0"
        for key, value in settings.items():
            write(self.directory / "attrib" / key, value)
        if chap:
            write(self.directory / "auth/userid", USER)
            write(self.directory / "auth/password", PASSWORD)
        for portal in portals:
            (self.directory / "np" / portal).mkdir()
            if iser:
                write(self.directory / "np" / portal / "iser", "1")
        write(self.directory / "enable", "1")

    def serve(self, lun: int, disk: Disk) -> None:
        directory = self.directory / f"lun/lun_{lun}"
        directory.mkdir()
        (directory / disk.name).symlink_to(disk.directory)

    def withdraw(self, lun: int) -> None:
        directory = self.directory / f"lun/lun_{lun}"
        for link in directory.iterdir():
            if link.is_symlink():
                link.unlink()
        directory.rmdir()

    def info(self, lun: int, volume: str, **more: Any) -> dict[str, Any]:
        """The data of a volume, as a storage system sends them."""
        data = {"targetPortal": self.portals[0], "targetIqn": self.iqn, "targetLun": lun, "volumeId": volume}
        if self.chap:
            data |= {"authMethod": "CHAP", "authUsername": USER, "authPassword": PASSWORD}
        return {"driverVolumeType": "iscsi", "data": data | more}

    def remove(self) -> None:
        write(self.directory / "enable", "0")
        for lun in list((self.directory / "lun").iterdir()):
            self.withdraw(int(lun.name.removeprefix("lun_")))
        for portal in self.portals:
            (self.directory / "np" / portal).rmdir()
        self.directory.rmdir()
        self.directory.parent.rmdir()


def guard_discovery(user: str, password: str) -> None:
    """Whoever asks for targets has to know the password; an empty one lets everybody ask."""
    directory = CONFIG / "iscsi/discovery_auth"
    write(directory / "userid", user or "NULL")
    write(directory / "password", password or "NULL")
    write(directory / "enforce_discovery_auth", "1" if password else "0")


def write(path: Path, text: str) -> None:
    """In one call, as configfs wants it."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def sessions() -> dict[str, list[int]]:
    """What the kernel says: the targets that this host is logged in to, with the LUNs that it has of each."""
    found: dict[str, list[int]] = {}
    for session in sorted(SESSIONS.iterdir()) if SESSIONS.exists() else []:
        luns = (session / "device").resolve().glob("target*/*:*:*:*")
        numbers = [int(lun.name.rpartition(":")[2]) for lun in luns if (lun / "block").exists()]
        found.setdefault(read(session / "targetname"), []).extend(sorted(numbers))
    return found


def node_records() -> list[str]:
    """What open-iscsi remembers of targets."""
    return sorted(str(path.relative_to(RECORDS)) for path in RECORDS.rglob("*") if path.is_file())


def discovery_records() -> list[str]:
    """What open-iscsi remembers of portals that were asked for targets."""
    return sorted(str(path.relative_to(DISCOVERED)) for path in DISCOVERED.rglob("*") if path.is_file())
