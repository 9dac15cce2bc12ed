"""A host that is lost while it makes a volume, or with volumes on it: nothing is left, and nobody waits for ever."""

from __future__ import annotations

import asyncio

from quartermaster.provisioning.protocol import (
    PROVISIONED,
    find_condition,
)
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import INTENT, LEFT, PROVISIONING_FINALIZER
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.stores.objects.keys import kind_prefix
from quartermaster.support.errors import UnavailableError
from quartermaster.testing.simulation import simulated

from .world import (
    CLASS,
    GIB,
    SharingDriver,
    World,
    claim,
    is_asked,
    is_asked_of,
    is_bound,
    is_gone,
    static_volume,
    until,
)

VOLUMES, ASSIGNMENTS = (kind_prefix(kind_of(kind)) for kind in (PersistentVolume, Assignment))


@simulated()
async def test_another_host_is_chosen_when_the_first_is_lost_before_the_volume_is_made() -> None:
    world = World()
    await world.prepare()
    world.failing = "not yet"
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_asked(world))
        world.lost.add("h2")
        world.failing = ""
        await until(lambda: is_bound(world.store))
        assert [host for host, _ in world.disks] == ["h1"]
        world.lost.clear()
        await until(lambda: is_asked_of(world, ["h1"]), timeout_s=300)
    assert [host for host, _ in world.disks] == ["h1"]


