"""What is this store's own, on a real API server; what all stores have in common is in the conformance suite."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace

from quartermaster.resources.codec import to_document
from quartermaster.resources.kubernetes.core import ConfigMap, Namespace
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores.base import Fence, Store, StreamsInitialState
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.support.errors import InvalidError, NotFoundError, RefusedError, StoreError
from quartermaster.testing.servers import KubernetesAccess
from tests.stores.kubernetes.conftest import Opener, config_map


async def filled(store: KubernetesStore, namespace: str, count: int) -> list[str]:
    names = [f"c{number:04}" for number in range(count)]
    for start in range(0, count, 50):
        await asyncio.gather(*(store.create(config_map(name, namespace)) for name in names[start : start + 50]))
    return names


def names_of(items: Any) -> list[str]:
    return [item.metadata.name for item in items]


async def test_it_is_a_store_that_streams(store: KubernetesStore) -> None:
    as_store: Store = store
    as_stream: StreamsInitialState = store
    assert as_stream.watch_from_start(ConfigMap) is not None
    assert not as_store.fences
    assert await as_store.lease_held("default", "x") is None


async def test_a_list_comes_in_parts_of_one_moment(store: KubernetesStore, namespace: str) -> None:
    names = await filled(store, namespace, 5)
    first = await store.list(ConfigMap, namespace, limit=2)
    await store.create(config_map("c0002-later", namespace))
    await store.delete(ConfigMap, "c0004", namespace)
    second = await store.list(ConfigMap, namespace, limit=2, continues=first.continues)
    third = await store.list(ConfigMap, namespace, limit=2, continues=second.continues)
    assert names_of((*first.items, *second.items, *third.items)) == names
    assert first.revision == second.revision == third.revision
    assert third.continues == ""


@pytest.mark.slow
async def test_all_of_a_long_list_shows_one_moment(store: KubernetesStore, namespace: str) -> None:
    names = await filled(store, namespace, 1101)
    page = await store.list(ConfigMap, namespace)
    assert names_of(page.items) == names
    await store.create(config_map("z", namespace))
    async with asyncio.timeout(10), aclosing(store.watch(ConfigMap, namespace, since=page.revision)) as events:
        event = await anext(events)
    assert event.object is not None
    assert (event.type, event.object.metadata.name) == ("ADDED", "z")


async def test_a_continuation_that_no_list_returned_is_refused(store: KubernetesStore, namespace: str) -> None:
    with pytest.raises(InvalidError, match="continue"):
        await store.list(ConfigMap, namespace, limit=1, continues="nonsense")


async def test_selectors_are_the_servers(store: KubernetesStore, namespace: str) -> None:
    await filled(store, namespace, 2)
    await store.create(ConfigMap(metadata=ObjectMeta(name="x", namespace=namespace, labels={"rack": "r1"})))
    assert names_of((await store.list(ConfigMap, namespace, labels="rack in (r1,r2)")).items) == ["x"]
    assert names_of((await store.list(ConfigMap, namespace, fields="metadata.name=c0001")).items) == ["c0001"]
    with pytest.raises(InvalidError, match="requirement"):
        await store.list(ConfigMap, namespace, labels="a===b")
    with pytest.raises(InvalidError, match="is not a known field selector"):
        await store.list(ConfigMap, namespace, fields="data.k=v")


async def test_the_state_can_be_streamed(store: KubernetesStore, namespace: str) -> None:
    names = await filled(store, namespace, 3)
    seen = []
    async with asyncio.timeout(10), aclosing(store.watch_from_start(ConfigMap, namespace)) as events:
        async for event in events:
            if event.type == "BOOKMARK":
                await store.create(config_map("z", namespace))
            seen.append((event.type, event.object.metadata.name if event.object else ""))
            if len(seen) == 5:
                break
    assert sorted(seen[:3]) == [("ADDED", name) for name in names]
    assert seen[3:] == [("BOOKMARK", ""), ("ADDED", "z")]


@pytest.mark.slow
async def test_a_server_that_cannot_stream_the_state_refuses(
    kubernetes_throwaway: Any, opened: list[KubernetesStore]
) -> None:
    server = await kubernetes_throwaway(flags=["--feature-gates=WatchList=false"])
    opened.append(store := await KubernetesStore.open(kubeconfig=server.kubeconfig))
    async with asyncio.timeout(10), aclosing(store.watch_from_start(Namespace)) as events:
        with pytest.raises(RefusedError, match="list, then watch"):
            await anext(events)


async def test_a_delete_returns_the_object_whatever_the_server_answers(store: KubernetesStore, namespace: str) -> None:
    await store.create(config_map("a", namespace, k="v"))
    assert (await store.delete(ConfigMap, "a", namespace)).data == {"k": "v"}
    # A namespace is not gone at once: the server answers with the object, marked.
    marked = await store.delete(Namespace, namespace)
    assert marked.metadata.deletion_timestamp is not None


async def test_without_a_namespace_it_is_default(store: KubernetesStore, namespace: str) -> None:
    name = f"in-default-{namespace}"
    made = await store.create(ConfigMap(metadata=ObjectMeta(name=name)))
    assert made.metadata.namespace == "default"
    assert await store.get(ConfigMap, name) == made
    changed = await store.update(replace(made, data={"k": "v"}))
    assert (await store.delete(ConfigMap, name)).data == changed.data


@pytest.mark.parametrize("name", ["", ".", "..", "a/../b", "a?b", "ä b"])
async def test_a_name_cannot_lead_elsewhere(store: KubernetesStore, namespace: str, name: str) -> None:
    with pytest.raises((InvalidError, NotFoundError)):
        await store.get(ConfigMap, name, namespace)


async def test_unknown_fields_survive_a_typed_write(
    store: KubernetesStore, namespace: str, kubernetes_server: KubernetesAccess
) -> None:
    await kubernetes_server.kubectl("create", "serviceaccount", "a", f"--namespace={namespace}")
    found = await store.get(Namespace, namespace)
    assert to_document(await store.update(found)) == to_document(found)


async def test_a_fence_is_accepted_and_not_compared(store: KubernetesStore, namespace: str) -> None:
    fence = Fence(namespace=namespace, lease="leader", holder="nobody", epoch=7)
    made = await store.create(config_map("a", namespace), fence=fence)
    assert await store.update(replace(made, data={"k": "v"}), fence=fence)
    assert await store.delete(ConfigMap, "a", namespace, fence=fence)


async def test_a_field_that_the_server_does_not_know_is_refused(store: KubernetesStore, namespace: str) -> None:
    meta = {"name": "a", "namespace": namespace}
    with pytest.raises(InvalidError) as caught:
        await store.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "dato": {}})
    assert [problem.path for problem in caught.value.problems] == ["dato"]
    with pytest.raises(InvalidError) as caught:
        await store.create(ConfigMap(metadata=ObjectMeta(name="a", namespace=namespace), unknown={"dato": {}}))
    assert [problem.path for problem in caught.value.problems] == ["dato"]


async def test_rights_are_the_users(open_as: Opener, kubernetes_server: KubernetesAccess, namespace: str) -> None:
    store = await open_as({"token": kubernetes_server.token, "as": "visitor"})
    with pytest.raises(RefusedError, match=r'cannot create configmap ".*/a": .*"visitor" cannot create.*\(RBAC\)'):
        await store.create(config_map("a", namespace))


async def test_what_is_closed_stays_closed(
    store: KubernetesStore, kubernetes_server: KubernetesAccess, namespace: str
) -> None:
    events = store.watch(ConfigMap, namespace, since=(await store.list(ConfigMap, namespace)).revision)
    watching = asyncio.ensure_future(anext(events))
    await store.create(config_map("a", namespace))
    await watching
    watching = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="the store is closed"):
        await asyncio.wait_for(watching, 10)
    with pytest.raises(StoreError, match="the store is closed"):
        await store.get(ConfigMap, "a", namespace)
