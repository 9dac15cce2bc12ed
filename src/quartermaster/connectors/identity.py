"""What a block device says it is, read from the kernel and, for SCSI, from the device behind it.

A path proves nothing: after a LUN is given to another volume the kernel keeps the old device under the old name, and
whoever believes it writes into somebody else's volume. The identity is therefore read when a volume is attached, put
into its record, and compared before the device is used or deleted.
"""

from __future__ import annotations

import os
from pathlib import Path

from quartermaster.connectors.driver import Roots
from quartermaster.connectors.errors import IdentityMismatchError
from quartermaster.connectors.files import Files

_LUN = 0  # association: what the designator names is the logical unit, not a port
_T10, _EUI, _NAA, _NAME = 1, 2, 3, 8
_BEST = (_NAA, _EUI, _NAME, _T10)
_LOCALLY_ASSIGNED = "naa.3"
_PREFIX = {_NAA: "naa.", _EUI: "eui.", _T10: "t10.", _NAME: ""}


def kernel_name(device: str, roots: Roots) -> str:
    """sdb for /dev/sdb, etherd!e1.2 for /dev/etherd/e1.2, as sysfs spells it."""
    resolved = os.path.realpath(device)
    inside = os.path.relpath(resolved, os.path.realpath(roots.dev))
    return inside.replace("/", "!") if not inside.startswith("..") else ""


def device_directory(device: str, roots: Roots) -> Path:
    return roots.sysfs / "class/block" / (kernel_name(device, roots) or "-")


def read_identity(device: str, roots: Roots, files: Files) -> str:
    """One word for what the device is; empty for a device that has nothing of the kind."""
    directory = device_directory(device, roots)
    for read in (_multipath, _scsi, _nvme, _rbd, _loop, _plain):
        found = read(directory, files)
        if found:
            return found
    return ""


def require_identity(volume_id: str, device: str, *, expected: str, found: str) -> None:
    """Nothing where they agree or nothing is known; else the error that names both."""
    if not expected or not found or same_identity(expected, found):
        return
    raise IdentityMismatchError(
        f"cannot use {device} as the volume {volume_id}: it is {found}, and the volume is {expected}",
        expected=expected,
        found=found,
        hint=(
            "the storage system has given its address to another volume; rescan, or give the old one up by force: "
            "disconnect(info, force=True), `qm connector disconnect --force`"
        ),
    )


def same_identity(one: str, other: str) -> bool:
    """However sysfs, udev, multipath or the storage system writes it."""
    from quartermaster.host.devices.model import normal_wwn

    return one == other or normal_wwn(one) == normal_wwn(other)


def parse_page_83(page: bytes) -> str:
    """The best designator of the logical unit in SCSI's device identification page."""
    return next(iter(designators(page)), "")


def designators(page: bytes) -> tuple[str, ...]:
    """All by which the page names the logical unit, the best first."""
    found: dict[int, str] = {}
    place = 4
    end = min(len(page), 4 + int.from_bytes(page[2:4], "big")) if len(page) >= 4 else 0
    while place + 4 <= end:
        code_set, kind, length = page[place] & 0x0F, page[place + 1] & 0x0F, page[place + 3]
        association = page[place + 1] >> 4 & 0x3
        value = page[place + 4 : place + 4 + length]
        if association == _LUN and kind in _PREFIX and len(value) == length:
            text = value.hex() if code_set == 1 else value.rstrip(b"\0 ").decode("ascii", errors="replace").strip()
            found.setdefault(kind, f"{_PREFIX[kind]}{text}")
        place += 4 + length
    named = [found[kind] for kind in _BEST if kind in found]
    # A name that the target has assigned by itself says where the unit is, not what: as in the kernel, it comes last.
    return tuple(sorted(named, key=lambda text: text.startswith(_LOCALLY_ASSIGNED)))


def _multipath(directory: Path, files: Files) -> str:
    uuid = files.text(directory / "dm/uuid")
    # In front of the WWID stands the kind of the SCSI designator, which is 3 for NAA.
    return f"naa.{uuid[7:]}" if uuid.startswith("mpath-3") else uuid


def _scsi(directory: Path, files: Files) -> str:
    return parse_page_83(files.data(directory / "device/vpd_pg83")) or files.text(directory / "device/wwid")


def _nvme(directory: Path, files: Files) -> str:
    for name in ("uuid", "nguid", "eui", "wwid"):
        text = files.text(directory / name)
        if text and text.strip("0- "):
            return text if name == "wwid" else f"{name}.{text}"
    return ""


def _rbd(directory: Path, files: Files) -> str:
    device = directory / "device"
    image = files.text(device / "name")
    if not image or not files.text(device / "pool"):
        return ""
    parts = [files.text(device / name) for name in ("cluster_fsid", "pool", "pool_ns")]
    snapshot = files.text(device / "current_snap")
    return "rbd:" + "/".join([*parts, image]) + (f"@{snapshot}" if snapshot not in ("", "-") else "")


def _loop(directory: Path, files: Files) -> str:
    backing = files.text(directory / "loop/backing_file")
    return f"loop:{backing}" if backing else ""


def _plain(directory: Path, files: Files) -> str:
    serial = files.text(directory / "serial") or files.text(directory / "device/serial")
    return f"serial:{serial}" if serial else ""
