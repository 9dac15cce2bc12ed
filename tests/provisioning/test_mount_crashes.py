"""Whoever dies while volumes are mounted and unmounted, and whatever the store does: a mounted volume is never taken
away, one that is for one host is on one host, and in the end nothing is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quartermaster.engine import Election, Metrics, Runtime
from quartermaster.provisioning.asking import Wish, ask, mounts_of_host, withdraw
from quartermaster.provisioning.protocol import mounts_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.mounts import ClaimName, Mount
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import entropy
from quartermaster.support.errors import AlreadyExistsError, NotFoundError, QuartermasterError, UnavailableError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import ROUGH, Chaos, SeededFaults, run
from quartermaster.testing.simulation.process import PROCESS, Process

from .test_crashes import Assassin, Moment, supervise
from .world import GIB, NAMESPACE, World, claim, until

HOSTS = ("h1", "h2", "h3")
CLAIMS = ("a", "b")
PATIENCE_S = 600.0


class Holder:
    def __init__(self, process: Process[Any] | None) -> None:
        self._process = process

    @property
    def is_dead(self) -> bool:
        return self._process is not None and self._process.killed


class Mounted:
    """What the kernels of the hosts have mounted, which outlives every process: (host, path) → volume."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.entries: dict[tuple[str, str], str] = {}
        self._holders: dict[tuple[str, str], Holder] = {}
        self.mounts = 0

    @asynccontextmanager
    async def alone(self, host: str, path: str) -> AsyncIterator[None]:
        """As the command holds a lock of the host, which ends with its process."""
        while (holder := self._holders.get((host, path))) is not None and not holder.is_dead:
            await asyncio.sleep(0.1)
        mine = self._holders[host, path] = Holder(PROCESS.get())
        try:
            yield
        finally:
            if self._holders.get((host, path)) is mine:
                del self._holders[host, path]

    async def check(self) -> None:
        store = ObjectStore(self.world.kv)
        for (host, path), name in list(self.entries.items()):
            there = [volume for _, volume in self.world.disks]
            assert name in there, f"{name} was deleted while it was mounted on {host}"
            try:
                mounts = mounts_of(await store.get(PersistentVolume, name))
            except UnavailableError:
                continue
            except NotFoundError:
                mounts = {}
            if self.entries.get((host, path)) == name:
                assert path in mounts.get(host, ()), f"{host}:{path} is not written on {name}"
                assert list(mounts) == [host], f"{name} is for one host: {mounts}"


async def use(store: ObjectStore, mounted: Mounted, host: str, named: str) -> None:
    """`qm volume mount`."""
    path = f"/mnt/{named}"
    wish = Wish(namespace=NAMESPACE, host=host, claim=ClaimName(namespace="default", name=named), path=path)
    async with mounted.alone(host, path):
        granted = await ask(store, wish, timeout_s=20, tell=lambda _: None)
        await asyncio.sleep(entropy.source().random())
        mounted.entries[host, path] = granted.mount.status.volume
        mounted.mounts += 1


async def stop_using(store: ObjectStore, mounted: Mounted, host: str, named: str) -> None:
    """`qm volume unmount`."""
    path = f"/mnt/{named}"
    for mount in await mounts_of_host(store, NAMESPACE, host):
        if mount.spec.path == path:
            async with mounted.alone(host, path):
                mounted.entries.pop((host, path), None)
                await withdraw(store, mount, timeout_s=20)


