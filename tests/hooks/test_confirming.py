"""What takes something away is decided by what the store shows, however late the caches are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from quartermaster.backends.cstor.hook import AttachmentRule, Attachments, Hook, Look, SyncRequest, SyncResponse
from quartermaster.engine import Caches
from quartermaster.hooks import hook_controllers
from quartermaster.hooks.confirming import Confirming, Picture
from quartermaster.hooks.gathering import Gatherer, SharedInventory
from quartermaster.resources import ConfigMap, ObjectMeta, Secret, StorageNode
from quartermaster.resources import Event as Told
from quartermaster.resources.openebs import ACTIVE, BlockDevice, BlockDeviceStatus
from quartermaster.stores.base import Event, Page
from quartermaster.testing.simulation import simulated

from .toy import TOY, memory_store, running, secret, storage_node, with_devices

LATE_S = 30.0


def _look(_: StorageNode) -> Look:
    return Look(namespace="default")


def confirmed(hook: Hook) -> Hook:
    """The toy, with Secrets as evidence."""
    rules = [msgspec.structs.replace(r, confirm=_look) if r.kind is Secret else r for r in hook.attachments]
    return msgspec.structs.replace(hook, attachments=tuple(rules))


class Late:
    """A store whose watches of one kind bring their news late; what is read from it is as it is."""

    def __init__(self, store: Any, kind: type[Any]) -> None:
        self._store = store
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def watch(self, kind: type[Any], namespace: str | None = None, **options: Any) -> AsyncGenerator[Any, None]:
        async with aclosing(self._store.watch(kind, namespace, **options)) as events:
            async for event in events:
                if kind is self._kind:
                    await asyncio.sleep(LATE_S)
                yield event


@simulated()
async def test_what_was_made_a_moment_ago_holds_up_a_deletion_before_the_cache_shows_it() -> None:
    store = memory_store()
    async with running(Late(store, Secret), *hook_controllers([confirmed(TOY)])):
        await store.create(storage_node(devices=2))
        await asyncio.sleep(1)
        await store.create(secret("hold"))
        await store.delete(StorageNode, "a", "default")
        await asyncio.sleep(LATE_S / 2)
        assert (await store.get(StorageNode, "a", "default")).status.state == "Held"
        assert len((await store.list(ConfigMap)).items) == 2
        await store.delete(Secret, "hold", "default")
        await asyncio.sleep(2 * LATE_S)
        assert (await store.list(StorageNode)).items == ()


@simulated()
async def test_without_such_evidence_the_late_cache_would_have_been_believed() -> None:
    store = memory_store()
    async with running(Late(store, Secret), *hook_controllers([TOY])):
        await store.create(storage_node(devices=2))
        await asyncio.sleep(1)
        await store.create(secret("hold"))
        await store.delete(StorageNode, "a", "default")
        await asyncio.sleep(LATE_S / 2)
        assert (await store.list(ConfigMap)).items == ()


@simulated()
async def test_a_declaration_that_has_changed_since_is_the_one_that_counts() -> None:
    store = memory_store()
    async with running(Late(store, StorageNode), *hook_controllers([confirmed(TOY)])):
        made = await store.create(storage_node(devices=3))
        await asyncio.sleep(LATE_S * 4)
        made = await store.update(with_devices(await store.get(StorageNode, "a", "default"), 1))
        await asyncio.sleep(1)
        await store.update(with_devices(made, 3))
        await asyncio.sleep(LATE_S + 1)  # the cache shows one device; the store has three
        assert len((await store.list(ConfigMap)).items) == 3


class Unreadable(Late):
    """As if one Secret did not fit its type."""

    async def list(self, kind: type[Any], *arguments: Any, **options: Any) -> Any:
        page = await self._store.list(kind, *arguments, **options)
        return Page(page.items, page.revision, skipped=1) if kind is Secret else page


@simulated()
async def test_evidence_that_cannot_be_read_counts_as_evidence() -> None:
    store = memory_store()
    async with running(Unreadable(store, Event), *hook_controllers([confirmed(TOY)])):
        await store.create(storage_node(devices=2))
        await asyncio.sleep(1)
        await store.delete(StorageNode, "a", "default")
        await asyncio.sleep(10)
        assert len((await store.list(ConfigMap)).items) == 2
        told = [event.message for event in (await store.list(Told)).items]
    assert any("cannot be sure that nobody uses it: 1 secrets cannot be read" in message for message in told)


@simulated()
async def test_an_answer_may_say_itself_that_it_cannot_be_taken_back() -> None:
    calls: list[int] = []

    def sync(request: SyncRequest) -> SyncResponse:
        calls.append(len(request.attachments.of(Secret)))
        return SyncResponse(status={"state": f"{len(request.attachments.of(Secret))} secrets"}, irreversible=True)

    hook = confirmed(msgspec.structs.replace(TOY, sync=sync, finalize=None))
    store = memory_store()
    async with running(Late(store, Secret), *hook_controllers([hook])):
        await asyncio.sleep(1)
        await store.create(secret("one"))
        await store.create(storage_node())
        await asyncio.sleep(1)
        assert calls[:2] == [0, 1]
        assert (await store.get(StorageNode, "a", "default")).status.state == "1 secrets"


@simulated()
async def test_what_the_inventory_is_told_of_late_is_put_there() -> None:
    store = memory_store()
    rule = AttachmentRule(kind=BlockDevice, indexed=True, confirm=lambda _: Look(namespace="openebs"))
    hook = msgspec.structs.replace(TOY, attachments=(rule,))
    shared = SharedInventory()
    gatherer = Gatherer(hook, Caches(store), shared)  # caches that nobody fills
    watch = await store.create(storage_node())
    metadata = ObjectMeta(name="disk", namespace="openebs")
    await store.create(BlockDevice(metadata=metadata, status=BlockDeviceStatus(state=ACTIVE)))
    await Confirming(hook, store, gatherer).look_again(Picture(watch, Attachments()))
    found = shared.inventory.device("openebs", "disk")
    assert found is not None
    assert found.status.state == ACTIVE


async def test_the_second_look_finds_nothing_where_the_watched_object_is_another_by_now() -> None:
    store = memory_store()
    first = await store.create(storage_node())
    await store.delete(StorageNode, "a", "default")
    await store.create(storage_node())
    gatherer = Gatherer(TOY, Caches(store), None)
    assert await Confirming(TOY, store, gatherer).look_again(Picture(first, Attachments())) is None