class Unheard:
    """Faults of the store: a volume is not published at first; its host is lost then, and is back when it was written
    that the volume is to go. Nobody hears of that for a while, and whoever wrote it gets no answer.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._silent_until = 0.0
        self.happened: list[str] = []
        world.kv.faults = self

    async def before(self, call: str, key: str) -> None:
        if call == "transact" and key.startswith(VOLUMES) and not self.happened:
            self.happened.append("not published")
            self._world.lost.add("h2")
            raise UnavailableError("the request was lost")

    async def after(self, call: str, key: str) -> None:
        if call == "transact" and key.startswith(ASSIGNMENTS) and self.happened == ["not published"]:
            self.happened.append("to be gone")
            self._world.lost.clear()
            self._silent_until = asyncio.get_running_loop().time() + 10.0
            raise UnavailableError("the answer was lost")

    async def deliver(self, key: str) -> None:
        if key.startswith(ASSIGNMENTS):
            await asyncio.sleep(max(0.0, self._silent_until - asyncio.get_running_loop().time()))


@simulated(seeds=range(3))
async def test_a_volume_that_may_have_been_asked_to_go_is_given_to_nobody_before_it_is_asked_for_again() -> None:
    world = World()
    await world.prepare()
    unheard = Unheard(world)
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        await asyncio.sleep(60)
        (assignment,) = await world.assignments()
        assert assignment.spec.absent is None
    assert unheard.happened == ["not published", "to be gone"]
    assert [host for host, _ in world.disks] == ["h2"]


@simulated()
async def test_a_claim_whose_host_is_lost_half_way_is_let_go_when_whoever_keeps_its_volume_now_has_ended_it() -> None:
    world = World()
    world.driver = SharingDriver(world.room)
    await world.prepare()
    world.failing = "not yet"
    async with world.running():
        made = await world.store.create(claim())
        await until(lambda: is_asked(world))
        world.lost.add("h2")
        world.disks["h1", f"pvc-{made.metadata.uid}"] = GIB  # what h2 had begun before it was lost
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await until(lambda: is_asked_of(world, ["h1", "h2"]))
        await asyncio.sleep(60)
        assert not await is_gone(world.store, PersistentVolumeClaim, "data", "default")
        world.failing = ""
        await until(lambda: is_gone(world.store, PersistentVolumeClaim, "data", "default"))
    assert world.disks == {}


async def lost_half_way(world: World) -> None:
    """The host that was to make the volume is lost and has left it to the others, and no other one has room."""
    made = await world.store.create(claim())
    await until(lambda: is_asked(world))
    world.lost.add("h2")
    world.disks["h1", f"pvc-{made.metadata.uid}"] = GIB
    await until(lambda: _waits_for_room(world))


async def _waits_for_room(world: World) -> bool:
    found = find_condition((await world.claim()).status.conditions, PROVISIONED)
    return found is not None and found.reason == "NotEnoughSpace"


@simulated()
async def test_what_is_left_of_a_volume_that_found_no_other_place_is_ended_before_its_claim_goes() -> None:
    world = World({"h1": 0, "h2": 10 * GIB})
    world.driver = SharingDriver(world.room)
    await world.prepare()
    world.failing = "not yet"
    async with world.running():
        await lost_half_way(world)
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await until(lambda: is_asked_of(world, ["h1", "h2"]))
        await asyncio.sleep(60)
        assert not await is_gone(world.store, PersistentVolumeClaim, "data", "default")
        world.failing = ""
        await until(lambda: is_gone(world.store, PersistentVolumeClaim, "data", "default"))
    assert world.disks == {}


@simulated()
async def test_it_is_ended_also_where_the_claim_was_bound_to_another_volume_meanwhile() -> None:
    world = World({"h1": 0, "h2": 10 * GIB})
    world.driver = SharingDriver(world.room)
    await world.prepare()
    world.failing = "not yet"
    async with world.running():
        await lost_half_way(world)
        world.failing = ""
        await world.store.create(static_volume("by-hand", storage_class=CLASS))
        await until(lambda: is_bound(world.store))
        await until(lambda: _has_no_trace(world))
        assert (await world.claim()).spec.volume_name == "by-hand"
    assert world.disks == {}


@simulated()
async def test_it_is_ended_also_where_the_volume_was_placed_anew_and_nobody_was_asked_to_make_it_yet() -> None:
    world = World({"h1": 0, "h2": 10 * GIB})
    world.driver = SharingDriver(world.room)
    await world.prepare()
    async with world.running():
        world.failing = "not yet"
        await lost_half_way(world)
        world.failing = ""
        await world.pause()
        world.paused, world.room["h1"] = False, 10 * GIB  # the leader has not seen it yet
        await until(lambda: _is_intended_for(world, "h1"))
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await asyncio.sleep(60)
        assert len(world.disks) == 1
        await world.pause(paused=False)
        await until(lambda: is_gone(world.store, PersistentVolumeClaim, "data", "default"))
    assert world.disks == {}


@simulated()
async def test_what_was_left_does_not_matter_any_more_when_the_volume_is_made_elsewhere() -> None:
    world = World({"h1": 0, "h2": 10 * GIB})
    world.driver = SharingDriver(world.room)
    await world.prepare()
    async with world.running():
        world.failing = "not yet"
        await lost_half_way(world)
        world.failing, world.room["h1"] = "", 10 * GIB
        await until(lambda: is_bound(world.store))
        await until(lambda: _has_no_trace(world))
        assert len(world.disks) == 1
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await until(lambda: _no_volumes(world))
    assert world.disks == {}


async def _has_no_trace(world: World) -> bool:
    found = (await world.claim()).metadata
    return not {INTENT, LEFT} & set(found.annotations) and PROVISIONING_FINALIZER not in found.finalizers


async def _is_intended_for(world: World, host: str) -> bool:
    return f'"hosts":["{host}"]' in (await world.claim()).metadata.annotations.get(INTENT, "")


@simulated()
async def test_a_volume_on_a_lost_host_can_be_deleted_and_is_cleared_away_when_the_host_is_back() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        world.lost.add("h2")
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await until(lambda: _no_volumes(world))
        assert len(world.disks) == 1
        world.lost.clear()
        await until(lambda: is_asked_of(world, []), timeout_s=300)
    assert world.disks == {}


@simulated()
async def test_a_volume_of_a_host_that_left_for_good_can_be_deleted() -> None:
    """Who leaves takes its assignments away."""
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        world.lost.add("h2")
        for one in (await world.store.list(Assignment, world.namespace)).items:
            await world.store.delete(Assignment, one.metadata.name, world.namespace)
        await world.store.delete(Host, "h2", world.namespace)
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await until(lambda: _no_volumes(world))
        await until(lambda: is_asked_of(world, []))


@simulated()
async def test_a_volume_of_a_host_whose_host_object_was_deleted_is_cleared_away_when_it_is_back() -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        world.lost.add("h2")
        host = await world.store.get(Host, "h2", world.namespace)
        await world.store.delete(Host, "h2", world.namespace)
        await world.store.delete(PersistentVolumeClaim, "data", "default")
        await until(lambda: _no_volumes(world))
        assert await is_asked_of(world, ["h2"])
        await world.store.create(Host(metadata=ObjectMeta(name="h2", namespace=world.namespace), spec=host.spec))
        world.lost.clear()
        await until(lambda: is_asked_of(world, []), timeout_s=300)
    assert world.disks == {}


async def _no_volumes(world: World) -> bool:
    return not await world.volumes()
