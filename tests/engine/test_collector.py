"""The collector: what becomes of dependants, by each way of deleting an owner; and what is never deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from quartermaster.engine.collector import Collector, _Snapshot, collect_once, collected_kinds
from quartermaster.engine.expiry import Expiry
from quartermaster.engine.metrics import COLLECTED
from quartermaster.engine.ownership import Cascade, Collected, item_of
from quartermaster.resources.kubernetes.core import ConfigMap, Event, Lease, Namespace
from quartermaster.resources.model import Key, Object, ObjectMeta, OwnerReference
from quartermaster.resources.storage import StorageNode
from quartermaster.stores.base import Propagation
from quartermaster.stores.kv.base import Put
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import ConflictError
from quartermaster.testing.simulation import simulated

from .samples import Switches, config, memory_store, node, reference, serving, settled

KINDS = (StorageNode, ConfigMap, Namespace)
Settle = Callable[[], Awaitable[None]]


@asynccontextmanager
async def by_the_leader(store: ObjectStore) -> AsyncIterator[Settle]:
    async with serving(store, Collector(KINDS)):
        await settled()
        yield settled


@asynccontextmanager
async def by_a_command(store: ObjectStore) -> AsyncIterator[Settle]:
    async def collect() -> None:
        await collect_once(store, KINDS)

    yield collect


def both_ways(test: Callable[[ObjectStore, Any], Awaitable[None]]) -> Callable[[Any], None]:
    """Run the test with the service that a leader runs, and with the one-shot form."""

    @pytest.mark.parametrize("collecting", [by_the_leader, by_a_command])
    def wrapper(collecting: Any) -> None:
        @simulated(seeds=range(1, 4))
        async def scenario() -> None:
            await test(memory_store(), collecting)

        scenario()

    wrapper.__name__ = test.__name__
    return wrapper


async def names(store: ObjectStore) -> list[str]:
    return [obj.metadata.name for obj in (await store.list(ConfigMap)).items]


async def delete(store: ObjectStore, name: str, propagation: Propagation = "Background") -> None:
    await store.delete(StorageNode, name, "default", propagation=propagation)


@both_ways
async def test_dependants_of_an_owner_that_is_gone_are_deleted(store: ObjectStore, collecting: Any) -> None:
    owner = await store.create(node("owner"))
    await store.create(config("dependant", owner))
    await store.create(config("free"))
    async with collecting(store) as settle:
        await settle()
        assert await names(store) == ["dependant", "free"]
        await delete(store, "owner")
        await settle()
        assert await names(store) == ["free"]


@both_ways
async def test_a_chain_of_owners_goes_link_by_link(store: ObjectStore, collecting: Any) -> None:
    owner: Any = await store.create(node("owner"))
    for number in range(5):
        owner = await store.create(config(f"link-{number}", owner))
    async with collecting(store) as settle:
        await delete(store, "owner")
        await settle()
        assert await names(store) == []


@both_ways
async def test_a_uid_that_never_was_counts_as_gone(store: ObjectStore, collecting: Any) -> None:
    ghost = msgspec.structs.replace(node("ghost"), metadata=ObjectMeta(name="ghost", uid="no-such-uid"))
    await store.create(config("dependant", ghost))
    async with collecting(store) as settle:
        await settle()
        assert await names(store) == []


@both_ways
async def test_an_owner_made_anew_under_its_name_does_not_save_the_old_ones_dependants(
    store: ObjectStore, collecting: Any
) -> None:
    owner = await store.create(node("owner"))
    await store.create(config("dependant", owner))
    await delete(store, "owner")
    await store.create(node("owner"))
    async with collecting(store) as settle:
        await settle()
        assert await names(store) == []


@both_ways
async def test_an_owner_in_another_namespace_counts_as_gone(store: ObjectStore, collecting: Any) -> None:
    owner = await store.create(node("owner", "elsewhere"))
    await store.create(config("dependant", owner))
    async with collecting(store) as settle:
        await settle()
        assert await names(store) == []


@both_ways
async def test_an_owner_in_no_namespace_may_own_what_is_in_one(store: ObjectStore, collecting: Any) -> None:
    owner = await store.create(Namespace(metadata=ObjectMeta(name="owner")))
    await store.create(config("dependant", owner))
    async with collecting(store) as settle:
        await settle()
        assert await names(store) == ["dependant"]


@both_ways
async def test_with_several_owners_the_dangling_reference_is_taken_out_and_the_last_one_decides(
    store: ObjectStore, collecting: Any
) -> None:
    one, two = await store.create(node("one")), await store.create(node("two"))
    await store.create(config("dependant", one, two))
    async with collecting(store) as settle:
        await delete(store, "one")
        await settle()
        left = await store.get(ConfigMap, "dependant", "default")
        assert [r.uid for r in left.metadata.owner_references] == [two.metadata.uid]
        await delete(store, "two")
        await settle()
        assert await names(store) == []


@both_ways
async def test_an_owner_of_an_unknown_kind_is_left_alone(store: ObjectStore, collecting: Any) -> None:
    meta = ObjectMeta(
        name="dependant",
        namespace="default",
        owner_references=(OwnerReference(api_version="example.com/v1", kind="Mystery", name="m", uid="1"),),
    )
    await store.create(ConfigMap(metadata=meta))
    async with collecting(store) as settle:
        await settle()
        assert await names(store) == ["dependant"]


@both_ways
async def test_foreground_blocking_dependants_go_before_their_owner(store: ObjectStore, collecting: Any) -> None:
    owner = await store.create(node("owner"))
    await store.create(config("blocking", owner, block=True, finalizers=("test/hold",)))
    await store.create(config("other", owner))
    async with collecting(store) as settle:
        await delete(store, "owner", "Foreground")
        await settle()
        assert (await store.get(StorageNode, "owner", "default")).metadata.deletion_timestamp
        held = await store.get(ConfigMap, "blocking", "default")
        assert held.metadata.deletion_timestamp, "asked to go, and held by its own finalizer"
        assert await names(store) == ["blocking", "other"]
        meta = msgspec.structs.replace(held.metadata, finalizers=())
        await store.update(msgspec.structs.replace(held, metadata=meta))
        await settle()
        assert (await store.list(StorageNode)).items == ()
        assert await names(store) == [], "the other one went with its owner"


@both_ways
async def test_foreground_goes_down_a_chain(store: ObjectStore, collecting: Any) -> None:
    owner: Any = await store.create(node("owner"))
    for number in range(3):
        owner = await store.create(config(f"link-{number}", owner, block=True))
    async with collecting(store) as settle:
        await delete(store, "owner", "Foreground")
        await settle()
        assert (await store.list(StorageNode)).items == ()
        assert await names(store) == []


@both_ways
async def test_orphaned_dependants_stay_and_have_no_owner(store: ObjectStore, collecting: Any) -> None:
    owner = await store.create(node("owner"))
    await store.create(config("dependant", owner))
    async with collecting(store) as settle:
        await delete(store, "owner", "Orphan")
        await settle()
        assert (await store.list(StorageNode)).items == ()
        left = await store.get(ConfigMap, "dependant", "default")
        assert left.metadata.owner_references == ()
        await settle()
        assert await names(store) == ["dependant"]


@simulated()
async def test_an_owner_waits_for_a_dependant_that_the_cache_has_not_seen_yet() -> None:
    store = memory_store()
    owner = await store.create(node("owner"))
    view = await _Snapshot.take(store, KINDS)
    await store.create(config("dependant", owner, block=True))
    await delete(store, "owner", "Foreground")
    with pytest.raises(ConflictError, match="came just now"):
        await Cascade(store, KINDS, view).settle(item_of(owner))
    assert (await store.get(StorageNode, "owner", "default")).metadata.deletion_timestamp
    await collect_once(store, KINDS)
    assert await names(store) == []
    assert (await store.list(StorageNode)).items == ()


@simulated(seeds=range(1, 6))
async def test_a_stale_cache_raises_a_suspicion_and_deletes_nothing() -> None:
    faults = Switches()
    store = memory_store(faults)
    async with serving(store, Collector(KINDS)) as scope:
        await settled()
        nodes = scope.caches.of(StorageNode)
        faults.lists_open.clear()
        faults.expired = True
        owner = await store.create(node("owner"))  # the cache of nodes does not learn of it
        await settled(1)
        faults.expired = False
        await store.create(config("dependant", owner))
        await settled()
        assert len(nodes) == 0
        assert await names_by_get(store, "dependant")
        assert scope.metrics.value(COLLECTED, "deleted") == 0
        faults.lists_open.set()


async def names_by_get(store: ObjectStore, name: str) -> str:
    return (await store.get(ConfigMap, name, "default")).metadata.name


@simulated(seeds=range(1, 6))
async def test_what_was_there_before_the_collector_is_collected_after_a_start() -> None:
    store = memory_store()
    owner = await store.create(node("owner"))
    waiting = await store.create(node("waiting"))
    await store.create(config("left-behind", owner))
    await store.create(config("blocking", waiting, block=True))
    await delete(store, "owner")
    await delete(store, "waiting", "Foreground")
    async with serving(store, Collector(KINDS)):
        await settled()
        assert await names(store) == []
        assert (await store.list(StorageNode)).items == ()


@simulated()
async def test_objects_whose_owners_are_known_cost_no_reads() -> None:
    faults = Switches()
    store = memory_store(faults)
    owner = await store.create(node("owner"))
    for number in range(100):
        await store.create(config(f"dependant-{number}", owner))
    faults.calls.clear()
    async with serving(store, Collector(KINDS)):
        await settled()
        assert faults.calls.count("get") == 0


@simulated()
async def test_a_command_is_told_what_was_done() -> None:
    store = memory_store()
    one, two = await store.create(node("one")), await store.create(node("two"))
    await store.create(config("both", one, two))
    await store.create(config("only", one))
    orphaned = await store.create(node("three"))
    await store.create(config("orphan", orphaned))
    await delete(store, "one")
    await delete(store, "three", "Orphan")
    assert await collect_once(store, KINDS) == Collected(deleted=1, orphaned=1, released=1, trimmed=1)
    assert (await collect_once(store, KINDS)).total == 0


@simulated()
async def test_a_reference_is_found_by_group_and_kind_whatever_its_version() -> None:
    store = memory_store()
    owner = await store.create(node("owner"))
    older = msgspec.structs.replace(reference(owner), api_version="coreos.com/v1beta9")
    meta = ObjectMeta(name="dependant", namespace="default", owner_references=(older,))
    await store.create(ConfigMap(metadata=meta))
    await collect_once(store, KINDS)
    assert await names(store) == ["dependant"]


def test_events_are_not_collected_because_they_expire() -> None:
    assert Event not in collected_kinds()
    assert StorageNode in collected_kinds()


@pytest.mark.parametrize("propagation", ["Foreground", "Orphan"])
async def test_what_is_not_collected_does_not_wait_for_the_collector(propagation: Propagation) -> None:
    store = memory_store()
    await store.create(Lease(metadata=ObjectMeta(name="beat.h1", namespace="default")))
    await store.delete(Lease, "beat.h1", "default", propagation=propagation)
    assert (await store.list(Lease)).items == ()


class Blind:
    """A view that has seen nothing yet."""

    def covers(self, kind: type[Object]) -> bool:
        return True

    def get(self, kind: type[Object], key: Key) -> None:
        return None

    def dependants(self, uid: str) -> list[Object]:
        return []


@simulated()
async def test_orphaning_looks_for_dependants_in_the_store_because_one_overlooked_would_be_deleted() -> None:
    store = memory_store()
    owner = await store.create(node("owner"))
    await store.create(config("dependant", owner))
    await delete(store, "owner", "Orphan")
    await Cascade(store, KINDS, Blind()).settle(item_of(owner))
    await collect_once(store, KINDS)
    assert await names(store) == ["dependant"]


async def spoil(store: ObjectStore, name: str) -> None:
    """What is stored under this name no longer fits its type."""
    entries = (await store.kv.range("/objects/", "/objects0")).entries
    entry = next(entry for entry in entries if entry.key.endswith(f"/{name}"))
    document = msgspec.json.decode(entry.value)
    document["spec" if "spec" in document else "data"] = "not that"
    await store.kv.transact([], [Put(entry.key, msgspec.json.encode(document))])


@both_ways
async def test_an_owner_that_cannot_be_read_is_not_gone(store: ObjectStore, collecting: Any) -> None:
    unreadable, gone = await store.create(node("unreadable")), await store.create(node("gone"))
    await store.create(config("kept", unreadable))
    await store.create(config("collected", gone))
    await spoil(store, "unreadable")
    async with collecting(store) as settle:
        await delete(store, "gone")
        await settle()
    assert [obj.metadata.name for obj in (await store.list(ConfigMap)).items] == ["kept"]


@both_ways
async def test_nobody_is_orphaned_while_one_that_may_be_a_dependant_cannot_be_read(
    store: ObjectStore, collecting: Any
) -> None:
    owner, gone = await store.create(node("owner")), await store.create(node("gone"))
    await store.create(config("unreadable", owner))
    await store.create(config("collected", gone))
    await spoil(store, "unreadable")
    async with collecting(store) as settle:
        await delete(store, "owner", "Orphan")
        await delete(store, "gone")
        await settle()
    assert [obj.metadata.name for obj in (await store.list(StorageNode)).items] == ["owner"]
    assert (await store.list(ConfigMap)).items == ()


class Foreign(ObjectStore):
    """As Kubernetes: no fences, and it collects and expires by itself."""

    fences = False


@simulated()
async def test_on_a_store_that_cleans_up_by_itself_nothing_is_done() -> None:
    faults = Switches()
    store = Foreign(MemoryKeyValue(faults=faults))
    async with serving(store, Collector(), Expiry()) as scope:
        Collector().prepare(scope.caches)
        await settled(600)
        assert scope.caches.all() == ()
    assert faults.calls == []
