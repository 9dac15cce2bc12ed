"""A server that knows none of our kinds is taught them."""

import asyncio
from pathlib import Path

import pytest

from quartermaster.resources.crd import own_kinds
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.storage import StorageNode, StorageNodeSpec
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.stores.kubernetes.definitions import ensure_crds
from quartermaster.support.errors import NotFoundError
from tests.stores.kubernetes.conftest import ServerFactory

pytestmark = pytest.mark.slow


async def test_missing_definitions_are_created_once_and_can_be_used_at_once(
    kubernetes_throwaway: ServerFactory, opened: list[KubernetesStore]
) -> None:
    server = await kubernetes_throwaway()
    opened.append(store := await KubernetesStore.open(kubeconfig=Path(server.kubeconfig)))
    opened.append(other := await KubernetesStore.open(kubeconfig=Path(server.kubeconfig)))
    with pytest.raises(NotFoundError, match="CustomResourceDefinition is not installed"):
        await store.list(StorageNode)
    created = await asyncio.gather(ensure_crds(store), ensure_crds(other))
    own = [kind_of(kind).resource for kind in own_kinds()]
    assert sorted(created[0] + created[1]) == sorted(own)
    node = StorageNode(metadata=ObjectMeta(name="a"), spec=StorageNodeSpec(type="glusterfs"))
    assert (await store.create(node)).metadata.generation == 1
    assert await ensure_crds(store) == ()
