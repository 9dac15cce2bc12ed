"""Caches: what they hold, what they tell, and what becomes of them when the store does not behave."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from quartermaster.engine.cache import STALE_AFTER_S, Cache, Caches
from quartermaster.engine.metrics import (
    CACHE_OBJECTS,
    CACHE_STALE,
    HANDLER_ERRORS,
    WATCH_RELISTS,
    WATCH_RESTARTS,
    Metrics,
)
from quartermaster.resources.codec import decode, encode
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.model import Key, ManagedFieldsEntry
from quartermaster.resources.storage import StorageNode
from quartermaster.stores.base import Event, Page
from quartermaster.stores.kv.base import Put
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import log
from quartermaster.support.errors import DeadlineError, ExpiredError, RefusedError, UnavailableError
from quartermaster.testing.simulation import simulated

from .samples import Switches, memory_store, node, relabelled, running, settled

NAME = "storagenodes.coreos.com"


class Recording:
    """A handler that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __call__(self, old: Any, new: Any) -> None:
        kind = "added" if old is None else "gone" if new is None else "changed"
        self.told.append(f"{kind} {(new or old).metadata.name}")


@simulated(seeds=range(1, 6))
async def test_what_is_there_and_what_comes_later_is_readable_without_waiting() -> None:
    store = memory_store()
    await store.create(node("a"))
    cache = Cache(store, StorageNode)
    async with running(cache):
        await store.create(node("b"))
        await settled()
        assert [obj.metadata.name for obj in cache.list()] == ["a", "b"]
        assert cache.get(Key("default", "b")) is not None
        assert cache.get(Key("default", "c")) is None


@simulated(seeds=range(1, 6))
async def test_handlers_are_told_of_additions_changes_and_ends() -> None:
    store = memory_store()
    await store.create(node("a"))
    cache, handler = Cache(store, StorageNode), Recording()
    cache.subscribe(handler)
    async with running(cache):
        created = await store.create(node("b"))
        await store.update(relabelled(created, seen="yes"))
        await store.delete(StorageNode, "a", "default")
        await settled()
    assert handler.told == ["added a", "added b", "changed b", "gone a"]


@simulated()
async def test_who_subscribes_late_is_told_of_all_that_is_there_in_order_and_may_leave() -> None:
    store = memory_store()
    cache, handler = Cache(store, StorageNode), Recording()
    async with running(cache):
        for name in ("c", "a", "b"):
            await store.create(node(name))
        await settled()
        leave = cache.subscribe(handler)
        assert handler.told == ["added a", "added b", "added c"]
        leave()
        await store.delete(StorageNode, "a", "default")
        await settled()
    assert len(handler.told) == 3


@simulated()
async def test_lists_are_ordered_by_namespace_and_name_and_narrowed_by_namespace_and_labels() -> None:
    store = memory_store()
    cache = Cache(store, StorageNode)
    async with running(cache):
        for name, namespace in (("z", "one"), ("a", "two"), ("m", "one"), ("b", "one-and-a-half")):
            await store.create(node(name, namespace, labels={"rack": name}))
        await settled()
        assert [str(key) for key in cache.keys(None)] == ["one/m", "one/z", "one-and-a-half/b", "two/a"]
        assert [str(key) for key in cache.keys("one")] == ["one/m", "one/z"]
        assert [obj.metadata.name for obj in cache.list(labels="rack in (a,z)")] == ["z", "a"]
        assert cache.list("one", "rack=a") == ()


@simulated(seeds=range(1, 11))
async def test_after_a_lost_watch_the_difference_is_told_as_if_it_had_been_watched() -> None:
    faults, metrics = Switches(), Metrics()
    store = memory_store(faults)
    for name in ("changed", "deleted", "replaced", "same"):
        await store.create(node(name))
    cache, handler = Cache(store, StorageNode, metrics=metrics), Recording()
    async with running(cache):
        same = cache.get(Key("default", "same"))
        cache.subscribe(handler)
        handler.told.clear()
        faults.expired = True
        faults.lists_open.clear()
        await store.update(relabelled(await store.get(StorageNode, "changed", "default"), a="b"))
        for name in ("deleted", "replaced"):
            await store.delete(StorageNode, name, "default")
        await store.create(node("replaced"))
        await store.create(node("new"))
        await settled()
        assert handler.told == []
        faults.expired = False
        faults.lists_open.set()
        await settled()
        assert handler.told == ["gone deleted", "changed changed", "added new", "gone replaced", "added replaced"]
        assert cache.get(Key("default", "same")) is same
        assert metrics.value(WATCH_RELISTS, NAME) == 1


