"""Claims come, grow and go at random, while two operators take turns to lead, die, are cut off, the store fails, and
hosts are lost and come back.

Whatever happened, when nothing more goes wrong every claim ends as its owner last wished, and nothing else is left.
"""

from __future__ import annotations

import asyncio

import pytest

from quartermaster.engine import Election, Metrics, Runtime
from quartermaster.provisioning.protocol import find_condition
from quartermaster.resources.kubernetes.volumes import PersistentVolumeClaim
from quartermaster.resources.quantity import Amount
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import entropy
from quartermaster.support.errors import ConflictError, NotFoundError, UnavailableError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import ROUGH, Chaos, SeededFaults, run

from .world import GIB, NAMESPACE, World, claim, resized

OPERATORS = ("operator-0", "operator-1")
ACTIONS = 30
FAULTS = 8
PATIENCE_S = 400.0


class Owner:
    """Does as people do, and knows what it last wished for: name → GiB, or None for gone."""

    def __init__(self, world: World) -> None:
        self.store = ObjectStore(world.kv, manager="owner")
        self.wishes: dict[str, int | None] = {}
        self.uids: dict[str, str] = {}

    async def act(self, count: int) -> None:
        source = entropy.source()
        for number in range(count):
            await asyncio.sleep(source.expovariate(1.0))
            living = [name for name, wish in self.wishes.items() if wish is not None]
            draw = source.random()
            if draw < 0.5 or not living:
                await self._create(f"c{number}", 1 + int(source.random() * 3))
            elif draw < 0.75:
                await self._grow(source.choice(living))
            else:
                await self._delete(source.choice(living))

    async def _create(self, name: str, size: int) -> None:
        self.wishes[name] = size
        while True:
            try:
                await self.store.create(claim(name, f"{size}Gi"))
            except UnavailableError:
                if await self._find(name) is None:
                    continue
            return

    async def _grow(self, name: str) -> None:
        while (found := await self._find(name)) is not None and found.metadata.deletion_timestamp is None:
            size = int(Amount.of(found.spec.resources.requests["storage"]).value) // GIB
            self.wishes[name] = size + 1
            try:
                await self.store.update(resized(found, f"{size + 1}Gi"))
            except ConflictError:
                continue
            except UnavailableError:
                # It may have grown; then growing it again is another wish.
                continue
            return

    async def _delete(self, name: str) -> None:
        self.wishes[name] = None
        while True:
            try:
                await self.store.delete(PersistentVolumeClaim, name, "default")
            except UnavailableError:
                continue
            except NotFoundError:
                pass
            return

    async def _find(self, name: str) -> PersistentVolumeClaim | None:
        while True:
            try:
                return await self.store.get(PersistentVolumeClaim, name, "default")
            except NotFoundError:
                return None
            except UnavailableError:
                await asyncio.sleep(0.1)


class Scenario:
    def __init__(self, *, losses: bool = False) -> None:
        self.losses = losses
        self.world = World({"h1": 16 * GIB, "h2": 16 * GIB, "h3": 16 * GIB})
        self.world.slow_s = 2.0
        self.faults = SeededFaults(self.world.kv)
        self.chaos = Chaos(self.world.kv, self.faults, longest_s=12.0)
        self.owner = Owner(self.world)
        self.metrics = Metrics()
        self._incarnations = 0

    async def run(self) -> None:
        await self.world.prepare()
        for name in OPERATORS:
            self.chaos.start(name, lambda name=name: self._operator(name))
        self.chaos.start("agents", self._agents)
        self.faults.rates = ROUGH
        async with TaskGroup() as group:
            group.start(self.owner.act(ACTIONS))
            if self.losses:
                group.start(self._lose_hosts())
            await self.chaos.torment(faults=FAULTS, mean_gap_s=4.0)
        self.chaos.calm()
        await self._settle()
        await self.chaos.stop()

    async def _lose_hosts(self) -> None:
        source = entropy.source()
        for _ in range(4):
            await asyncio.sleep(source.expovariate(1 / 5.0))
            host = source.choice(sorted(self.world.room))
            self.world.lost.add(host)
            await asyncio.sleep(source.expovariate(1 / 5.0))
            self.world.lost.discard(host)

    async def _operator(self, name: str) -> None:
        self._incarnations += 1
        store = ObjectStore(self.world.kv, manager=name)
        election = Election(
            store,
            name="operator",
            namespace=NAMESPACE,
            identity=f"{name}-{self._incarnations}",
            lease_s=7,
            retry_s=2.0,
            metrics=self.metrics,
        )
        runtime = Runtime(store, election=election, metrics=self.metrics)
        for service in self.world.services(scan_every_s=20.0):
            runtime.add(service)
        await runtime.run()

    async def _agents(self) -> None:
        runtime = Runtime(ObjectStore(self.world.kv, manager="agent"), metrics=self.metrics)
        runtime.add(self.world.agents())
        await runtime.run()

    async def _settle(self) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while wrong := await self._what_is_wrong():
            assert asyncio.get_running_loop().time() < deadline, wrong
            await asyncio.sleep(1.0)

    async def _what_is_wrong(self) -> str:
        world = self.world
        claims = {one.metadata.name: one for one in (await world.store.list(PersistentVolumeClaim)).items}
        wanted = {name: wish for name, wish in self.owner.wishes.items() if wish is not None}
        if sorted(claims) != sorted(wanted):
            return f"claims {sorted(claims)} are not {sorted(wanted)}"
        disks: dict[str, int] = {}
        for name, found in claims.items():
            told = find_condition(found.status.conditions, "Provisioned") or find_condition(
                found.status.conditions, "Resizing"
            )
            if found.status.phase == "Bound":
                given = int(Amount.of(found.status.capacity["storage"]).value)
                disks[found.spec.volume_name] = given
                if given < wanted[name] * GIB and told is None:
                    return f"{name} has {given} and not {wanted[name]}Gi"
            elif told is None:
                return f"{name} has no volume: {found}"
        on_hosts = {volume: size for (_, volume), size in world.disks.items()}
        if on_hosts != disks or len(world.disks) != len(disks):
            return f"on the hosts is {world.disks}, and not {disks}"
        if sorted(one.spec.instance for one in await world.assignments()) != sorted(disks):
            return "there are other assignments than volumes"
        if sorted(one.metadata.name for one in await world.volumes()) != sorted(disks):
            return "there are other volumes than claims"
        for host, room in world.room.items():
            taken = sum(size for (one, _), size in world.disks.items() if one == host)
            if taken > room:
                return f"{host} has {room} and gave {taken}"
        # Where a host was lost before a volume was given to anybody, another one makes it.
        if not self.losses and len(world.made) != len({name for _, name in world.made}):
            return f"a volume was made twice: {world.made}"
        return ""


def attempt(seed: int) -> None:
    run(lambda: Scenario(losses=seed % 2 == 1).run(), seed=seed, max_steps=3_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_every_claim_ends_as_its_owner_wished(seed: int) -> None:
    attempt(seed)


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 1_000, 50))
def test_every_claim_ends_as_its_owner_wished_for_many_seeds(first: int) -> None:
    for seed in range(100 + first, 150 + first):
        attempt(seed)
