"""One life of a watched object on a real loop: created, changed, deleted; for whichever store and way of calling."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from quartermaster.hooks import hook_controllers
from quartermaster.resources import ConfigMap, StorageNode
from quartermaster.stores.base import Store
from quartermaster.stores.modify import modify
from quartermaster.support.errors import NotFoundError

from .toy import TOY, Recording, running, storage_node, with_devices


async def eventually(condition: Callable[[], Awaitable[bool]], *, within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not await condition():
            await asyncio.sleep(0.02)


async def life(store: Store, name: str = "a", namespace: str = "default", **options: Any) -> list[str]:
    """What was written, in order."""
    recording = Recording(store)

    async def has(count: int) -> bool:
        maps = [obj for obj in (await store.list(ConfigMap, namespace)).items if obj.metadata.name.startswith(name)]
        node = await store.get(StorageNode, name, namespace)
        seen = node.status.observed_generation == node.metadata.generation
        return len(maps) == count and seen and node.status.state == "Ready"

    async def gone() -> bool:
        try:
            await store.get(StorageNode, name, namespace)
        except NotFoundError:
            return True
        return False

    async with running(recording, *hook_controllers([TOY], namespace=namespace, **options)):
        await store.create(storage_node(name, 3, namespace))
        await eventually(lambda: has(3))
        await modify(store, StorageNode, name, namespace, lambda node: with_devices(node, 1))
        await eventually(lambda: has(1))
        await store.delete(StorageNode, name, namespace)
        await eventually(gone)
    return recording.writes
