"""A claim that asks for more than it has: what is to be done next, and why. Pure.

The intent of a growth is the claim's own `status.allocatedResources`, as the resize protocol has it: it is written
before the storage system is asked, and counts as handed out from then on. What was begun is not taken back, for a
volume that may have grown cannot shrink; and it is finished before more is begun, for which there may never be room.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from quartermaster.backends.assigning import is_done
from quartermaster.backends.base import Refusal, VolumeDriver, VolumeRequest, desired_now
from quartermaster.planning.cluster import ClusterView
from quartermaster.provisioning.claims import PAUSED, Make, Nothing, Quiet, Wait, differs, progress_of
from quartermaster.provisioning.holds import hold_of
from quartermaster.provisioning.intent import Record
from quartermaster.provisioning.protocol import (
    GROWING,
    PROVISIONED,
    RESIZING,
    STORAGE,
    amount,
    capacity,
    is_block,
    is_deleting,
    requested,
    with_condition,
    without_conditions,
)
from quartermaster.provisioning.volumes import grown
from quartermaster.resources.kubernetes.volumes import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    StorageClass,
)
from quartermaster.resources.orchestration import Assignment


class Growth(msgspec.Struct, frozen=True):
    """All that is known of one bound claim and its volume at a moment."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume
    record: Record
    storage_class: StorageClass | None = None
    assignment: Assignment | None = None
    view: ClusterView | None = None


class Begin(msgspec.Struct, frozen=True):
    """The claim is to say that it grows: what that takes counts as handed out from then on."""

    status: PersistentVolumeClaimStatus
    why: str


class Report(msgspec.Struct, frozen=True):
    """The claim is to say what it has."""

    status: PersistentVolumeClaimStatus
    why: str
    finished: bool = False


class Enlarge(msgspec.Struct, frozen=True):
    """The volume is to say its new size."""

    volume: PersistentVolume
    why: str


Act = Nothing | Wait | Quiet | Make | Begin | Report | Enlarge


def next_growth(growth: Growth, driver: VolumeDriver) -> Act:
    claim = growth.claim
    wanted, begun, have = requested(claim), _begun(claim), growth.record.volume.size
    if is_deleting(claim):
        return Nothing("it is being deleted")
    if begun > have:
        # Also where less is asked for since, or more.
        return _go_on(growth, driver, begun)
    if wanted > have and not _says_less(claim, have):
        return _begin(growth, driver, wanted)
    return _finish(claim, have)


def _go_on(growth: Growth, driver: VolumeDriver, begun: int) -> Act:
    desired = desired_now(driver, replace(growth.record.volume, size=begun), growth.view)
    if growth.assignment is None or differs(growth.assignment, desired):
        return Make(desired, f"it is growing to {_text(begun)}")
    if is_done(growth.assignment):
        larger = grown(growth.volume, growth.record, begun)
        return Enlarge(larger, f"{desired.agent} on {desired.host} has made it larger")
    return progress_of(growth.assignment, desired)


def _begin(growth: Growth, driver: VolumeDriver, wanted: int) -> Act:
    claim, volume, view = growth.claim, growth.record.volume, growth.view
    if growth.storage_class is None or not growth.storage_class.allow_volume_expansion:
        return Wait(
            "ExpansionForbidden", f'the StorageClass "{growth.volume.spec.storage_class_name}" does not allow it'
        )
    if view is not None and (hold := hold_of(view)):
        return Wait(PAUSED, hold)
    if view is None or not view.online:
        return Wait("ClusterOffline", f"the storage cluster {growth.record.cluster.status_name} is not ONLINE")
    hosts = volume.placement.hosts
    request = VolumeRequest(
        name=volume.name,
        namespace=claim.metadata.namespace,
        claim=claim.metadata.name,
        size=wanted,
        parameters=volume.parameters,
        access_modes=claim.spec.access_modes,
        block=is_block(claim),
        host=hosts[0] if len(hosts) == 1 else "",
        current=volume.placement,
    )
    placed = driver.place(request, view)
    if isinstance(placed, Refusal):
        return Wait(placed.reason, placed.message)
    status = replace(
        claim.status,
        allocated_resources={**claim.status.allocated_resources, **capacity(wanted)},
        allocated_resource_statuses={**claim.status.allocated_resource_statuses, STORAGE: GROWING},
        conditions=with_condition(claim.status.conditions, RESIZING, "True", "", f"growing to {_text(wanted)}"),
    )
    return Begin(status, f"there is room for {_text(wanted)}")


def _finish(claim: PersistentVolumeClaim, have: int) -> Act:
    status = claim.status
    statuses = {name: value for name, value in status.allocated_resource_statuses.items() if name != STORAGE}
    conditions = without_conditions(status.conditions, RESIZING, PROVISIONED)
    shown = status.capacity if amount(status.capacity) >= have else {**status.capacity, **capacity(have)}
    wanted = replace(status, capacity=shown, allocated_resource_statuses=statuses, conditions=conditions)
    if not status.capacity or wanted == status:
        return Nothing(f"it has {_text(have)}")
    return Report(wanted, f"it has {_text(have)}", finished=_says_less(claim, have))


def _says_less(claim: PersistentVolumeClaim, have: int) -> bool:
    """Whether a growth is over and its claim does not say so yet."""
    return bool(claim.status.capacity) and amount(claim.status.capacity) < have


def _begun(claim: PersistentVolumeClaim) -> int:
    """To which size the volume has been asked to grow; 0 if it never was."""
    return amount(claim.status.allocated_resources)


def _text(size: int) -> str:
    return str(capacity(size)[STORAGE])
