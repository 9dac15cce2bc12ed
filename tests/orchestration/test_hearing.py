"""Heartbeats are asked for in one go where the store can tell, and watched where it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quartermaster.engine.cache import Caches
from quartermaster.orchestration.health import Heartbeats
from quartermaster.orchestration.hearing import Hearing, lease_caches
from quartermaster.orchestration.heartbeat import Heartbeat
from quartermaster.orchestration.timings import Timings
from quartermaster.resources.model import Object
from quartermaster.stores.base import Written
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import UnavailableError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import simulated

NAMESPACE = "storage"


class Counting(ObjectStore):
    """Counts what each question was answered with."""

    def __init__(self) -> None:
        super().__init__(MemoryKeyValue())
        self.answers: list[int] = []
        self.down = False

    async def written(self, kind: type[Object], namespace: str, *, since: str = "") -> Written:
        if self.down:
            raise UnavailableError("cannot list: the store is away")
        answer = await super().written(kind, namespace, since=since)
        self.answers.append(len(answer.versions))
        return answer


class Listening:
    def __init__(self) -> None:
        self.store = Counting()
        self.known: list[str] = []
        self.health = Heartbeats(Timings(unhealthy_after_s=30.0), lambda _: None)
        self.hearing = Hearing(Caches(self.store), NAMESPACE, self.health, self.known.__contains__)

    async def beat(self, host: str) -> None:
        await Heartbeat(host, NAMESPACE, every_s=5.0).beat(self.store)

    def meet(self, host: str) -> None:
        self.known.append(host)
        self.health.known(host)
        self.hearing.expect(host)


@asynccontextmanager
async def listening() -> AsyncIterator[Listening]:
    async with TaskGroup() as group:
        made = Listening()
        group.start(made.hearing.run())
        yield made
        group.cancel()


@simulated()
async def test_a_heartbeat_is_heard_within_a_second_and_asked_for_once() -> None:
    async with listening() as made:
        made.meet("h1")
        await asyncio.sleep(10.0)
        await made.beat("h1")
        await asyncio.sleep(1.5)
        assert made.health.of("h1").silent_s <= 1.5
        assert sum(made.store.answers) == 1
        await asyncio.sleep(20.0)
        assert sum(made.store.answers) == 1


@simulated()
async def test_what_an_unknown_host_writes_is_heard_when_the_host_becomes_known() -> None:
    async with listening() as made:
        await made.beat("h1")
        await asyncio.sleep(10.0)
        assert len(made.health) == 0
        made.meet("h1")
        await asyncio.sleep(5.0)
        made.health.heard("h1", "other")  # only a version that was heard before is no sign of life
        await asyncio.sleep(5.0)
        assert made.health.of("h1").silent_s == 5.0


@simulated()
async def test_a_store_that_was_away_is_asked_again_and_nothing_is_left_out() -> None:
    async with listening() as made:
        made.store.down = True
        made.meet("h1")
        await made.beat("h1")
        await asyncio.sleep(10.0)
        made.store.down = False
        await asyncio.sleep(1.5)
        assert made.health.of("h1").silent_s <= 1.5


@simulated()
async def test_the_less_silence_is_borne_the_more_often_it_is_asked() -> None:
    async with listening() as made:
        assert made.health.look_every_s == 1.0
        made.health.of("h1", unhealthy_after_s=2.0)
        assert made.health.look_every_s == 0.5


@simulated()
async def test_no_cache_is_kept_of_heartbeats_that_are_asked_for() -> None:
    caches = Caches(ObjectStore(MemoryKeyValue()))
    assert lease_caches(caches, NAMESPACE) == ()
    assert lease_caches(Caches(Plain()), NAMESPACE) != ()  # type: ignore[arg-type]


class Plain:
    """A store that can only be watched, as an API server."""

    fences = False
