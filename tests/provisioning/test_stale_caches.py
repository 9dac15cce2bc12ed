"""A new leader whose caches are behind: nothing that it believes may cost anybody his data, or hand out room twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quartermaster.engine import Caches, EventRecorder, Metrics, Scope
from quartermaster.provisioning.protocol import find_condition
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from quartermaster.resources.model import Object
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.resources.storage import StorageStatus
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.stores.objects.keys import kind_prefix
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import simulated
from quartermaster.testing.simulation.process import PROCESS
from quartermaster.testing.simulation.run import simulation_loop
from tests.engine.samples import serving

from .world import GIB, World, claim, is_bound, resized, until

SUCCESSOR = "successor"


class Behind:
    """The faults of the store: the successor hears nothing more of some kinds."""

    def __init__(self, kv: MemoryKeyValue) -> None:
        self.deaf_to: tuple[str, ...] = ()
        kv.faults = self

    def stop_telling(self, *kinds: type[Object]) -> None:
        self.deaf_to = tuple(kind_prefix(kind_of(kind)) for kind in kinds)

    async def before(self, call: str, key: str) -> None:
        pass

    async def after(self, call: str, key: str) -> None:
        pass

    async def deliver(self, key: str) -> None:
        process = PROCESS.get()
        while process is not None and process.name == SUCCESSOR and key.startswith(self.deaf_to or ("-",)):
            await asyncio.sleep(1.0)


class Successor:
    """A candidate with warm caches, which leads when it is told to."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ready = asyncio.Event()
        self.leads = asyncio.Event()

    async def run(self) -> None:
        world, store = self._world, ObjectStore(self._world.kv)
        caches, metrics = Caches(store), Metrics()
        kept = [caches.of(kind) for kind in (PersistentVolumeClaim, PersistentVolume, StorageClass)]
        kept += [caches.of(kind, world.namespace) for kind in (Assignment, Host, StorageStatus)]  # type: ignore[misc]
        events = EventRecorder(store, "successor")
        scope = Scope(store=store, caches=caches, events=events, metrics=metrics, stopping=asyncio.Event())
        async with TaskGroup() as group:
            caches.start_with(lambda cache: (group.start(cache.run()), None)[1])
            group.start(events.run())
            for cache in kept:
                await cache.synced.wait()
            self.ready.set()
            await self.leads.wait()
            for service in world.services():
                group.start(service.run(scope))


@asynccontextmanager
async def succession(world: World) -> AsyncIterator[tuple[Behind, Successor]]:
    successor = Successor(world)
    process = simulation_loop().start_process(SUCCESSOR, successor.run())
    behind = Behind(world.kv)
    async with asyncio.timeout(60):
        await successor.ready.wait()
    yield behind, successor
    behind.deaf_to = ()
    process.task.cancel()
    await asyncio.wait([process.task], timeout=60)


@simulated(seeds=range(3))
async def test_a_volume_is_not_released_because_a_cache_does_not_show_its_claim() -> None:
    world = World()
    await world.prepare()
    async with succession(world) as (behind, successor), serving(world.store, world.agents()):
        behind.stop_telling(PersistentVolumeClaim)
        async with serving(world.store, *world.services()):
            await world.store.create(claim())
            await until(lambda: is_bound(world.store))
            name = (await world.claim()).spec.volume_name
            await until(lambda: _phase(world, name, "Bound"))
        successor.leads.set()
        await asyncio.sleep(30)
        assert await _phase(world, name, "Bound")
        assert list(world.disks) == [("h2", name)]


@simulated(seeds=range(3))
async def test_a_volume_that_was_deleted_is_not_made_again_because_a_cache_shows_it_growing() -> None:
    world = World()
    await world.prepare()
    async with serving(world.store, world.agents()), serving(world.store, *world.services()):
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        await until(lambda: _settled(world))
        world.failing = "not yet"
        await world.store.update(resized(await world.claim(), "2Gi"))
        await until(lambda: _grows(world))
        async with succession(world) as (behind, successor):
            behind.stop_telling(PersistentVolumeClaim, PersistentVolume)
            world.failing = ""
            await world.store.delete(PersistentVolumeClaim, "data", "default")
            await until(lambda: _nothing_is_left(world))
            successor.leads.set()
            await asyncio.sleep(30)
            assert await _nothing_is_left(world)
    assert len(world.made) == 1


@simulated(seeds=range(3))
async def test_room_that_an_earlier_leader_gave_away_is_not_given_twice() -> None:
    world = World({"h1": GIB})
    await world.prepare()
    world.online = False
    async with serving(world.store, world.agents()), serving(world.store, *world.services()):
        for name in ("a", "b"):
            await world.store.create(claim(name))
            await until(lambda name=name: _waits(world, name))
        async with succession(world) as (behind, successor):
            behind.stop_telling(PersistentVolumeClaim, PersistentVolume)
            world.online = True
            await until(lambda: _one_is_made(world))
            successor.leads.set()
            await asyncio.sleep(20)
            assert len(world.disks) == 1


async def _phase(world: World, name: str, phase: str) -> bool:
    return (await world.store.get(PersistentVolume, name)).status.phase == phase


async def _settled(world: World) -> bool:
    found = await world.claim()
    return len(found.metadata.finalizers) == 1 and not found.status.conditions


async def _grows(world: World) -> bool:
    (assignment,) = await world.assignments()
    return assignment.spec.generation == 2 and assignment.status.state == "failed"


async def _nothing_is_left(world: World) -> bool:
    return not world.disks and not await world.assignments() and not await world.volumes()


async def _waits(world: World, name: str) -> bool:
    return find_condition((await world.claim(name)).status.conditions, "Provisioned") is not None


async def _one_is_made(world: World) -> bool:
    return len(await world.volumes()) == 1
