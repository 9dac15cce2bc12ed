"""What a node's agent is to offer (devices with a file system of ours, and directories), and what there is on it.

For storage systems that stand on file systems. The configuration is sticky: a device keeps the identity and UUID with
which it was taken, and what holds volumes stays although the declaration has dropped it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec

from quartermaster.planning.capacity import shown
from quartermaster.planning.choosing import DUPLICATE, IN_USE, REFUSED, why_refused
from quartermaster.planning.cluster import (
    DRAIN,
    ChosenDevice,
    ClusterKey,
    ClusterView,
    Desired,
    NodeOutcome,
    NodeView,
    Report,
    VolumeView,
)
from quartermaster.planning.leaving import leave
from quartermaster.planning.outcomes import DEGRADED, PENDING, READY, outcome_of
from quartermaster.planning.releasing import with_releases
from quartermaster.resources.orchestration import FAILED

BASE = "base"  # the detail of a placement that says in which of a node's directories a volume is


class NodesPlan(msgspec.Struct, frozen=True):
    assignments: tuple[Desired, ...]
    outcomes: dict[str, NodeOutcome]
    removable: tuple[str, ...]
    memory: dict[str, str] = {}  # which disks were given up


class Base(msgspec.Struct, frozen=True):
    """A directory for volumes that an agent reported; one that shares its file system with another has no room."""

    path: str
    total: int
    free: int | None = None  # as its agent last saw it, where others may write to the file system too
    taken: int = 0  # by these others

    @property
    def full(self) -> bool:
        return self.free is not None and self.total > 0 and self.free <= self.total >> 6


def plan_nodes(view: ClusterView, agent: str, instance: str = "") -> NodesPlan:
    """One agent per node that offers what the node declares. Data do not move by themselves."""
    volumes = volumes_by_host(view)
    assignments: list[Desired] = []
    outcomes: dict[str, NodeOutcome] = {}
    removable: list[str] = []
    for node in view.nodes:
        report = node.report(agent, instance)
        held = volumes.get(node.host or node.node.status.host, ())
        departure = leave(node, agent, instance, [volume.title for volume in held])
        if departure is not None:
            assignments += departure.assignments or _kept(view.key, node, agent, instance, held)
            removable += [node.name] if departure.gone else []
            outcome = departure.outcome
        else:
            config = offered(view.key, node, report, held)
            outcome = _with_what_stays(outcome_of(node, agent, config, instance), node, config, held)
            if node.wrong is None and not config["devices"] and not config["directories"]:
                outcome = NodeOutcome(PENDING, nothing_offered(node))
                if report is not None:
                    why = f"StorageNode {node.name} declares nothing of it any more"
                    assignments.append(Desired(node.host, agent, None, instance, why=why))
            elif node.wrong is None:
                why = f"StorageNode {node.name} declares it"
                assignments.append(with_losses(Desired(node.host, agent, config, instance, why=why)))
        outcomes[node.name] = _measured(outcome, node, report, held)
    memory = with_releases(view.memory, view.nodes, assignments)
    return NodesPlan(tuple(assignments), outcomes, tuple(removable), memory)


def _kept(key: ClusterKey, node: NodeView, agent: str, instance: str, held: Sequence[VolumeView]) -> Sequence[Desired]:
    """What a node that is to go offers until its last volume is gone. Its service may have been asked to be gone before
    the volume was known, and be so: without it nobody would reach the volume any more, and nobody could delete it.
    """
    report = node.report(agent, instance)
    if not held or node.leaving != DRAIN or not node.host or node.wrong is not None:
        return ()
    before: Mapping[str, Any] = (report.desired if report is not None and not report.absent else None) or {}
    bases = [str(volume.details.get(BASE, "")) for volume in held]
    devices = {entry["uuid"]: entry for entry in before.get("devices", ())}
    for entry in offered(key, node, None, held)["devices"]:
        if any(base.endswith(f"/{entry['uuid']}") for base in bases):
            devices.setdefault(entry["uuid"], {name: value for name, value in entry.items() if name != "wipe"})
    directories = dict.fromkeys((*before.get("directories", ()), *(one for one in node.directories if one in bases)))
    if not devices and not directories:
        return ()
    config = {"devices": list(devices.values()), "directories": list(directories)}
    return (Desired(node.host, agent, config, instance, why=f"StorageNode {node.name} holds volumes"),)


def volumes_by_host(view: ClusterView) -> dict[str, list[VolumeView]]:
    found: dict[str, list[VolumeView]] = {}
    for volume in view.volumes:
        for host in volume.hosts:
            found.setdefault(host, []).append(volume)
    return found


def offered(key: ClusterKey, node: NodeView, report: Report | None, held: Sequence[VolumeView]) -> dict[str, Any]:
    """`{"devices": [{id, path, declared?, uuid, wipe?}], "directories": [path]}`."""
    before = (report.desired if report is not None else None) or {}
    listed: Sequence[dict[str, str]] = before.get("devices", ())
    bases = [str(volume.details.get(BASE, "")) for volume in held]
    kept = [path for path in before.get("directories", ()) if path in bases]
    directories = list(dict.fromkeys((*node.directories, *kept)))
    if not bases and _are_offered(node.devices, listed):
        return {"devices": list(listed), "directories": directories}
    known = {entry["id"] or entry["path"]: entry for entry in listed}
    devices: dict[str, dict[str, str]] = {}
    for device in node.devices:
        if device.usable or device.serving:
            entry = known.get(device.id) or known.get(device.path) or _entry_of(key, node.host, device)
            if entry.get("path") != device.path or entry.get("wipe", "") != device.consent:
                entry = {**entry, "path": device.path, "wipe": device.consent}
                entry.setdefault("declared", device.declared)
                entry = {name: value for name, value in entry.items() if value or name == "id"}
            devices[entry["uuid"]] = entry
    if bases:
        _keep_what_holds_volumes(key, node, listed, bases, devices)
    order = {entry["uuid"]: place for place, entry in enumerate(listed)}
    chosen = list(devices.values())
    if list(devices) != list(order):
        # In the order of before: two disks that were declared by one path would else change places for ever.
        chosen.sort(key=lambda entry: order.get(entry["uuid"], len(order)))
    return {"devices": chosen, "directories": directories}


def _are_offered(devices: Sequence[ChosenDevice], listed: Sequence[dict[str, str]]) -> bool:
    """Whether just these are offered already, as they are on nearly every node of a large cluster."""
    if len(devices) != len(listed):
        return False
    for device, entry in zip(devices, listed, strict=True):
        same = device.id == entry["id"] != "" and device.path == entry.get("path")
        if not (same and device.consent == entry.get("wipe", "") and (device.usable or device.serving)):
            return False
    return True


def _entry_of(key: ClusterKey, host: str, device: ChosenDevice) -> dict[str, str]:
    made = file_system_uuid(key, host, device.id or device.path)
    # A disk without an identity of its own shows that of what is on it.
    return {"id": device.id if device.id != device.uuid else "", "uuid": device.uuid or made}


def _keep_what_holds_volumes(
    key: ClusterKey,
    node: NodeView,
    listed: Sequence[dict[str, str]],
    bases: Sequence[str],
    devices: dict[str, dict[str, str]],
) -> None:
    for entry in listed:
        if any(base.endswith(entry["uuid"]) for base in bases):
            devices.setdefault(entry["uuid"], entry)
    for one in node.present:
        # A volume may have been placed on a disk in the very moment in which it was given up.
        uuid = file_system_uuid(key, node.host, one.id) if one.id else ""
        if uuid not in devices and any(base.endswith(f"/{uuid}") for base in bases if uuid):
            devices[uuid] = {"id": one.id, "uuid": uuid, "path": one.path}


def file_system_uuid(key: ClusterKey, host: str, device: str) -> str:
    """Of the file system that a disk of the host gets in this cluster: whoever asks again gets the same answer."""
    return str(uuid5(NAMESPACE_URL, f"{key.namespace}/{key.type}/{key.name}/{host}/{device}"))


def bases_of(report: Report | None) -> list[Base]:
    found = ((report.status.result if report is not None else None) or {}).get("bases", ())
    return [Base(one["path"], one["total"], one.get("free"), one.get("taken", 0)) for one in found]


def _measured(outcome: NodeOutcome, node: NodeView, report: Report | None, held: Sequence[VolumeView]) -> NodeOutcome:
    desired: Mapping[str, Any] = (report.desired if report is not None and report.done else None) or {}
    in_use = {entry["path"]: IN_USE for entry in desired.get("devices", ())}
    result = (report.status.result if report is not None else None) or {}
    broken = [str(message) for message in result.get("failed", {}).values()]
    broken += [one.message for one in node.devices if one.serving and not one.usable]
    broken += _lost_volumes(node, held)
    if broken and outcome.state == READY:
        outcome = NodeOutcome(DEGRADED, broken[0])
    bases = bases_of(report)
    full = [
        f"{base.path} is full: less than {shown(base.total >> 6)} of {shown(base.total)} is free"
        for base in bases
        if base.full
    ]
    if full and outcome.state == READY:
        outcome = NodeOutcome(READY, "; ".join(filter(None, (full[0], outcome.message))))
    total = sum(max(0, base.total - base.taken) for base in bases)
    used = sum(volume.size for volume in held)
    return msgspec.structs.replace(outcome, total=total, used=used, in_use=in_use)


def _with_what_stays(
    outcome: NodeOutcome, node: NodeView, config: Mapping[str, Any], held: Sequence[VolumeView]
) -> NodeOutcome:
    """A node keeps what holds volumes although its declaration has dropped it, and says so."""
    if not held or outcome.state != READY:
        return outcome
    meant = {name for device in node.devices for name in (device.id, device.path) if name}
    places = {entry["uuid"]: entry["path"] for entry in config["devices"] if not {entry["id"], entry["path"]} & meant}
    places |= {path: path for path in config["directories"] if path not in node.directories}
    stays = []
    for place, path in places.items():
        names = [volume.title for volume in held if str(volume.details.get(BASE, "")).endswith(place)]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        stays.append(f"{path} stays until volume {names[0]}{more} is gone" if names else f"{path} stays")
    return NodeOutcome(READY, "; ".join(filter(None, (outcome.message, *stays))))


def _lost_volumes(node: NodeView, held: Sequence[VolumeView]) -> list[str]:
    """What agents say of volumes that were finished once and are not whole any more."""
    names = {volume.name for volume in held}
    return [
        f"volume {report.instance}: {report.status.message}"
        for report in node.reports
        if report.instance in names and report.status.state == FAILED and report.status.result and not report.absent
    ]


def nothing_offered(node: NodeView) -> str:
    """Why: whose its directories are, what is wrong with each disk, or that none are declared."""
    said = [one.message for one in node.complaints if one.reason not in (REFUSED, DUPLICATE)]
    reasons = "; ".join(filter(None, (why_refused(node.devices), *said)))
    return reasons or "it offers nothing: name devices or directories, or set useAllDevices"


def with_losses(desired: Desired) -> Desired:
    """With the disks that are wiped by it. Whoever approves that approves it of them, whatever else their host is told
    of meanwhile.
    """
    devices: Sequence[Mapping[str, str]] = (desired.config or {}).get("devices", ())
    wiped = [entry for entry in devices if entry.get("wipe")]
    if not wiped:
        return desired
    named = ", ".join(f"{entry['path']} ({entry['wipe']})" for entry in wiped)
    lost = [{name: entry[name] for name in ("id", "uuid", "wipe")} for entry in wiped]
    return msgspec.structs.replace(
        desired,
        destroys=f"what is on {named} is lost, by consent",
        loses={"host": desired.host, "devices": lost},
    )
