"""The one manager of all storage clusters: gathers a view of each, lets its backend plan, and applies the plan.

It knows no storage system. What a plan wants remembered is written before anything is done; the hold on a node before
anything is put on its host; a status after what it tells. Any of it may be cut off anywhere: the next refresh, here or
on the next leader, starts from what is there. With nothing to do nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from quartermaster.backends.assigning import Assigning
from quartermaster.backends.base import Backend, RefreshEvent, RefreshKey
from quartermaster.backends.registry import shares_hosts
from quartermaster.engine.controller import Scope
from quartermaster.operators.ledger import Ledger
from quartermaster.operators.memory import Memories
from quartermaster.operators.reporting import Hold
from quartermaster.operators.settling import Settling
from quartermaster.operators.views import ClusterViews
from quartermaster.planning.cluster import ClusterKey, ClusterView
from quartermaster.planning.gathering import Recall, Snapshot, clusters_of, views_of
from quartermaster.planning.health import HostHealth
from quartermaster.resources import marks
from quartermaster.resources.kubernetes.core import ConfigMap, Node
from quartermaster.resources.kubernetes.volumes import PersistentVolume, StorageClass
from quartermaster.resources.model import Key, Object
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.resources.storage import StorageCluster, StorageNode, StorageStatus
from quartermaster.support.collector import collector_paused
from quartermaster.support.errors import FencedError, QuartermasterError
from quartermaster.support.log import logger

# What is read in caches beside the kinds of the refresh keys.
READS: tuple[type[Object], ...] = (StorageNode, StorageCluster, StorageStatus, Node)
SETTINGS_SELECTOR = f"metadata.name={marks.SETTINGS_NAME}"
CLASS_SELECTOR = f"{marks.MANAGED_BY_LABEL}={marks.MANAGED_BY}"

_log = logger("operators.cluster")


class ClusterManager:
    """A `ServiceManager`. `always` are clusters that are shown although nobody has named them yet."""

    name = "clusters"

    def __init__(
        self,
        scope: Scope,
        health: HostHealth,
        *,
        namespace: str,
        backends: Sequence[Backend],
        ledger: Ledger,
        views: ClusterViews,
        always: Sequence[ClusterKey] = (),
        all_types: bool = True,
    ) -> None:
        """`all_types`: nodes of a type that nobody serves are told so; without it another operator may serve them."""
        self._scope = scope
        self._health = health
        self._namespace = namespace
        self._backends = {backend.type: backend for backend in backends}
        self._ledger = ledger
        self._views = views
        self._always = tuple(always)
        self._all_types = all_types
        self._assigning = Assigning(scope, namespace)
        self._memories = Memories(scope.store)
        self._settling = Settling(scope, namespace, self._assigning, self._memories, views)
        self._recall = Recall()
        ledger.attach(scope.caches)
        views.clear()

    def refresh_keys(self) -> Sequence[RefreshKey]:
        return (
            RefreshKey(StorageNode, field="spec"),
            RefreshKey(StorageNode, field="metadata.annotations"),
            # Whether a node may leave is decided by what it was last told to hold.
            RefreshKey(StorageNode, field="status.capacity"),
            RefreshKey(StorageNode, field="status.cluster"),  # it has left one and may join another
            RefreshKey(StorageCluster, field="spec"),
            RefreshKey(StorageStatus, field="metadata.annotations"),
            RefreshKey(StorageClass, labels=CLASS_SELECTOR),
            RefreshKey(Assignment, field="status"),
            RefreshKey(PersistentVolume, field="spec"),
            RefreshKey(ConfigMap, fields=SETTINGS_SELECTOR),
        )

    async def handle_refresh(self, event: RefreshEvent) -> float | None:  # noqa: ARG002 - everything is looked at each time
        snapshot = await self._snapshot()
        observing = self._observing()
        with collector_paused():
            views = views_of(snapshot, self._health, tuple(self._backends), recall=self._recall)
        failures: list[Exception] = []
        turned = False
        for key, seen in views.items():
            view = self._settling.with_own_knowledge(seen)
            try:
                with collector_paused():
                    plan = self._backends[key.type].plan(view)
                views[key] = await self._settling.settle(view, plan, snapshot.assignments, observing)
                turned = turned or views[key].online != view.online
            except FencedError:
                raise
            except Exception as error:  # one cluster's trouble is not the others'
                views[key] = view
                failures.append(error)
                known = isinstance(error, QuartermasterError)
                _log.warning(
                    "cannot settle a cluster",
                    cluster=key.status_name,
                    error=f"{type(error).__name__}: {error}",
                    exc_info=None if known else error,
                )
        self._views.publish(views if observing is None else {key: _held(view) for key, view in views.items()})
        if observing is None:
            await self._settling.clear_away(views, snapshot, set(self._backends))
        await self._settling.telling.settings(snapshot.clusters)
        if self._all_types:
            unserved = [node for node in snapshot.nodes if node.spec.type not in self._backends]
            await self._settling.telling.unserved(unserved)
        if failures:
            raise failures[0]
        # What is asked of a cluster differs by whether it is ONLINE, and with it the reason that is shown.
        return 0.0 if turned else None

    async def _snapshot(self) -> Snapshot:
        caches, namespace = self._scope.caches, self._namespace
        snapshot = Snapshot(
            namespace=namespace,
            nodes=caches.of(StorageNode, namespace).list(),
            hosts=caches.of(Host, namespace).list(),
            clusters=caches.of(StorageCluster, namespace).list(),
            statuses=caches.of(StorageStatus, namespace).list(),
            assignments=self._assigning.all(),
            volumes=await self._ledger.volumes(self._scope.store, namespace),
            more_labels={node.metadata.name: node.metadata.labels for node in caches.of(Node).list()},
            agents=agents_of(self._backends),
            sharing=sharing_of(self._backends),
            always=self._always,
        )
        served = [key for key in clusters_of(snapshot) if key.type in self._backends]
        return replace(snapshot, memories=await self._memories.recall(served))

    def _observing(self) -> Hold | None:
        settings = self._scope.caches.of(ConfigMap, self._namespace, fields=SETTINGS_SELECTOR)
        found = settings.get(Key(self._namespace, marks.SETTINGS_NAME))
        if found is None or marks.OBSERVE_ONLY not in found.metadata.annotations:
            return None
        return Hold("ObserveOnly", "after a restore nothing is done until `qm resume`")


def _held(view: ClusterView) -> ClusterView:
    """For those who make and delete volumes, observing is as being paused."""
    return replace(view, settings=replace(view.settings, paused=True, observing=True))


def agents_of(backends: Mapping[str, Backend]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(agent.name for agent in backend.agents()) for name, backend in backends.items()}


def sharing_of(backends: Mapping[str, Backend]) -> tuple[str, ...]:
    return tuple(name for name, backend in backends.items() if shares_hosts(backend))
