"""Assignments are written only where they differ, with a generation that counts and the leader's epoch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from quartermaster.backends.assigning import Assigning, changed, is_done, is_gone
from quartermaster.engine.cache import Caches
from quartermaster.engine.controller import Scope
from quartermaster.engine.events import EventRecorder
from quartermaster.engine.metrics import SILENT
from quartermaster.planning.cluster import Desired
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import SUCCEEDED, Assignment, AssignmentSpec, AssignmentStatus
from quartermaster.stores import modify
from quartermaster.stores.base import Fence
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import ConflictError, FencedError, NotFoundError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import simulated

NAMESPACE = "storage"


def asked(**spec: object) -> Assignment:
    wanted = AssignmentSpec(host="h1", agent="echo", **{"generation": 3, "epoch": 5, "desired": {"a": 1}, **spec})  # type: ignore[arg-type]
    return Assignment(metadata=ObjectMeta(name="echo.h1", namespace=NAMESPACE), spec=wanted)


def test_the_same_wish_is_the_same_object() -> None:
    current = asked(deadline_seconds=120.0)
    assert changed(current, Desired("h1", "echo", {"a": 1}), 9) is current


def test_another_wish_raises_the_generation_and_carries_the_epoch() -> None:
    wanted = changed(asked(), Desired("h1", "echo", {"a": 2}), 9).spec
    assert (wanted.generation, wanted.epoch, wanted.desired, wanted.absent) == (4, 9, {"a": 2}, None)


def test_a_wish_to_be_gone_takes_the_place_of_the_configuration() -> None:
    wanted = changed(asked(), Desired("h1", "echo", None), 9)
    assert (wanted.spec.generation, wanted.spec.desired, wanted.spec.absent) == (4, None, True)
    assert changed(wanted, Desired("h1", "echo", None), 9) is wanted


def test_an_assignment_of_a_higher_epoch_is_left_alone() -> None:
    with pytest.raises(FencedError, match="epoch 5 has written it, and this is epoch 4"):
        changed(asked(), Desired("h1", "echo", {"a": 2}), 4)


def test_done_means_what_is_asked_now() -> None:
    report = AssignmentStatus(state=SUCCEEDED, observed_generation=3)
    assert is_done(replace(asked(), status=report))
    assert not is_done(replace(asked(generation=4), status=report))
    assert is_gone(replace(asked(absent=True, desired=None), status=report))


class Desk:
    """An Assigning with its store; the cache follows only while it is open."""

    def __init__(self, group: TaskGroup) -> None:
        self.store = ObjectStore(MemoryKeyValue())
        self.caches = Caches(self.store)
        self.scope = Scope(
            store=self.store,
            caches=self.caches,
            events=EventRecorder(self.store, "test"),
            metrics=SILENT,
            stopping=asyncio.Event(),
        )
        self.assigning = Assigning(self.scope, NAMESPACE)
        self.assigning.epoch = 7
        self._group = group

    async def follow(self) -> None:
        cache = self.caches.of(Assignment, NAMESPACE)
        self._group.start(cache.run())
        await cache.synced.wait()

    async def report(self, **status: object) -> None:
        def told(current: Assignment) -> Assignment:
            return replace(current, status=AssignmentStatus(**status))  # type: ignore[arg-type]

        await modify(self.store, Assignment, "echo.h1", NAMESPACE, told, status=True)


@asynccontextmanager
async def desk() -> AsyncIterator[Desk]:
    async with TaskGroup() as group:
        yield Desk(group)
        group.cancel()


@simulated()
async def test_a_wish_is_written_once_however_late_the_cache_is() -> None:
    async with desk() as made:
        for _ in range(3):
            await made.assigning.ensure(Desired("h1", "echo", {"list": (1, 2)}))
        assert made.assigning.writes == 1
        await made.follow()
        await made.assigning.ensure(Desired("h1", "echo", {"list": [1, 2]}))
        assert made.assigning.writes == 1
        stored = await made.store.get(Assignment, "echo.h1", NAMESPACE)
        assert (stored.spec.generation, stored.spec.epoch, stored.spec.desired) == (1, 7, {"list": [1, 2]})


@simulated()
async def test_a_report_in_between_does_not_lose_the_wish_nor_the_report() -> None:
    async with desk() as made:
        await made.assigning.ensure(Desired("h1", "echo", {"a": 1}))
        await made.report(state="running", observed_generation=1)
        await made.assigning.ensure(Desired("h1", "echo", {"a": 2}))
        stored = await made.store.get(Assignment, "echo.h1", NAMESPACE)
        assert (stored.spec.desired, stored.spec.generation) == ({"a": 2}, 2)
        assert stored.status.state == "running"


@simulated()
async def test_who_decided_without_knowing_what_was_written_last_decides_anew() -> None:
    """As after a write of one's own that arrived and was answered with an error, while the cache is behind."""
    async with desk() as made:
        written = await made.assigning.ensure(Desired("h1", "echo", {"a": 1}))
        assert written is not None
        await made.store.update(replace(written, spec=replace(written.spec, generation=2, desired={"a": 2})))
        with pytest.raises(ConflictError, match="it says something else; it is decided anew"):
            await made.assigning.ensure(Desired("h1", "echo", None))
        known = made.assigning.get("h1", "echo")
        assert known is not None
        assert (known.spec.generation, known.spec.desired) == (2, {"a": 2})
        assert made.assigning.all() == [known]
        gone = await made.assigning.ensure(Desired("h1", "echo", None))
        assert gone is not None
        assert (gone.spec.generation, gone.spec.absent) == (3, True)


