"""Which volume a claim gets, where there is no Kubernetes to decide it: the rules of its binder. Pure.

A claim is bound to a volume when each names the other. The volume is written first, by its version, so that two claims
never get one volume.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from quartermaster.provisioning.protocol import (
    AVAILABLE,
    BIND_COMPLETED,
    BOUND,
    BOUND_BY_CONTROLLER,
    CLAIM_PROTECTION,
    FAILED,
    FILESYSTEM,
    LOST,
    PENDING,
    PROVISIONED,
    PROVISIONED_BY,
    RECYCLE,
    RELEASED,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    STORAGE_PROVISIONER_BETA,
    VOLUME_PROTECTION,
    amount,
    capacity,
    is_deleting,
    refers_to,
    requested,
    waits_for_consumer,
    with_annotations,
    with_finalizer,
    without_conditions,
)
from quartermaster.provisioning.topology import labels_of, reachable
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.core import ObjectReference
from quartermaster.resources.kubernetes.volumes import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    StorageClass,
)
from quartermaster.resources.marks import DEFAULT_CLASS, INTENT
from quartermaster.support import clock

_YES = "yes"


def prepare(claim: PersistentVolumeClaim, classes: Sequence[StorageClass]) -> PersistentVolumeClaim:
    """The claim with its protection, its class where it left that to us, and who is to make its volume."""
    prepared = with_finalizer(claim, CLAIM_PROTECTION)
    if claim.spec.storage_class_name is None and not claim.spec.volume_name:
        default = default_class(classes)
        if default is not None:
            prepared = replace(prepared, spec=replace(prepared.spec, storage_class_name=default.metadata.name))
    if claim.spec.volume_name:
        return prepared
    storage_class = class_of(prepared, classes)
    if storage_class is None or (waits_for_consumer(storage_class) and not selected_node(claim)):
        return prepared
    provisioner = storage_class.provisioner
    return with_annotations(prepared, {STORAGE_PROVISIONER: provisioner, STORAGE_PROVISIONER_BETA: provisioner})


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Of several, the newest, as Kubernetes has it."""
    found = [one for one in classes if one.metadata.annotations.get(DEFAULT_CLASS) == "true"]
    found.sort(key=lambda one: one.metadata.name)
    found.sort(key=lambda one: one.metadata.creation_timestamp or "", reverse=True)
    return found[0] if found else None


def class_of(claim: PersistentVolumeClaim, classes: Iterable[StorageClass]) -> StorageClass | None:
    name = claim.spec.storage_class_name
    return next((one for one in classes if one.metadata.name == name), None) if name else None


def why_classless(claim: PersistentVolumeClaim, classes: Sequence[StorageClass]) -> str:
    """Why nobody makes a volume for the claim, and what helps; "" where it has a class, or gets the default."""
    name, wanted = claim.metadata.name, claim.spec.storage_class_name
    gets_default = wanted is None and default_class(classes) is not None
    if claim.spec.volume_name or gets_default or class_of(claim, classes) is not None:
        return ""
    names = ", ".join(sorted(one.metadata.name for one in classes))
    if wanted:
        return f'there is no StorageClass "{wanted}"' + (f"; there are {names}" if names else "")
    there = f"the classes there are: {names}" if names else "there are no classes yet"
    return f"no StorageClass is set: `qm edit pvc {name}` sets spec.storageClassName; {there}"


def selected_node(claim: PersistentVolumeClaim) -> str:
    return claim.metadata.annotations.get(SELECTED_NODE, "")


class Bind(msgspec.Struct, frozen=True):
    volume: PersistentVolume
    why: str


class Hold(msgspec.Struct, frozen=True):
    """The claim stays or becomes like this; `reason` is that of an Event, "" for none."""

    phase: str
    why: str
    reason: str = ""


def choose(
    claim: PersistentVolumeClaim,
    storage_class: StorageClass | None,
    volumes: Sequence[PersistentVolume],
    labels: Mapping[str, Mapping[str, str]],
) -> Bind | Hold:
    """What to bind the claim to. `volumes` are all that may come into question, in any order."""
    if claim.spec.volume_name:
        return _named(claim, volumes)
    for volume in volumes:
        if refers_to(volume, claim):
            return Bind(volume, "it was made for the claim")
    if INTENT in claim.metadata.annotations:
        return Hold(PENDING, "its volume is being made")
    if waits_for_consumer(storage_class) and not selected_node(claim):
        return Hold(PENDING, "it waits for its first consumer: `qm volume mount`", "WaitForFirstConsumer")
    return _among(claim, storage_class, [volume for volume in volumes if fits(claim, volume)], labels)


def _among(
    claim: PersistentVolumeClaim,
    storage_class: StorageClass | None,
    volumes: Sequence[PersistentVolume],
    labels: Mapping[str, Mapping[str, str]],
) -> Bind | Hold:
    node = selected_node(claim)
    fitting = [volume for volume in volumes if not node or reachable(volume, labels_of(node, labels))]
    if fitting:
        # One that was made for this claim by name comes first, then the smallest that will do.
        fitting.sort(key=lambda one: (one.spec.claim_ref is None, amount(one.spec.capacity), one.metadata.name))
        return Bind(fitting[0], "it is the smallest that fits")
    if storage_class is not None:
        return Hold(PENDING, f"{storage_class.provisioner} is asked to make a volume")
    if claim.spec.storage_class_name:
        why = f'no volume that is there fits, and there is no StorageClass "{claim.spec.storage_class_name}"'
    else:
        why = "no volume that is there fits, and no StorageClass is set"
    return Hold(PENDING, why, "FailedBinding")


