"""A namespace with an operator and modelled hosts on one store, on virtual time: the whole way from a declaration."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from msgspec.structs import replace

from quartermaster.backends.base import Backend
from quartermaster.backends.registry import installed_agents
from quartermaster.engine.runtime import Runtime
from quartermaster.host import Facts
from quartermaster.host.fake import FakeMachine, Faults, fake_host
from quartermaster.operators.assembly import operator_runtime
from quartermaster.orchestration.agent import AgentRuntime
from quartermaster.orchestration.timings import Timings
from quartermaster.planning.gathering import Recall, Snapshot, views_of
from quartermaster.planning.health import HostHealth
from quartermaster.resources import (
    Event,
    Object,
    PersistentVolumeClaim,
    StorageClass,
    StorageCluster,
    StorageNode,
    StorageStatus,
    from_document,
)
from quartermaster.resources.conditions import find_condition
from quartermaster.resources.marks import DOMAIN
from quartermaster.stores import modify
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import NotFoundError
from quartermaster.support.tasks import TaskGroup
from tests.orchestration.samples import still_facts

T = TypeVar("T", bound=Object)
NAMESPACE = "storage"
TYPE = "local"
TIMINGS = Timings(
    heartbeat_s=1.0,
    unhealthy_after_s=6.0,
    move_data_after_s=60.0,
    debounce_s=0.0,
    sweep_s=300.0,
    verify_s=30.0,
    daemons_s=5.0,
    inventory_s=60.0,
)


class Counted(ObjectStore):
    """Counts the writes of everybody but heartbeats and leases."""

    writes: list[str]
    looks: Callable[[StorageStatus], None] | None = None  # is given every StorageStatus that is written

    def __init__(self) -> None:
        super().__init__(MemoryKeyValue())
        self.writes = []

    def _note(self, verb: str, kind: type[Object], name: str) -> None:
        if kind.__name__ not in ("Lease", "Event"):
            self.writes.append(f"{verb} {kind.__name__} {name}")

    async def create(self, obj: T, **options: Any) -> T:
        self._note("create", type(obj), obj.metadata.name)
        return await super().create(obj, **options)

    async def update(self, obj: T, **options: Any) -> T:
        self._note("update", type(obj), obj.metadata.name)
        return self._shown(await super().update(obj, **options))

    async def update_status(self, obj: T, **options: Any) -> T:
        self._note("status", type(obj), obj.metadata.name)
        return self._shown(await super().update_status(obj, **options))

    def _shown(self, obj: T) -> T:
        if self.looks is not None and isinstance(obj, StorageStatus):
            self.looks(obj)
        return obj

    async def delete(self, kind: type[T], name: str, namespace: str = "", **options: Any) -> T:
        self._note("delete", kind, name)
        return await super().delete(kind, name, namespace, **options)


class World:
    def __init__(self, group: TaskGroup, directory: Path, timings: Timings = TIMINGS) -> None:
        self.store = Counted()
        self.timings = timings
        self.machines: dict[str, FakeMachine] = {}
        self.faults: dict[str, Faults] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group = group
        self._directory = directory

    def lead(
        self, name: str = "leader", *, types: Sequence[str] = (), backends: Sequence[Backend] | None = None
    ) -> Runtime:
        runtime = operator_runtime(
            self.store,
            namespace=NAMESPACE,
            types=types,
            backends=backends,
            timings=self.timings,
            identity=name,
            lease_s=7,
            retry_s=2.0,
        )
        self._tasks[name] = self._group.start(runtime.run())
        return runtime

    def host(self, name: str, *, address: str = "", labels: dict[str, str] | None = None) -> FakeMachine:
        machine = self.machines.setdefault(name, FakeMachine())
        faults = self.faults[name] = Faults()
        address = address or f"10.0.0.{len(self.machines)}"
        agent = AgentRuntime(
            self.store,
            name,
            fake_host(machine, faults),
            installed_agents(),
            namespace=NAMESPACE,
            directory=self._directory / name,
            addresses=(address,),
            labels=labels,
            timings=self.timings,
            facts=still_facts(facts(address)),
        )
        self._tasks[name] = self._group.start(agent.run())
        return machine

    async def stop(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.wait([self._tasks.pop(name)])

    async def node(self, name: str, host: str = "", cluster: str = "", **spec: Any) -> StorageNode:
        document = node_document(name, host or name, cluster, **spec)
        made = await self.store.apply(document, manager="test")
        assert isinstance(made, StorageNode)
        return made

    async def cluster(self, name: str = "default", **spec: Any) -> StorageCluster:
        document = {
            "apiVersion": "coreos.com/v1",
            "kind": "StorageCluster",
            "metadata": {"name": f"settings-{name}", "namespace": NAMESPACE},
            "spec": {"type": TYPE, "cluster": name, **spec},
        }
        made = await self.store.apply(document, manager="test")
        assert isinstance(made, StorageCluster)
        return made

    async def claim(
        self, name: str, size: str = "1Gi", *, cluster: str = "default", host: str = ""
    ) -> PersistentVolumeClaim:
        annotations = {"volume.kubernetes.io/selected-node": host} if host else {}
        return await self.store.create(
            from_document(
                PersistentVolumeClaim,
                {
                    "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
                    "spec": {
                        "storageClassName": f"{NAMESPACE}-{TYPE}-{cluster}",
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": size}},
                    },
                },
            )
        )

    async def get(self, kind: type[T], name: str) -> T | None:
        try:
            return await self.store.get(kind, name, "" if kind is StorageClass else NAMESPACE)
        except NotFoundError:
            return None

    async def storage_node(self, name: str) -> StorageNode:
        return await self.store.get(StorageNode, name, NAMESPACE)

    async def status(self, cluster: str = "default") -> StorageStatus:
        return await self.store.get(StorageStatus, f"{TYPE}-{cluster}", NAMESPACE)

    async def annotate(self, kind: type[T], name: str, mark: str, value: str | None = "true") -> None:
        def change(obj: T) -> T:
            annotations = {key: text for key, text in obj.metadata.annotations.items() if key != mark}
            if value is not None:
                annotations[mark] = value
            return replace(obj, metadata=replace(obj.metadata, annotations=annotations))

        assert mark.startswith(DOMAIN)
        await modify(self.store, kind, name, NAMESPACE, change)

    async def events(self, reason: str) -> list[str]:
        found = (await self.store.list(Event, NAMESPACE)).items
        return [event.message for event in found if event.reason == reason]


def node_document(name: str, host: str, cluster: str = "", **spec: Any) -> dict[str, Any]:
    chosen = spec or {"directories": ["/srv/volumes"]}
    return {
        "apiVersion": "coreos.com/v1",
        "kind": "StorageNode",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "type": TYPE,
            "nodeSelector": {"kubernetes.io/hostname": host},
            **({TYPE: {"cluster": cluster}} if cluster else {}),
            **chosen,
        },
    }


def facts(address: str) -> Facts:
    return Facts(
        name="modelled",
        addresses=(address,),
        boot="b",
        kernel="6.1",
        architecture="x86_64",
        distribution="Modelled Linux",
        memory=8 << 30,
        cores=4,
        root=True,
        systemd=False,
        tools={},
    )


@asynccontextmanager
async def world(timings: Timings = TIMINGS) -> AsyncIterator[World]:
    """Whatever happens in it, the leader sees with what it remembers the same as without."""
    differences: list[str] = []

    def checked(snapshot: Snapshot, health: HostHealth, types: Sequence[str], *, recall: Recall) -> Any:
        made = views_of(snapshot, health, types, recall=recall)
        if made != views_of(snapshot, health, types):
            differences.append(str(made))
        return made

    with tempfile.TemporaryDirectory() as directory, patch("quartermaster.operators.cluster.views_of", checked):
        async with TaskGroup() as group:
            yield World(group, Path(directory), timings)
            group.cancel()
    assert differences == []


async def settled(seconds: float = 5.0) -> None:
    """Virtual time in which everything that has to happen does."""
    await asyncio.sleep(seconds)


async def reason_of(made: World, name: str) -> str:
    """Why a declaration was not accepted."""
    found = find_condition((await made.storage_node(name)).status.conditions, "Accepted")
    assert found is not None
    assert found.status == "False"
    assert found.message
    return found.reason
