"""A hook that is small enough to be followed by eye, and what the tests of the controller share.

It watches StorageNodes. For each device it wants a ConfigMap, it puts a label on the Node of the same name, and it
looks at Secrets that name the StorageNode. Taking it down deletes one ConfigMap after the other, the last one first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from quartermaster.backends.cstor.hook import (
    AttachmentRule,
    Hook,
    HookEvent,
    SyncRequest,
    SyncResponse,
)
from quartermaster.engine import Caches, EventRecorder, Metrics, Scope
from quartermaster.engine.controller import Service
from quartermaster.resources import ConfigMap, Node, ObjectMeta, Secret, StorageNode
from quartermaster.resources.codec import to_document
from quartermaster.resources.model import Object
from quartermaster.resources.storage import StorageNodeSpec
from quartermaster.stores.base import Store
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.tasks import TaskGroup

FOR = "example.com/for"
HOLD = "example.com/hold"


def device_map(watch: StorageNode, number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{watch.metadata.name}-{number}",
            "labels": {"disk": str(number)},
            "annotations": {FOR: watch.metadata.name},
        },
        "data": {"device": watch.spec.devices[number], "last": watch.spec.devices[-1]},
    }


def node_label(watch: StorageNode) -> dict[str, Any]:
    labels = {"devices": str(len(watch.spec.devices))} if watch.spec.devices else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": watch.metadata.name, "labels": labels}}


def sync(request: SyncRequest) -> SyncResponse:
    watch: StorageNode = request.watch
    made = len(request.attachments.of(ConfigMap))
    secrets = [secret.metadata.name for secret in request.attachments.of(Secret)]
    wanted = len(watch.spec.devices)
    return SyncResponse(
        status={
            "state": "Ready" if made == wanted else "Making",
            "message": " ".join(secrets),
            "observedGeneration": watch.metadata.generation,
        },
        labels={"seen": "yes", "unwanted": None},
        attachments=tuple(device_map(watch, number) for number in range(wanted)),
        explicit_updates=(node_label(watch),),
        events=(HookEvent("Normal", "Counted", f"{wanted} devices"),),
    )


def finalize(request: SyncRequest) -> SyncResponse:
    """As long as a Secret holds it, nothing goes; then one ConfigMap at a time."""
    left = request.attachments.of(ConfigMap)
    if any(secret.metadata.name == "hold" for secret in request.attachments.of(Secret)):
        return SyncResponse(status={"state": "Held"}, skip_reconcile=True)
    kept = tuple(to_document(obj) for obj in left[:-1])
    return SyncResponse(status={"state": "Going"}, attachments=kept, finalized=not left, resync_after_s=600.0)


def _for(obj: Object) -> tuple[str, ...]:
    return (obj.metadata.annotations.get(FOR, ""),)


def _name(obj: Object) -> tuple[str, ...]:
    return (obj.metadata.name,)


TOY = Hook(
    name="toy",
    watch=StorageNode,
    attachments=(
        AttachmentRule(kind=ConfigMap, access="own", keys_of_watch=_name, keys_of_object=_for),
        AttachmentRule(kind=Node, access="update", keys_of_watch=_name, keys_of_object=_name),
        AttachmentRule(kind=Secret, keys_of_watch=_name, keys_of_object=_for),
    ),
    sync=sync,
    finalize=finalize,
)

OURS = "example.com/ours"
_MAPS, *_OTHERS = TOY.attachments
# The same, whose ConfigMaps the controller keeps until the hook no longer lists them.
HOLDING = msgspec.structs.replace(TOY, attachments=(msgspec.structs.replace(_MAPS, finalizer=OURS), *_OTHERS))


def storage_node(name: str = "a", devices: int = 2, namespace: str = "default") -> StorageNode:
    return StorageNode(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=StorageNodeSpec(type="local", devices=tuple(f"/dev/vd{letter}" for letter in "bcdefg"[:devices])),
    )


def secret(name: str, for_node: str = "a") -> Secret:
    return Secret(metadata=ObjectMeta(name=name, namespace="default", annotations={FOR: for_node}))


def with_devices(node: StorageNode, devices: int) -> StorageNode:
    return msgspec.structs.replace(node, spec=storage_node(devices=devices).spec)


class KilledError(BaseException):
    """The process is gone: nothing after this line happens."""


class Recording:
    """A store that keeps a list of the writes made through it, and dies after so many of them."""

    def __init__(self, store: Store, *, dies_after: int = -1) -> None:
        self._store = store
        self._left = dies_after
        self.writes: list[str] = []

    url = "recording"
    fences = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, obj: Object, **options: Any) -> Any:
        return self._done("create", obj, await self._store.create(obj, **options))

    async def update(self, obj: Object, **options: Any) -> Any:
        return self._done("update", obj, await self._store.update(obj, **options))

    async def update_status(self, obj: Object, **options: Any) -> Any:
        return self._done("status", obj, await self._store.update_status(obj, **options))

    async def apply(self, document: dict[str, Any], **options: Any) -> Any:
        result = await self._store.apply(document, **options)
        return self._done("apply", result, result)

    async def delete(self, kind: type[Object], name: str, namespace: str = "", **options: Any) -> Any:
        result = await self._store.delete(kind, name, namespace, **options)
        return self._done("delete", result, result)

    def _done(self, action: str, obj: Object, result: Any) -> Any:
        if type(obj).__name__ == "Event":
            return result
        self.writes.append(f"{action} {type(obj).__name__} {obj.metadata.name}")
        self._left -= 1
        if self._left == 0:
            raise KilledError
        return result


def memory_store() -> ObjectStore:
    return ObjectStore(MemoryKeyValue())


@asynccontextmanager
async def running(store: Any, *services: Service) -> AsyncIterator[Scope]:
    """Services with caches and all, as a runtime without election runs them."""
    metrics = Metrics()
    caches = Caches(store, metrics=metrics)
    stopping = asyncio.Event()
    events = EventRecorder(store, "test", metrics=metrics)
    scope = Scope(store=store, caches=caches, events=events, metrics=metrics, stopping=stopping)
    async with TaskGroup() as group:
        for service in services:
            service.prepare(caches)
        caches.start_with(lambda cache: (group.start(cache.run()), None)[1])
        background = group.start(events.run())
        working = [group.start(service.run(scope)) for service in services]
        try:
            yield scope
            stopping.set()
            await asyncio.wait(working)
        finally:
            background.cancel()
            group.cancel()


async def everything(store: Store, namespace: str | None = None) -> dict[str, Any]:
    """What there is, without what differs from run to run."""
    found: dict[str, Any] = {}
    for kind in (StorageNode, ConfigMap, Node, Secret):
        page = await store.list(kind, namespace if kind is not Node else None)
        for obj in page.items:
            found[f"{kind.__name__} {obj.key}"] = _comparable(to_document(obj))
    return found


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    metadata = dict(document["metadata"])
    for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "deletionTimestamp"):
        metadata.pop(field, None)
    annotations = metadata.pop("annotations", {})
    metadata["annotations"] = sorted(name.rpartition("/")[2] for name in annotations)
    return {**document, "metadata": metadata}