def _named(claim: PersistentVolumeClaim, volumes: Sequence[PersistentVolume]) -> Bind | Hold:
    name = claim.spec.volume_name
    was_bound = claim.metadata.annotations.get(BIND_COMPLETED) == _YES
    volume = next((one for one in volumes if one.metadata.name == name), None)
    if volume is None:
        if was_bound:
            return Hold(LOST, f"its volume {name} is gone", "ClaimLost")
        return Hold(PENDING, f"it waits for the volume {name}", "FailedBinding")
    if refers_to(volume, claim) or _is_free_for(volume, claim):
        return Bind(volume, "the claim names it")
    reference = volume.spec.claim_ref
    other = f"{reference.namespace}/{reference.name}" if reference is not None else "nobody"
    if was_bound:
        return Hold(LOST, f"its volume {name} is bound to {other}", "ClaimLost")
    return Hold(PENDING, f"the volume {name} is bound to {other}", "FailedBinding")


def fits(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Whether a volume that is there, and nobody's, will do."""
    spec = volume.spec
    return (
        not is_deleting(volume)
        and _is_free_for(volume, claim)
        and volume.status.phase in ("", PENDING, AVAILABLE)
        and spec.storage_class_name == (claim.spec.storage_class_name or "")
        and (spec.volume_mode or FILESYSTEM) == (claim.spec.volume_mode or FILESYSTEM)
        and set(claim.spec.access_modes) <= set(spec.access_modes)
        and amount(spec.capacity) >= requested(claim)
        and (claim.spec.selector is None or claim.spec.selector.matches(volume.metadata.labels))
    )


def _is_free_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Nobody's, or kept by an administrator for a claim of this name."""
    reference = volume.spec.claim_ref
    if reference is None:
        return True
    named = (reference.namespace, reference.name) == (claim.metadata.namespace, claim.metadata.name)
    return named and reference.uid in ("", claim.metadata.uid)


def claimed(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """The volume as the claim's own; the very same where it is."""
    if refers_to(volume, claim):
        return volume
    info = kind_of(PersistentVolumeClaim)
    meta = claim.metadata
    reference = ObjectReference(
        api_version=info.api_version, kind=info.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid
    )
    wanted = replace(volume, spec=replace(volume.spec, claim_ref=reference))
    return with_annotations(wanted, {BOUND_BY_CONTROLLER: _YES}) if volume.spec.claim_ref is None else wanted


def bound(claim: PersistentVolumeClaim, volume: PersistentVolume) -> PersistentVolumeClaim:
    """The claim as it names its volume."""
    marks = {BIND_COMPLETED: _YES}
    if not claim.spec.volume_name:
        marks[BOUND_BY_CONTROLLER] = _YES
    named = replace(claim, spec=replace(claim.spec, volume_name=volume.metadata.name))
    return with_annotations(named, marks)


def bound_status(claim: PersistentVolumeClaim, volume: PersistentVolume) -> PersistentVolumeClaimStatus:
    """A volume that has grown is shown so by whoever has seen to the whole of it, and not by its size alone."""
    shown = claim.status.capacity if claim.status.phase == BOUND and claim.status.capacity else None
    return replace(
        claim.status,
        phase=BOUND,
        access_modes=volume.spec.access_modes,
        capacity=shown or capacity(amount(volume.spec.capacity)),
        conditions=without_conditions(claim.status.conditions, PROVISIONED),
    )


def phase_of(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> tuple[str, str]:
    """The phase of a volume and the sentence to it. `claim` is the one that it refers to, if it is there."""
    reference = volume.spec.claim_ref
    if reference is None or not reference.uid:
        return AVAILABLE, ""
    if claim is None or claim.metadata.uid != reference.uid:
        return _released(volume)
    if claim.spec.volume_name == volume.metadata.name:
        return BOUND, ""
    if claim.spec.volume_name:
        return _released(volume)
    return volume.status.phase or PENDING, volume.status.message


def _released(volume: PersistentVolume) -> tuple[str, str]:
    policy = volume.spec.persistent_volume_reclaim_policy
    if policy == RECYCLE:
        return FAILED, "the reclaim policy Recycle is not supported: delete the volume by hand"
    if policy == "Delete" and not volume.metadata.annotations.get(PROVISIONED_BY):
        return FAILED, "nobody made it who could delete it: delete the volume by hand"
    return RELEASED, ""


def phased(volume: PersistentVolume, phase: str, message: str) -> PersistentVolume:
    if (volume.status.phase, volume.status.message) == (phase, message):
        return volume
    since = clock.timestamp() if volume.status.phase != phase else volume.status.last_phase_transition_time
    return replace(
        volume, status=replace(volume.status, phase=phase, message=message, last_phase_transition_time=since)
    )


def protected(volume: PersistentVolume) -> PersistentVolume:
    return volume if is_deleting(volume) else with_finalizer(volume, VOLUME_PROTECTION)
