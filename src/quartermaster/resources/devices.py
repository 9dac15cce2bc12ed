"""Which disks are meant, and what became of them: what StorageNode, StorageCluster and Host have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from quartermaster.resources.declare import Quantity, declare
from quartermaster.resources.model import Struct
from quartermaster.resources.quantity import Amount
from quartermaster.support.errors import Problem

_DEVICE_PATTERN = r"^/.*[^/]$"
_DEVICE_SAYS = 'must be an absolute path without "/" at its end, such as /dev/vdb'
_DIRECTORY_PATTERN = r"^/.*[^/]/*$"
_DIRECTORY_SAYS = "must be an absolute path, such as /srv/volumes, and not / itself"

IPAddress = Annotated[str, declare(cel="isIP(self)", max_length=45)]


class DeviceFilter(Struct):
    name: Annotated[str, declare("A regular expression that the device's name, such as vdb, must match.")] = ""
    min_size: Annotated[Quantity | None, declare("The least size of a device.")] = None
    max_size: Annotated[Quantity | None, declare("The greatest size of a device.")] = None
    rotational: Annotated[
        bool | None, declare("Whether only spinning disks (true) or only others (false) are meant.")
    ] = None


Devices = Annotated[
    tuple[Annotated[str, declare(pattern=_DEVICE_PATTERN, says=_DEVICE_SAYS, max_length=4096)], ...],
    declare("Raw devices to use, such as /dev/vdb.", list_type="atomic", max_items=1024),
]
Directories = Annotated[
    tuple[Annotated[str, declare(pattern=_DIRECTORY_PATTERN, says=_DIRECTORY_SAYS, max_length=4096)], ...],
    declare("Directories to use in place of devices.", list_type="atomic", max_items=1024),
]
FilterOfDevices = Annotated[
    DeviceFilter | None, declare("Which devices to use where none are listed; all that is given must hold.")
]
AllDevices = Annotated[
    bool | None, declare("Whether to use every available device where none are listed and no filter is given.")
]


class Device(Struct):
    """A block device as its host sees it."""

    path: Annotated[str, declare("Where the device is found on its host, such as /dev/vdb.")]
    id: Annotated[str, declare("What identifies the device for good: WWN, serial number or UUID.")] = ""
    serial: Annotated[str, declare("Its serial number, where id is something else.")] = ""
    size: Annotated[Quantity | None, declare("The size of the device.")] = None
    rotational: Annotated[bool | None, declare("Whether it is a spinning disk.")] = None
    state: Annotated[str, declare("What has become of it: Available, InUse, Rejected, Failed or Missing.")] = ""
    reason: Annotated[str, declare("Why it was rejected or failed, one word that programs may rely on.")] = ""
    message: Annotated[str, declare("Why it was rejected or failed, as a sentence.")] = ""
    file_system: Annotated[str, declare("The UUID of the file system on it, where it is one that we made.")] = ""


DeviceList = Annotated[tuple[Device, ...], declare("The devices and what has become of each.", keys=("path",))]


def nothing_is_listed_twice(document: dict[str, Any]) -> Iterator[Problem]:
    spec = document["spec"]
    lists = [(name, spec.get(name, ())) for name in ("devices", "directories", "wipe")]
    lists.append(("storageNetwork.ips", spec.get("storageNetwork", {}).get("ips", ())))
    for name, values in lists:
        if len(values) == len(set(values)):
            continue
        first: dict[str, int] = {}
        for position, value in enumerate(values):
            if first.setdefault(value, position) != position:
                yield Problem(
                    f"spec.{name}[{position}]", f'"{value}" is listed twice', f"spec.{name}[{first[value]}] is the same"
                )


def device_filter_can_match(document: dict[str, Any]) -> Iterator[Problem]:
    chosen = document["spec"].get("deviceFilter")
    if not chosen:
        return
    try:
        re.compile(chosen.get("name", ""))
    except re.error as error:
        yield Problem(
            "spec.deviceFilter.name", f"is not a regular expression: {error}", 'write for example "^sd[b-d]$"'
        )
    if "minSize" in chosen and "maxSize" in chosen and Amount.of(chosen["minSize"]) > Amount.of(chosen["maxSize"]):
        yield Problem(
            "spec.deviceFilter.minSize", f"{chosen['minSize']} is more than maxSize {chosen['maxSize']}", "swap them"
        )
