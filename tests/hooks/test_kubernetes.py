"""The controller of hooks on a real API server: the same life as in memory, with the same writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quartermaster.hooks import OverHTTP
from quartermaster.hooks.service import HookService, ServiceOptions
from quartermaster.resources import ConfigMap, Namespace, Node, ObjectMeta
from quartermaster.stores import Store
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.support import entropy
from quartermaster.testing.servers import KubernetesAccess

from .lives import life
from .toy import TOY, memory_store


@pytest.fixture
async def store(kubernetes_server: KubernetesAccess) -> AsyncIterator[Store]:
    opened = await KubernetesStore.open(kubeconfig=Path(kubernetes_server.kubeconfig))
    yield opened
    await opened.close()


@pytest.fixture
async def name(store: Store) -> AsyncIterator[str]:
    """Of a namespace and a Node for this test alone."""
    chosen = f"hooks-{entropy.name_suffix(8)}"
    await store.create(Namespace(metadata=ObjectMeta(name=chosen)))
    await store.create(Node(metadata=ObjectMeta(name=chosen)))
    yield chosen
    await store.delete(Node, chosen)
    await store.delete(Namespace, chosen)


@pytest.mark.kubernetes
@pytest.mark.parametrize("way", ["in-process", "http"])
async def test_a_life_on_a_real_api_server_takes_the_writes_that_it_takes_in_memory(
    store: Store, name: str, way: str
) -> None:
    memory = memory_store()
    await memory.create(Node(metadata=ObjectMeta(name=name)))
    in_memory = await life(memory, name, name)
    if way == "in-process":
        written = await life(store, name, name)
    else:
        async with HookService([TOY], ServiceOptions(port=0)).serving() as port:
            caller = OverHTTP(f"http://127.0.0.1:{port}")
            written = await life(store, name, name, caller=caller)
            await caller.close()
    assert written == in_memory
    left = [obj.metadata.name for obj in (await store.list(ConfigMap, name)).items]
    assert not [other for other in left if other.startswith(name)]