@simulated()
async def test_who_asks_for_the_latest_is_told_what_the_store_has_and_decides_on_that_from_then_on() -> None:
    async with desk() as made:
        assert await made.assigning.latest("h1", "echo") is None
        written = await made.assigning.ensure(Desired("h1", "echo", {"a": 1}))
        assert written is not None
        await made.store.update(replace(written, spec=replace(written.spec, generation=2, desired=None, absent=True)))
        latest = await made.assigning.latest("h1", "echo")
        assert latest is not None
        assert (latest.spec.generation, latest.spec.absent) == (2, True)
        assert made.assigning.get("h1", "echo") == latest
        again = await made.assigning.ensure(Desired("h1", "echo", {"a": 1}))
        assert again is not None
        assert (again.spec.generation, again.spec.absent) == (3, None)


@simulated()
async def test_what_is_there_already_as_it_is_wanted_is_no_conflict() -> None:
    async with desk() as made:
        written = await made.assigning.ensure(Desired("h1", "echo", {"a": 1}))
        assert written is not None
        await made.store.update(replace(written, spec=replace(written.spec, generation=2, desired={"a": 2})))
        found = await made.assigning.ensure(Desired("h1", "echo", {"a": 2}))
        assert found is not None
        assert found.spec.generation == 2


@simulated()
async def test_an_instance_is_an_assignment_of_its_own() -> None:
    async with desk() as made:
        await made.assigning.ensure(Desired("h1", "echo", {"a": 1}, instance="v1"))
        assert (await made.store.get(Assignment, "echo-v1.h1", NAMESPACE)).spec.instance == "v1"
        assert made.assigning.get("h1", "echo", "v1") is not None
        assert made.assigning.get("h1", "echo") is None


@simulated()
async def test_what_nobody_was_asked_for_is_gone() -> None:
    async with desk() as made:
        assert await made.assigning.retire("h1", "echo")
        assert made.assigning.writes == 0


@simulated()
async def test_a_service_is_retired_once_its_agent_has_said_so() -> None:
    async with desk() as made:
        await made.follow()
        await made.assigning.ensure(Desired("h1", "echo", {"a": 1}))
        assert not await made.assigning.retire("h1", "echo")
        await made.report(state=SUCCEEDED, observed_generation=1)
        await asyncio.sleep(1)
        assert not await made.assigning.retire("h1", "echo")
        await made.report(state=SUCCEEDED, observed_generation=2)
        await asyncio.sleep(1)
        assert await made.assigning.retire("h1", "echo")
        with pytest.raises(NotFoundError):
            await made.store.get(Assignment, "echo.h1", NAMESPACE)
        assert await made.assigning.retire("h1", "echo")


@simulated()
async def test_nobody_waits_for_a_host_that_is_lost_but_it_will_find_what_to_do() -> None:
    async with desk() as made:
        await made.assigning.ensure(Desired("h1", "echo", {"a": 1}))
        assert await made.assigning.retire("h1", "echo", lost=True)
        assert (await made.store.get(Assignment, "echo.h1", NAMESPACE)).spec.absent


@simulated()
async def test_what_was_written_long_ago_is_not_remembered_for_ever() -> None:
    async with desk() as made:
        for number in range(50):
            await made.assigning.ensure(Desired("h1", "echo", {"a": 1}, f"pvc-{number}"))
            await asyncio.sleep(10)
        assert len(made.assigning._written) < 10


@simulated()
async def test_a_deposed_leader_writes_no_assignment() -> None:
    async with desk() as made:
        await made.assigning.ensure(Desired("h1", "echo", {"a": 1}))
        made.assigning.epoch = 6
        with pytest.raises(FencedError):
            await made.assigning.ensure(Desired("h1", "echo", {"a": 2}))


def test_a_scope_with_a_fence_gives_its_epoch() -> None:
    async def main() -> int:
        store = ObjectStore(MemoryKeyValue())
        fence = Fence("storage", "leader", "me", 42)
        scope = Scope(
            store=store,
            caches=Caches(store),
            events=EventRecorder(store, "test"),
            metrics=SILENT,
            stopping=asyncio.Event(),
            fence=fence,
        )
        return Assigning(scope, NAMESPACE).epoch

    assert asyncio.run(main()) == 42
