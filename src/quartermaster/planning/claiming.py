"""Who has a disk or a directory that several want: the one that serves it, else the one that was there first.

Of a hundred thousand disks few are new. So what a node claims is made when something about it changes, and kept by
whoever asks again and again; what is done each time is only to look every key up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from quartermaster.planning.choosing import DUPLICATE, IN_USE, Offer, refused_devices
from quartermaster.planning.cluster import ChosenDevice, Verdict
from quartermaster.planning.matching import SAME_HOST, Match
from quartermaster.resources.orchestration import Assignment
from quartermaster.resources.storage import StorageNode

SERVICE = "the service "


class Claim(msgspec.Struct, frozen=True, gc=False):
    """That a node means a device or a directory, or that a service has it."""

    owner: str  # the name of the node; "the service …" has a device and is no node's
    key: str
    serving: bool


class Meant(msgspec.Struct, frozen=True, gc=False):
    """What one node means, and claims by that."""

    offer: Offer
    devices: tuple[ChosenDevice, ...]
    keys: tuple[str, ...]  # of the devices, one by one
    sure: tuple[Claim, ...]  # of what it is known to use
    claims: tuple[Claim, ...]  # of the rest
    refused: Verdict | None  # what is wrong with its list of devices


def claim_key(host: str, what: str) -> str:
    """A disk is known by its identity on every host; a path, of a disk without one or of a directory, on its own."""
    return host + what if what[0] == "/" else what


def meant_by(
    node: StorageNode,
    match: Match,
    offer: Offer,
    devices: tuple[ChosenDevice, ...] = (),
    *,
    offered: Collection[str] = (),
) -> Meant:
    """`offered` are the directories that its agent was asked to offer."""
    host = match.host.metadata.name if match.host is not None else ""
    keys = tuple(claim_key(host, one.id or one.path) for one in devices)
    if not host or (match.wrong is not None and match.wrong.reason == SAME_HOST):
        return Meant(offer, devices, keys, (), (), refused_devices(devices))
    name, planned = node.metadata.name, match.wrong is None
    # Where nothing can be planned for a node, what it has got stays its own all the same.
    claims = [
        Claim(name, key, one.serving)
        for one, key in zip(devices, keys, strict=True)
        if one.serving or (planned and one.usable)
    ]
    claims += [
        Claim(name, claim_key(host, path), path in offered) for path in offer.directories if planned or path in offered
    ]
    used = {claim_key(host, one.id or one.path) for one in node.status.devices if one.state == IN_USE}
    sure = [claim for claim in claims if claim.serving and claim.key in used]
    rest = [claim for claim in claims if not (claim.serving and claim.key in used)]
    return Meant(offer, devices, keys, tuple(sure), tuple(rest), refused_devices(devices))


def claims_of_service(assignment: Assignment) -> dict[str, Claim]:
    """By key. What an assignment names is taken, also where no node here is known to have asked for it."""
    spec = assignment.spec
    name = f"{SERVICE}{f'{spec.agent} {spec.instance}'.rstrip()} of host {spec.host}"
    devices = [str(device.get("id") or device["path"]) for device in devices_in(spec.desired)]
    keys = [claim_key(spec.host, what) for what in (*devices, *directories_in(spec.desired))]
    return {key: Claim(name, key, serving=True) for key in keys}


def devices_in(desired: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    listed = (desired or {}).get("devices", ())
    found = listed if isinstance(listed, list | tuple) else ()
    return [device for device in found if isinstance(device, dict) and device.get("path")]


def directories_in(desired: Mapping[str, Any] | None) -> list[str]:
    listed = (desired or {}).get("directories", ())
    found = listed if isinstance(listed, list | tuple) else ()
    return [path for path in found if isinstance(path, str) and path.startswith("/")]


def first_claims(nodes: Iterable[Meant], services: Iterable[Mapping[str, Claim]]) -> dict[str, Claim]:
    """By key. What nodes are known to use comes before what they want, and that before what services have.

    Nearly every service has what a node is known to use: then its keys are looked up at once, and no more is done.
    """
    nodes = list(nodes)
    winners: dict[str, Claim] = {}
    for one in nodes:
        for claim in one.sure:
            winners.setdefault(claim.key, claim)
    others = [claims for claims in services if not claims.keys() <= winners.keys()]
    for claim in chain(chain.from_iterable(one.claims for one in nodes), *(claims.values() for claims in others)):
        present = winners.setdefault(claim.key, claim)
        if claim.serving and not present.serving:
            winners[claim.key] = claim
    return winners


def owner_of(key: str, winners: Mapping[str, Claim], node: str) -> str:
    """Who has it; what nobody claims is the node's that asks."""
    winner = winners.get(key)
    return winner.owner if winner is not None else node


def nested(places: Sequence[tuple[str, Claim]]) -> dict[str, tuple[str, str]]:
    """Of the directories of one host, those that lie in one that another has, or hold it: which one, and whose it is.

    `places` are in the order in which they were asked for. Who serves one comes first, and keeps it whatever is said.
    """
    if len({claim.owner for _, claim in places}) <= 1:
        return {}
    kept: list[tuple[str, str]] = []
    found: dict[str, tuple[str, str]] = {}
    for path, claim in sorted(places, key=lambda place: not place[1].serving):
        other = next((one for one in kept if one[1] != claim.owner and _hold_each_other(path, one[0])), None)
        if other is not None:
            found[path] = other
        if other is None or claim.serving:
            kept.append((path, claim.owner))
    return found


def _hold_each_other(one: str, other: str) -> bool:
    return one.startswith(f"{other}/") or other.startswith(f"{one}/")


def whose(owner: str) -> str:
    return owner if owner.startswith(SERVICE) else f"StorageNode {owner}"


def without_duplicates(
    node: str, devices: tuple[ChosenDevice, ...], keys: Sequence[str], winners: Mapping[str, Claim]
) -> tuple[ChosenDevice, ...]:
    """Devices that another node has got are neither usable here nor do they serve, whatever this one declares."""
    if all(key not in winners or winners[key].owner == node for key in keys):
        return devices
    owners = [owner_of(key, winners, node) for key in keys]
    return tuple(
        device if owner == node else _lost_to(owner, device) for device, owner in zip(devices, owners, strict=True)
    )


def _lost_to(owner: str, device: ChosenDevice) -> ChosenDevice:
    message = f"{device.path} ({device.id or 'without identity'}) belongs to {whose(owner)} already"
    lost = {"usable": False, "serving": False, "reason": DUPLICATE, "message": message, "consent": ""}
    return msgspec.structs.replace(device, **lost)
