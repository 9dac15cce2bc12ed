"""Events end by age, in batches, not all at once."""

from __future__ import annotations

import asyncio

from quartermaster.engine.expiry import Expiry, expire_events
from quartermaster.engine.metrics import COLLECTED
from quartermaster.resources.kubernetes.core import Event
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import clock
from quartermaster.support.errors import UnavailableError
from quartermaster.testing.simulation import simulated

from .samples import Switches, memory_store, serving, settled


async def say(store: ObjectStore, name: str) -> Event:
    now = clock.timestamp()
    meta = ObjectMeta(name=name, namespace="default")
    return await store.create(Event(metadata=meta, first_timestamp=now, last_timestamp=now, reason="Test"))


async def names(store: ObjectStore) -> list[str]:
    return [event.metadata.name for event in (await store.list(Event)).items]


@simulated()
async def test_events_older_than_their_time_are_deleted_and_younger_ones_stay() -> None:
    store = memory_store()
    async with serving(store, Expiry()) as scope:
        await say(store, "old")
        await settled(3000)
        await say(store, "young")
        await settled(1000)
        assert await names(store) == ["young"]
        assert scope.metrics.value(COLLECTED, "expired") == 1


@simulated()
async def test_an_event_without_a_last_time_is_judged_by_its_creation() -> None:
    store = memory_store()
    await store.create(Event(metadata=ObjectMeta(name="plain", namespace="default")))
    assert await expire_events(store, 60) == 0
    await settled(61)
    assert await expire_events(store, 60) == 1


@simulated()
async def test_deletions_are_spread_over_time() -> None:
    store = memory_store()
    for number in range(100):
        await say(store, f"event-{number}")
    await settled(100)
    start = asyncio.get_running_loop().time()
    assert await expire_events(store, 60, per_s=10) == 100
    assert 8 < asyncio.get_running_loop().time() - start < 10


@simulated()
async def test_a_store_that_is_away_is_tried_again_later() -> None:
    faults = Switches()
    store = memory_store(faults)
    await say(store, "old")
    faults.failing["range"] = UnavailableError("cannot reach the store")
    async with serving(store, Expiry(ttl_s=60, interval_s=300)):
        await settled(1000)
        faults.failing.clear()
        await settled(400)
        assert await names(store) == []


@simulated()
async def test_a_clean_end_does_not_wait_for_the_interval() -> None:
    start = asyncio.get_running_loop().time()
    async with serving(memory_store(), Expiry()):
        await settled(1)
    assert asyncio.get_running_loop().time() - start == 1
