"""The controller of hooks: what it makes of an answer, and what it leaves alone."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from quartermaster.hooks import finalizer_of, hook_controllers
from quartermaster.hooks.merging import OWNER_ANNOTATION
from quartermaster.resources import ConfigMap, Event, Node, ObjectMeta, StorageNode
from quartermaster.support.errors import NotFoundError
from quartermaster.testing.simulation import simulated

from .toy import TOY, Recording, everything, memory_store, running, secret, storage_node, with_devices

FINALIZER = finalizer_of(TOY)


async def settled() -> None:
    """Virtual time in which everything that has to happen does."""
    await asyncio.sleep(30)


@simulated(seeds=range(1, 4))
async def test_an_answer_is_made_true_with_exactly_the_writes_that_it_takes() -> None:
    store = memory_store()
    await store.create(Node(metadata=ObjectMeta(name="a")))
    await store.create(storage_node())
    recording = Recording(store)
    async with running(recording, *hook_controllers([TOY])):
        await settled()
    assert recording.writes == [
        "update StorageNode a",  # the finalizer, before anything is made
        "update StorageNode a",  # the label
        "apply Node a",
        "create ConfigMap a-0",
        "create ConfigMap a-1",
        "status StorageNode a",  # Making
        "status StorageNode a",  # Ready
    ]
    watch = await store.get(StorageNode, "a", "default")
    assert watch.metadata.finalizers == (FINALIZER,)
    assert watch.metadata.labels == {"seen": "yes"}
    assert watch.status.state == "Ready"
    made = await store.get(ConfigMap, "a-0", "default")
    assert made.metadata.annotations[OWNER_ANNOTATION] == watch.metadata.uid
    assert (await store.get(Node, "a")).metadata.labels == {"devices": "2"}


@simulated(seeds=range(1, 3))
async def test_a_restart_writes_nothing() -> None:
    store = memory_store()
    await store.create(Node(metadata=ObjectMeta(name="a")))
    await store.create(storage_node())
    async with running(store, *hook_controllers([TOY])):
        await settled()
    recording = Recording(store)
    async with running(recording, *hook_controllers([TOY])):
        await settled()
    assert recording.writes == []


@simulated(seeds=range(1, 3))
async def test_fields_of_others_stay_and_those_that_are_no_longer_wanted_go() -> None:
    store = memory_store()
    await store.create(storage_node(devices=2))
    async with running(store, *hook_controllers([TOY])):
        await settled()
        made = await store.get(ConfigMap, "a-0", "default")
        labels = {**made.metadata.labels, "theirs": "kept", "disk": "by-hand"}
        metadata = msgspec.structs.replace(made.metadata, labels=labels, finalizers=("example.com/theirs",))
        await store.update(msgspec.structs.replace(made, metadata=metadata, data={**made.data, "extra": "kept"}))
        await settled()
        mended = await store.get(ConfigMap, "a-0", "default")
        assert mended.metadata.labels == {"disk": "0", "theirs": "kept"}
        assert mended.metadata.finalizers == ("example.com/theirs",)
        assert mended.data == {"device": "/dev/vdb", "last": "/dev/vdc", "extra": "kept"}


@simulated(seeds=range(1, 3))
async def test_what_is_no_longer_listed_is_deleted_and_a_part_that_was_given_is_given_up() -> None:
    store = memory_store()
    await store.create(Node(metadata=ObjectMeta(name="a", labels={"theirs": "kept"})))
    await store.create(storage_node(devices=3))
    async with running(store, *hook_controllers([TOY])):
        await settled()
        await store.update(with_devices(await store.get(StorageNode, "a", "default"), 0))
        await settled()
    assert (await store.list(ConfigMap)).items == ()
    assert (await store.get(Node, "a")).metadata.labels == {"theirs": "kept"}


@simulated(seeds=range(1, 3))
async def test_what_was_deleted_by_hand_is_made_again() -> None:
    store = memory_store()
    await store.create(storage_node())
    async with running(store, *hook_controllers([TOY])):
        await settled()
        await store.delete(ConfigMap, "a-1", "default")
        await settled()
        assert (await store.get(ConfigMap, "a-1", "default")).data["device"] == "/dev/vdc"


@simulated(seeds=range(1, 3))
@pytest.mark.parametrize("annotations", [{}, {OWNER_ANNOTATION: "somebody else"}, {"example.com/for": "a"}])
async def test_an_object_of_somebody_else_is_never_touched_and_its_name_is_told(annotations: dict[str, str]) -> None:
    store = memory_store()
    foreign = ConfigMap(metadata=ObjectMeta(name="a-0", namespace="default", annotations=annotations), data={"x": "y"})
    there = await store.create(foreign)
    await store.create(storage_node())
    async with running(store, *hook_controllers([TOY])):
        await settled()
    assert await store.get(ConfigMap, "a-0", "default") == there
    assert (await store.get(ConfigMap, "a-1", "default")).data["device"] == "/dev/vdc"
    (told,) = [event for event in (await store.list(Event)).items if event.reason == "NameTaken"]
    assert "cannot create ConfigMap default/a-0 for StorageNode default/a" in told.message
    assert (await store.get(StorageNode, "a", "default")).status.state == ""  # no status promises what was not done


@simulated(seeds=range(1, 3))
async def test_finalizing_follows_the_hooks_order_and_then_lets_the_object_go() -> None:
    store = memory_store()
    await store.create(secret("hold"))
    await store.create(storage_node(devices=3))
    recording = Recording(store)
    async with running(recording, *hook_controllers([TOY])):
        await settled()
        await store.delete(StorageNode, "a", "default")
        await settled()
        held = await store.get(StorageNode, "a", "default")
        assert (held.status.state, len((await store.list(ConfigMap)).items)) == ("Held", 3)
        recording.writes.clear()
        await store.delete(type(secret("hold")), "hold", "default")
        await settled()
    deletes = [write for write in recording.writes if write.startswith("delete")]
    assert deletes == ["delete ConfigMap a-2", "delete ConfigMap a-1", "delete ConfigMap a-0"]
    assert recording.writes[-1] == "update StorageNode a"
    with pytest.raises(NotFoundError):
        await store.get(StorageNode, "a", "default")


@simulated(seeds=range(1, 3))
async def test_events_are_told_once_per_change_of_their_message() -> None:
    store = memory_store()
    await store.create(storage_node(devices=1))
    async with running(store, *hook_controllers([TOY])):
        await settled()
        await store.create(secret("one"))
        await settled()
        await store.update(with_devices(await store.get(StorageNode, "a", "default"), 2))
        await settled()
    told = [(event.message, event.count) for event in (await store.list(Event)).items if event.reason == "Counted"]
    assert sorted(told) == [("1 devices", 1), ("2 devices", 1)]


@simulated(seeds=range(1, 3))
async def test_a_change_wakes_only_the_objects_that_it_concerns() -> None:
    store = memory_store()
    called: list[str] = []

    def counting(request):  # type: ignore[no-untyped-def]
        called.append(request.watch.metadata.name)
        return TOY.sync(request)

    for name in ("a", "b", "c"):
        await store.create(storage_node(name))
    async with running(store, *hook_controllers([msgspec.structs.replace(TOY, sync=counting)])):
        await settled()
        called.clear()
        await store.create(secret("for-b", "b"))
        await settled()
        assert set(called) == {"b"}
        assert (await store.get(StorageNode, "b", "default")).status.message == "for-b"
    assert len(await everything(store)) == 3 + 6 + 1
