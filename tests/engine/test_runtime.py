"""The runtime: terms of leadership, endpoints, signals, and a clean end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from quartermaster.engine.cache import Caches
from quartermaster.engine.controller import DONE, Controller, Request, Result, Scope
from quartermaster.engine.election import Election
from quartermaster.engine.runtime import Listen, Runtime
from quartermaster.resources.kubernetes.core import Event, Lease
from quartermaster.resources.model import Key
from quartermaster.resources.storage import StorageNode
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.modify import modify
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import UnavailableError, UsageError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import simulated, simulation_loop

from .samples import Switches, memory_store, node, relabelled, settled


class Labelling:
    """Writes through the scope's store, so that its writes are the term's."""

    built = 0

    def __init__(self, scope: Scope) -> None:
        type(self).built += 1
        self._scope = scope
        self._nodes = scope.caches.of(StorageNode)

    async def reconcile(self, request: Request) -> Result:
        found = self._nodes.get(request)
        if found is not None and found.metadata.labels.get("seen") != "yes":
            await modify(
                self._scope.store, StorageNode, request.name, request.namespace, lambda obj: relabelled(obj, seen="yes")
            )
            self._scope.events.record(found, "Labelled", "the node was seen")
        return DONE


CONTROLLER = Controller("labelling", StorageNode, Labelling)


def elected(store: ObjectStore, identity: str) -> Runtime:
    runtime = Runtime(store, election=Election(store, name="leader", identity=identity))
    runtime.add(CONTROLLER)
    return runtime


@asynccontextmanager
async def running(*runtimes: Runtime) -> AsyncIterator[None]:
    async with TaskGroup() as group:
        for runtime in runtimes:
            group.start(runtime.run())
        yield
        for runtime in runtimes:
            runtime.stop()


async def is_seen(store: ObjectStore, name: str) -> bool:
    return (await store.get(StorageNode, name, "default")).metadata.labels.get("seen") == "yes"


@simulated(seeds=range(1, 6))
async def test_without_election_services_run_throughout() -> None:
    store = memory_store()
    await store.create(node("a"))
    runtime = Runtime(store)
    runtime.add(CONTROLLER)
    async with running(runtime):
        await settled()
        assert await is_seen(store, "a")
    events = (await store.list(Event)).items
    assert [event.reason for event in events] == ["Labelled"], "written before the end"


@simulated(seeds=range(1, 6))
async def test_only_the_leader_works_and_candidates_have_warm_caches() -> None:
    store = memory_store()
    await store.create(node("a"))
    first, second = elected(store, "first"), elected(store, "second")
    async with running(first, second):
        await settled()
        leaders = [runtime for runtime in (first, second) if runtime.leadership is not None]
        assert len(leaders) == 1
        for runtime in (first, second):
            assert runtime.caches.of(StorageNode).get(Key("default", "a")) is not None
            assert runtime.not_ready() == []
        leaders[0].stop()
        await settled()
        await store.create(node("b"))
        await settled()
        assert await is_seen(store, "b")
    assert (await store.get(Lease, "leader", "default")).spec.holder_identity == ""


@simulated(seeds=range(1, 6))
async def test_a_lost_lead_stops_everything_at_once_and_a_new_term_begins_from_nothing() -> None:
    faults = Switches()
    store = memory_store(faults)
    runtime = elected(store, "a")
    Labelling.built = 0
    async with running(runtime):
        await settled(7)
        first = runtime.leadership
        assert first is not None
        faults.failing["transact"] = UnavailableError("cannot reach the store")
        await settled(6)
        assert runtime.leadership is None
        assert not first.holds
        faults.failing.clear()
        await settled(30)
        assert runtime.leadership is not None
        assert runtime.leadership.fence.epoch > first.fence.epoch
        assert Labelling.built == 2
        await store.create(node("late"))
        await settled()
        assert await is_seen(store, "late")


@simulated(seeds=range(1, 11))
async def test_after_a_leader_was_killed_the_next_one_goes_on_within_lease_and_retry() -> None:
    loop, kv = simulation_loop(), MemoryKeyValue()
    store = ObjectStore(kv)
    first = loop.start_process("first", elected(ObjectStore(kv), "first").run())
    await settled(1)
    second = elected(ObjectStore(kv), "second")
    async with running(second):
        await settled(10)
        first.kill()
        await store.create(node("a"))
        await settled(20 + 1)
        assert await is_seen(store, "a")


class Endless:
    """A service that does not end when asked."""

    name = "endless"

    def prepare(self, caches: Caches) -> None:
        pass

    async def run(self, scope: Scope) -> None:
        await asyncio.Event().wait()


@simulated()
async def test_a_clean_end_is_bounded_whatever_a_service_does() -> None:
    store = memory_store()
    runtime = Runtime(store, election=Election(store, name="leader", identity="a"), drain_s=5)
    runtime.add(Endless())
    async with running(runtime):
        await settled(1)
    assert asyncio.get_running_loop().time() < 1 + 5 + 2
    assert (await store.get(Lease, "leader", "default")).spec.holder_identity == "", "released all the same"


@simulated()
async def test_a_candidate_ends_at_once() -> None:
    store = memory_store()
    async with running(elected(store, "leader")):
        await settled(1)
        async with running(elected(store, "candidate")):
            await settled(1)
        assert asyncio.get_running_loop().time() == pytest.approx(2, abs=0.1)


@simulated()
async def test_a_service_with_a_bug_ends_the_process_and_says_so() -> None:
    class Broken(Endless):
        async def run(self, scope: Scope) -> None:
            raise ZeroDivisionError("a bug")

    runtime = Runtime(memory_store())
    runtime.add(Broken())
    with pytest.raises(ZeroDivisionError):
        await runtime.run()


async def test_health_readiness_and_metrics_are_served() -> None:
    faults = Switches()
    store = memory_store(faults)
    faults.lists_open.clear()
    runtime = Runtime(store, listen=Listen(port=0))
    runtime.add(CONTROLLER)
    async with running(runtime), aiohttp.ClientSession() as session:
        while not runtime.port:
            await asyncio.sleep(0.01)

        async def ask(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{runtime.port}{path}") as response:
                return response.status, await response.text()

        assert await ask("/healthz") == (200, "ok\n")
        assert await ask("/readyz") == (503, "storagenodes.coreos.com: not listed yet\n")
        faults.lists_open.set()
        await runtime.caches.of(StorageNode).synced.wait()
        assert await ask("/readyz") == (200, "ok\n")
        status, text = await ask("/metrics")
        assert status == 200
        assert 'quartermaster_cache_objects{cache="storagenodes.coreos.com"}' in text


@simulated()
async def test_a_process_whose_caches_are_stale_is_not_ready() -> None:
    faults = Switches()
    store = memory_store(faults)
    runtime = Runtime(store)
    runtime.add(CONTROLLER)
    async with running(runtime):
        await settled()
        assert runtime.not_ready() == []
        faults.failing["watch"] = UnavailableError("cannot reach the store")
        await store.create(node("a"))
        await settled(100)
        assert [line.rpartition(" for ")[0] for line in runtime.not_ready()] == ["storagenodes.coreos.com: stale"]
        faults.failing.clear()
        await settled(60)
        assert runtime.not_ready() == []


async def test_a_port_that_is_taken_is_one_clear_error() -> None:
    taken = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    with pytest.raises(UsageError, match=f"cannot serve health and metrics on 127.0.0.1:{port}"):
        await Runtime(memory_store(), listen=Listen(port=port)).run()
    taken.close()
    await taken.wait_closed()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_is_a_clean_end(number: signal.Signals) -> None:
    store = memory_store()
    runtime = Runtime(store, election=Election(store, name="leader", identity="a"), signals=True)
    asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), number)
    async with asyncio.timeout(10):
        await runtime.run()
    assert (await store.get(Lease, "leader", "default")).spec.holder_identity == ""
