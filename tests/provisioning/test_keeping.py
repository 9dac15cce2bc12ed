"""A volume whose deletion has begun and waits, and that somebody wants to keep after all."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from quartermaster.provisioning.protocol import VOLUME_FAILED_KEEP, VOLUME_FINALIZER
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.orchestration import Assignment
from quartermaster.stores import modify
from quartermaster.stores.objects.keys import kind_prefix
from quartermaster.support.errors import UnavailableError
from quartermaster.testing.simulation import simulated

from .world import GIB, SharingDriver, World, claim, is_bound, until

ASSIGNMENTS = kind_prefix(kind_of(Assignment))
AWAY = "another host does not answer"


async def begin_to_delete(world: World) -> str:
    """Its agent is asked, and fails."""
    await world.store.create(claim())
    await until(lambda: is_bound(world.store))
    name = (await world.claim()).spec.volume_name
    world.failing = AWAY
    await world.store.delete(PersistentVolumeClaim, "data", "default")
    await until(lambda: is_asked_to_delete(world))
    return name


async def is_asked_to_delete(world: World) -> bool:
    return any(one.spec.absent for one in await world.assignments())


async def are_asked_to_delete(world: World, count: int) -> bool:
    return sum(bool(one.spec.absent) for one in await world.assignments()) == count


async def retain(world: World, name: str) -> None:
    def kept(volume: PersistentVolume) -> PersistentVolume:
        return replace(volume, spec=replace(volume.spec, persistent_volume_reclaim_policy="Retain"))

    await modify(world.store, PersistentVolume, name, "", kept)


async def is_let_go(world: World) -> bool:
    (volume,) = await world.volumes()
    return VOLUME_FINALIZER not in volume.metadata.finalizers


@simulated()
async def test_a_deletion_that_waits_is_taken_back_when_the_volume_is_to_be_retained() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        name = await begin_to_delete(world)
        await retain(world, name)
        await until(lambda: is_let_go(world))
        assert not await is_asked_to_delete(world)
        world.failing = ""
        await asyncio.sleep(60)
        assert world.disks == {("h2", name): GIB}
        assert world.made == [("h2", name)], "it is the one that was there before"


@simulated()
async def test_a_leader_that_has_not_seen_the_cluster_yet_waits_with_keeping_a_volume() -> None:
    world = World()
    await world.prepare()
    await world.declare("h2")
    async with world.running():
        name = await begin_to_delete(world)
        world.blind = True
        await retain(world, name)
        await asyncio.sleep(60)
        assert not await is_let_go(world)
        world.blind = False
        await until(lambda: is_let_go(world))
        assert not await is_asked_to_delete(world)


@simulated()
async def test_who_keeps_a_volume_too_late_is_told_that_it_is_empty() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        name = await begin_to_delete(world)
        await world.pause()
        world.failing = ""
        await asyncio.sleep(60)
        assert world.disks == {}, "what was asked for before the pause"
        await retain(world, name)
        await until(lambda: is_let_go(world))
        (volume,) = await world.volumes()
        assert (VOLUME_FAILED_KEEP, "cannot keep it: what was in it was deleted before its policy was changed") in (
            await world.events_of(volume)
        )
        assert world.disks == {}, "and it is not made anew"


@simulated()
async def test_nor_does_a_host_delete_it_that_was_asked_to_while_it_was_silent_and_is_back() -> None:
    """Another one was asked instead of it, and keeps the volume now."""
    world = World()
    world.driver = SharingDriver(world.room)
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        name = (await world.claim()).spec.volume_name
        world.failing = AWAY
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await until(lambda: is_asked_to_delete(world))
        world.lost.add("h2")
        world.disks["h1", name] = GIB  # the same volume: any host can look after it
        await until(lambda: are_asked_to_delete(world, 2))
        await retain(world, name)
        await until(lambda: is_let_go(world))
        assert not await is_asked_to_delete(world)
        world.lost.clear()
        world.failing = ""
        await asyncio.sleep(60)
    assert world.disks == {("h1", name): GIB, ("h2", name): GIB}


class Unheard:
    """Faults of the store: whoever writes that a volume is to go gets no answer, and nobody hears of it for a while."""

    def __init__(self, world: World) -> None:
        self._silent_until = 0.0
        self.happened = False
        world.kv.faults = self

    async def before(self, call: str, key: str) -> None:
        pass

    async def after(self, call: str, key: str) -> None:
        if call == "transact" and key.startswith(ASSIGNMENTS) and not self.happened:
            self.happened = True
            self._silent_until = asyncio.get_running_loop().time() + 20.0
            raise UnavailableError("the answer was lost")

    async def deliver(self, key: str) -> None:
        if key.startswith(ASSIGNMENTS):
            await asyncio.sleep(max(0.0, self._silent_until - asyncio.get_running_loop().time()))


@simulated(seeds=range(3))
async def test_a_volume_is_retained_also_where_nobody_heard_that_it_was_asked_to_go() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        name = (await world.claim()).spec.volume_name
        unheard = Unheard(world)
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await until(lambda: is_asked_to_delete(world))
        await retain(world, name)
        await until(lambda: is_let_go(world))
        await asyncio.sleep(60)
        assert unheard.happened
        assert not await is_asked_to_delete(world)
    assert world.disks == {("h2", name): GIB}