@simulated()
async def test_an_object_made_anew_under_its_name_is_first_gone_and_then_added() -> None:
    store = memory_store()
    cache, handler = Cache(store, StorageNode), Recording()
    async with running(cache):
        old = await store.create(node("a"))
        await settled()
        cache.subscribe(handler)
        cache._apply(Event("MODIFIED", "99", msgspec.structs.replace(old, metadata=_with_uid(old, "another"))))
    assert handler.told == ["added a", "gone a", "added a"]


def _with_uid(obj: StorageNode, uid: str) -> Any:
    return msgspec.structs.replace(obj.metadata, uid=uid)


@simulated(seeds=range(1, 6))
async def test_while_the_store_is_away_the_cache_keeps_what_it_has_and_tries_ever_more_rarely() -> None:
    faults, metrics = Switches(), Metrics()
    store = memory_store(faults)
    await store.create(node("a"))
    cache = Cache(store, StorageNode, metrics=metrics)
    async with running(cache):
        faults.failing["watch"] = UnavailableError("cannot reach the store")
        await store.create(node("b"))
        await settled(600)
        assert [obj.metadata.name for obj in cache.list()] == ["a"]
        assert 10 < metrics.value(WATCH_RESTARTS, NAME) < 40
        faults.failing.clear()
        await settled(60)
        assert [obj.metadata.name for obj in cache.list()] == ["a", "b"]


@simulated()
async def test_a_cache_that_fails_for_longer_than_a_minute_is_stale_warns_and_counts_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    faults, metrics = Switches(), Metrics()
    store = memory_store(faults)
    cache = Cache(store, StorageNode, metrics=metrics)
    log.configure()
    async with running(cache):
        faults.failing["watch"] = UnavailableError("cannot reach the store")
        await store.create(node("a"))
        await settled(STALE_AFTER_S - 10)
        assert cache.stale_s == 0
        assert capsys.readouterr().err == ""
        await settled(300)
        assert cache.stale_s > 300
        assert metrics.value(CACHE_STALE, NAME) > 300
        warned = capsys.readouterr().err
        assert "cache is stale" in warned
        assert "cannot reach the store" in warned
        faults.failing.clear()
        await settled(60)
        assert cache.stale_s == 0
        assert metrics.value(CACHE_STALE, NAME) == 0


class Quiet(ObjectStore):
    """Nothing ever changes in it, and its watches break while it is away."""

    away = False

    async def watch(self, kind: Any, namespace: Any = None, **_: Any) -> AsyncGenerator[Event[Any], None]:
        if self.away:
            raise UnavailableError("cannot reach the store")
        await asyncio.sleep(5)
        if self.away:
            raise UnavailableError("cannot reach the store")
        await asyncio.Event().wait()
        yield Event("BOOKMARK", "1")


@simulated()
async def test_a_watch_that_has_nothing_to_tell_proves_itself_by_staying_open() -> None:
    store, metrics = Quiet(MemoryKeyValue()), Metrics()
    cache = Cache(store, StorageNode, metrics=metrics)
    async with running(cache):
        store.away = True
        await settled(120)
        assert cache.stale_s > 100
        store.away = False
        await settled(120)
        assert cache.stale_s == 0
        assert metrics.value(CACHE_STALE, NAME) == 0


@simulated()
async def test_a_cache_that_cannot_list_at_first_is_synced_when_it_can() -> None:
    faults = Switches()
    store = memory_store(faults)
    await store.create(node("a"))
    faults.failing["range"] = UnavailableError("cannot reach the store", retry_after_s=20)
    cache = Cache(store, StorageNode)
    started = asyncio.get_running_loop().time()
    asyncio.get_running_loop().call_later(5, faults.failing.clear)
    async with running(cache):
        assert len(cache) == 1
        assert asyncio.get_running_loop().time() - started >= 20, "retry_after_s is honoured"


class Forgetful(ObjectStore):
    """A list in parts takes longer than it remembers."""

    async def list(self, *args: Any, continues: str = "", **options: Any) -> Any:
        if continues:
            raise ExpiredError("cannot continue the list: its revision was compacted", hint="list again")
        return await super().list(*args, **options)


