"""Own objects that the controller keeps with a finalizer of its own (`AttachmentRule.finalizer`)."""

from __future__ import annotations

import asyncio

import msgspec

from quartermaster.hooks import hook_controllers
from quartermaster.resources import ConfigMap, StorageNode
from quartermaster.resources.model import Object
from quartermaster.stores.base import Store
from quartermaster.support.errors import NotFoundError
from quartermaster.testing.simulation import simulated

from .toy import HOLDING, OURS, TOY, Recording, memory_store, running, storage_node, with_devices

THEIRS = "example.com/theirs"


async def settled() -> None:
    await asyncio.sleep(30)


async def finalizers(store: Store, name: str) -> tuple[str, ...]:
    return (await store.get(ConfigMap, name, "default")).metadata.finalizers


async def give(store: Store, name: str, *names: str) -> None:
    found = await store.get(ConfigMap, name, "default")
    await store.update(with_finalizers(found, names))


def with_finalizers(obj: ConfigMap, names: tuple[str, ...]) -> ConfigMap:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, finalizers=names))


async def devices(store: Store, count: int) -> None:
    await store.update(with_devices(await store.get(StorageNode, "a", "default"), count))


async def gone(store: Store, kind: type[Object], name: str) -> bool:
    try:
        await store.get(kind, name, "default")
    except NotFoundError:
        return True
    return False


@simulated(seeds=range(1, 3))
async def test_it_is_born_with_the_finalizer_and_an_older_one_is_given_it() -> None:
    store = memory_store()
    await store.create(storage_node(devices=1))
    async with running(store, *hook_controllers([TOY])):
        await settled()
    await give(store, "a-0", THEIRS)
    await devices(store, 2)
    recording = Recording(store)
    async with running(recording, *hook_controllers([HOLDING])):
        await settled()
        assert await finalizers(store, "a-0") == (THEIRS, OURS)
        assert await finalizers(store, "a-1") == (OURS,)
    assert recording.writes.count("create ConfigMap a-1") == 1
    assert "update ConfigMap a-1" not in recording.writes


@simulated(seeds=range(1, 3))
async def test_it_comes_off_when_the_hook_no_longer_lists_the_object_and_everybody_else_is_through() -> None:
    store = memory_store()
    await store.create(storage_node(devices=2))
    async with running(store, *hook_controllers([HOLDING])):
        await settled()
        await give(store, "a-1", OURS, THEIRS)
        await devices(store, 1)
        await settled()
        assert await finalizers(store, "a-1") == (OURS, THEIRS)
        await give(store, "a-1", OURS)
        await settled()
        assert await gone(store, ConfigMap, "a-1")
        assert await finalizers(store, "a-0") == (OURS,)


@simulated(seeds=range(1, 3))
async def test_what_is_listed_and_deleted_by_somebody_else_stays_until_it_is_no_longer_listed() -> None:
    store = memory_store()
    await store.create(storage_node(devices=1))
    async with running(store, *hook_controllers([HOLDING])):
        await settled()
        await store.delete(ConfigMap, "a-0", "default")
        await settled()
        assert await finalizers(store, "a-0") == (OURS,)
        await devices(store, 0)
        await settled()
        assert await gone(store, ConfigMap, "a-0")
