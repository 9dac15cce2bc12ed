"""CStorClusterStorageSet: one Storage per disk of a pool.

A disk has a place in its set. When it is given up, the next Storage of that place is wanted in its stead, under a name
of its own; the old one is deleted, which takes effect when the pool has let go of it. A disk keeps the capacity with
which it was made.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from quartermaster.backends.cstor import reasons
from quartermaster.backends.cstor.documents import Answer
from quartermaster.backends.cstor.hook import Document, SyncRequest, SyncResponse
from quartermaster.backends.cstor.names import (
    CONFIG_ANNOTATION,
    DISK_ANNOTATION,
    POOL_CLUSTER_ANNOTATION,
    ROLE_ANNOTATION,
    SLOT_ANNOTATION,
    storage_name,
)
from quartermaster.backends.cstor.progress import Stage, disks_stage, progress
from quartermaster.backends.cstor.view import DATA, slot_of
from quartermaster.resources.agility import (
    ATTACHER_ANNOTATION,
    CLASS_ANNOTATION,
    CONFIG_UID_ANNOTATION,
    STORAGE_SET_UID_ANNOTATION,
    CStorClusterPlan,
    CStorClusterStorageSet,
    Storage,
    StorageSpec,
)
from quartermaster.resources.codec import to_document
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.references import owner_reference


def sync(request: SyncRequest) -> SyncResponse:
    storage_set: CStorClusterStorageSet = request.watch
    present = {storage.metadata.name: storage for storage in _storages_of(request)}
    answer = Answer(storage_set)
    ready = 0
    for name, disk in wanted_names(storage_set):
        known = present.get(name)
        answer.want(_storage_document(storage_set, name, disk, known), known)
        ready += known is not None and known.status.phase == reasons.READY
    count = storage_set.spec.disk.count
    stage = disks_stage(ready, count, "disks are active")
    return answer.response(status=progress(storage_set.status, storage_set, stage, request.now))


def wanted_names(storage_set: CStorClusterStorageSet) -> Iterator[tuple[str, int]]:
    """The Storage that each place of the set has now."""
    replaced = frozenset(storage_set.spec.replaced)
    for disk in range(storage_set.spec.disk.count):
        generation = 0
        while (name := storage_name(storage_set.metadata.name, disk, generation)) in replaced:
            generation += 1
        yield name, disk


def finalize(request: SyncRequest) -> SyncResponse:
    """As long as the plan has the slot, deleting the set alone deletes nothing."""
    storage_set: CStorClusterStorageSet = request.watch
    plan = request.attachments.get(
        CStorClusterPlan, storage_set.metadata.namespace, storage_set.metadata.annotations.get(CONFIG_ANNOTATION, "")
    )
    if plan is not None and plan.metadata.deletion_timestamp is None and _is_planned(storage_set, plan):
        held = sync(request)
        message = f"it is deleted when CStorClusterPlan {plan.metadata.name} no longer has its slot"
        stage = Stage(reasons.DELETING, reasons.OWNER_WANTS_IT, message)
        return msgspec.structs.replace(held, status=progress(storage_set.status, storage_set, stage, request.now))
    left = _storages_of(request)
    answer = Answer(storage_set)
    for storage in left:
        answer.drop(storage)
    stage = Stage(reasons.DELETING, reasons.TEARING_DOWN, f"{len(left)} disks are being taken down")
    return answer.response(status=progress(storage_set.status, storage_set, stage, request.now), finalized=not left)


def _is_planned(storage_set: CStorClusterStorageSet, plan: CStorClusterPlan) -> bool:
    uid = storage_set.metadata.annotations.get(CONFIG_UID_ANNOTATION)
    if plan.metadata.annotations.get(CONFIG_UID_ANNOTATION) != uid:
        return False
    slots = (node.slot if node.slot is not None else place for place, node in enumerate(plan.spec.nodes))
    return slot_of(storage_set) in slots


def _storages_of(request: SyncRequest) -> tuple[Storage, ...]:
    """Those that were made for the set, whatever became of it in between."""
    storage_set: CStorClusterStorageSet = request.watch
    return tuple(s for s in request.attachments.of(Storage) if set_of(s) == storage_set.metadata.name)


def set_of(storage: Storage) -> str:
    return next((r.name for r in storage.metadata.owner_references if r.kind == "CStorClusterStorageSet"), "")


def _storage_document(storage_set: CStorClusterStorageSet, name: str, disk: int, present: Storage | None) -> Document:
    given = storage_set.metadata.annotations
    provisioner = storage_set.spec.external_provisioner
    annotations = {
        STORAGE_SET_UID_ANNOTATION: storage_set.metadata.uid,
        CONFIG_UID_ANNOTATION: given.get(CONFIG_UID_ANNOTATION, ""),
        CONFIG_ANNOTATION: given.get(CONFIG_ANNOTATION, ""),
        SLOT_ANNOTATION: given.get(SLOT_ANNOTATION, ""),
        ROLE_ANNOTATION: storage_set.spec.role or DATA,
        DISK_ANNOTATION: str(disk),
    }
    if POOL_CLUSTER_ANNOTATION in given:
        annotations[POOL_CLUSTER_ANNOTATION] = given[POOL_CLUSTER_ANNOTATION]
    if provisioner is not None:
        annotations[ATTACHER_ANNOTATION] = provisioner.csi_attacher_name
        annotations[CLASS_ANNOTATION] = provisioner.storage_class_name
    if present is not None:
        # A disk is of the class from which it came, whatever the set says for new ones.
        annotations |= {
            key: present.metadata.annotations[key]
            for key in (ATTACHER_ANNOTATION, CLASS_ANNOTATION)
            if key in present.metadata.annotations
        }
    return to_document(
        Storage(
            metadata=ObjectMeta(
                name=name,
                namespace=storage_set.metadata.namespace,
                annotations=annotations,
                owner_references=(owner_reference(storage_set, block_deletion=False),),
            ),
            spec=StorageSpec(
                capacity=present.spec.capacity if present is not None else storage_set.spec.disk.capacity,
                node_name=storage_set.spec.node.name,
            ),
        )
    )
