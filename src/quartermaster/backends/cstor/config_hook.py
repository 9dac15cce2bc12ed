"""CStorClusterConfig: the plan and the pool cluster that follow from it, its status, and how it is taken down.

Taken down in this order, each step only when the one before is through: no volume replica is left; the pool cluster;
its instances; the claims on block devices; the plan, and with it the storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from quartermaster.backends.cstor import reasons
from quartermaster.backends.cstor.decide import Decision, Gathered, decide, gather, judged, pool_cluster_of
from quartermaster.backends.cstor.devices import is_claimed
from quartermaster.backends.cstor.documents import Answer, part_of
from quartermaster.backends.cstor.hook import NORMAL, WARNING, Document, HookEvent, SyncRequest, SyncResponse
from quartermaster.backends.cstor.names import (
    CONFIG_ANNOTATION,
    CONFIG_UID_LABEL,
    STATED_ANNOTATION,
    STORAGE_UID_LABEL,
    full_name,
    openebs_namespace,
    pool_cluster_name,
)
from quartermaster.backends.cstor.pools import stated_of
from quartermaster.backends.cstor.status import (
    Finding,
    document_of,
    events_of,
    foreign_findings,
    invalid_findings,
    listed,
    merged_conditions,
    no_nodes_findings,
    status_of,
)
from quartermaster.resources.agility import (
    CONFIG_UID_ANNOTATION,
    CStorClusterConfig,
    CStorClusterConfigStatus,
    CStorClusterPlan,
    CStorClusterPlanSpec,
    PlanNode,
)
from quartermaster.resources.codec import to_document
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.openebs import ALLOWED_TAGS_ANNOTATION, BlockDevice
from quartermaster.resources.references import owner_reference

# While something is under way that no object of ours shows, look again after so long.
_PATIENCE_S = 30.0


def sync(request: SyncRequest) -> SyncResponse:
    gathered = gather(request)
    verdict = judged(gathered)
    if verdict.settings is None:
        return _stopped(gathered, list(invalid_findings(verdict)), reasons.INVALID, request.now)
    if gathered.foreign:
        return _stopped(gathered, list(foreign_findings(gathered.foreign)), reasons.DEGRADED, request.now)
    if gathered.plan is not None and not gathered.inventory.nodes:
        # Rather a view that is not complete than a cluster without nodes: nothing is taken down for it.
        return _stopped(gathered, list(no_nodes_findings()), reasons.WAITING, request.now)
    decision = decide(gathered, verdict, request.now)
    status = status_of(gathered, decision, request.now)
    return _response(gathered, decision, status)


def _stopped(gathered: Gathered, findings: Sequence[Finding], phase: str, now: str) -> SyncResponse:
    """What is there stays as it is until somebody mends the declaration."""
    config = gathered.config
    status = msgspec.structs.replace(
        config.status,
        phase=phase,
        message=next(finding.message for finding in findings if not finding.holds),
        observed_generation=config.metadata.generation or None,
        conditions=_conditions(config, findings, now),
    )
    return SyncResponse(
        status=document_of(status),
        skip_reconcile=True,
        events=tuple(events_of(config.status.conditions, status.conditions)),
    )


def _conditions(config: CStorClusterConfig, findings: Iterable[Finding], now: str) -> Any:
    generation = config.metadata.generation
    return merged_conditions(config.status.conditions, findings, generation=generation, now=now)


def _response(gathered: Gathered, decision: Decision, status: CStorClusterConfigStatus) -> SyncResponse:
    config = gathered.config
    answer = Answer(config)
    answer.want(plan_document(config, decision.nodes), gathered.plan)
    if decision.pools:
        answer.want(_pool_cluster_document(gathered, decision), gathered.pool_cluster)
    elif gathered.pool_cluster is not None:
        answer.drop(gathered.pool_cluster)
    answer.update(_label_updates(gathered, decision))
    looks_again = decision.diagnosis.look_again_s or (0.0 if status.phase == reasons.READY else _PATIENCE_S)
    return answer.response(
        status=document_of(status),
        resync_after_s=looks_again,
        irreversible=_takes_away(gathered, decision),
        events=(*_change_events(gathered, decision), *events_of(config.status.conditions, status.conditions)),
    )


def _takes_away(gathered: Gathered, decision: Decision) -> bool:
    """Whether a pool goes for good, from the plan or from the pool cluster, or is down for a while, or a disk goes."""
    if decision.diagnosis.replacements or any(change.kind != "add" for change in decision.choice.changes):
        return True
    left = {name for pool in decision.pools for group in pool.data_raid_groups for name in _names(group)}
    return any(left.isdisjoint(pool.data_devices) for pool in gathered.pools)


def plan_document(config: CStorClusterConfig, nodes: Sequence[PlanNode]) -> Document:
    plan = CStorClusterPlan(
        metadata=ObjectMeta(
            name=config.metadata.name,
            namespace=config.metadata.namespace,
            annotations={CONFIG_UID_ANNOTATION: config.metadata.uid, CONFIG_ANNOTATION: config.metadata.name},
            owner_references=(owner_reference(config, block_deletion=False),),
        ),
        spec=CStorClusterPlanSpec(nodes=tuple(nodes)),
    )
    document = to_document(plan)
    # That there are no nodes is said, not left out.
    document.setdefault("spec", {}).setdefault("nodes", [])
    return document


def _pool_cluster_document(gathered: Gathered, decision: Decision) -> Document:
    """Only what is ours: the pools, and whose they are. OpenEBS and users have their own fields beside them."""
    config = gathered.config
    spec = to_document(pool_cluster_of(config, gathered.pool_cluster, decision.pools))["spec"]
    annotations = {CONFIG_UID_ANNOTATION: config.metadata.uid, CONFIG_ANNOTATION: full_name(config)}
    # What is not applied is not stated: the record stays as it is with the pools.
    stated = gathered.stated if decision.broken else stated_of(decision.settings)
    if stated:
        annotations[STATED_ANNOTATION] = ",".join(stated)
    if (tags := config.metadata.annotations.get(ALLOWED_TAGS_ANNOTATION)) is not None:
        annotations[ALLOWED_TAGS_ANNOTATION] = tags
    return {
        "apiVersion": "cstor.openebs.io/v1",
        "kind": "CStorPoolCluster",
        "metadata": {
            "name": pool_cluster_name(config),
            "namespace": openebs_namespace(config),
            "annotations": annotations,
        },
        "spec": {"pools": spec["pools"]},
    }


def _label_updates(gathered: Gathered, decision: Decision) -> Iterator[Document]:
    """The label by which disks that exist already are taken, and given back."""
    wanted = {name for node in decision.nodes for name in (*node.block_devices, *node.write_cache, *node.lost_devices)}
    wanted.update(name for pool in decision.pools for group in pool.data_raid_groups for name in _names(group))
    wanted.update(name for pool in decision.pools for group in pool.write_cache_raid_groups for name in _names(group))
    uid = gathered.uid
    for name in sorted(wanted):
        device = gathered.inventory.device(gathered.namespace, name)
        if device is not None and STORAGE_UID_LABEL not in device.metadata.labels:
            yield part_of(device, labels={CONFIG_UID_LABEL: uid})
    yield from _given_back(gathered.inventory.devices_of(uid), wanted)


def _names(group: Any) -> Iterator[str]:
    return (device.block_device_name for device in group.block_devices)


def _given_back(devices: Iterable[BlockDevice], wanted: set[str]) -> Iterator[Document]:
    for device in devices:
        if STORAGE_UID_LABEL not in device.metadata.labels and device.metadata.name not in wanted:
            yield part_of(device)


def _change_events(gathered: Gathered, decision: Decision) -> Iterator[HookEvent]:
    if decision.adopts:
        yield HookEvent(NORMAL, reasons.ADOPTED, f"CStorPoolCluster {pool_cluster_name(gathered.config)} is adopted")
    for change in decision.choice.changes:
        if change.kind == "add":
            yield HookEvent(NORMAL, reasons.NODE_ADDED, f"node {change.node} holds a pool: {change.why}")
        elif change.kind == "drop":
            yield HookEvent(NORMAL, reasons.NODE_DROPPED, f"node {change.node} holds no pool any more: {change.why}")
        else:
            said = f"the pool of node {change.origin} moves to node {change.node}: {change.why}"
            yield HookEvent(WARNING, reasons.POOL_MOVED, said)
    for lost in decision.diagnosis.replacements:
        yield HookEvent(WARNING, reasons.DISK_REPLACED, f"disk {lost.disk} on node {lost.node} is given up: {lost.why}")
    if decision.growth.node is not None:
        node = decision.growth.node
        yield HookEvent(NORMAL, reasons.EXPANDED, f"the pool on node {node.name} grows to {node.disks} disks")
    known = (
        {name for node in gathered.plan.spec.nodes for name in node.write_cache} if gathered.plan is not None else set()
    )
    for node in decision.nodes:
        if fresh := [name for name in node.write_cache if name not in known]:
            yield HookEvent(
                NORMAL, reasons.WRITE_CACHE_FOUND, f"node {node.name} has a faster disk for a write cache: {fresh[0]}"
            )
    if gathered.pool_cluster is not None and decision.pools != gathered.pool_cluster.spec.pools:
        yield HookEvent(NORMAL, reasons.POOL_CLUSTER_CHANGED, f"{len(decision.pools)} pools are applied")


def finalize(request: SyncRequest) -> SyncResponse:
    gathered = gather(request)
    config = gathered.config
    ours = not any(gathered.pool_cluster is obj for obj in gathered.foreign)
    if gathered.replicas and ours:
        return _blocked(gathered, request)
    answer = Answer(config)
    waits_for = ""
    if ours and gathered.pool_cluster is not None:
        answer.keep(gathered.plan)
        if gathered.pool_cluster.metadata.deletion_timestamp is None:
            answer.drop(gathered.pool_cluster)
        waits_for = f"CStorPoolCluster {gathered.pool_cluster.key} is being deleted"
    elif gathered.instances:
        answer.keep(gathered.plan)
        waits_for = "OpenEBS takes down " + listed(instance.metadata.name for instance in gathered.instances)
    elif claimed := _claimed(gathered):
        answer.keep(gathered.plan)
        waits_for = "OpenEBS releases " + listed(claimed)
    elif gathered.plan is not None or gathered.sets or gathered.storages:
        if gathered.plan is not None:
            answer.drop(gathered.plan)
        left = len(gathered.storages)
        waits_for = f"{left} disks are being detached and deleted" if left else "the plan is being deleted"
    else:
        answer.update(_given_back(gathered.inventory.devices_of(gathered.uid), set()))
    finding = Finding(reasons.DELETION_BLOCKED, False, reasons.TEARING_DOWN, waits_for)
    status = msgspec.structs.replace(
        config.status,
        phase=reasons.DELETING,
        message=waits_for,
        conditions=_conditions(config, [finding], request.now),
    )
    return answer.response(
        status=document_of(status),
        finalized=not waits_for,
        resync_after_s=_PATIENCE_S if waits_for else 0.0,
        events=tuple(events_of(config.status.conditions, status.conditions)),
    )


def _claimed(gathered: Gathered) -> list[str]:
    """Devices of this cluster that OpenEBS has not released yet."""
    devices = {device.metadata.name for device in gathered.inventory.devices_of(gathered.uid) if is_claimed(device)}
    return sorted(devices | set(gathered.claims))


def _blocked(gathered: Gathered, request: SyncRequest) -> SyncResponse:
    """Volumes live here: everything goes on as before, and the status says why it does not go away."""
    config = gathered.config
    response = sync(request)
    status = msgspec.convert(response.status, CStorClusterConfigStatus)
    message = (
        f"volume replicas are left, {len(gathered.replicas)} in all: {listed(gathered.replicas)}; "
        "delete their volumes first"
    )
    finding = Finding(reasons.DELETION_BLOCKED, True, reasons.VOLUME_REPLICAS, message)
    conditions = merged_conditions(status.conditions, [finding], generation=config.metadata.generation, now=request.now)
    blocked = msgspec.structs.replace(status, phase=reasons.DELETING, message=message, conditions=conditions)
    return msgspec.structs.replace(
        response,
        status=document_of(blocked),
        resync_after_s=_PATIENCE_S,
        events=(*response.events, *events_of(status.conditions, conditions)),
    )
