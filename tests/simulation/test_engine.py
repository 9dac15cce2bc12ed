"""The engine in a simulation: several workers and caches that have to list again, and the same run every time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from msgspec.structs import replace

from quartermaster.engine.cache import Caches
from quartermaster.engine.controller import DONE, Controller, Request, Result, Scope
from quartermaster.engine.events import EventRecorder
from quartermaster.engine.metrics import Metrics
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.storage import StorageNode, StorageNodeSpec
from quartermaster.stores.base import Store
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import entropy, log
from quartermaster.support.errors import NotFoundError, StoreError, UnavailableError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import CALM, Rates, Run, SeededFaults, record, run

ROUGH = Rates(
    delay=0.2,
    error_before=0.05,
    error_after=0.05,
    conflict=0.1,
    delivery_delay=0.2,
    watch_dropped=0.1,
    watch_expired=0.2,
)
NODES = 12
SEEDS = range(4)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    log.configure(verbosity=-1)
    yield
    log.configure()


class Marker:
    """Writes what it saw of the spec into the status, and never works twice at once on one node."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._working: dict[Request, None] = {}

    async def reconcile(self, request: Request) -> Result:
        assert request not in self._working
        self._working[request] = None
        try:
            await asyncio.sleep(entropy.source().random())
            node = await self._store.get(StorageNode, request.name, request.namespace)
            record("reconcile", str(request), node.metadata.resource_version)
            await self._store.update_status(replace(node, status=replace(node.status, message=node.spec.devices[0])))
        except NotFoundError:
            record("gone", str(request))
        finally:
            del self._working[request]
        return DONE


async def write(store: ObjectStore, number: int) -> None:
    """Create a node, change it, and every third time delete it."""
    meta = ObjectMeta(name=f"node-{number}", namespace="default")
    await insist(
        lambda: store.create(StorageNode(metadata=meta, spec=StorageNodeSpec(type="local", devices=("/dev/a",))))
    )

    async def change() -> None:
        node = await store.get(StorageNode, meta.name, meta.namespace)
        await store.update(replace(node, spec=replace(node.spec, devices=("/dev/b",))))

    await insist(change)
    if number % 3 == 0:
        await insist(lambda: store.delete(StorageNode, meta.name, meta.namespace))


async def insist(action: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(entropy.source().random() * 3)
        try:
            await action()
        except UnavailableError:
            continue
        except StoreError as error:
            if error.reason == "Conflict":
                continue
            return  # it is there already, or gone already: the answer to an earlier attempt was lost
        return


async def scenario() -> dict[str, int]:
    kv = MemoryKeyValue()
    faults = SeededFaults(kv, ROUGH)
    store, metrics = ObjectStore(kv), Metrics()
    caches = Caches(store, metrics=metrics)
    controller = Controller("marker", StorageNode, lambda scope: Marker(scope.store), workers=4)
    scope = Scope(
        store=store, caches=caches, events=EventRecorder(store, "marker"), metrics=metrics, stopping=asyncio.Event()
    )
    async with TaskGroup() as group:
        caches.start_with(lambda cache: group.start(cache.run()) and None)
        running = group.start(controller.run(scope))
        async with TaskGroup() as writers:
            for number in range(NODES):
                writers.start(write(store, number))
        faults.rates = CALM
        await asyncio.sleep(120)
        nodes = (await store.list(StorageNode)).items
        assert [node.status.message for node in nodes] == ["/dev/b"] * (NODES * 2 // 3)
        cached = caches.of(StorageNode).list()
        assert [n.metadata.resource_version for n in cached] == [n.metadata.resource_version for n in nodes]
        scope.stopping.set()
        await running
        group.cancel()
    return faults.counts


def simulate(seed: int) -> Run[dict[str, int]]:
    return run(scenario, seed=seed)


@pytest.mark.slow
def test_a_controller_with_workers_and_relisting_caches_replays_exactly() -> None:
    first = [simulate(seed) for seed in SEEDS]
    assert first == [simulate(seed) for seed in SEEDS]
    assert len({result.fingerprint for result in first}) == len(SEEDS)
    assert sum(result.value["watch-expired"] for result in first) > 0
