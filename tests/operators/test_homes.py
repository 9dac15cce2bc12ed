"""The life of a cluster on each real home of objects: nodes come and go, ONLINE, a class, OFFLINE, the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from quartermaster.backends.registry import installed_agents
from quartermaster.host.fake import FakeMachine, fake_host
from quartermaster.operators import assembly
from quartermaster.operators.assembly import ensure_kinds, operator_runtime
from quartermaster.orchestration.agent import AgentRuntime
from quartermaster.resources import (
    Assignment,
    Namespace,
    Object,
    ObjectMeta,
    StorageClass,
    StorageNode,
    StorageStatus,
)
from quartermaster.resources.marks import PAUSED
from quartermaster.stores import Store, modify, open_store
from quartermaster.stores.kubernetes import definitions
from quartermaster.stores.kubernetes.store import KubernetesStore
from quartermaster.support import entropy
from quartermaster.support.errors import NotFoundError
from quartermaster.support.tasks import TaskGroup
from tests.orchestration.samples import still_facts

from .world import TIMINGS, facts, node_document

T = TypeVar("T", bound=Object)
WAIT_S = 30.0
HOMES = [
    "sqlite",
    pytest.param("etcd", marks=pytest.mark.etcd),
    pytest.param("kubernetes", marks=pytest.mark.kubernetes),
]


@pytest.fixture(params=HOMES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        opened = await open_store(f"sqlite:{tmp_path}/store.db")
    elif request.param == "etcd":
        endpoints = [one.removeprefix("http://") for one in request.getfixturevalue("etcd_servers").endpoints]
        opened = await open_store(f"etcd://{','.join(endpoints)}/{entropy.name_suffix(12)}")
    else:
        from quartermaster.stores.kubernetes import KubernetesStore

        access = request.getfixturevalue("kubernetes_server")
        opened = await KubernetesStore.open(kubeconfig=Path(access.kubeconfig))
    yield opened
    await opened.close()


@pytest.fixture
async def namespace(store: Store) -> AsyncIterator[str]:
    name = f"t-{entropy.name_suffix(8)}"
    if not store.fences:
        await store.create(Namespace(metadata=ObjectMeta(name=name)))
    yield name
    if not store.fences:
        await store.delete(Namespace, name)


class Life:
    def __init__(self, store: Store, namespace: str, directory: Path, group: TaskGroup) -> None:
        self.store = store
        self.namespace = namespace
        self.group = group
        self._directory = directory

    def lead(self) -> None:
        runtime = operator_runtime(
            self.store, namespace=self.namespace, timings=TIMINGS, identity="leader", lease_s=5, retry_s=1.0
        )
        self.group.start(runtime.run())

    def host(self, name: str, address: str) -> None:
        agent = AgentRuntime(
            self.store,
            name,
            fake_host(FakeMachine()),
            installed_agents(),
            namespace=self.namespace,
            directory=self._directory / name,
            addresses=(address,),
            timings=TIMINGS,
            facts=still_facts(facts(address)),
        )
        self.group.start(agent.run())

    async def node(self, name: str) -> None:
        document = node_document(name, name)
        document["metadata"]["namespace"] = self.namespace
        await self.store.apply(document, manager="test")

    async def until(self, kind: type[T], name: str, holds: Callable[[T | None], bool]) -> None:
        found: T | None = None
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    try:
                        found = await self.store.get(kind, name, "" if kind is StorageClass else self.namespace)
                    except NotFoundError:
                        found = None
                    if holds(found):
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{kind.__name__} {name} does not become what it should be: {found}") from None


def is_online(status: StorageStatus | None, nodes: int) -> bool:
    return status is not None and status.spec.status == "ONLINE" and status.status.ready_count == nodes


def is_gone(obj: Object | None) -> bool:
    return obj is None


async def with_pause(life: Life, value: str) -> None:
    def change(status: StorageStatus) -> StorageStatus:
        return replace(status, metadata=replace(status.metadata, annotations={PAUSED: value} if value else {}))

    await modify(life.store, StorageStatus, "local-default", life.namespace, change)


@pytest.mark.slow
async def test_the_life_of_a_cluster(store: Store, namespace: str, tmp_path: Path) -> None:
    async with TaskGroup() as group:
        life = Life(store, namespace, tmp_path, group)
        await ensure_kinds(store)
        life.lead()
        class_name = f"{namespace}-local-default"
        for number, name in enumerate(("h1", "h2"), start=1):
            life.host(name, f"10.0.0.{number}")
            await life.node(name)
            await life.until(StorageStatus, "local-default", lambda one, count=number: is_online(one, count))
        published = await store.get(StorageClass, class_name)
        assert published.volume_binding_mode == "WaitForFirstConsumer"
        await with_pause(life, "true")
        await store.delete(StorageNode, "h1", namespace)
        await life.until(
            StorageStatus, "local-default", lambda one: one is not None and one.status.message.startswith("paused")
        )
        assert (await store.get(StorageNode, "h1", namespace)).metadata.deletion_timestamp is not None
        await with_pause(life, "")
        await life.until(StorageNode, "h1", is_gone)
        await life.until(StorageStatus, "local-default", lambda one: is_online(one, 1))
        await store.delete(StorageNode, "h2", namespace)
        for kind, name in ((StorageNode, "h2"), (StorageStatus, "local-default"), (StorageClass, class_name)):
            await life.until(kind, name, is_gone)
        assert (await store.list(Assignment, namespace)).items == ()
        group.cancel()


async def test_definitions_of_another_version_are_told_of_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server drops what they do not know of a status, and decisions go by some of it."""

    async def verdicts(_: object) -> dict[str, str]:
        return {"assignments": "differs", "hosts": "unchanged"}

    monkeypatch.setattr(definitions, "ensure_crds", verdicts)
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(assembly._log, "warning", lambda event, **more: told.append({"event": event, **more}))
    await ensure_kinds(KubernetesStore.__new__(KubernetesStore))
    (one,) = told
    assert one["definitions"] == ["assignments"]
    assert "qm crd install --upgrade" in one["hint"]
