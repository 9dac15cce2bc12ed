"""The engine on each real home of objects: it caches, reconciles, records, leads and hands over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from quartermaster.engine import DONE, Controller, Election, Request, Result, Runtime, Scope, generation_changed
from quartermaster.resources import Event, Lease, Namespace, ObjectMeta, StorageNode
from quartermaster.stores import Store, modify, open_store
from quartermaster.support import entropy
from quartermaster.support.tasks import TaskGroup

from .samples import node, relabelled

HOMES = [
    "sqlite",
    pytest.param("etcd", marks=pytest.mark.etcd),
    pytest.param("kubernetes", marks=pytest.mark.kubernetes),
]
LEASE_S, RETRY_S = 3, 1.0
# Beyond the rule, which the simulation checks exactly: for a busy machine, and for etcd, which ends leases by whole
# seconds.
SLACK_S = 6.0
Opener = Callable[[], Awaitable[Store]]


@pytest.fixture(params=HOMES)
async def opener(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """Opens one store after the other on the same data."""
    opened: list[Store] = []
    prefix = entropy.name_suffix(12)

    async def start() -> Store:
        if request.param == "sqlite":
            store = await open_store(f"sqlite:{tmp_path}/store.db")
        elif request.param == "etcd":
            endpoints = request.getfixturevalue("etcd_servers").endpoints
            store = await open_store(f"etcd://{','.join(e.removeprefix('http://') for e in endpoints)}/{prefix}")
        else:
            from quartermaster.stores.kubernetes import KubernetesStore

            access = request.getfixturevalue("kubernetes_server")
            store = await KubernetesStore.open(kubeconfig=Path(access.kubeconfig))
        opened.append(store)
        return store

    yield start
    for store in opened:
        await store.close()


@pytest.fixture
async def namespace(opener: Opener) -> AsyncIterator[str]:
    store = await opener()
    name = f"t-{entropy.name_suffix(8)}"
    if not store.fences:
        await store.create(Namespace(metadata=ObjectMeta(name=name)))
    yield name
    if not store.fences:
        await store.delete(Namespace, name)


class Seeing:
    """In its own namespace: other tests share the server."""

    def __init__(self, scope: Scope, namespace: str) -> None:
        self._scope = scope
        self._nodes = scope.caches.of(StorageNode, namespace)

    async def reconcile(self, request: Request) -> Result:
        found = self._nodes.get(request)
        if found is None or found.metadata.labels.get("seen"):
            return DONE
        epoch = str(self._scope.fence.epoch if self._scope.fence else 0)
        await modify(
            self._scope.store, StorageNode, request.name, request.namespace, lambda obj: relabelled(obj, seen=epoch)
        )
        self._scope.events.record(found, "Seen", "the node was seen")
        return DONE


def make_runtime(store: Store, namespace: str, identity: str) -> Runtime:
    election = Election(store, name="leader", namespace=namespace, identity=identity, lease_s=LEASE_S, retry_s=RETRY_S)
    runtime = Runtime(store, election=election)
    runtime.add(
        Controller(
            "seeing",
            StorageNode,
            lambda scope: Seeing(scope, namespace),
            predicate=generation_changed,
            namespace=namespace,
        )
    )
    return runtime


async def seen_in_epoch(store: Store, namespace: str, name: str, timeout_s: float) -> str:
    async with asyncio.timeout(timeout_s):
        while not (epoch := (await store.get(StorageNode, name, namespace)).metadata.labels.get("seen")):
            await asyncio.sleep(0.02)
    return epoch


@pytest.mark.slow
async def test_nodes_are_reconciled_by_the_leader_and_by_the_next_after_a_clean_end(
    opener: Opener, namespace: str
) -> None:
    store = await opener()
    await store.create(node("before", namespace))
    first = make_runtime(await opener(), namespace, "first")
    second = make_runtime(await opener(), namespace, "second")
    async with TaskGroup() as group:
        ending = group.start(first.run())
        led_first = await seen_in_epoch(store, namespace, "before", 20)
        group.start(second.run())
        await store.create(node("during", namespace))
        assert await seen_in_epoch(store, namespace, "during", 20) == led_first
        await asyncio.sleep(RETRY_S)
        first.stop()
        await ending
        await store.create(node("after", namespace))
        assert int(await seen_in_epoch(store, namespace, "after", 20)) > int(led_first)
        second.stop()
    lease = await store.get(Lease, "leader", namespace)
    assert not lease.spec.holder_identity
    events = (await store.list(Event, namespace)).items
    assert sorted(event.involved_object.name for event in events) == ["after", "before", "during"]


@pytest.mark.slow
async def test_the_next_one_leads_within_lease_and_retry_after_the_leader_was_lost(
    opener: Opener, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> None:
        """Whoever dies releases nothing."""

    monkeypatch.setattr(Election, "_release", lost)
    store = await opener()
    first = make_runtime(await opener(), namespace, "first")
    second = make_runtime(await opener(), namespace, "second")
    loop = asyncio.get_running_loop()
    async with TaskGroup() as group:
        dying = group.start(first.run())
        while first.leadership is None:
            await asyncio.sleep(0.02)
        epoch = first.leadership.fence.epoch
        group.start(second.run())
        await asyncio.sleep(2 * RETRY_S)
        dying.cancel()
        died = loop.time()
        await store.create(node("orphaned", namespace))
        assert int(await seen_in_epoch(store, namespace, "orphaned", 30)) > epoch
        assert loop.time() - died <= LEASE_S + RETRY_S + SLACK_S
        second.stop()
