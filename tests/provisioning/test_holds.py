"""A cluster that is paused, or a store that was just restored, keeps its volumes as they are, whatever a leader saw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from quartermaster.planning.cluster import ClusterKey, ClusterView, Settings
from quartermaster.provisioning.holds import hold_of
from quartermaster.provisioning.protocol import PROVISIONED
from quartermaster.resources.conditions import find_condition
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Assignment, AssignmentSpec
from quartermaster.testing.simulation import simulated
from tests.engine.samples import serving

from .world import AGENT, GIB, NAMESPACE, World, claim, is_bound, is_gone, resized, until

LONG_S = 400.0  # the slowest of them looks every 300 s
HOLDS = pytest.mark.parametrize("hold", ["paused", "observing"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(), ""),
        (Settings(paused=True), "the storage cluster local-default is paused; `qm resume local-default` goes on"),
        (Settings(paused=True, observing=True), "after a restore nothing is done until `qm resume`"),
    ],
)
def test_what_waits_names_the_command_that_ends_the_hold(settings: Settings, words: str) -> None:
    assert hold_of(ClusterView(ClusterKey("default", "local", "default"), settings, ())) == words


async def set_hold(world: World, hold: str, *, on: bool = True) -> None:
    await (world.pause(paused=on) if hold == "paused" else world.observe(only=on))


@asynccontextmanager
async def new_leader(world: World) -> AsyncIterator[None]:
    """Nothing is known yet of its clusters; agents work."""
    world.blind = True
    async with world.running():
        yield


@HOLDS
@simulated()
async def test_a_released_volume_is_not_deleted_by_a_leader_that_has_not_seen_its_clusters_yet(hold: str) -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
    name = (await world.claim()).spec.volume_name
    await world.store.delete(PersistentVolumeClaim, "data", "default")
    await set_hold(world, hold)
    async with new_leader(world):
        await asyncio.sleep(LONG_S)
        assert world.disks == {("h2", name): GIB}
        await set_hold(world, hold, on=False)
        await until(lambda: is_gone(world.store, PersistentVolume, name))


@HOLDS
@simulated()
async def test_a_volume_that_was_decided_on_is_not_made_until_the_cluster_goes_on(hold: str) -> None:
    world = World()
    await world.prepare()
    async with serving(world.store, *world.services()):  # the leader ends before any agent has looked
        await world.store.create(claim())
        await until(lambda: _assigned(world))
    for one in await world.assignments():
        await world.store.delete(Assignment, one.metadata.name, NAMESPACE)
    await set_hold(world, hold)
    async with new_leader(world):
        await asyncio.sleep(LONG_S)
        assert world.made == []
        waiting = find_condition((await world.claim()).status.conditions, PROVISIONED)
        assert waiting is not None
        assert waiting.reason == "Paused"
        await set_hold(world, hold, on=False)
        await until(lambda: is_bound(world.store))


@pytest.mark.slow
@HOLDS
@simulated()
async def test_what_a_deleted_claim_had_begun_is_not_taken_back_until_the_cluster_goes_on(hold: str) -> None:
    world = World()
    await world.prepare()
    world.failing = "not yet"
    async with world.running():
        await world.store.create(claim())
        await until(lambda: _assigned(world))
    await world.store.delete(PersistentVolumeClaim, "data", "default")
    await set_hold(world, hold)
    async with new_leader(world):
        await asyncio.sleep(LONG_S)
        assert [one.spec.absent for one in await world.assignments()] == [None]
        world.failing = ""
        await set_hold(world, hold, on=False)
        await until(lambda: is_gone(world.store, PersistentVolumeClaim, "data", "default"))


@HOLDS
@simulated()
async def test_a_volume_does_not_grow_until_the_cluster_goes_on(hold: str) -> None:
    world = World()
    await world.prepare()
    async with world.running():
        await world.store.create(claim())
        await until(lambda: is_bound(world.store))
        world.failing = "not yet"
        await world.store.update(resized(await world.claim(), "2Gi"))
        await until(lambda: _growing(world))
        await set_hold(world, hold)
        for one in await world.assignments():
            await world.store.delete(Assignment, one.metadata.name, NAMESPACE)
    world.failing = ""
    async with new_leader(world):
        await asyncio.sleep(LONG_S)
        assert list(world.disks.values()) == [GIB]
        await set_hold(world, hold, on=False)
        await until(lambda: _has(world, 2 * GIB))


@HOLDS
@simulated()
async def test_what_nobody_refers_to_is_not_taken_away_until_the_cluster_goes_on(hold: str) -> None:
    world = World()
    await world.prepare()
    left = Assignment(
        metadata=ObjectMeta(name=f"{AGENT}-pvc-1.h1", namespace=NAMESPACE),
        spec=AssignmentSpec(host="h1", agent=AGENT, instance="pvc-1", generation=1, desired={"size": 1}),
    )
    await world.store.create(left)
    await set_hold(world, hold)
    world.lost.add("h1")
    async with serving(world.store, *world.services()):
        await asyncio.sleep(LONG_S)
        assert [one.spec.absent for one in await world.assignments()] == [None]
        await set_hold(world, hold, on=False)
        await until(lambda: _taken_back(world))


async def _assigned(world: World) -> bool:
    return bool(await world.assignments())


async def _growing(world: World) -> bool:
    return [
        one.spec.desired for one in await world.assignments() if (one.spec.desired or {}).get("size") == 2 * GIB
    ] != []


async def _has(world: World, size: int) -> bool:
    return list(world.disks.values()) == [size]


async def _taken_back(world: World) -> bool:
    return [one.spec.absent for one in await world.assignments()] == [True]