@simulated()
async def test_a_list_that_expires_between_two_parts_is_made_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quartermaster.engine.cache.PAGE_SIZE", 2)
    store = Forgetful(MemoryKeyValue())
    for name in ("a", "b", "c"):
        await store.create(node(name))
    cache = Cache(store, StorageNode)
    async with running(cache):
        assert [obj.metadata.name for obj in cache.list()] == ["a", "b", "c"]


@simulated()
async def test_an_object_that_does_not_fit_its_type_is_missing_and_stalls_nothing() -> None:
    kv = MemoryKeyValue()
    store, recording = ObjectStore(kv), Recording()
    await store.create(node("a"))
    changing = await store.create(node("b"))
    entry = (await kv.range("/", "0")).entries[-1]
    bad = entry.value.replace(b'"type":"local"', b'"type":["local"]')
    assert bad != entry.value
    cache = Cache(store, StorageNode)
    cache.subscribe(recording)
    await kv.transact([], [Put(entry.key, bad)])
    async with running(cache):
        assert recording.told == ["added a"]
        await store.create(node("c"))
        await kv.transact([], [Put(entry.key, entry.value)])
        await settled(1)
        assert recording.told == ["added a", "added c", "added b"]
        await kv.transact([], [Put(entry.key, bad)])
        await store.create(node("d"))
        await settled(1)
        assert recording.told[3:] == ["gone b", "added d"]
        assert cache.get(changing.key) is None
        assert cache.stale_s == 0


@simulated()
async def test_indexes_find_objects_by_value_and_follow_changes() -> None:
    store = memory_store()
    cache = Cache(store, StorageNode)
    await store.create(node("b", labels={"rack": "1"}))
    cache.add_index("rack", lambda obj: [obj.metadata.labels["rack"]] if "rack" in obj.metadata.labels else [])
    async with running(cache):
        moved = await store.create(node("a", labels={"rack": "1"}))
        await settled()
        assert [obj.metadata.name for obj in cache.by_index("rack", "1")] == ["a", "b"]
        await store.update(relabelled(moved, rack="2"))
        await store.delete(StorageNode, "b", "default")
        await settled()
        assert cache.by_index("rack", "1") == ()
        assert [obj.metadata.name for obj in cache.by_index("rack", "2")] == ["a"]
        cache.add_index("late", lambda obj: [obj.spec.type])
        assert len(cache.by_index("late", "local")) == 1


@simulated()
async def test_a_handler_or_index_that_fails_hurts_nobody_else() -> None:
    store, metrics = memory_store(), Metrics()
    cache, handler = Cache(store, StorageNode, metrics=metrics), Recording()

    def broken(*_: object) -> Any:
        raise ZeroDivisionError

    cache.subscribe(broken)
    cache.subscribe(handler)
    cache.add_index("broken", broken)
    async with running(cache):
        await store.create(node("a"))
        await settled()
        assert handler.told == ["added a"]
        assert cache.by_index("broken", "x") == ()
        assert metrics.value(HANDLER_ERRORS, NAME) == 2


@simulated()
async def test_selectors_narrow_a_cache_and_an_object_that_ceases_to_match_is_gone() -> None:
    store = memory_store()
    cache, handler = Cache(store, StorageNode, "default", labels="keep=yes"), Recording()
    cache.subscribe(handler)
    async with running(cache):
        kept = await store.create(node("kept", labels={"keep": "yes"}))
        await store.create(node("other"))
        await store.create(node("elsewhere", "other", labels={"keep": "yes"}))
        await store.update(relabelled(kept, keep="no"))
        await settled()
    assert handler.told == ["added kept", "gone kept"]


@simulated()
async def test_managed_fields_are_left_out_unless_asked_for() -> None:
    managed = msgspec.structs.replace(
        node("a"),
        metadata=msgspec.structs.replace(node("a").metadata, managed_fields=(ManagedFieldsEntry(manager="x"),)),
    )
    for keep in (False, True):
        cache = Cache(memory_store(), StorageNode, managed_fields=keep)
        cache._apply(Event("ADDED", "1", managed))
        held = cache.get(Key("default", "a"))
        assert held is not None
        assert bool(held.metadata.managed_fields) is keep


@simulated()
async def test_whoever_asks_for_the_same_shares_one_cache() -> None:
    caches = Caches(memory_store())
    assert caches.of(StorageNode) is caches.of(StorageNode)
    assert caches.of(StorageNode, "default") is not caches.of(StorageNode)
    assert caches.of(StorageNode, labels="a=b") is not caches.of(StorageNode)
    assert [str(cache.key) for cache in caches.all()] == [NAME, f"{NAME} default", f"{NAME} a=b"]


