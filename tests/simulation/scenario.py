"""Two leaders, ten clients, a store that fails, processes that die: one run of a seed.

First everything goes wrong at random, then nothing more does, and all must come right: see `invariants`.
"""

from __future__ import annotations

import asyncio

from quartermaster.engine.cache import Cache
from quartermaster.engine.controller import Controller, Scope
from quartermaster.engine.election import Election
from quartermaster.engine.metrics import Metrics
from quartermaster.engine.runtime import Runtime
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.model import Object, ObjectMeta
from quartermaster.resources.storage import StorageNode, StorageNodeSpec
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import ROUGH, Chaos, SeededFaults, record
from quartermaster.testing.simulation.allocator import Allocator, intent_of
from quartermaster.testing.simulation.process import PROCESS

from .clients import COUNTER_NAMES, NAMESPACE, TOTAL, Client, CountingWatcher, Ledger, Mirror, cache_content
from .commandline import Tally
from .invariants import CONVERGES, FAILOVER, MIRROR, NO_LEAK, NO_LOST_UPDATE, Witness
from .world import SimulatedWorld

LEASE_S = 7
RETRY_S = 2.0
LEADERS = ("leader-0", "leader-1")
CLIENTS = tuple(f"client-{number}" for number in range(10))
# Some clients keep mirrors: by hand, checking every revision, or with the engine's cache.
COUNTING_WATCHERS: dict[str, type[Object]] = {CLIENTS[0]: ConfigMap, CLIENTS[1]: StorageNode}
CACHES = CLIENTS[2:4]
PROCESS_FAULTS = 8
# What comes after the faults takes some 200 steps more.
STEPS_WITH_FAULTS = 1_275
MEAN_FAULT_GAP_S = 4.0
MEAN_ACTION_GAP_S = 5.0
PATIENCE_S = 120.0
ROUNDING_S = 1e-6


