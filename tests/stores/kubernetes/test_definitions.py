"""A server that knows none of our kinds is taught them."""

import asyncio
from pathlib import Path

import msgspec
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
    own = [kind_of(kind).resource for kind in own_kinds()]
    verdicts = await asyncio.gather(ensure_crds(store), ensure_crds(other))
    assert [sorted(said[name] for said in verdicts) for name in own] == [["created", "unchanged"]] * len(own)
    node = StorageNode(metadata=ObjectMeta(name="a"), spec=StorageNodeSpec(type="glusterfs"))
    assert (await store.create(node)).metadata.generation == 1
    assert await ensure_crds(store) == dict.fromkeys(own, "unchanged")


async def test_a_definition_that_says_something_else_is_named_and_replaced_only_when_asked_for(
    kubernetes_throwaway: ServerFactory, opened: list[KubernetesStore]
) -> None:
    server = await kubernetes_throwaway()
    opened.append(store := await KubernetesStore.open(kubeconfig=Path(server.kubeconfig)))
    await ensure_crds(store)
    name = kind_of(StorageNode).resource
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/type/maxLength"
    labels = {"op": "add", "path": "/metadata/labels/team", "value": "blue"}
    patch = msgspec.json.encode([{"op": "add", "path": path, "value": 7}, labels]).decode()
    await server.kubectl("patch", "crd", name, "--type=json", f"--patch={patch}")
    same = {kind_of(kind).resource: "unchanged" for kind in own_kinds() if kind is not StorageNode}
    assert await ensure_crds(store) == {**same, name: "differs"}
    assert await ensure_crds(store, upgrade=True) == {**same, name: "upgraded"}
    assert await ensure_crds(store) == {**same, name: "unchanged"}
    assert await server.kubectl("get", "crd", name, "--output=jsonpath={.metadata.labels.team}") == "blue"
