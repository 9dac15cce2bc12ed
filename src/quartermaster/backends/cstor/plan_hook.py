"""CStorClusterPlan: one storage set per slot, and one more for each sort of disk that a pool has besides its data.

A set follows its slot: when the plan gives the slot another node, the set gets that node, and its disks move there.
Disks that exist already need no set.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from quartermaster.backends.cstor import reasons
from quartermaster.backends.cstor.documents import Answer
from quartermaster.backends.cstor.hook import Document, SyncRequest, SyncResponse
from quartermaster.backends.cstor.names import (
    CONFIG_ANNOTATION,
    POOL_CLUSTER_ANNOTATION,
    ROLE_ANNOTATION,
    SLOT_ANNOTATION,
    set_name,
)
from quartermaster.backends.cstor.progress import Stage, disks_stage, progress
from quartermaster.backends.cstor.settings import DEFAULT_CAPACITY, provisioner_of
from quartermaster.backends.cstor.view import DATA, READ_CACHE, SPARE, WRITE_CACHE
from quartermaster.resources.agility import (
    CONFIG_UID_ANNOTATION,
    PLAN_UID_ANNOTATION,
    CacheConfig,
    CStorClusterConfig,
    CStorClusterConfigSpec,
    CStorClusterPlan,
    CStorClusterStorageSet,
    CStorClusterStorageSetSpec,
    DiskConfig,
    ExternalProvisioner,
    PlannedNode,
    PlanNode,
    PoolConfig,
    SetDisk,
)
from quartermaster.resources.codec import to_document
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.references import owner_reference


class Need(msgspec.Struct, frozen=True):
    """Disks of one sort that each pool needs. `count` None: as many as the plan says."""

    role: str
    capacity: str
    provisioner: ExternalProvisioner
    count: int | None = None


def needs_of(spec: CStorClusterConfigSpec) -> tuple[Need, ...]:
    """What has to be made, by role."""
    disks, pool = spec.disk_config or DiskConfig(), spec.pool_config or PoolConfig()
    capacity = str(disks.min_capacity if disks.min_capacity is not None else DEFAULT_CAPACITY)
    found = []
    provisioner = provisioner_of(disks)
    if provisioner is not None:
        found.append(Need(DATA, capacity, provisioner))
        if pool.spare:
            found.append(Need(SPARE, capacity, provisioner, 1))
    for role, cache in ((WRITE_CACHE, pool.write_cache), (READ_CACHE, pool.read_cache)):
        if cache is not None:
            found.append(_cache_need(role, cache, capacity))
    return tuple(found)


def _cache_need(role: str, cache: CacheConfig, capacity: str) -> Need:
    source = ExternalProvisioner(csi_attacher_name=cache.csi_attacher_name, storage_class_name=cache.storage_class_name)
    return Need(role, str(cache.capacity or capacity), source, cache.count or 1)


def sync(request: SyncRequest) -> SyncResponse:
    plan: CStorClusterPlan = request.watch
    config = _config_of(request)
    if config is None or config.status.effective is None:
        stage = Stage(reasons.PENDING, reasons.OWNER_WANTS_IT, "its CStorClusterConfig does not say what it should be")
        return SyncResponse(status=progress(plan.status, plan, stage, request.now), skip_reconcile=True)
    sets = {s.metadata.name: s for s in _sets_of(request)}
    answer = Answer(plan)
    wanted = list(set_documents(plan, config, config.status.effective))
    for document in wanted:
        answer.want(document, sets.get(document["metadata"]["name"]))
    names = {document["metadata"]["name"] for document in wanted}
    ready = [name for name in names if name in sets and sets[name].status.phase == reasons.READY]
    if plan.spec.nodes:
        stage = disks_stage(len(ready), len(names), "storage sets are ready")
    else:
        stage = Stage(reasons.PENDING, reasons.DISKS_PENDING, "no node is planned")
    return answer.response(status=progress(plan.status, plan, stage, request.now))


def finalize(request: SyncRequest) -> SyncResponse:
    """As long as the config is there to stay, deleting the plan alone deletes nothing."""
    config = _config_of(request)
    plan: CStorClusterPlan = request.watch
    if config is not None and config.metadata.deletion_timestamp is None:
        held = sync(request)
        message = f"it is deleted with CStorClusterConfig {config.metadata.name}, not before"
        stage = Stage(reasons.DELETING, reasons.OWNER_WANTS_IT, message)
        return msgspec.structs.replace(held, status=progress(plan.status, plan, stage, request.now))
    left = _sets_of(request)
    answer = Answer(plan)
    for storage_set in left:
        answer.drop(storage_set)
    stage = Stage(reasons.DELETING, reasons.TEARING_DOWN, f"{len(left)} storage sets are being deleted")
    return answer.response(status=progress(plan.status, plan, stage, request.now), finalized=not left)


def _config_of(request: SyncRequest) -> CStorClusterConfig | None:
    plan: CStorClusterPlan = request.watch
    found = request.attachments.get(CStorClusterConfig, plan.metadata.namespace, plan.metadata.name)
    uid = plan.metadata.annotations.get(CONFIG_UID_ANNOTATION)
    return found if found is not None and found.metadata.uid == uid else None


def _sets_of(request: SyncRequest) -> tuple[CStorClusterStorageSet, ...]:
    plan: CStorClusterPlan = request.watch
    uid = plan.metadata.annotations.get(CONFIG_UID_ANNOTATION)
    return tuple(
        s
        for s in request.attachments.of(CStorClusterStorageSet)
        if s.metadata.namespace == plan.metadata.namespace and s.metadata.annotations.get(CONFIG_UID_ANNOTATION) == uid
    )


def set_documents(
    plan: CStorClusterPlan, config: CStorClusterConfig, effective: CStorClusterConfigSpec
) -> Iterator[Document]:
    """By what holds, not by what is declared: a declaration with mistakes changes nothing."""
    needs = needs_of(effective)
    for position, node in enumerate(plan.spec.nodes):
        slot = node.slot if node.slot is not None else position
        for need in needs:
            count = (node.disks or 0) - len(node.block_devices) if need.count is None else need.count
            # A fast disk that was found stands in for a write cache that would have to be made.
            if count > 0 and not (need.role == WRITE_CACHE and node.write_cache):
                yield _set_document(plan, config, msgspec.structs.replace(node, slot=slot), need, count)


def _set_document(
    plan: CStorClusterPlan, config: CStorClusterConfig, node: PlanNode, need: Need, count: int
) -> Document:
    uid, slot = config.metadata.uid, node.slot or 0
    named = {k: name for k, name in config.metadata.annotations.items() if k == POOL_CLUSTER_ANNOTATION}
    return to_document(
        CStorClusterStorageSet(
            metadata=ObjectMeta(
                name=set_name(uid, slot, need.role),
                namespace=plan.metadata.namespace,
                annotations={
                    PLAN_UID_ANNOTATION: plan.metadata.uid,
                    CONFIG_UID_ANNOTATION: uid,
                    CONFIG_ANNOTATION: config.metadata.name,
                    SLOT_ANNOTATION: str(slot),
                    ROLE_ANNOTATION: need.role,
                    **named,
                },
                owner_references=(owner_reference(plan, block_deletion=False),),
            ),
            spec=CStorClusterStorageSetSpec(
                node=PlannedNode(name=node.name, uid=node.uid),
                disk=SetDisk(capacity=need.capacity, count=count),
                external_provisioner=need.provisioner,
                role=need.role,
                replaced=node.replaced,
            ),
        )
    )