class Scenario:
    """The state of one run."""

    def __init__(self) -> None:
        self.kv = MemoryKeyValue()
        self.faults = SeededFaults(self.kv)
        self.witness = Witness(self.kv, self.faults)
        self.world = SimulatedWorld(self.witness)
        self.chaos = Chaos(self.kv, self.faults, longest_s=2 * LEASE_S)
        self.ledger = Ledger()
        self.metrics = Metrics()
        self.mirrors: dict[str, Mirror] = {}
        self.enough = asyncio.Event()
        self.terms = 0
        self.term_began = 0.0
        self._incarnations = 0

    async def run(self) -> Tally:
        store = ObjectStore(self.kv)
        for name in COUNTER_NAMES:
            await store.create(ConfigMap(metadata=ObjectMeta(name=name, namespace=NAMESPACE)))
        for name in LEADERS:
            self.chaos.start(name, lambda name=name: self._candidate(name))
        for name in CLIENTS:
            self.chaos.start(name, lambda name=name: self._client(name))
        self.faults.rates = ROUGH
        await self.chaos.torment(faults=PROCESS_FAULTS, mean_gap_s=MEAN_FAULT_GAP_S, least_steps=STEPS_WITH_FAULTS)
        self.witness.raise_violation()
        record("calm")
        self.enough.set()
        self.chaos.calm()
        self.world.trouble = 0.0
        await self._settle(store)
        await self._fail_over(store)
        await self._settle(store)
        await self._check_counters(store)
        await self.chaos.stop()
        self.witness.raise_violation()
        events = {"terms": self.terms, "writes": await self.kv.revision(), "lost answers": self.world.lost_answers}
        return Tally({**self.faults.counts, **self.chaos.counts}, events)

    async def _candidate(self, name: str) -> None:
        self._incarnations += 1
        store = ObjectStore(self.kv, manager=name)
        election = Election(
            store,
            name="leader",
            namespace=NAMESPACE,
            identity=f"{name}-{self._incarnations}",
            lease_s=LEASE_S,
            retry_s=RETRY_S,
            metrics=self.metrics,
        )
        runtime = Runtime(store, election=election, metrics=self.metrics)
        runtime.add(Controller("allocator", StorageNode, lambda scope: self._begin_term(runtime, scope)))
        await runtime.run()

    def _begin_term(self, runtime: Runtime, scope: Scope) -> Allocator:
        process = PROCESS.get()
        assert process is not None
        assert runtime.leadership is not None
        self.witness.leaderships[process] = runtime.leadership
        self.terms += 1
        self.term_began = asyncio.get_running_loop().time()
        fence = runtime.leadership.fence
        record("leads", fence.holder, fence.epoch)
        return Allocator(scope.store, self.world, fence.epoch)

    async def _client(self, name: str) -> None:
        store = ObjectStore(self.kv, manager=name)
        async with TaskGroup() as group:
            group.start(Client(name, store, self.witness, self.ledger).work(MEAN_ACTION_GAP_S, self.enough))
            if name in COUNTING_WATCHERS:
                watcher = CountingWatcher(store, COUNTING_WATCHERS[name], self.witness)
                self.mirrors[name] = watcher.content
                group.start(watcher.run())
            if name in CACHES:
                cache = Cache(store, StorageNode, NAMESPACE, metrics=self.metrics)
                self.mirrors[name] = cache_content(cache)
                group.start(cache.run())

    async def _settle(self, store: ObjectStore) -> None:
        """Wait until everything is as it should be; after a while, say what is not."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while wrong := await self._what_is_wrong(store):
            self.witness.raise_violation()
            if asyncio.get_running_loop().time() > deadline:
                self.witness.violated(*wrong)
            self.witness.raise_violation()
            await asyncio.sleep(RETRY_S)
        record("settled")

    async def _what_is_wrong(self, store: ObjectStore) -> tuple[str, str] | None:
        nodes = (await store.list(StorageNode, NAMESPACE)).items
        for node in nodes:
            if node.metadata.deletion_timestamp or not intent_of(node) or node.status.message != intent_of(node):
                return CONVERGES, f"{node.key} is not done: {node.status}"
        owners = {intent_of(node): node.metadata.uid for node in nodes}
        for intent, owner in self.world.allocations.items():
            if owners.get(intent) != owner:
                return NO_LEAK, f"{intent} of {owner} belongs to no node"
        if len(owners) != len(self.world.allocations):
            return CONVERGES, "a node says that it has what it has not"
        counters = (await store.list(ConfigMap, NAMESPACE)).items
        for name, mirror in self.mirrors.items():
            truth = counters if COUNTING_WATCHERS.get(name) is ConfigMap else nodes
            if mirror() != {obj.key: obj.metadata.resource_version for obj in truth}:
                return MIRROR, f"that of {name} is not"
        return None

    async def _fail_over(self, store: ObjectStore) -> None:
        """Kill the leader: the other one leads in time, and does the work."""
        victim = await self._leader()
        self.chaos.processes[victim].kill()
        started = asyncio.get_running_loop().time()
        meta = ObjectMeta(name="after-failover", namespace=NAMESPACE)
        await store.create(StorageNode(metadata=meta, spec=StorageNodeSpec(type="local")))
        successor = await self._leader(but=victim)
        took_s = self.term_began - started
        record("failover", successor, round(took_s, 6))
        if took_s > LEASE_S + RETRY_S + ROUNDING_S:
            self.witness.violated(FAILOVER, f"it took {took_s} s")
        del self.chaos.processes[victim]

    async def _leader(self, but: str = "") -> str:
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            for process, leadership in self.witness.leaderships.items():
                if process.name != but and not process.killed and leadership.holds:
                    return process.name
            if asyncio.get_running_loop().time() > deadline:
                self.witness.violated(FAILOVER, "nobody leads")
            self.witness.raise_violation()
            await asyncio.sleep(RETRY_S)

    async def _check_counters(self, store: ObjectStore) -> None:
        for counter in (await store.list(ConfigMap, NAMESPACE)).items:
            numbers = {client: int(number) for client, number in counter.data.items()}
            total = numbers.pop(TOTAL, 0)
            counted = sum(numbers.values())
            if total != counted:
                self.witness.violated(NO_LOST_UPDATE, f"{counter.key}: {total} is not {counted}")
            for client in CLIENTS:
                key, number = f"{counter.metadata.name}/{client}", numbers.get(client, 0)
                least, most = self.ledger.confirmed.get(key, 0), self.ledger.attempts.get(key, 0)
                if not least <= number <= most:
                    self.witness.violated(NO_LOST_UPDATE, f"{key} is {number}, not {least} to {most}")
