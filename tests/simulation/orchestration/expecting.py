"""What nodes and assignments must have come to when nothing goes wrong any more, computed from the modelled disks.

It asks neither the planner nor the agents: a disk that is blank, or that a node already uses, is fit; one that somebody
else has written to is not, unless its wiping was consented to and did not happen yet. Of one that was ours and was
given up nothing is expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec

from quartermaster.host.devices.model import Device
from quartermaster.resources.kubernetes.volumes import PersistentVolume
from quartermaster.resources.orchestration import FAILED, SUCCEEDED, Assignment
from quartermaster.resources.storage import StorageNode

from .hosts import WitnessedMachine
from .invariants import Witness

READY, DEGRADED = "Ready", "Degraded"


class Rest(msgspec.Struct, frozen=True):
    """The modelled hosts and the objects, once nothing is written any more."""

    machines: Mapping[str, WitnessedMachine]
    witness: Witness
    nodes: Sequence[StorageNode]
    assignments: Sequence[Assignment]
    volumes: Sequence[PersistentVolume]

    def holds_volumes(self, host: str) -> bool:
        return any(host in repr(volume.spec.node_affinity) for volume in self.volumes)

    def used_by(self, host: str) -> list[str]:
        """Identities of the disks that are assigned on the host."""
        found = [one for one in self.assignments if one.spec.host == host and not one.spec.absent]
        return [entry["id"] for one in found for entry in (one.spec.desired or {}).get("devices", ())]


class Fit(Enum):
    YES = "fit"
    NO = "somebody else's"
    UNKNOWN = "given up"


def wrong_with(rest: Rest) -> str:
    """The first thing that is not as it must be; "" if all is well."""
    for assignment in rest.assignments:
        if wrong := wrong_with_assignment(rest, assignment):
            return wrong
    for node in rest.nodes:
        if wrong := wrong_with_node(rest, node):
            return wrong
    return ""


def wrong_with_assignment(rest: Rest, assignment: Assignment) -> str:
    status = assignment.status
    if status.observed_generation != assignment.spec.generation or status.state not in (SUCCEEDED, FAILED):
        return f"{assignment.key} is not done: {status}"
    if status.state == SUCCEEDED:
        return f"{assignment.key} asks for what is gone already, and is not deleted" if assignment.spec.absent else ""
    host = rest.machines[assignment.spec.host]
    asked = [entry["id"] for entry in (assignment.spec.desired or {}).get("devices", ())]
    refused = [
        disk for disk in host.storage.values() if disk.serial in asked and not rest.witness.is_ours(host.name, disk)
    ]
    if any(disk.signatures for disk in refused):
        return ""  # somebody else has written to it meanwhile: it is refused for good
    volume = (assignment.spec.desired or {}).get("path", "")
    if not volume and any(host.holds_volume(disk) for disk in host.storage.values() if disk.serial not in asked):
        return ""  # a disk that nobody asks for any more is kept while a volume is on it
    if any(path == volume and host.is_hidden(number, path) for number, path in host.directories):
        return ""  # made on the bare place, over which a disk was mounted since
    return f"{assignment.key} failed, and its disks are fit: {status}"


def wrong_with_node(rest: Rest, node: StorageNode) -> str:
    if node.status.observed_generation != node.metadata.generation:
        return f"{node.key} was not looked at: {node.status}"
    host = node.metadata.name.removeprefix("node-")
    holds = rest.holds_volumes(host)
    if node.metadata.deletion_timestamp:
        return "" if holds else f"{node.key} does not go, and holds no volume: {node.status}"
    fits = [fits_of(rest, node, rest.machines[host], serials) for serials in wanted(rest.machines[host], node)]
    every = [fit for place in fits for fit in place]
    sure = bool(node.spec.directories) or any(place and set(place) == {Fit.YES} for place in fits)
    state = node.status.state
    if sure and state != READY and (state != DEGRADED or Fit.NO not in every):
        return f"{node.key} has what it needs ({every}), and is {state}: {node.status.message}"
    if not sure and not holds and set(every) <= {Fit.NO} and state in (READY, DEGRADED):
        return f"{node.key} is {state}, and all that it offers is somebody else's"
    return ""


def wanted(machine: WitnessedMachine, node: StorageNode) -> list[list[str]]:
    """For each thing that the node asks for the serial numbers of the disks that may be meant by it.

    A path names whatever disk was found there when it was taken.
    """
    if node.spec.devices:
        return [machine.places.get(path, []) for path in node.spec.devices]
    if node.spec.use_all_devices:
        return [[disk.serial] for disk in machine.storage.values()]
    return []


def fits_of(rest: Rest, node: StorageNode, machine: WitnessedMachine, serials: Sequence[str]) -> list[Fit]:
    disks = {disk.serial: disk for disk in machine.storage.values()}
    return [fit_of(rest, node, machine.name, disks[serial]) for serial in serials]


def fit_of(rest: Rest, node: StorageNode, host: str, disk: Device) -> Fit:
    if not disk.signatures:
        return Fit.YES
    if rest.witness.is_ours(host, disk):
        return Fit.YES  # in use, or given up and remembered
    used = disk.serial in rest.witness.wiped or any(one.id == disk.serial for one in node.status.wiped)
    return Fit.YES if disk.serial in node.spec.wipe and not used else Fit.NO
