"""The names by which provisioners, binders and kubelets understand each other, and what they say of claims and volumes.

All of them are Kubernetes' own, so that a claim looks the same whoever binds it; ours are in `resources.marks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from quartermaster.planning.cluster import ClusterKey
from quartermaster.resources.kubernetes.core import CoreCondition
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from quartermaster.resources.marks import CLUSTER_LABEL, DOMAIN, MOUNTED, NAMESPACE_LABEL
from quartermaster.resources.model import Object
from quartermaster.resources.quantity import Amount, of_bytes
from quartermaster.support import clock

T = TypeVar("T", bound=Object)

# On claims.
STORAGE_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
STORAGE_PROVISIONER_BETA: Final = "volume.beta.kubernetes.io/storage-provisioner"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"

# On volumes.
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
VOLUME_FINALIZER: Final = "external-provisioner.volume.kubernetes.io/finalizer"
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"

IMMEDIATE: Final = "Immediate"
WAIT_FOR_CONSUMER: Final = "WaitForFirstConsumer"
DELETE: Final = "Delete"
RETAIN: Final = "Retain"
RECYCLE: Final = "Recycle"
BLOCK: Final = "Block"
FILESYSTEM: Final = "Filesystem"

PENDING: Final = "Pending"
AVAILABLE: Final = "Available"
BOUND: Final = "Bound"
RELEASED: Final = "Released"
LOST: Final = "Lost"
FAILED: Final = "Failed"

# Reasons of Events.
PROVISIONING: Final = "Provisioning"
PROVISIONING_SUCCEEDED: Final = "ProvisioningSucceeded"
PROVISIONING_FAILED: Final = "ProvisioningFailed"
VOLUME_FAILED_DELETE: Final = "VolumeFailedDelete"
VOLUME_FAILED_KEEP: Final = "VolumeFailedKeep"
WAITING_FOR_CONSUMER: Final = "WaitForFirstConsumer"
RESIZING: Final = "Resizing"  # also the type of a condition
RESIZE_SUCCEEDED: Final = "VolumeResizeSuccessful"
RESIZE_FAILED: Final = "VolumeResizeFailed"
FAILED_BINDING: Final = "FailedBinding"
CLAIM_LOST: Final = "ClaimLost"
VOLUME_IN_USE: Final = "VolumeInUse"
ORPHANED_VOLUME: Final = "OrphanedVolume"

# The condition that says why a claim has no volume yet; it goes when it has one.
PROVISIONED: Final = "Provisioned"
GROWING: Final = "ControllerResizeInProgress"  # a value of status.allocatedResourceStatuses

STORAGE: Final = "storage"


def volume_name(claim: PersistentVolumeClaim) -> str:
    """Of the volume that is made for the claim. A uid is never used twice, so neither is the name."""
    return f"pvc-{claim.metadata.uid}"


def provisioner_for(claim: PersistentVolumeClaim) -> str:
    """Who is asked to make the volume; "" while the binder has not asked anybody."""
    annotations = claim.metadata.annotations
    return annotations.get(STORAGE_PROVISIONER) or annotations.get(STORAGE_PROVISIONER_BETA, "")


def type_of(provisioner: str) -> str:
    """The storage system of a provisioner of ours; "" for another's."""
    name, separator, domain = provisioner.partition(".")
    return name if separator and domain == DOMAIN else ""


def cluster_of(storage_class: StorageClass, claim: PersistentVolumeClaim) -> ClusterKey:
    """Which cluster makes the volumes of a class: its labels say it, or its parameters, where a person wrote the class.

    A class that does not name the namespace means the cluster beside the claim.
    """
    labels, parameters = storage_class.metadata.labels, storage_class.parameters
    return ClusterKey(
        labels.get(NAMESPACE_LABEL) or parameters.get("namespace") or claim.metadata.namespace,
        type_of(storage_class.provisioner),
        labels.get(CLUSTER_LABEL) or parameters.get("cluster") or "default",
    )


def requested(claim: PersistentVolumeClaim) -> int:
    """Bytes that the claim asks for."""
    return amount(claim.spec.resources.requests)


def amount(resources: Mapping[str, Any]) -> int:
    """Bytes of storage in a list of resources; 0 where it has none."""
    found = resources.get(STORAGE)
    return Amount.of(found).bytes if found is not None else 0


def capacity(size: int) -> dict[str, str | int]:
    return {STORAGE: of_bytes(size)}


def is_deleting(obj: Object) -> bool:
    return obj.metadata.deletion_timestamp is not None


def is_block(claim: PersistentVolumeClaim) -> bool:
    return claim.spec.volume_mode == BLOCK


def waits_for_consumer(storage_class: StorageClass | None) -> bool:
    return storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_CONSUMER


def is_growing(claim: PersistentVolumeClaim) -> bool:
    """Whether the storage system was asked for more, and has not finished."""
    return claim.status.allocated_resource_statuses.get(STORAGE) == GROWING


def refers_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume is meant for this very claim, and not for an earlier one of that name."""
    reference = volume.spec.claim_ref
    return reference is not None and reference.uid != "" and reference.uid == claim.metadata.uid


def mounts_of(volume: PersistentVolume) -> dict[str, tuple[str, ...]]:
    """Where `qm volume mount` has it: host → paths."""
    text = volume.metadata.annotations.get(MOUNTED)
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, tuple[str, ...]])
    except msgspec.DecodeError:
        # Whoever wrote it meant something by it: it counts as mounted, somewhere.
        return {"": (text,)}


def with_mounts(volume: PersistentVolume, mounts: Mapping[str, tuple[str, ...]]) -> PersistentVolume:
    kept = {host: paths for host, paths in sorted(mounts.items()) if paths}
    text = msgspec.json.encode(kept).decode() if kept else ""
    return with_annotations(volume, {MOUNTED: text})


def with_annotations(obj: T, changes: Mapping[str, str]) -> T:
    """With these annotations; an empty text takes one away."""
    annotations = {**obj.metadata.annotations, **changes}
    return replace(obj, metadata=replace(obj.metadata, annotations={k: v for k, v in annotations.items() if v}))


def with_finalizer(obj: T, finalizer: str) -> T:
    if finalizer in obj.metadata.finalizers:
        return obj
    return replace(obj, metadata=replace(obj.metadata, finalizers=(*obj.metadata.finalizers, finalizer)))


def without_finalizer(obj: T, finalizer: str) -> T:
    kept = tuple(one for one in obj.metadata.finalizers if one != finalizer)
    return replace(obj, metadata=replace(obj.metadata, finalizers=kept))


def with_condition(
    conditions: tuple[CoreCondition, ...], type: str, status: str, reason: str, message: str
) -> tuple[CoreCondition, ...]:
    """The very same conditions come back where nothing changed."""
    old = find_condition(conditions, type)
    if old is not None and (old.status, old.reason, old.message) == (status, reason, message):
        return conditions
    since = old.last_transition_time if old is not None and old.status == status else None
    wanted = CoreCondition(
        type=type, status=status, reason=reason, message=message, last_transition_time=since or clock.timestamp()
    )
    return (*without_conditions(conditions, type), wanted)


def without_conditions(conditions: tuple[CoreCondition, ...], *types: str) -> tuple[CoreCondition, ...]:
    return tuple(condition for condition in conditions if condition.type not in types)


def find_condition(conditions: Iterable[CoreCondition], type: str) -> CoreCondition | None:
    return next((condition for condition in conditions if condition.type == type), None)
