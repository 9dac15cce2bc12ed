"""The operator dies at every one of its writes, before it takes effect and after: the end is always the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Literal

import pytest

from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import INTENT
from quartermaster.resources.orchestration import Assignment
from quartermaster.support.errors import ConflictError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import Process, run, simulation_loop
from quartermaster.testing.simulation.process import PROCESS
from tests.engine.samples import serving

from .world import GIB, World, claim, is_bound, is_gone, resized, until

Moment = Literal["before", "after"]


class Assassin:
    """The faults of the store: ends the operator at its n-th write. Events are nobody's business."""

    def __init__(self, victim_write: int = 0, moment: Moment = "before") -> None:
        self.writes: list[str] = []
        self._at = victim_write
        self._moment = moment

    async def before(self, call: str, key: str) -> None:
        if call != "transact" or not self._is_of_operator() or "/events/" in key:
            return
        self.writes.append(key)
        await self._strike("before")

    async def after(self, call: str, key: str) -> None:
        if call == "transact" and self._is_of_operator() and "/events/" not in key:
            await self._strike("after")

    async def deliver(self, key: str) -> None:
        pass

    def _is_of_operator(self) -> bool:
        process = PROCESS.get()
        return process is not None and process.name == "operator"

    async def _strike(self, moment: Moment) -> None:
        if len(self.writes) == self._at and moment == self._moment:
            self._at = 0
            process = PROCESS.get()
            assert process is not None
            process.kill()
            await asyncio.sleep(0)


async def operate(world: World) -> None:
    async with serving(world.store, *world.services()):
        await asyncio.sleep(1_000_000)


async def supervise(world: World) -> None:
    """Starts the operator again whenever it was killed."""
    process: Process[None] | None = None
    try:
        while True:
            if process is None or process.killed:
                process = simulation_loop().start_process("operator", operate(world))
            await asyncio.sleep(0.5)
    finally:
        assert process is not None
        process.task.cancel()
        await asyncio.wait([process.task], timeout=60)


async def life(world: World) -> None:
    """Claims come, grow and go, also before they are finished."""
    await world.prepare()
    store = world.store
    await store.create(claim("grows"))
    await store.create(claim("goes", "2Gi"))
    await until(lambda: is_bound(store, "grows"))
    await until(lambda: is_bound(store, "goes"))
    await until(lambda: _update(world, "grows", "3Gi"))
    await store.delete(PersistentVolumeClaim, "goes", "default")
    await store.create(claim("half-way"))
    await until(lambda: _begun(world, "half-way"))
    await store.delete(PersistentVolumeClaim, "half-way", "default")
    await until(lambda: _finished(world))


async def _update(world: World, name: str, size: str) -> bool:
    try:
        await world.store.update(resized(await world.claim(name), size))
    except ConflictError:
        return False
    return True


async def _begun(world: World, name: str) -> bool:
    found = await world.claim(name)
    return INTENT in found.metadata.annotations or found.status.phase == "Bound"


async def _finished(world: World) -> bool:
    if not await is_gone(world.store, PersistentVolumeClaim, "goes", "default"):
        return False
    if not await is_gone(world.store, PersistentVolumeClaim, "half-way", "default"):
        return False
    kept = await world.claim("grows")
    volumes, assignments = await world.volumes(), await world.assignments()
    return (
        kept.status.capacity == {"storage": "3Gi"}
        and INTENT not in kept.metadata.annotations
        and not kept.status.allocated_resource_statuses
        and [volume.metadata.name for volume in volumes] == [kept.spec.volume_name]
        and volumes[0].status.phase == "Bound"
        and [one.spec.instance for one in assignments] == [kept.spec.volume_name]
    )


async def scenario(assassin: Assassin) -> World:
    world = World()
    world.kv.faults = assassin
    async with TaskGroup() as group:
        group.start(supervise(world))
        group.start(_agents(world))
        try:
            await life(world)
            await check(world)
        finally:
            group.cancel()
    return world


async def _agents(world: World) -> None:
    async with serving(world.store, world.agents()):
        await asyncio.sleep(1_000_000)


async def check(world: World) -> None:
    kept = await world.claim("grows")
    (assignment,) = (await world.store.list(Assignment)).items
    (volume,) = (await world.store.list(PersistentVolume)).items
    assert list(world.disks.items()) == [((assignment.spec.host, kept.spec.volume_name), 3 * GIB)], "nothing is left"
    assert len(world.made) == len(set(world.made)) == len({name for _, name in world.made}), "nothing is made twice"
    assert volume.spec.capacity == {"storage": "3Gi"}


def moments() -> Iterator[tuple[int, Moment]]:
    assassin = Assassin()
    run(lambda: scenario(assassin), seed=1)
    for number in range(1, len(assassin.writes) + 1):
        yield number, "before"
        yield number, "after"


@pytest.mark.slow
def test_whenever_the_operator_dies_the_end_is_the_same() -> None:
    tried = 0
    for number, moment in moments():
        assassin = Assassin(number, moment)
        try:
            run(lambda assassin=assassin: scenario(assassin), seed=1)
        except BaseException as error:
            error.add_note(f"killed {moment} write {number}: {assassin.writes[number - 1 : number]}")
            raise
        tried += 1
    assert tried >= 60
