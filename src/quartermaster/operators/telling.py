"""Writing what is known into statuses, and Events where something became another thing. Nothing is written twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from quartermaster.engine.controller import Scope
from quartermaster.operators.parallel import in_parallel
from quartermaster.operators.reporting import (
    ACCEPTED,
    Hold,
    cluster_spec,
    cluster_status,
    node_status,
    with_condition,
)
from quartermaster.planning.cluster import ClusterKey, ClusterPlan, ClusterView, NodeView, Verdict
from quartermaster.planning.gathering import cluster_key, settings_clusters
from quartermaster.planning.matching import home_of
from quartermaster.planning.outcomes import FAILED, READY
from quartermaster.planning.readiness import Standing
from quartermaster.planning.steps import APPROVAL_NEEDED, Work
from quartermaster.resources import marks
from quartermaster.resources.conditions import is_true
from quartermaster.resources.model import Key, ObjectMeta
from quartermaster.resources.storage import OFFLINE, StorageCluster, StorageNode, StorageStatus, StorageStatusSpec
from quartermaster.stores.modify import modify
from quartermaster.support.errors import AlreadyExistsError, NotFoundError

T = TypeVar("T")

# Reasons of Events; those of a node are its states.
BECAME_ONLINE = "Online"
BECAME_OFFLINE = "Offline"


class Telling:
    """The statuses of one namespace in one term."""

    def __init__(self, scope: Scope, namespace: str) -> None:
        self._store = scope.store
        self._events = scope.events
        self._namespace = namespace
        self._statuses = scope.caches.of(StorageStatus, namespace)

    async def nodes(self, view: ClusterView, plan: ClusterPlan) -> None:
        """Those whose cluster this is; a node that is to join it later is told by the one that it leaves."""
        await in_parallel(
            [
                partial(self._node, view.key, node, plan)
                for node in view.nodes
                if home_of(node.node) == view.key.name
                and node_status(node.node.status, node, plan.nodes[node.name], view.key.name) != node.node.status
            ]
        )

    async def _node(self, key: ClusterKey, node: NodeView, plan: ClusterPlan) -> None:
        outcome = plan.nodes[node.name]
        before = node.node.status.state

        def told(current: StorageNode) -> StorageNode:
            nonlocal before
            before = current.status.state
            if current.metadata.uid != node.node.metadata.uid:
                return current
            return replace(current, status=node_status(current.status, node, outcome, key.name))

        written = await self.change_node(node.node, told, status=True)
        if written is not None and before != outcome.state:
            trouble = outcome.state == FAILED or (before == READY and bool(outcome.message))
            text = outcome.message or f"the node is {outcome.state}"
            self._events.record(written, outcome.state, text, type="Warning" if trouble else "Normal")

    async def cluster(
        self,
        view: ClusterView,
        plan: ClusterPlan,
        standing: Standing,
        work: Work,
        *,
        hold: Hold | None,
        class_name: str,
        class_trouble: str,
    ) -> None:
        key = view.key
        current = self._statuses.get(Key(key.namespace, key.status_name)) or await self._create(key)

        def with_spec(status: StorageStatus) -> StorageStatus:
            return replace(status, spec=cluster_spec(status.spec, view, plan, standing))

        def with_status(status: StorageStatus) -> StorageStatus:
            told = cluster_status(
                status.status, view, plan, standing, work, hold=hold, class_name=class_name, class_trouble=class_trouble
            )
            return replace(status, status=told)

        waited = is_true(current.status.conditions, APPROVAL_NEEDED)
        # Two writes: whoever looks in between must never find ONLINE beside counts and reasons that say otherwise.
        if not standing.online and with_spec(current) != current:
            current = await self._change_status(key, with_spec) or current
        if with_status(current) != current:
            current = await self._change_status(key, with_status, status=True) or current
        if with_spec(current) != current:
            current = await self._change_status(key, with_spec) or current
        if view.online != standing.online:
            text = standing.why.message
            if standing.online:
                self._events.record(current, BECAME_ONLINE, text)
            else:
                self._events.record(current, BECAME_OFFLINE, text, type="Warning")
        if work.waiting and not waited:
            self._events.record(current, APPROVAL_NEEDED, "steps that destroy something wait: `qm approve` shows them")

    async def _create(self, key: ClusterKey) -> StorageStatus:
        labels = {marks.TYPE_LABEL: key.type, marks.CLUSTER_LABEL: key.name, marks.MANAGED_BY_LABEL: marks.MANAGED_BY}
        status = StorageStatus(
            metadata=ObjectMeta(name=key.status_name, namespace=key.namespace, labels=labels),
            spec=StorageStatusSpec(type=key.type, status=OFFLINE),
        )
        try:
            return await self._store.create(status)
        except AlreadyExistsError:
            return await self._store.get(StorageStatus, key.status_name, key.namespace)

    async def settings(self, clusters: Sequence[StorageCluster]) -> None:
        """Whether each StorageCluster is the one that counts for its cluster."""
        counting = settings_clusters(clusters)
        for cluster in clusters:
            first = counting[cluster_key(cluster)].metadata.name
            verdict = Verdict(True, "Accepted", "the settings count")
            if first != cluster.metadata.name:
                wrong = f"StorageCluster {first} has the settings of this cluster already, and these do not count"
                verdict = Verdict(False, "Duplicate", wrong)
            told = partial(_with_acceptance, verdict=verdict)
            if told(cluster) != cluster:
                await gone_is_fine(
                    modify(self._store, StorageCluster, cluster.metadata.name, self._namespace, told, status=True)
                )

    async def unserved(self, nodes: Sequence[StorageNode]) -> None:
        """Nodes of a type that no backend of this operator serves."""
        for node in nodes:
            if _without_backend(node) != node:
                await self.change_node(node, _without_backend, status=True)

    async def change_node(
        self, node: StorageNode, change: Callable[[StorageNode], StorageNode], *, status: bool = False
    ) -> StorageNode | None:
        """None: the node is gone, and nothing has to be changed."""
        return await gone_is_fine(
            modify(self._store, StorageNode, node.metadata.name, self._namespace, change, status=status)
        )

    async def _change_status(
        self, key: ClusterKey, change: Callable[[StorageStatus], StorageStatus], *, status: bool = False
    ) -> StorageStatus | None:
        return await gone_is_fine(
            modify(self._store, StorageStatus, key.status_name, key.namespace, change, status=status)
        )


def _with_acceptance(cluster: StorageCluster, verdict: Verdict) -> StorageCluster:
    generation = cluster.metadata.generation
    conditions = with_condition(cluster.status.conditions, ACCEPTED, verdict, generation)
    return replace(cluster, status=replace(cluster.status, conditions=conditions, observed_generation=generation))


def _without_backend(node: StorageNode) -> StorageNode:
    generation = node.metadata.generation
    verdict = Verdict(
        False, "NoBackend", f"no backend for the type {node.spec.type} is installed in the operator of this namespace"
    )
    conditions = with_condition(node.status.conditions, ACCEPTED, verdict, generation)
    status = replace(node.status, conditions=conditions, state=FAILED, message=verdict.message)
    return replace(node, status=replace(status, observed_generation=generation))


async def gone_is_fine(work: Awaitable[T]) -> T | None:
    try:
        return await work
    except NotFoundError:
        return None