class Scenario:
    def __init__(self) -> None:
        self.world = World(dict.fromkeys(HOSTS, 16 * GIB))
        self.world.slow_s = 2.0
        self.world.driver.reached_from_anywhere = True
        self.faults = SeededFaults(self.world.kv)
        self.chaos = Chaos(self.world.kv, self.faults, longest_s=12.0)
        self.mounted = Mounted(self.world)
        self.metrics = Metrics()
        self.over = asyncio.Event()

    async def run(self) -> None:
        await self.world.prepare(wait=entropy.source().random() < 0.5)
        for number in range(2):
            self.chaos.start(f"operator-{number}", self._operator)
        self.chaos.start("agents", self._agents)
        for host in HOSTS:
            self.chaos.start(host, lambda host=host: self._user(host))
        self.faults.rates = ROUGH
        async with TaskGroup() as group:
            group.start(self._owner())
            watching = group.start(self._watch())
            await self.chaos.torment(faults=12, mean_gap_s=4.0)
            self.over.set()
            self.chaos.calm()
            await self._end()
            watching.cancel()
        await self.chaos.stop()

    async def _user(self, host: str) -> None:
        """Somebody at a terminal of the host."""
        store, source = ObjectStore(self.world.kv, manager=host), entropy.source()
        while not self.over.is_set():
            await asyncio.sleep(source.expovariate(0.5))
            act = use if source.random() < 0.55 else stop_using
            try:
                await act(store, self.mounted, host, source.choice(CLAIMS))
            except QuartermasterError:
                continue
        await asyncio.sleep(1_000_000)

    async def _owner(self) -> None:
        store, source = ObjectStore(self.world.kv, manager="owner"), entropy.source()
        while not self.over.is_set():
            named = source.choice(CLAIMS)
            try:
                if source.random() < 0.7:
                    await store.create(claim(named))
                else:
                    await store.delete(PersistentVolumeClaim, named, "default")
            except (UnavailableError, AlreadyExistsError, NotFoundError):
                pass
            await asyncio.sleep(source.expovariate(0.2))

    async def _watch(self) -> None:
        while True:
            await self.mounted.check()
            await asyncio.sleep(0.2)

    async def _end(self) -> None:
        """Everything is unmounted and deleted; nothing may be left."""
        store = ObjectStore(self.world.kv, manager="end")
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while left := await self._left(store):
            assert asyncio.get_running_loop().time() < deadline, left
            for host in HOSTS:
                for named in CLAIMS:
                    await stop_using(store, self.mounted, host, named)
            for named in CLAIMS:
                try:
                    await store.delete(PersistentVolumeClaim, named, "default")
                except NotFoundError:
                    continue
            await asyncio.sleep(1.0)

    async def _left(self, store: ObjectStore) -> str:
        mounts = (await store.list(Mount)).items
        claims = (await store.list(PersistentVolumeClaim)).items
        volumes = (await store.list(PersistentVolume)).items
        found = [*mounts, *claims, *volumes, *self.world.disks, *self.mounted.entries]
        return f"left: {found}" if found else ""

    async def _operator(self) -> None:
        store = ObjectStore(self.world.kv, manager="operator")
        election = Election(
            store, name="quartermaster-leader", namespace=NAMESPACE, lease_s=7, retry_s=2.0, metrics=self.metrics
        )
        runtime = Runtime(store, election=election, metrics=self.metrics)
        for service in self.world.services(scan_every_s=20.0):
            runtime.add(service)
        await runtime.run()

    async def _agents(self) -> None:
        runtime = Runtime(ObjectStore(self.world.kv, manager="agent"), metrics=self.metrics)
        runtime.add(self.world.agents())
        await runtime.run()


def attempt(seed: int) -> int:
    scenarios: list[Scenario] = []

    async def once() -> None:
        scenarios.append(Scenario())
        await scenarios[-1].run()

    run(once, seed=seed, max_steps=3_000_000)
    return scenarios[-1].mounted.mounts


@pytest.mark.slow
def test_a_mounted_volume_is_never_taken_away_and_nothing_is_left_in_the_end() -> None:
    assert sum(attempt(seed) for seed in range(12)) >= 20


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 1_000, 50))
def test_a_mounted_volume_is_never_taken_away_for_many_seeds(first: int) -> None:
    for seed in range(100 + first, 150 + first):
        attempt(seed)


async def life(world: World, mounted: Mounted) -> None:
    """One host uses a claim, another asks in vain, the claim is deleted under it, and all is given back."""
    await world.prepare(wait=True)
    store = ObjectStore(world.kv, manager="host")
    await store.create(claim("a"))
    await use(store, mounted, "h1", "a")
    with pytest.raises(QuartermasterError):
        await use(store, mounted, "h2", "a")
    await store.delete(PersistentVolumeClaim, "a", "default")
    await asyncio.sleep(5)
    await mounted.check()
    await stop_using(store, mounted, "h1", "a")

    async def nothing_left() -> bool:
        mounts = (await store.list(Mount)).items
        return not mounts and not (await store.list(PersistentVolume)).items and not world.disks

    await until(nothing_left)


async def killed_once(assassin: Assassin) -> None:
    world = World()
    world.driver.reached_from_anywhere = True
    world.kv.faults = assassin
    mounted = Mounted(world)
    async with TaskGroup() as group:
        group.start(supervise(world))
        group.start(_agents_of(world))
        try:
            await life(world, mounted)
        finally:
            group.cancel()


async def _agents_of(world: World) -> None:
    from tests.engine.samples import serving

    async with serving(world.store, world.agents()):
        await asyncio.sleep(1_000_000)


@pytest.mark.slow
def test_whenever_the_leader_dies_a_mount_comes_to_the_same_end() -> None:
    first = Assassin()
    run(lambda: killed_once(first), seed=1)
    moments: list[tuple[int, Moment]] = []
    for number in range(1, len(first.writes) + 1):
        moments += [(number, "before"), (number, "after")]
    assert sum("/mounts/" in key for key in first.writes) >= 6, "the leader's own writes of Mounts are among them"
    for number, moment in moments:
        assassin = Assassin(number, moment)
        try:
            run(lambda assassin=assassin: killed_once(assassin), seed=1)
        except BaseException as error:
            error.add_note(f"killed {moment} write {number}: {assassin.writes[number - 1 : number]}")
            raise
