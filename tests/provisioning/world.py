"""A storage system that is only modelled: hosts with room for volumes, their agents, and who asks for volumes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from msgspec.structs import replace

from quartermaster.backends.base import Placement, Refusal, Volume, VolumeRequest
from quartermaster.engine import DONE, Controller, Request, Result, Scope, Service
from quartermaster.orchestration.restoring import observe_only
from quartermaster.planning.cluster import ClusterKey, ClusterView, Desired, NodeView, Settings
from quartermaster.provisioning import claims_controller
from quartermaster.resources.codec import encode, from_document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.core import ConfigMap, Event
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from quartermaster.resources.marks import (
    CLUSTER_LABEL,
    DEFAULT_CLASS,
    HOSTNAME_LABEL,
    NAMESPACE_LABEL,
    PAUSED,
    SETTINGS_NAME,
    provisioner_of,
)
from quartermaster.resources.model import Object, ObjectMeta
from quartermaster.resources.orchestration import FAILED, SUCCEEDED, Assignment, AssignmentStatus, Host
from quartermaster.resources.quantity import of_bytes
from quartermaster.resources.storage import (
    Replication,
    StorageCluster,
    StorageClusterSpec,
    StorageNode,
    StorageNodeSpec,
    StorageStatus,
    StorageStatusSpec,
)
from quartermaster.stores.base import Store
from quartermaster.stores.kv.base import Put
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.modify import modify
from quartermaster.stores.objects import ObjectStore
from quartermaster.stores.objects.keys import object_key
from quartermaster.support import entropy
from quartermaster.support.errors import AlreadyExistsError, NotFoundError
from tests.engine.samples import serving

T = TypeVar("T", bound=Object)

GIB = 1 << 30
TYPE = "stub"
AGENT = "stub-volume"
NAMESPACE = "storage"
KEY = ClusterKey(NAMESPACE, TYPE, "default")
CLASS = "fast"


class StubDriver:
    """A volume is on one host: the emptiest that has room, or where its consumer is."""

    def __init__(self, room: Mapping[str, int]) -> None:
        self.room = room
        self.reached_from_anywhere = False

    def place(self, request: VolumeRequest, view: ClusterView) -> Placement | Refusal:
        hosts = [node.host for node in view.nodes if node.host and not node.lost]
        if request.host:
            hosts = [host for host in hosts if host == request.host]
        free = {host: self.room[host] - self._taken(view, host, request.name) for host in hosts}
        fitting = [host for host in hosts if free[host] >= request.size]
        if not fitting:
            most = max(free.values(), default=0)
            return Refusal(
                "NotEnoughSpace", f"{of_bytes(request.size)} are asked for, at most {of_bytes(most)} are free on a host"
            )
        chosen = max(fitting, key=lambda host: (free[host], host))
        return Placement((chosen,), {"path": f"/volumes/{request.name}"}, f"{chosen} has most room")

    def _taken(self, view: ClusterView, host: str, without: str) -> int:
        return sum(volume.size for volume in view.volumes if host in volume.hosts and volume.name != without)

    def desired(self, volume: Volume) -> Desired:
        config = {"path": volume.placement.details["path"], "size": volume.size}
        return Desired(volume.placement.hosts[0], AGENT, config, volume.name)

    def source(self, volume: Volume, result: Mapping[str, Any]) -> dict[str, Any]:
        host = volume.placement.hosts[0]
        if self.reached_from_anywhere:
            return {"hostPath": {"path": result["path"]}}
        term = {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": [host]}]}
        return {
            "hostPath": {"path": result["path"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }

    async def mount(self, machine: Any, volume: PersistentVolume, target: Path) -> Path:
        raise NotImplementedError

    def is_mounted(self, machine: Any, volume: PersistentVolume, target: Path) -> bool:
        raise NotImplementedError

    async def unmount(self, machine: Any, volume: PersistentVolume, target: Path) -> bool:
        raise NotImplementedError


class SharingDriver(StubDriver):
    """Any host can look after a volume: when the one that made it is lost, the first of the others does."""

    def desired_now(self, volume: Volume, view: ClusterView) -> Desired:
        made_by = self.desired(volume)
        left = [node.host for node in view.nodes if not node.lost]
        return replace(made_by, host=next((host for host in left if host == made_by.host), left[0]))

    def let_go(self) -> dict[str, Any]:
        return {"forget": True}


class StubBackend:
    type = TYPE

    def __init__(self, driver: StubDriver) -> None:
        self._driver = driver

    def plan(self, view: ClusterView) -> Any:
        raise NotImplementedError

    def agents(self) -> list[Any]:
        return [SimpleNamespace(name=AGENT)]

    def volumes(self) -> StubDriver:
        return self._driver


class World:
    """What is on the hosts, and what may go wrong there. It stays while processes come and go."""

    def __init__(
        self,
        room: Mapping[str, int] | None = None,
        *,
        store: Store | None = None,
        namespace: str = NAMESPACE,
        class_name: str = CLASS,
    ) -> None:
        self.room = dict(room or {"h1": 10 * GIB, "h2": 10 * GIB})
        self.kv = MemoryKeyValue()
        self.store: Store = store or ObjectStore(self.kv)
        self.namespace = namespace
        self.class_name = class_name
        self.key = ClusterKey(namespace, TYPE, "default")
        self.disks: dict[tuple[str, str], int] = {}  # (host, volume) → size
        self.made: list[tuple[str, str]] = []  # each time that a volume came into being
        self.online = True
        self.paused = False  # as the leader last saw it
        self.replication: Replication | None = None  # the same
        self.blind = False  # the leader has not seen its clusters yet
        self.lost: set[str] = set()  # hosts whose agents do nothing
        self.failing = ""  # what agents say
        self.slow_s = 0.0
        self.driver = StubDriver(self.room)

    def view(self, key: ClusterKey) -> ClusterView | None:
        if key != self.key or self.blind:
            return None
        nodes = tuple(
            NodeView(
                StorageNode(metadata=ObjectMeta(name=host, namespace=self.namespace), spec=StorageNodeSpec(type=TYPE)),
                host,
                lost=host in self.lost,
                healthy=host not in self.lost,
            )
            for host in sorted(self.room)
        )
        return ClusterView(key, Settings(paused=self.paused, replication=self.replication), nodes, online=self.online)

    def services(self, *, bind: bool = True, scan_every_s: float = 60.0) -> list[Service]:
        backend = StubBackend(self.driver)
        return [*claims_controller(self.namespace, [backend], self.view, bind=bind, scan_every_s=scan_every_s)]

    def agents(self) -> Service:
        return Controller("agents", Assignment, lambda scope: Agents(self, scope), namespace=self.namespace)

    async def prepare(self, **about_class: Any) -> None:
        for host in sorted(self.room):
            await self.store.create(Host(metadata=host_meta(host, self.namespace)))
        await self.store.create(storage_class(self.class_name, namespace=self.namespace, **about_class))

    async def declare(self, name: str) -> None:
        """A node of the cluster, written past the admission: that knows no stub."""
        node = StorageNode(metadata=host_meta(name, self.namespace), spec=StorageNodeSpec(type=TYPE))
        await self.kv.transact([], [Put(object_key(kind_of(StorageNode), self.namespace, name), encode(node))])

    async def declare_cluster(self, replication: Replication) -> None:
        spec = StorageClusterSpec(type=TYPE, replication=replication)
        cluster = StorageCluster(metadata=ObjectMeta(name="default", namespace=self.namespace), spec=spec)
        await self.kv.transact(
            [], [Put(object_key(kind_of(StorageCluster), self.namespace, "default"), encode(cluster))]
        )

    async def pause(self, *, paused: bool = True) -> None:
        """As `qm pause` and `qm resume` do."""
        self.paused = paused
        name = self.key.status_name
        with suppress(AlreadyExistsError):
            spec = StorageStatusSpec(type=TYPE)
            await self.store.create(StorageStatus(metadata=ObjectMeta(name=name, namespace=self.namespace), spec=spec))
        marks = {PAUSED: "true"} if paused else {}
        await modify(self.store, StorageStatus, name, self.namespace, lambda one: annotated(one, marks))

    async def observe(self, *, only: bool = True) -> None:
        """As a restore, and `qm resume` after it, do."""
        if only:
            await observe_only(self.store, self.namespace, "restored")
        else:
            await modify(self.store, ConfigMap, SETTINGS_NAME, self.namespace, lambda one: annotated(one, {}))

    @asynccontextmanager
    async def running(self, *, bind: bool = True) -> AsyncIterator[Scope]:
        async with serving(self.store, *self.services(bind=bind), self.agents()) as scope:
            yield scope

    async def claim(self, name: str = "data", namespace: str = "default") -> PersistentVolumeClaim:
        return await self.store.get(PersistentVolumeClaim, name, namespace)

    async def volume_of(self, name: str = "data") -> PersistentVolume:
        return await self.store.get(PersistentVolume, (await self.claim(name)).spec.volume_name)

    async def volumes(self) -> list[PersistentVolume]:
        return list((await self.store.list(PersistentVolume)).items)

    async def assignments(self) -> list[Assignment]:
        return list((await self.store.list(Assignment, self.namespace)).items)

    async def events_of(self, obj: Object) -> list[tuple[str, str]]:
        found = (await self.store.list(Event)).items
        return [(e.reason, e.message) for e in found if e.involved_object.uid == obj.metadata.uid]


class Agents:
    """All agents of all hosts; each does what its assignment says, and says so."""

    def __init__(self, world: World, scope: Scope) -> None:
        self._world = world
        self._scope = scope

    async def reconcile(self, request: Request) -> Result:
        try:
            assignment = await self._scope.store.get(Assignment, request.name, request.namespace)
        except NotFoundError:
            return DONE
        world, spec = self._world, assignment.spec
        if spec.host in world.lost:
            return Result(requeue_after_s=1.0)
        if assignment.status.observed_generation == spec.generation and assignment.status.state == SUCCEEDED:
            return DONE
        if world.slow_s:
            await asyncio.sleep(world.slow_s * entropy.source().random())
        if world.failing:
            failed = AssignmentStatus(state=FAILED, observed_generation=spec.generation, message=world.failing)
            if assignment.status != failed:
                await self._scope.store.update_status(replace(assignment, status=failed))
            return Result(requeue_after_s=1.0)
        place = (spec.host, spec.instance)
        if spec.absent:
            world.disks.pop(place, None)
        elif spec.desired is None or not spec.desired.get("forget"):
            assert spec.desired is not None
            if place not in world.disks:
                world.made.append(place)
            assert spec.desired["size"] >= world.disks.get(place, 0), "a volume must not shrink"
            world.disks[place] = spec.desired["size"]
        result = {"path": spec.desired.get("path")} if spec.desired is not None else None
        status = AssignmentStatus(state=SUCCEEDED, observed_generation=spec.generation, result=result)
        await self._scope.store.update_status(replace(assignment, status=status))
        return DONE


def annotated(obj: T, annotations: Mapping[str, str]) -> T:
    return replace(obj, metadata=replace(obj.metadata, annotations=dict(annotations)))


def host_meta(name: str, namespace: str = NAMESPACE) -> ObjectMeta:
    return ObjectMeta(name=name, namespace=namespace, labels={HOSTNAME_LABEL: name})


def storage_class(
    name: str = CLASS,
    *,
    namespace: str = NAMESPACE,
    policy: str = "Delete",
    wait: bool = False,
    expandable: bool = True,
    default: bool = False,
    provisioner: str = provisioner_of(TYPE),
    **more: Any,
) -> StorageClass:
    return StorageClass(
        metadata=ObjectMeta(
            name=name,
            labels={NAMESPACE_LABEL: namespace, CLUSTER_LABEL: "default"},
            annotations={DEFAULT_CLASS: "true"} if default else {},
        ),
        provisioner=provisioner,
        reclaim_policy=policy,
        volume_binding_mode="WaitForFirstConsumer" if wait else "Immediate",
        allow_volume_expansion=expandable,
        **more,
    )


def claim(
    name: str = "data",
    size: str = "1Gi",
    *,
    storage_class: str | None = CLASS,
    namespace: str = "default",
    modes: Iterable[str] = ("ReadWriteOnce",),
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> PersistentVolumeClaim:
    document: dict[str, Any] = {
        "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})},
        "spec": {"accessModes": list(modes), "resources": {"requests": {"storage": size}}, **spec},
    }
    if storage_class is not None:
        document["spec"]["storageClassName"] = storage_class
    return from_document(PersistentVolumeClaim, document)


def static_volume(name: str, size: str = "1Gi", *, storage_class: str = "", **spec: Any) -> PersistentVolume:
    document = {
        "metadata": {"name": name, "labels": spec.pop("labels", {})},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "nfs": {"server": "10.0.0.1", "path": f"/{name}"},
            "persistentVolumeReclaimPolicy": "Retain",
            **spec,
        },
    }
    return from_document(PersistentVolume, document)


def resized(obj: PersistentVolumeClaim, size: str) -> PersistentVolumeClaim:
    resources = replace(obj.spec.resources, requests={"storage": size})
    return replace(obj, spec=replace(obj.spec, resources=resources))


async def until(condition: Callable[[], Any], *, timeout_s: float = 120.0) -> None:
    """Virtual time until an awaitable condition holds."""
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.1)


async def is_bound(store: Store, name: str = "data", namespace: str = "default") -> bool:
    found = await store.get(PersistentVolumeClaim, name, namespace)
    return found.status.phase == "Bound"


async def is_gone(store: Store, kind: type[Object], name: str, namespace: str = "") -> bool:
    try:
        await store.get(kind, name, namespace)
    except NotFoundError:
        return True
    return False


async def is_asked(world: World) -> bool:
    return bool(await world.assignments())


async def is_asked_of(world: World, hosts: list[str]) -> bool:
    return [one.spec.host for one in await world.assignments()] == hosts
