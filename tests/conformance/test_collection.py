"""What becomes of dependants: the engine's collector sees to it, on Kubernetes the controller manager."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from msgspec.structs import replace

from quartermaster.engine.collector import Collector
from quartermaster.engine.runtime import Runtime
from quartermaster.resources import ConfigMap, ObjectMeta, OwnerReference, StorageNode
from quartermaster.resources.references import owner_reference
from quartermaster.resources.storage import StorageNodeSpec
from quartermaster.stores import Store
from quartermaster.support.errors import NotFoundError
from tests.conformance.conftest import Home

pytestmark = pytest.mark.collecting


@pytest.fixture(autouse=True)
async def collector(home: Home) -> AsyncIterator[None]:
    if home.name == "kubernetes":
        yield
        return
    runtime = Runtime(await home.open("collector"))
    runtime.add(Collector((StorageNode, ConfigMap)))
    running = asyncio.ensure_future(runtime.run())
    yield
    runtime.stop()
    await running


async def owner(store: Store, namespace: str, name: str = "owner") -> StorageNode:
    meta = ObjectMeta(name=name, namespace=namespace)
    return await store.create(StorageNode(metadata=meta, spec=StorageNodeSpec(type="local")))


async def dependant(
    store: Store, namespace: str, *owners: OwnerReference, name: str = "dependant", finalizers: tuple[str, ...] = ()
) -> ConfigMap:
    meta = ObjectMeta(name=name, namespace=namespace, owner_references=owners, finalizers=finalizers)
    return await store.create(ConfigMap(metadata=meta))


async def eventually(check: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(40):
            while not await check():
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"within 40 s this did not come true: {what}")


async def is_gone(store: Store, kind: type[ConfigMap] | type[StorageNode], name: str, namespace: str) -> bool:
    try:
        await store.get(kind, name, namespace)
    except NotFoundError:
        return True
    return False


async def collector_has_caught_up(store: Store, namespace: str, parent: StorageNode) -> None:
    """It sees configmaps in the order in which they were made: when one of nobody is gone it knows all before it. On
    Kubernetes a dependant that it does not know yet when its owner goes is not orphaned, but goes as well.
    """
    ghost = replace(owner_reference(parent), name="ghost", uid="00000000-0000-4000-8000-000000000001")
    await dependant(store, namespace, ghost, name="of-nobody")
    await eventually(lambda: is_gone(store, ConfigMap, "of-nobody", namespace), "the collector has caught up")


async def test_a_dependant_goes_after_its_owner(store: Store, namespace: str) -> None:
    parent = await owner(store, namespace)
    await dependant(store, namespace, owner_reference(parent))
    await store.delete(StorageNode, "owner", namespace)
    await eventually(lambda: is_gone(store, ConfigMap, "dependant", namespace), "the dependant is gone")


async def test_a_dependant_stays_while_one_owner_is_left(store: Store, namespace: str) -> None:
    first, second = await owner(store, namespace, "first"), await owner(store, namespace, "second")
    await dependant(
        store, namespace, owner_reference(first, controller=False), owner_reference(second, controller=False)
    )
    await store.delete(StorageNode, "first", namespace)

    async def only_second_is_left() -> bool:
        found = await store.get(ConfigMap, "dependant", namespace)
        return [reference.name for reference in found.metadata.owner_references] == ["second"]

    await eventually(only_second_is_left, "the reference to the owner that is gone was taken out")


async def test_an_owner_that_never_was_counts_as_gone(store: Store, namespace: str) -> None:
    parent = await owner(store, namespace)
    ghost = replace(owner_reference(parent), name="ghost", uid="00000000-0000-4000-8000-000000000000")
    await dependant(store, namespace, ghost)
    await eventually(lambda: is_gone(store, ConfigMap, "dependant", namespace), "the dependant is gone")


async def test_a_namesake_of_the_owner_does_not_count(store: Store, namespace: str) -> None:
    parent = await owner(store, namespace)
    await store.delete(StorageNode, "owner", namespace)
    await owner(store, namespace)
    await dependant(store, namespace, owner_reference(parent))
    await eventually(lambda: is_gone(store, ConfigMap, "dependant", namespace), "the dependant is gone")


async def test_in_the_foreground_the_owner_goes_last(store: Store, namespace: str) -> None:
    parent = await owner(store, namespace)
    await dependant(store, namespace, owner_reference(parent), finalizers=("coreos.com/hold",))
    await collector_has_caught_up(store, namespace, parent)
    await store.delete(StorageNode, "owner", namespace, propagation="Foreground")

    async def dependant_is_marked() -> bool:
        return (await store.get(ConfigMap, "dependant", namespace)).metadata.deletion_timestamp is not None

    await eventually(dependant_is_marked, "the dependant is being deleted")
    assert not await is_gone(store, StorageNode, "owner", namespace)
    held = await store.get(ConfigMap, "dependant", namespace)
    await store.update(replace(held, metadata=replace(held.metadata, finalizers=())))
    await eventually(lambda: is_gone(store, StorageNode, "owner", namespace), "the owner is gone")


async def test_orphans_stay_without_the_reference(store: Store, namespace: str) -> None:
    parent = await owner(store, namespace)
    await dependant(store, namespace, owner_reference(parent))
    await collector_has_caught_up(store, namespace, parent)
    await store.delete(StorageNode, "owner", namespace, propagation="Orphan")
    await eventually(lambda: is_gone(store, StorageNode, "owner", namespace), "the owner is gone")
    assert (await store.get(ConfigMap, "dependant", namespace)).metadata.owner_references == ()
