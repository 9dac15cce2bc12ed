"""What the tests of the engine share: small objects, a store in memory, and faults that a test switches by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from quartermaster.engine.cache import Cache, Caches
from quartermaster.engine.controller import Scope, Service
from quartermaster.engine.events import EventRecorder
from quartermaster.engine.metrics import Metrics
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.model import Object, ObjectMeta, OwnerReference
from quartermaster.resources.storage import StorageNode, StorageNodeSpec
from quartermaster.stores.base import Store
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import ExpiredError
from quartermaster.support.tasks import TaskGroup


class Switches:
    """Faults of a memory store, by hand."""

    def __init__(self) -> None:
        self.failing: dict[str, Exception] = {}  # call → what it raises
        self.expired = False  # watches lose their place
        self.lists_open = asyncio.Event()
        self.lists_open.set()
        self.calls: list[str] = []

    async def before(self, call: str, key: str) -> None:
        self.calls.append(call)
        if call == "range":
            await self.lists_open.wait()
        if call in self.failing:
            raise self.failing[call]

    async def after(self, call: str, key: str) -> None:
        pass

    async def deliver(self, key: str) -> None:
        if self.expired:
            raise ExpiredError("cannot watch: the revision was compacted")
        if "watch" in self.failing:
            raise self.failing["watch"]


def memory_store(faults: Switches | None = None) -> ObjectStore:
    return ObjectStore(MemoryKeyValue(faults=faults))


def node(name: str, namespace: str = "default", *, labels: dict[str, str] | None = None) -> StorageNode:
    return StorageNode(
        metadata=ObjectMeta(name=name, namespace=namespace, labels=labels or {}),
        spec=StorageNodeSpec(type="local", devices=("/dev/vdb",)),
    )


def config(name: str, *owners: Object, block: bool = False, finalizers: tuple[str, ...] = ()) -> ConfigMap:
    meta = ObjectMeta(
        name=name,
        namespace="default",
        owner_references=tuple(reference(owner, block=block) for owner in owners),
        finalizers=finalizers,
    )
    return ConfigMap(metadata=meta)


def reference(owner: Object, *, block: bool = False, controller: bool = False) -> OwnerReference:
    info = kind_of(owner)
    return OwnerReference(
        api_version=info.api_version,
        kind=info.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        block_owner_deletion=block or None,
        controller=controller or None,
    )


def relabelled(obj: StorageNode, **labels: str) -> StorageNode:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, labels=labels))


@asynccontextmanager
async def running(*caches: Cache[object]) -> AsyncIterator[None]:  # type: ignore[type-var]
    """The caches, filled and kept up to date."""
    async with TaskGroup() as group:
        for cache in caches:
            group.start(cache.run())
        for cache in caches:
            async with asyncio.timeout(60):
                await cache.synced.wait()
        yield
        group.cancel()


@asynccontextmanager
async def serving(store: Store, *services: Service, drain_s: float = 5.0) -> AsyncIterator[Scope]:
    """Services with caches and all, as a runtime without election runs them; a clean end after the block."""
    metrics = Metrics()
    caches = Caches(store, metrics=metrics)
    stopping = asyncio.Event()
    events = EventRecorder(store, "test", metrics=metrics)
    scope = Scope(store=store, caches=caches, events=events, metrics=metrics, stopping=stopping, drain_s=drain_s)
    async with TaskGroup() as group:
        caches.start_with(lambda cache: (group.start(cache.run()), None)[1])
        background = group.start(events.run())
        working = [group.start(service.run(scope)) for service in services]
        try:
            yield scope
            stopping.set()
            if working:
                await asyncio.wait(working)
        finally:
            background.cancel()
            group.cancel()


async def settled(seconds: float = 5.0) -> None:
    """Virtual time in which everything that has to happen does."""
    await asyncio.sleep(seconds)