@simulated()
async def test_one_can_wait_for_a_state_with_a_bound() -> None:
    store = memory_store()
    cache = Cache(store, StorageNode)
    async with running(cache):
        asyncio.get_running_loop().call_later(5, lambda: cache._put(Key("default", "a"), node("a")))
        await cache.wait_until(lambda c: len(c) == 1)
        with pytest.raises(DeadlineError, match="cannot see the wanted state of storagenodes"):
            await cache.wait_until(lambda c: len(c) == 2, timeout_s=3)


class Streaming:
    """A store that sends what is there as the beginning of a watch, or says that it does not."""

    def __init__(self, offers: bool) -> None:
        self._store = memory_store()
        self._offers = offers
        self.create = self._store.create
        self.lists = 0

    async def list(self, *args: Any, **options: Any) -> Page[Any]:
        self.lists += 1
        return await self._store.list(*args, **options)

    def watch(self, *args: Any, **options: Any) -> AsyncGenerator[Event[Any], None]:
        return self._store.watch(*args, **options)

    async def watch_from_start(self, kind: Any, namespace: Any, **options: Any) -> AsyncGenerator[Event[Any], None]:
        if not self._offers:
            raise RefusedError("cannot stream: an old server")
        page = await self._store.list(kind, namespace, **options)
        for obj in reversed(page.items):
            yield Event("ADDED", "", obj)
        yield Event("BOOKMARK", page.revision)
        inner = self._store.watch(kind, namespace, since=page.revision, **options)
        try:
            async for event in inner:
                yield event
        finally:
            await inner.aclose()


@pytest.mark.parametrize("offers", [True, False])
def test_a_store_that_streams_its_state_is_not_listed_and_one_that_refuses_is(offers: bool) -> None:
    @simulated()
    async def scenario() -> None:
        store: Any = Streaming(offers)
        await store.create(node("a"))
        await store.create(node("b"))
        cache = Cache(store, StorageNode)
        async with running(cache):
            await store.create(node("c"))
            await settled()
            assert [obj.metadata.name for obj in cache.list()] == ["a", "b", "c"]
            assert (store.lists == 0) is offers

    scenario()


@simulated()
async def test_the_number_of_objects_is_a_metric() -> None:
    store, metrics = memory_store(), Metrics()
    cache = Cache(store, ConfigMap, metrics=metrics)
    async with running(cache):
        assert metrics.value(CACHE_OBJECTS, "configmaps") == 0
        await store.create(ConfigMap(metadata=node("a").metadata))
        await settled()
        assert metrics.value(CACHE_OBJECTS, "configmaps") == 1


class Pages:
    """Only lists: objects decoded from their stored form, as a real store does it."""

    def __init__(self, count: int) -> None:
        managed = ManagedFieldsEntry(
            manager="qm", operation="Apply", fields_v1={f"f:{n}": {"f:a": {}, "f:b": {}} for n in range(20)}
        )
        self._data = []
        for number in range(count):
            sample = node(
                f"node-{number:05}", labels={"rack": str(number % 40), "kubernetes.io/hostname": f"h{number}"}
            )
            meta = msgspec.structs.replace(
                sample.metadata, uid=f"{number:036}", resource_version=str(number + 1), managed_fields=(managed,)
            )
            self._data.append(encode(msgspec.structs.replace(sample, metadata=meta)))

    async def list(self, kind: Any, namespace: Any, *, limit: int, continues: str, **_: Any) -> Page[Any]:
        first = int(continues or 0)
        items = tuple(decode(kind, data) for data in self._data[first : first + limit])
        after = first + limit
        return Page(items, "1", str(after) if after < len(self._data) else "")

    async def watch(self, *_: Any, **__: Any) -> AsyncGenerator[Event[Any], None]:
        await asyncio.Event().wait()
        yield Event("BOOKMARK", "1")


@pytest.mark.slow
async def test_a_cached_node_takes_less_than_4_kb_so_that_ten_thousand_take_less_than_40_mb() -> None:
    store: Any = Pages(2_000)
    gc.collect()
    tracemalloc.start()
    try:
        cache = Cache(store, StorageNode)
        cache.add_index("rack", lambda obj: [obj.metadata.labels["rack"]])
        async with running(cache):
            grown = tracemalloc.get_traced_memory()[0]
            assert len(cache) == 2_000
            assert len(cache.by_index("rack", "7")) == 50
            assert grown / len(cache) < 4_000
    finally:
        tracemalloc.stop()
