"""The same claim on each real home of objects, from its creation to its end.

On Kubernetes its own controller manager binds; everywhere else we do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quartermaster.provisioning.protocol import SELECTED_NODE, find_condition, with_annotations
from quartermaster.resources import Namespace, ObjectMeta, PersistentVolume, PersistentVolumeClaim, StorageClass
from quartermaster.resources.orchestration import Host
from quartermaster.stores import Store, modify, open_store
from quartermaster.support import entropy
from tests.engine.samples import serving

from .world import GIB, World, claim, is_bound, is_gone, resized, until

HOMES = [
    "sqlite",
    pytest.param("etcd", marks=pytest.mark.etcd),
    pytest.param("kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.collecting]),
]


@pytest.fixture(params=HOMES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        opened = await open_store(f"sqlite:{tmp_path}/store.db")
    elif request.param == "etcd":
        endpoints = request.getfixturevalue("etcd_servers").endpoints
        prefix = entropy.name_suffix(12)
        opened = await open_store(f"etcd://{','.join(e.removeprefix('http://') for e in endpoints)}/{prefix}")
    else:
        from quartermaster.stores.kubernetes import KubernetesStore

        access = request.getfixturevalue("kubernetes_collecting_server")
        opened = await KubernetesStore.open(kubeconfig=Path(access.kubeconfig))
    yield opened
    await opened.close()


@pytest.fixture
async def world(store: Store) -> AsyncIterator[World]:
    namespace = f"t-{entropy.name_suffix(8)}"
    made = World(store=store, namespace=namespace, class_name=f"fast-{namespace}")
    if not store.fences:
        await store.create(Namespace(metadata=ObjectMeta(name=namespace)))
    yield made
    await store.delete(StorageClass, made.class_name)
    for host in made.room:
        await store.delete(Host, host, namespace)
    if not store.fences:
        await store.delete(Namespace, namespace)


@pytest.mark.slow
async def test_a_claim_is_bound_grows_and_goes(world: World) -> None:
    store, namespace = world.store, world.namespace
    await world.prepare(wait=True)
    async with serving(store, *world.services(bind=store.fences), world.agents()):
        await store.create(claim(namespace=namespace, storage_class=world.class_name))
        await until(lambda: _is_pending(world), timeout_s=30)
        await modify(
            store,
            PersistentVolumeClaim,
            "data",
            namespace,
            lambda found: with_annotations(found, {SELECTED_NODE: "h1"}),
        )
        await until(lambda: is_bound(store, "data", namespace), timeout_s=30)
        name = (await world.claim("data", namespace)).spec.volume_name
        assert world.disks == {("h1", name): GIB}
        await modify(store, PersistentVolumeClaim, "data", namespace, lambda found: resized(found, "2Gi"))
        await until(lambda: _has_capacity(world, "2Gi"), timeout_s=30)
        assert world.disks == {("h1", name): 2 * GIB}
        await store.delete(PersistentVolumeClaim, "data", namespace)
        await until(lambda: is_gone(store, PersistentVolume, name), timeout_s=60)
        assert world.disks == {}
        await until(lambda: _no_assignments(world), timeout_s=10)


@pytest.mark.slow
async def test_a_claim_larger_than_what_there_is_says_the_numbers_and_can_be_deleted(world: World) -> None:
    store, namespace = world.store, world.namespace
    await world.prepare()
    async with serving(store, *world.services(bind=store.fences), world.agents()):
        await store.create(claim(size="11Gi", namespace=namespace, storage_class=world.class_name))
        await until(lambda: _is_told(world, "11Gi are asked for, at most 10Gi are free on a host"), timeout_s=30)
        await store.delete(PersistentVolumeClaim, "data", namespace)
        await until(lambda: is_gone(store, PersistentVolumeClaim, "data", namespace), timeout_s=30)
    assert world.made == []


async def _is_told(world: World, message: str) -> bool:
    found = find_condition((await world.claim("data", world.namespace)).status.conditions, "Provisioned")
    return found is not None and found.message == message


async def _is_pending(world: World) -> bool:
    await asyncio.sleep(0.05)
    return (await world.claim("data", world.namespace)).status.phase == "Pending"


async def _has_capacity(world: World, size: str) -> bool:
    return (await world.claim("data", world.namespace)).status.capacity == {"storage": size}


async def _no_assignments(world: World) -> bool:
    return not await world.assignments()
