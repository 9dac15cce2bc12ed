"""A small leader's job that shows the pattern "persist intent before acting", and that a simulation can break.

For every StorageNode something is allocated in a world outside of the store, once, and released when the node goes.
The world cannot be written in one transaction with the store, so the leader may die between the two at any line:

1. choose an id and write it into the node, with a finalizer, under the fence;
2. allocate under that id: whoever does it again, after whatever crash, names the same id and gets the same thing;
3. write the status, under the fence.

The world refuses an epoch lower than one that it has seen, as agents do: a leader that was deposed while it slept
may still be about to act.
"""

from __future__ import annotations

from typing import Protocol

from msgspec.structs import replace

from quartermaster.engine.controller import DONE, Request, Result
from quartermaster.resources.storage import StorageNode
from quartermaster.stores.base import Store
from quartermaster.support import entropy
from quartermaster.support.errors import NotFoundError

INTENT = "simulation.quartermaster.io/intent"
EPOCH = "simulation.quartermaster.io/epoch"
FINALIZER = "simulation.quartermaster.io/allocation"


class World(Protocol):
    """What is outside. Both calls may fail after they took effect."""

    async def allocate(self, intent: str, owner: str, epoch: int) -> None: ...

    async def release(self, intent: str, epoch: int) -> None: ...


class Allocator:
    """The reconciler; one for each term of a leader. `store` fences its writes."""

    def __init__(self, store: Store, world: World, epoch: int) -> None:
        self._store = store
        self._world = world
        self._epoch = epoch

    async def reconcile(self, request: Request) -> Result:
        try:
            node = await self._store.get(StorageNode, request.name, request.namespace)
        except NotFoundError:
            return DONE
        if node.metadata.deletion_timestamp:
            await self._release(node)
        elif not node.status.message:
            await self._allocate(node)
        return DONE

    async def _allocate(self, node: StorageNode) -> None:
        intent = intent_of(node) or entropy.new_uid()
        node = await self._persist(node, intent)
        await self._world.allocate(intent, node.metadata.uid, self._epoch)
        await self._store.update_status(replace(node, status=replace(node.status, state="Allocated", message=intent)))

    async def _persist(self, node: StorageNode, intent: str) -> StorageNode:
        if intent_of(node):
            return node
        annotations = {**node.metadata.annotations, INTENT: intent, EPOCH: str(self._epoch)}
        finalizers = (*(f for f in node.metadata.finalizers if f != FINALIZER), FINALIZER)
        metadata = replace(node.metadata, annotations=annotations, finalizers=finalizers)
        return await self._store.update(replace(node, metadata=metadata))

    async def _release(self, node: StorageNode) -> None:
        if FINALIZER not in node.metadata.finalizers:
            return
        await self._world.release(intent_of(node) or node.status.message, self._epoch)
        finalizers = tuple(f for f in node.metadata.finalizers if f != FINALIZER)
        await self._store.update(replace(node, metadata=replace(node.metadata, finalizers=finalizers)))


def intent_of(node: StorageNode) -> str:
    return node.metadata.annotations.get(INTENT, "")
