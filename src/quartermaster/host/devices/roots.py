"""The disks of a virtual host.

Loop devices have no serial number and are seen from every virtual host of a machine. A *device root* says which of
them belong to one: a directory in which each link is a disk, with a file beside it for what hardware says of itself.

    <root>/vdb        → /dev/loop7
    <root>/vdb.json   {"serial": "H1-0001", "model": "lab disk", "rotational": false}

A disk is pulled by removing the link. The disk's path is that of the link.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from quartermaster.host.devices.model import Device
from quartermaster.host.devices.sysfs import Index, Roots, read_device
from quartermaster.host.files import remove, write_whole
from quartermaster.support.errors import HostError


class StandIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the hardware would say of itself."""

    serial: str = ""
    wwn: str = ""
    model: str = ""
    rotational: bool = False
    removable: bool = False


def add_disk(root: Path, name: str, device: str, stand_in: StandIn) -> Path:
    """The description first: a disk that appears has its identity from the start."""
    root.mkdir(parents=True, exist_ok=True)
    write_whole(root / f"{name}.json", msgspec.json.encode(stand_in), mode=0o644)
    link = root / name
    link.symlink_to(device)
    return link


def pull_disk(root: Path, name: str) -> None:
    remove(root / name)
    remove(root / f"{name}.json")


def names(root: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(entry.name for entry in root.iterdir() if entry.is_symlink())
    return []


def read_stand_in(roots: Roots, root: Path, name: str, index: Index) -> Device | None:
    link = root / name
    try:
        target = os.readlink(link)
    except OSError:
        return None
    device = read_device(roots, target.rpartition("/")[2], index)
    if device is None:
        return None
    stand_in = _description(root / f"{name}.json")
    return msgspec.structs.replace(
        device,
        path=str(link),
        wwn=stand_in.wwn,
        serial=stand_in.serial,
        model=stand_in.model,
        rotational=stand_in.rotational,
        removable=stand_in.removable,
        stand_in=True,
    )


def _description(file: Path) -> StandIn:
    try:
        return msgspec.json.decode(file.read_bytes(), type=StandIn)
    except FileNotFoundError:
        return StandIn()
    except msgspec.ValidationError as error:
        raise HostError(f"cannot read the stand-in disk {file}: {error}") from error
    except msgspec.DecodeError as error:
        raise HostError(f"cannot read the stand-in disk {file}: it is not JSON: {error}") from error
