"""Applying a plan: what is written, and in which order. Every write is made only where it changes something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from quartermaster.backends.assigning import Assigning
from quartermaster.engine.controller import Scope
from quartermaster.operators.classes import ensure_class, is_ours, remove_class
from quartermaster.operators.memory import Memories
from quartermaster.operators.parallel import in_parallel
from quartermaster.operators.reporting import Hold
from quartermaster.operators.telling import Telling, gone_is_fine
from quartermaster.operators.views import ClusterViews
from quartermaster.planning.cluster import ABANDON, ClusterKey, ClusterPlan, ClusterView, Desired, NodeView, Verdict
from quartermaster.planning.gathering import Snapshot, cluster_key
from quartermaster.planning.matching import home_of
from quartermaster.planning.outcomes import PENDING
from quartermaster.planning.readiness import Standing, standing_of
from quartermaster.planning.steps import Work, work_of
from quartermaster.resources import marks
from quartermaster.resources.kubernetes.volumes import StorageClass
from quartermaster.resources.model import Key
from quartermaster.resources.orchestration import Assignment
from quartermaster.resources.storage import StorageNode, StorageStatus, cluster_of
from quartermaster.support.errors import ConflictError, FencedError, QuartermasterError

REMOVED = "Removed"  # the reason of an Event


class Settling:
    """The writes of one term."""

    def __init__(
        self, scope: Scope, namespace: str, assigning: Assigning, memories: Memories, views: ClusterViews
    ) -> None:
        self.telling = Telling(scope, namespace)
        self._store = scope.store
        self._events = scope.events
        self._namespace = namespace
        self._assigning = assigning
        self._memories = memories
        self._views = views
        self._classes = scope.caches.of(StorageClass)
        self._online: dict[ClusterKey, bool] = {}  # as last written in this term

    def with_own_knowledge(self, view: ClusterView) -> ClusterView:
        """A cache may not show yet what was written a moment ago."""
        return replace(view, online=self._online.get(view.key, view.online))

    async def settle(
        self, view: ClusterView, plan: ClusterPlan, seen: Sequence[Assignment], observing: Hold | None
    ) -> ClusterView:
        """Apply the plan, which was made with `seen`; returns the view as those who place volumes should see it."""
        paused = Hold("Paused", f"paused: `qm resume {view.key.status_name}` goes on")
        hold = observing or (paused if view.settings.paused else None)
        work = work_of(view, plan)
        standing = _held_down(standing_of(view, plan), view, hold)
        failure: QuartermasterError | None = None
        if hold is None:
            try:
                await self._act(view, plan, work)
            except FencedError:
                raise
            except QuartermasterError as error:
                failure = error  # what is known is told all the same
        await self.telling.nodes(view, plan)
        settings = replace(view.settings, paused=hold is not None, observing=observing is not None)
        shown = replace(view, online=standing.online, settings=settings, memory=dict(plan.memory))
        if failure is None and shown.online and not view.online:
            self._views.put(shown)
        await self._tell_cluster(view, plan, standing, work, hold)
        if failure is not None:
            raise failure
        if hold is None:
            await self._let_go(view, plan, work, seen)
        return shown

    async def _act(self, view: ClusterView, plan: ClusterPlan, work: Work) -> None:
        await self._memories.save(view.key, plan.memory)
        first = {one.host for one in work.allowed if one.config is not None and self._is_first(one)}
        await in_parallel(
            [
                partial(self._hold_node, node.node)
                for node in view.nodes
                if _is_to_be_held(view.key, node) or (node.host in first and not node.leaving)
            ]
        )
        given_up = {node.host for node in view.nodes if node.leaving == ABANDON}
        await in_parallel([partial(self._assign, desired, desired.host in given_up) for desired in work.allowed])

    async def _assign(self, desired: Desired, given_up: bool) -> None:
        if desired.config is None:
            await self._assigning.retire(desired.host, desired.agent, desired.instance, lost=given_up)
        else:
            await self._assigning.ensure(desired)

    def _is_first(self, desired: Desired) -> bool:
        return self._assigning.get(desired.host, desired.agent, desired.instance) is None

    async def _hold_node(self, node: StorageNode) -> None:
        """Before anything is put on a host, the node itself is looked at: a cache may show one that is gone."""

        def held(current: StorageNode) -> StorageNode:
            meta = current.metadata
            if meta.uid != node.metadata.uid or meta.deletion_timestamp or marks.NODE_FINALIZER in meta.finalizers:
                return current
            return replace(current, metadata=replace(meta, finalizers=(*meta.finalizers, marks.NODE_FINALIZER)))

        found = await self.telling.change_node(node, held)
        if (
            found is None
            or found.metadata.uid != node.metadata.uid
            or marks.NODE_FINALIZER not in found.metadata.finalizers
        ):
            raise ConflictError(
                f"cannot hold the node {node.key}: it is gone, or another one", hint="it is tried again"
            )

    async def _tell_cluster(
        self, view: ClusterView, plan: ClusterPlan, standing: Standing, work: Work, hold: Hold | None
    ) -> None:
        key, trouble = view.key, ""
        known = self._classes.get(Key("", key.class_name))
        published = known is not None and is_ours(known, key)
        if standing.online and hold is None:
            # Before the cluster is said to be ONLINE: whoever waits for that finds the class.
            trouble = await ensure_class(self._store, key, plan.volume_class, view.settings, known)
            published = not trouble
        await self.telling.cluster(
            view,
            plan,
            standing,
            work,
            hold=hold,
            class_name=key.class_name if published else "",
            class_trouble=trouble,
        )
        self._online[key] = standing.online

    async def _let_go(self, view: ClusterView, plan: ClusterPlan, work: Work, seen: Sequence[Assignment]) -> None:
        """Nodes that hold nothing any more: one that is deleted goes, one that moves may join its next cluster."""
        waiting = {desired.host for desired in work.waiting}
        by_name = {node.name: node for node in view.nodes}
        for name in plan.removable:
            node = by_name[name]
            if node.host in waiting or home_of(node.node) != view.key.name:
                continue
            if node.node.metadata.deletion_timestamp is not None:
                if await self._all_was_seen(node.host or node.node.status.host, seen):
                    await self._release_node(node.node)
            elif cluster_of(node.node) != view.key.name:
                await self.telling.change_node(node.node, _moved, status=True)

    async def _all_was_seen(self, host: str, seen: Sequence[Assignment]) -> bool:
        """Whether the plan knew all that is on the host: the cache of a new leader may have been behind.

        The store is asked, and what the plan was made with: by now the cache may have caught up.
        """
        if not host:
            return True
        found = await self._store.list(Assignment, self._namespace, fields=f"spec.host={host}")
        return {assignment.key for assignment in found.items} <= {assignment.key for assignment in seen}

    async def _release_node(self, node: StorageNode) -> None:
        if marks.NODE_FINALIZER not in node.metadata.finalizers:
            return

        def released(current: StorageNode) -> StorageNode:
            if current.metadata.uid != node.metadata.uid:
                return current
            kept = tuple(one for one in current.metadata.finalizers if one != marks.NODE_FINALIZER)
            return replace(current, metadata=replace(current.metadata, finalizers=kept))

        self._events.record(node, REMOVED, "nothing of it is left on its host")
        await self.telling.change_node(node, released)

    async def clear_away(self, views: Mapping[ClusterKey, ClusterView], snapshot: Snapshot, types: set[str]) -> None:
        """What belongs to clusters that nobody names any more."""
        named = {cluster_key(cluster) for cluster in snapshot.clusters}
        for key, view in views.items():
            if not view.nodes and key not in named and not view.settings.paused:
                await self._forget(key)
        shown = {key.status_name for key in views}
        for status in snapshot.statuses:
            labels = status.metadata.labels
            ours = labels.get(marks.MANAGED_BY_LABEL) == marks.MANAGED_BY and status.spec.type in types
            if not ours or status.metadata.name in shown or marks.PAUSED in status.metadata.annotations:
                continue
            await self._forget(ClusterKey(self._namespace, status.spec.type, labels.get(marks.CLUSTER_LABEL, "")))
            await gone_is_fine(
                self._store.delete(StorageStatus, status.metadata.name, self._namespace, uid=status.metadata.uid)
            )

    async def _forget(self, key: ClusterKey) -> None:
        await remove_class(self._store, key, self._classes.get(Key("", key.class_name)))
        await self._memories.forget(key)
        self._online.pop(key, None)


def _held_down(standing: Standing, view: ClusterView, hold: Hold | None) -> Standing:
    """While nothing may be done a cluster does not come ONLINE, for that would publish its class."""
    if hold is None or view.online or not standing.online:
        return standing
    return Standing(False, Verdict(False, hold.reason, hold.message), standing.degraded)


def _is_to_be_held(key: ClusterKey, node: NodeView) -> bool:
    meta = node.node.metadata
    return (
        home_of(node.node) == key.name
        and bool(node.host)
        and node.wrong is None
        and meta.deletion_timestamp is None
        and marks.NODE_FINALIZER not in meta.finalizers
    )


def _moved(node: StorageNode) -> StorageNode:
    """It has left its old cluster and belongs to the one that it names."""
    return replace(node, status=replace(node.status, cluster=cluster_of(node), state=PENDING, message="", devices=()))
