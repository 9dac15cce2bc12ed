"""May this device be used? An ordered chain of small rules, each of which gives the reason that people will read.

Pure: everything that is known is in the device and the surroundings. A device that passes all rules is blank, whole and
idle as far as anybody can tell; `formatting` looks again just before it acts.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from quartermaster.host.devices.model import PARTITION_TABLE, UNRECOGNISED, Device, Kind, Signature

# Our own file systems are labelled with it, and volumes that are attached to this host are linked with it.
LABEL_PREFIX = "qm-"
ATTACHED_PREFIX = "quartermaster-"

_SYSTEM_TARGETS = ("/", "/boot", "/boot/efi", "/usr", "/var", "/etc", "/home")
_KINDS = {
    Kind.LOOP: "a loop device",
    Kind.MAPPED: "made by the device mapper",
    Kind.RAID: "a software RAID",
    Kind.NETWORK: "a volume of another system",
    Kind.OPTICAL: "an optical drive",
    Kind.MEMORY: "made of memory",
}
_MEMBERS = {
    "LVM2_member": "a physical volume of LVM",
    "LVM1_member": "a physical volume of LVM",
    "linux_raid_member": "a member of a software RAID",
    "ddf_raid_member": "a member of a RAID",
    "isw_raid_member": "a member of a RAID",
    "ceph_bluestore": "an OSD of a Ceph cluster",
    "zfs_member": "a member of a ZFS pool",
    "bcache": "a part of a bcache",
    "drbd": "a part of a DRBD resource",
    "crypto_LUKS": "an encrypted volume",
    "mpath_member": "a path of a multipath device",
    "VMFS_volume_member": "a part of a VMFS",
}


class State(StrEnum):
    AVAILABLE = "Available"
    IN_USE = "InUse"
    REJECTED = "Rejected"


class Reason(StrEnum):
    """One word that programs may rely on."""

    NOT_WHOLE = "NotWhole"
    NOT_A_DISK = "NotADisk"
    ATTACHED_VOLUME = "AttachedVolume"
    SYSTEM_DISK = "SystemDisk"
    SWAP = "Swap"
    MOUNTED = "Mounted"
    PARTITIONED = "Partitioned"
    HELD = "Held"
    READ_ONLY = "ReadOnly"
    REMOVABLE = "Removable"
    TOO_SMALL = "TooSmall"
    DUPLICATE_IDENTITY = "DuplicateIdentity"
    UNREADABLE = "Unreadable"
    MEMBER = "Member"
    OTHER_CLUSTER = "OtherCluster"
    FOREIGN_DATA = "ForeignData"


class Surroundings(msgspec.Struct, frozen=True):
    """What a verdict depends on beside the device."""

    own: tuple[str, ...] = ()  # UUIDs of the file systems that are ours
    minimum_size: int = 1 << 30
    twins: dict[str, str] = {}  # as devices.model.twins gives them


class Verdict(msgspec.Struct, frozen=True):
    state: State
    reason: str = ""
    message: str = ""

    @property
    def usable(self) -> bool:
        return self.state is State.AVAILABLE


def made_by_us(device: Device) -> str:
    """The UUID of the file system on it if a program of ours has made it, in whatever cluster; else empty."""
    first = device.signatures[0] if device.signatures else None
    return first.uuid if first is not None and first.label.startswith(LABEL_PREFIX) else ""


Rule = Callable[[Device, Surroundings], tuple[Reason, str] | None]


def judge(device: Device, surroundings: Surroundings) -> Verdict:
    if any(signature.uuid in surroundings.own for signature in device.signatures if signature.uuid):
        return Verdict(State.IN_USE)
    for rule in RULES:
        complaint = rule(device, surroundings)
        if complaint is not None:
            reason, message = complaint
            return Verdict(State.REJECTED, reason, f"{device.path} {message}")
    return Verdict(State.AVAILABLE)


def _is_whole(device: Device, _: Surroundings) -> tuple[Reason, str] | None:
    if device.kind is Kind.PARTITION:
        return Reason.NOT_WHOLE, "is a partition and not a whole device"
    return None


def _is_a_disk(device: Device, _: Surroundings) -> tuple[Reason, str] | None:
    if device.kind in _KINDS and not device.stand_in:
        return Reason.NOT_A_DISK, f"is {_KINDS[device.kind]} and not a disk"
    return None


def _is_not_attached(device: Device, _: Surroundings) -> tuple[Reason, str] | None:
    for link in device.links:
        if link.rpartition("/")[2].startswith(ATTACHED_PREFIX):
            return Reason.ATTACHED_VOLUME, f"is a volume that is attached to this host as {link}"
    return None


def _is_idle(device: Device, _: Surroundings) -> tuple[Reason, str] | None:
    system = [target for target in device.mounts if target in _SYSTEM_TARGETS]
    if system:
        return Reason.SYSTEM_DISK, f"holds the running system: it is mounted at {', '.join(system)}"
    if device.swap:
        return Reason.SWAP, "is in use as swap"
    if device.mounts:
        return Reason.MOUNTED, f"is mounted at {', '.join(device.mounts)}"
    if device.partitions:
        return Reason.PARTITIONED, f"has partitions: {', '.join(device.partitions)}"
    if device.holders:
        return Reason.HELD, f"is in use by {', '.join(device.holders)}"
    return None


def _is_suitable(device: Device, surroundings: Surroundings) -> tuple[Reason, str] | None:
    if device.read_only:
        return Reason.READ_ONLY, "is read-only"
    if device.removable:
        return Reason.REMOVABLE, "is removable"
    if device.size < surroundings.minimum_size:
        least = surroundings.minimum_size >> 20
        return Reason.TOO_SMALL, f"has {device.size >> 20} MiB, less than the {least} MiB that are needed"
    return None


def _is_the_only_one(device: Device, surroundings: Surroundings) -> tuple[Reason, str] | None:
    other = surroundings.twins.get(device.path)
    if other is None:
        return None
    message = f"has the same identity as {other}: a clone, or two paths to one disk that need multipath"
    return Reason.DUPLICATE_IDENTITY, message


def _is_blank(device: Device, _: Surroundings) -> tuple[Reason, str] | None:
    if device.unreadable:
        return Reason.UNREADABLE, f"cannot be read: {device.unreadable}"
    return _content(device.signatures[0]) if device.signatures else None


def _content(signature: Signature) -> tuple[Reason, str]:
    if signature == UNRECOGNISED:
        return (
            Reason.FOREIGN_DATA,
            "is not blank: nobody recognises what is on it, but its first or last MiB is not zero",
        )
    known = f"{signature.type}" + (f' named "{signature.label}"' if signature.label else "")
    if signature.label.startswith(LABEL_PREFIX):
        whose = "holds data of another cluster, or of an earlier life of this one"
        return Reason.OTHER_CLUSTER, f"{whose} ({known}, {signature.uuid})"
    if signature.usage == PARTITION_TABLE:
        return Reason.PARTITIONED, f"has a partition table ({signature.type})"
    if signature.type in _MEMBERS:
        return Reason.MEMBER, f"is {_MEMBERS[signature.type]}"
    if signature.usage == "raid":
        return Reason.MEMBER, f"is a member of a RAID or pool ({signature.type})"
    return Reason.FOREIGN_DATA, f"holds data that is not ours ({known})"


RULES: tuple[Rule, ...] = (
    _is_whole,
    _is_a_disk,
    _is_not_attached,
    _is_idle,
    _is_suitable,
    _is_the_only_one,
    _is_blank,
)
