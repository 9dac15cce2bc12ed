"""Block devices as sysfs, the mount table and udev's links describe them, read live and without starting anything.

Not by lsblk: it answers from udev's database, and one dead disk holds the answer for all. The roots can be moved, so
that tests show hardware that is not there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from quartermaster.host.devices.model import Device, Kind
from quartermaster.host.mountinfo import Mount

_SECTOR = 512  # sysfs counts in these, whatever the disk does
_NETWORK = ("nbd", "rbd", "drbd", "etherd!", "dms", "scini")
_MEMORY = ("ram", "zram")
_WWN_KINDS = ("naa.", "eui.", "nvme.", "uuid.")


class Roots(msgspec.Struct, frozen=True):
    sysfs: Path = Path("/sys")
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    udev: Path = Path("/run/udev/data")


class Index(msgspec.Struct, frozen=True):
    """What is asked about every device, read once."""

    mounts: dict[str, list[str]]  # by number, and by the kernel's name of the source
    swaps: tuple[str, ...]
    links: dict[str, list[str]]


def read_index(roots: Roots, table: Sequence[Mount]) -> Index:
    mounts: dict[str, list[str]] = {}
    for mount in table:
        mounts.setdefault(mount.number, []).append(mount.target)
        # btrfs has numbers of its own that lead to no device.
        if mount.type == "btrfs":
            mounts.setdefault(_kernel_name(mount.source), []).append(mount.target)
    return Index(mounts, _swaps(roots), _links(roots))


def names(roots: Roots) -> list[str]:
    """Whole devices that have a medium, in the order of their names."""
    found = []
    for name in sorted(_entries(roots.sysfs / "block"), key=_natural):
        directory = roots.sysfs / "block" / name
        if _number(directory / "size") and not _number(directory / "hidden"):
            found.append(name)
    return found


def read_device(roots: Roots, name: str, index: Index) -> Device | None:
    """One device without its signatures; None where there is none of that name, or no medium in it."""
    directory = roots.sysfs / "class/block" / name
    size = _number(directory / "size") * _SECTOR
    if not size:
        return None
    kind = _kind(directory, name)
    partitions = tuple(
        sorted((entry for entry in _entries(directory) if _is_partition(directory / entry)), key=_natural)
    )
    holders = _holders(roots, (name, *partitions))
    related = (name, *partitions, *holders)
    targets = {target: None for each in related for target in _targets(roots, each, index)}
    udev = _udev(roots, directory)
    queue = directory / "queue" if kind is not Kind.PARTITION else directory.resolve().parent / "queue"
    return Device(
        path=f"/dev/{name.replace('!', '/')}",
        name=name,
        number=_text(directory / "dev"),
        kind=kind,
        size=size,
        wwn=_wwn(directory) or udev.get("ID_WWN_WITH_EXTENSION", udev.get("ID_WWN", "")),
        serial=_serial(directory) or udev.get("ID_SERIAL_SHORT", ""),
        model=_text(directory / "device/model"),
        links=tuple(sorted(index.links.get(name, ()))),
        rotational=bool(_number(queue / "rotational")),
        removable=bool(_number(directory / "removable")),
        read_only=bool(_number(directory / "ro")),
        partitions=partitions,
        holders=holders,
        mounts=tuple(targets),
        swap=any(each in index.swaps for each in related),
    )


def _kind(directory: Path, name: str) -> Kind:
    if _is_partition(directory):
        return Kind.PARTITION
    if name.startswith("dm-"):
        return Kind.MULTIPATH if _text(directory / "dm/uuid").startswith("mpath-") else Kind.MAPPED
    by_name = (
        (("loop",), Kind.LOOP),
        (("md",), Kind.RAID),
        (("sr",), Kind.OPTICAL),
        (("zd",), Kind.MAPPED),
        (_NETWORK, Kind.NETWORK),
        (_MEMORY, Kind.MEMORY),
    )
    return next((kind for beginnings, kind in by_name if name.startswith(beginnings)), Kind.DISK)


def _wwn(directory: Path) -> str:
    multipath = _text(directory / "dm/uuid").removeprefix("mpath-")
    for text in (_text(directory / "wwid"), _text(directory / "device/wwid")):
        if text.startswith(_WWN_KINDS):
            return text
    return multipath if _text(directory / "dm/uuid").startswith("mpath-") else ""


def _serial(directory: Path) -> str:
    plain = _text(directory / "serial") or _text(directory / "device/serial")
    if plain:
        return plain
    with suppress(OSError):
        # Vital product data: four bytes of header, then the unit's serial number.
        return (directory / "device/vpd_pg80").read_bytes()[4:].decode("ascii", errors="replace").strip("\0 ")
    return ""


def _holders(roots: Roots, names: Sequence[str]) -> tuple[str, ...]:
    """Everything that is built on the devices, at any depth."""
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        for holder in sorted(_entries(roots.sysfs / "class/block" / waiting.pop(0) / "holders"), key=_natural):
            if holder not in found:
                found[holder] = None
                waiting.append(holder)
    return tuple(found)


def _targets(roots: Roots, name: str, index: Index) -> list[str]:
    number = _text(roots.sysfs / "class/block" / name / "dev")
    return [*index.mounts.get(number, ()), *index.mounts.get(name, ())]


def _udev(roots: Roots, directory: Path) -> dict[str, str]:
    """What udev found out by asking the disk in ways that sysfs does not; empty without udev."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in (roots.udev / f"b{_text(directory / 'dev')}").read_text(errors="replace").splitlines():
            if line.startswith("E:"):
                key, _, value = line[2:].partition("=")
                found[key] = value
    return found


def _links(roots: Roots) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    directory = roots.dev / "disk/by-id"
    for entry in _entries(directory):
        with suppress(OSError):
            name = os.readlink(directory / entry).rpartition("/")[2]
            found.setdefault(name, []).append(f"/dev/disk/by-id/{entry}")
    return found


def _swaps(roots: Roots) -> tuple[str, ...]:
    with suppress(OSError):
        lines = (roots.proc / "swaps").read_text().splitlines()[1:]
        return tuple(_kernel_name(line.split()[0]) for line in lines)
    return ()


def _kernel_name(path: str) -> str:
    return os.path.realpath(path).rpartition("/")[2] if path.startswith("/dev/") else ""


def _is_partition(directory: Path) -> bool:
    return (directory / "partition").exists()


def _entries(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(file: Path) -> int:
    text = _text(file)
    return int(text) if text.isdecimal() else 0


def _natural(name: str) -> tuple[int, str]:
    """sdb before sdaa, vdb2 before vdb10."""
    return len(name), name
