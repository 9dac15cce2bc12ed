"""Events: written in the background, counted up, combined, bounded, and never a reason to fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quartermaster.engine.events import BUFFER_LIMIT, BURST, COMBINED, SIMILAR_LIMIT, EventRecorder
from quartermaster.engine.metrics import EVENTS_DROPPED, Metrics
from quartermaster.resources.kubernetes.core import Event, Namespace
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import ForbiddenError, UnavailableError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import simulated

from .samples import Switches, memory_store, node, settled


@asynccontextmanager
async def recording(store: ObjectStore, metrics: Metrics | None = None) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(store, "tester", metrics=metrics or Metrics())
    async with TaskGroup() as group:
        group.start(recorder.run())
        yield recorder
        await settled(1)
        group.cancel()


async def events(store: ObjectStore) -> list[Event]:
    return list((await store.list(Event)).items)


@simulated()
async def test_an_event_says_what_happened_to_which_object() -> None:
    store = memory_store()
    about = await store.create(node("a"))
    async with recording(store) as recorder:
        recorder.record(about, "Labelled", "the node has its labels")
    (event,) = await events(store)
    assert event.metadata.namespace == "default"
    assert event.metadata.name.startswith("a.")
    assert (event.type, event.reason, event.message) == ("Normal", "Labelled", "the node has its labels")
    assert (event.involved_object.kind, event.involved_object.uid) == ("StorageNode", about.metadata.uid)
    assert (event.count, event.source.component) == (1, "tester")
    assert event.first_timestamp == event.last_timestamp


@simulated()
async def test_an_event_about_something_in_no_namespace_is_in_the_default_one() -> None:
    store = memory_store()
    async with recording(store) as recorder:
        recorder.record(Namespace(metadata=ObjectMeta(name="n")), "Seen", "it is there")
    assert [event.metadata.namespace for event in await events(store)] == ["default"]


@simulated(seeds=range(1, 6))
async def test_the_same_again_counts_up_the_event_that_is_there() -> None:
    store = memory_store()
    async with recording(store) as recorder:
        for _ in range(5):
            recorder.record(node("a"), "Failed", "no devices", type="Warning")
            await settled(10)
    (event,) = await events(store)
    assert event.count == 5
    assert event.last_timestamp != event.first_timestamp


@simulated()
async def test_what_is_recorded_before_it_is_written_is_one_write() -> None:
    faults = Switches()
    store = memory_store(faults)
    async with recording(store) as recorder:
        for _ in range(20):
            recorder.record(node("a"), "Failed", "no devices")
        await settled()
        assert faults.calls.count("transact") == 1
    assert [event.count for event in await events(store)] == [20]


@simulated()
async def test_many_similar_ones_become_one() -> None:
    store = memory_store()
    async with recording(store) as recorder:
        for number in range(20):
            recorder.record(node("a"), "Failed", f"attempt {number}")
            await settled(1)
    found = await events(store)
    assert len(found) == SIMILAR_LIMIT + 1
    combined = [event for event in found if event.message.startswith(COMBINED)]
    assert [(event.count, event.message) for event in combined] == [(10, f"{COMBINED}attempt 19")]


@simulated()
async def test_one_object_may_not_speak_without_end_and_others_still_may() -> None:
    store, metrics = memory_store(), Metrics()
    async with recording(store, metrics) as recorder:
        for _ in range(1000):
            recorder.record(node("noisy"), "Failed", "again")
        recorder.record(node("quiet"), "Failed", "once")
        assert metrics.value(EVENTS_DROPPED, "rate") == 1000 - BURST
        await settled(301)
        recorder.record(node("noisy"), "Failed", "again")
    assert sorted(event.count for event in await events(store)) == [1, BURST + 1]


@simulated()
async def test_the_buffer_is_bounded_and_what_does_not_fit_is_counted() -> None:
    store, metrics = memory_store(), Metrics()
    recorder = EventRecorder(store, "tester", metrics=metrics)
    for number in range(BUFFER_LIMIT + 7):
        recorder.record(node(f"node-{number}"), "Failed", "no devices")
    assert metrics.value(EVENTS_DROPPED, "full") == 7


@simulated()
async def test_a_store_that_is_away_for_a_moment_gets_its_events_later() -> None:
    faults = Switches()
    store = memory_store(faults)
    faults.failing["transact"] = UnavailableError("cannot reach the store")
    async with recording(store) as recorder:
        recorder.record(node("a"), "Failed", "no devices")
        await settled(2)
        faults.failing.clear()
        await settled(10)
    assert len(await events(store)) == 1


@simulated()
async def test_events_that_a_store_will_not_take_are_dropped_and_counted() -> None:
    faults, metrics = Switches(), Metrics()
    store = memory_store(faults)
    async with recording(store, metrics) as recorder:
        faults.failing["transact"] = ForbiddenError("cannot create the event: you may not")
        recorder.record(node("a"), "Failed", "no devices")
        await settled()
        faults.failing["transact"] = UnavailableError("cannot reach the store")
        recorder.record(node("b"), "Failed", "no devices")
        await settled(600)
        assert metrics.value(EVENTS_DROPPED, "store") == 2


@simulated()
async def test_an_event_that_has_expired_is_begun_anew() -> None:
    store = memory_store()
    async with recording(store) as recorder:
        recorder.record(node("a"), "Failed", "no devices")
        await settled()
        (event,) = await events(store)
        await store.delete(Event, event.metadata.name, "default")
        recorder.record(node("a"), "Failed", "no devices")
        await settled()
    assert [event.count for event in await events(store)] == [2]


@simulated()
async def test_messages_are_redacted_and_cut() -> None:
    store = memory_store()
    async with recording(store) as recorder:
        recorder.record(node("a"), "Failed", "cannot reach https://user:hunter2@host/x" + "y" * 5000)
    (event,) = await events(store)
    assert "hunter2" not in event.message
    assert len(event.message) == 1024


@simulated()
async def test_a_flush_is_bounded() -> None:
    faults = Switches()
    store = memory_store(faults)
    async with recording(store) as recorder:
        faults.failing["transact"] = UnavailableError("cannot reach the store")
        recorder.record(node("a"), "Failed", "no devices")
        start = asyncio.get_running_loop().time()
        await recorder.flush(2)
        assert asyncio.get_running_loop().time() - start == 2
