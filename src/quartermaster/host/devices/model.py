"""A block device as this host sees it, and the names by which it is known for good.

A path is not one of them: /dev/vdb may be another disk tomorrow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

import msgspec

_WWN_PREFIX = re.compile(r"^(wwn-|0x|naa\.|eui\.|nvme\.)+")
_NAA_OF_MULTIPATH = re.compile(r"^3([0-9a-f]{16}|[0-9a-f]{32})$")


PARTITION_TABLE = "partition table"  # the usage of such a signature


class Kind(StrEnum):
    DISK = "disk"
    MULTIPATH = "multipath"
    PARTITION = "partition"
    LOOP = "loop"
    MAPPED = "mapped"  # LVM, encryption and other work of the device mapper
    RAID = "raid"
    NETWORK = "network"  # a volume of somebody else, attached here
    OPTICAL = "optical"
    MEMORY = "memory"


class Signature(msgspec.Struct, frozen=True):
    """What was found on a device: a file system, a member of something, or a partition table."""

    type: str
    usage: str = ""
    uuid: str = ""
    label: str = ""


UNRECOGNISED = Signature("unrecognised data", usage="other")


class Device(msgspec.Struct, frozen=True):
    path: str
    name: str  # the kernel's
    number: str  # major:minor
    kind: Kind
    size: int  # bytes
    wwn: str = ""
    serial: str = ""
    model: str = ""
    links: tuple[str, ...] = ()  # under /dev/disk/by-id
    rotational: bool = False
    removable: bool = False
    read_only: bool = False
    stand_in: bool = False  # stands for a disk of a virtual host
    partitions: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()  # devices built on it or on its partitions
    mounts: tuple[str, ...] = ()  # where it, its partitions or its holders are mounted
    swap: bool = False
    signatures: tuple[Signature, ...] = ()
    unreadable: str = ""  # why the signatures are not known

    @property
    def hardware_identity(self) -> str:
        """WWN, else serial number; empty for a disk that has neither (some virtual ones)."""
        return self.wwn or self.serial

    @property
    def identity(self) -> str:
        """WWN, else serial number, else the UUID of what is on it; empty where it has none of them."""
        uuid = next((signature.uuid for signature in self.signatures if signature.uuid), "")
        return self.hardware_identity or uuid


def named_by(device: Device, name: str) -> bool:
    """Whether a person who writes this serial number or WWN means this device. A path or a UUID never does."""
    wanted = normal_wwn(name)
    return bool(wanted) and (
        (bool(device.serial) and name.strip() == device.serial)
        or (bool(device.wwn) and wanted == normal_wwn(device.wwn))
    )


def normal_wwn(text: str) -> str:
    """One spelling for what sysfs, udev, multipath and lsblk write differently."""
    plain = _WWN_PREFIX.sub("", text.strip().lower())
    match = _NAA_OF_MULTIPATH.match(plain)
    return match[1] if match else plain


def twins(devices: Sequence[Device]) -> dict[str, str]:
    """Path → path of another device with the same identity: two ways to one disk, or a clone."""
    first: dict[tuple[str, str], str] = {}
    found: dict[str, str] = {}
    for device in devices:
        # The members of a multipath device share its identity, and are held by it.
        if device.holders or not (device.wwn or device.serial):
            continue
        key = ("", normal_wwn(device.wwn)) if device.wwn else (device.model, device.serial)
        other = first.setdefault(key, device.path)
        if other != device.path:
            found[device.path] = other
            found.setdefault(other, device.path)
    return found
