"""Which devices and directories of a host a StorageNode means, and which of them may be used.

An explicit list wins over a filter, a filter over "all", and all over nothing. What the node says wins over what its
StorageCluster says for all nodes, and that over what the host's own agent was started with.

A path names a disk only until the disk is in use: from then on its identity does, wherever the kernel puts it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from posixpath import normpath
from typing import Protocol

import msgspec

from quartermaster.host.devices.judging import Reason, State
from quartermaster.host.devices.model import normal_wwn
from quartermaster.planning.cluster import ChosenDevice, Verdict
from quartermaster.resources.devices import Device, DeviceFilter
from quartermaster.resources.quantity import Amount
from quartermaster.resources.storage import StorageCluster, StorageNode

IN_USE = str(State.IN_USE)
AVAILABLE = str(State.AVAILABLE)
REJECTED = str(State.REJECTED)
FAILED = "Failed"
MISSING = "Missing"
DUPLICATE = "DuplicateDevice"
NOT_FOUND = "NotFound"
REFUSED = "DevicesRefused"
UNKNOWN_CONSENT = "UnknownConsent"

_NAMED = 3  # how many disks a sentence names

# What a consent helps against. A disk in use is never wiped, nor is one that holds data of another cluster.
_CONTENT = frozenset((Reason.FOREIGN_DATA, Reason.PARTITIONED, Reason.MEMBER))


class Offer(msgspec.Struct, frozen=True):
    """What is meant by a declaration."""

    devices: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    filter: DeviceFilter | None = None
    all: bool = False


class _Declared(Protocol):
    """The fields that StorageNode, StorageCluster and the wishes of a Host have in common."""

    @property
    def devices(self) -> tuple[str, ...]: ...
    @property
    def directories(self) -> tuple[str, ...]: ...
    @property
    def device_filter(self) -> DeviceFilter | None: ...
    @property
    def use_all_devices(self) -> bool | None: ...


def offer_of(node: StorageNode, cluster: StorageCluster | None = None, wishes: _Declared | None = None) -> Offer:
    """The first of them that says anything decides, for all four fields at once. /srv/a/ is /srv/a."""
    declared: list[_Declared | None] = [node.spec, cluster.spec if cluster is not None else None, wishes]
    for one in declared:
        if one is None or not _says_anything(one):
            continue
        directories = tuple(dict.fromkeys(map(_plain, one.directories)))
        if one.devices:
            return Offer(one.devices, directories)
        if one.device_filter is not None:
            return Offer((), directories, one.device_filter)
        return Offer((), directories, None, bool(one.use_all_devices))
    return Offer()


def _plain(directory: str) -> str:
    return "/" + normpath(directory).lstrip("/")


def _says_anything(one: _Declared) -> bool:
    return bool(one.devices or one.directories) or one.device_filter is not None or one.use_all_devices is not None


_path = operator.attrgetter("path")


def choose_devices(
    offer: Offer,
    reported: Sequence[Device],
    *,
    known: Sequence[Device] = (),
    serving: Mapping[str, str] | None = None,
    released: Mapping[str, str] | None = None,
    consents: Sequence[str] = (),
    host: str = "",
) -> tuple[ChosenDevice, ...]:
    """The devices that are meant, by path.

    `known` are those of the node's status; `serving` says of each identity in use by which path it was declared;
    `released` are those that the cluster gave up on this host, with the UUID that it left on each.
    """
    held = serving or {}
    left = released or {}
    if offer.devices:
        found = _listed(offer.devices, reported, held)
        chosen = [_judged(device, held, left, consents, path) for path, device in found.items() if device is not None]
        absent = [path for path, device in found.items() if device is None]
        chosen += [_absent(path, host) for path in absent if path not in held.values()]
    else:
        matches = _filter(offer)
        chosen = [_judged(device, held, left, consents) for device in reported if matches(device)]
    present = {device.id for device in reported}
    gone = [identity for identity in held if identity not in present]
    if gone:
        paths = {one.path for one in chosen}
        sizes = {one.id: _bytes(one.size) for one in known}
        last = {held[identity]: identity for identity in gone}  # a successor may be gone, too: it has taken the path
        chosen += [
            _missing(identity, path, sizes.get(identity, 0), host)
            for path, identity in last.items()
            if path not in paths and _still_meant(offer, path)
        ]
    chosen.sort(key=_path)
    return tuple(chosen)


def _still_meant(offer: Offer, path: str) -> bool:
    """Whether a disk that is not found is one that somebody wants; a filter cannot be asked about it."""
    return path in offer.devices if offer.devices else offer.filter is not None or offer.all


def _listed(paths: Sequence[str], reported: Sequence[Device], held: Mapping[str, str]) -> dict[str, Device | None]:
    """For each path its device. One disk may be listed by two names, and counts once."""
    by_path = {device.path: device for device in reported}
    by_id = {device.id: device for device in reported if device.id}
    taken: dict[str, Device] = {}
    for identity, path in sorted(held.items()):
        # Two disks may have been declared by one path, one after the other: the one that is there now counts.
        device = by_id.get(identity)
        if device is not None and (path not in taken or device.path == path):
            taken[path] = device
    found: dict[str, Device | None] = {}
    seen = {device.path for device in taken.values()}
    for path in paths:
        device = taken.get(path)
        if device is None:
            device = by_path.get(path) or _linked(path, reported)
            if device is not None and device.path in seen:
                continue
            seen |= {device.path} if device is not None else set()
        found[path] = device
    return found


def _linked(path: str, reported: Sequence[Device]) -> Device | None:
    """/dev/disk/by-id/wwn-0x5000c5… and its like carry the identity at their end."""
    directory, _, name = path.rpartition("/")
    if directory != "/dev/disk/by-id":
        return None
    return next((one for one in reported if any(tail and name.endswith(tail) for tail in (one.id, one.serial))), None)


def _judged(
    device: Device, held: Mapping[str, str], left: Mapping[str, str], consents: Sequence[str], declared: str = ""
) -> ChosenDevice:
    serving = (device.id or device.path) in held or device.path in held
    uuid = _own(device, left) if left else ""
    usable = device.state == AVAILABLE or bool(uuid) or (serving and device.state not in (FAILED, MISSING))
    consent = ""
    if device.reason in _CONTENT:  # also on one that was taken while it was blank, and written to before we came to it
        consent = next((one for one in consents if is_named(device, one)), "")
    trouble = not usable and not consent
    return ChosenDevice(
        path=device.path,
        id=device.id,
        size=_bytes(device.size),
        rotational=bool(device.rotational),
        usable=not trouble,
        reason=(device.reason or device.state) if trouble else "",
        message=(device.message or f"{device.path} is {device.state or 'not examined yet'}") if trouble else "",
        serving=serving,
        declared=declared,
        uuid=uuid,
        consent=consent,
    )


def _own(device: Device, left: Mapping[str, str]) -> str:
    """The UUID of the file system on it if that is the one which this cluster left there, and nobody uses the disk."""
    uuid = left.get(device.id) or left.get(device.path) or ""
    idle = device.state == IN_USE or device.reason == Reason.OTHER_CLUSTER
    return uuid if idle and uuid == device.file_system else ""


def _absent(path: str, host: str) -> ChosenDevice:
    where = f"host {host}" if host else "the host"
    message = f"{where} has no device {path}"
    return ChosenDevice(path, "", 0, usable=False, reason=NOT_FOUND, message=message, declared=path)


def _missing(identity: str, path: str, size: int, host: str) -> ChosenDevice:
    where = f"host {host}" if host else "the host"
    message = f"the disk {identity}, which was {path}, is not found on {where} any more"
    return ChosenDevice(path, identity, size, usable=False, reason=MISSING, message=message, serving=True)


def refused_devices(devices: Sequence[ChosenDevice]) -> Verdict | None:
    """What is wrong with a list of devices of which some cannot be used; a filter means no disk in particular."""
    listed = [one for one in devices if one.declared]
    refused = [one for one in listed if not one.usable and not one.serving]
    if not refused:
        return None
    reason = DUPLICATE if any(one.reason == DUPLICATE for one in refused) else REFUSED
    used = len(listed) - len(refused)
    count = f"{used or 'none'} of {len(listed)} listed disks {'is' if used <= 1 else 'are'} used: "
    return Verdict(False, reason, (count if len(listed) > 1 else "") + why_refused(refused))


def unknown_consents(
    devices: Sequence[ChosenDevice], reported: Sequence[Device], consents: Sequence[str], host: str
) -> Verdict | None:
    """What is wrong with consents that name no disk, where a disk waits for one.

    Elsewhere they do no harm, and some name disks that are gone.
    """
    if not consents or not any(one.reason in _CONTENT for one in devices):
        return None
    unknown = [consent for consent in consents if not any(is_named(device, consent) for device in reported)]
    if not unknown:
        return None
    named = f"spec.wipe names {', '.join(unknown[:_NAMED])}"
    message = f"{named}, and no disk of host {host} has that serial number or WWN: `qm devices -o wide` shows them"
    return Verdict(False, UNKNOWN_CONSENT, message)


def why_refused(devices: Sequence[ChosenDevice]) -> str:
    messages = [one.message for one in devices if not one.usable]
    rest = len(messages) - _NAMED
    return "; ".join(messages[:_NAMED]) + (f"; and {rest} more" if rest > 0 else "")


def is_named(device: Device, consent: str) -> bool:
    """Whether a person who writes this serial number or WWN means this device."""
    wanted = consent.strip()
    return bool(wanted) and (
        wanted in (device.id, device.serial) or (bool(device.id) and normal_wwn(wanted) == normal_wwn(device.id))
    )


def _filter(offer: Offer) -> Callable[[Device], bool]:
    wanted = offer.filter
    if wanted is None:
        return lambda _: offer.all
    name = re.compile(wanted.name)
    least = _bytes(wanted.min_size)
    most = _bytes(wanted.max_size) if wanted.max_size is not None else None

    def matches(device: Device) -> bool:
        size = _bytes(device.size)
        return (
            name.search(device.path.rpartition("/")[2]) is not None
            and size >= least
            and (most is None or size <= most)
            and (wanted.rotational is None or bool(device.rotational) == wanted.rotational)
        )

    return matches


def _bytes(size: str | int | None) -> int:
    if size is None:
        return 0
    return size if isinstance(size, int) else _bytes_of_text(size)


@lru_cache(maxsize=4096)
def _bytes_of_text(size: str) -> int:
    return Amount.of(size).bytes
