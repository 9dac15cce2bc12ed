"""What our own object semantics make of accidents: answers that are lost, and documents that are no objects."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import msgspec
import pytest
from msgspec.structs import replace

from quartermaster.resources import ConfigMap, Lease, ObjectMeta, StorageNode
from quartermaster.resources.codec import Document, to_document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.core import LeaseSpec
from quartermaster.resources.model import Object
from quartermaster.resources.storage import StorageNodeSpec
from quartermaster.stores import Event
from quartermaster.stores.kv.base import Compare, Operation, Outcome, Put, Range
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.stores.objects.keys import object_key
from quartermaster.support.errors import ConflictError, NotFoundError, UnreadableError

Meanwhile = Callable[[ObjectStore], Awaitable[object]]


class LosesAnAnswer(MemoryKeyValue):
    """After `lose`, the answer to the next transaction is lost; something happens; the transaction is sent again."""

    def __init__(self) -> None:
        super().__init__()
        self._meanwhile: Meanwhile | None = None

    def lose(self, meanwhile: Meanwhile) -> None:
        self._meanwhile = meanwhile

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        outcome = await super().transact(compares, operations)
        if self._meanwhile is None:
            return outcome
        meanwhile, self._meanwhile = self._meanwhile, None
        await meanwhile(ObjectStore(self))
        return replace(await super().transact(compares, operations), repeated=True)


def settings(whose: str = "", **metadata: object) -> ConfigMap:
    meta = ObjectMeta(name="a", namespace="default", **metadata)  # type: ignore[arg-type]
    return ConfigMap(metadata=meta, data={"whose": whose})


async def test_a_delete_whose_answer_was_lost_spares_what_took_the_name() -> None:
    kv = LosesAnAnswer()
    store = ObjectStore(kv)
    mine = await store.create(settings("mine"))
    kv.lose(lambda other: other.create(settings("other")))
    assert (await store.delete(ConfigMap, "a")).metadata.uid == mine.metadata.uid
    assert (await store.get(ConfigMap, "a")).data == {"whose": "other"}


@pytest.mark.parametrize("precondition", ["uid", "revision"])
async def test_so_does_one_with_a_precondition(precondition: str) -> None:
    kv = LosesAnAnswer()
    store = ObjectStore(kv)
    mine = await store.create(settings("mine"))
    kv.lose(lambda other: other.create(settings("other")))
    wanted = {"uid": mine.metadata.uid, "revision": mine.metadata.resource_version}[precondition]
    assert (await store.delete(ConfigMap, "a", **{precondition: wanted})).data == {"whose": "mine"}
    assert (await store.get(ConfigMap, "a")).data == {"whose": "other"}


async def test_a_mark_whose_answer_was_lost_spares_what_took_the_name() -> None:
    async def release_and_take_the_name(other: ObjectStore) -> None:
        held = await other.get(ConfigMap, "a")
        await other.update(replace(held, metadata=replace(held.metadata, finalizers=())))
        await other.create(settings("other"))

    kv = LosesAnAnswer()
    store = ObjectStore(kv)
    await store.create(settings("mine", finalizers=("example.com/x",)))
    kv.lose(release_and_take_the_name)
    assert (await store.delete(ConfigMap, "a")).data == {"whose": "mine"}
    assert (await store.get(ConfigMap, "a")).metadata.deletion_timestamp is None


async def test_a_delete_that_was_overtaken_by_a_change_still_deletes() -> None:
    class Overtaken(MemoryKeyValue):
        changed = False

        async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
            if not self.changed and not isinstance(operations[0], Put):
                self.changed = True
                found = await ObjectStore(self).get(ConfigMap, "a")
                await ObjectStore(self).update(replace(found, data={"whose": "changed"}))
            return await super().transact(compares, operations)

    store = ObjectStore(Overtaken())
    await store.create(settings("mine"))
    assert (await store.delete(ConfigMap, "a")).data == {"whose": "changed"}
    with pytest.raises(NotFoundError):
        await store.get(ConfigMap, "a")


NAMED = {"name": "bad", "namespace": "default"}
BAD: Document = {
    "apiVersion": "coreos.com/v1",
    "kind": "StorageNode",
    "metadata": {**NAMED, "uid": "x", "labels": {"rack": "r1"}},
    "spec": {"type": "ceph", "devices": {"a": 1}},
}
POISONS = {
    "a field of another shape": msgspec.json.encode(BAD),
    "metadata of another shape": msgspec.json.encode({**BAD, "metadata": {**NAMED, "labels": [1]}}),
    "finalizers of another shape": msgspec.json.encode({**BAD, "metadata": {**NAMED, "finalizers": {"a": 1}}}),
    "no metadata": b'{"kind":"StorageNode"}',
    "no object": b"[1,2]",
    "no JSON": b"\xff\x00",
}
POISONED = pytest.mark.parametrize("value", POISONS.values(), ids=POISONS.keys())


def node(name: str) -> StorageNode:
    meta = ObjectMeta(name=name, namespace="default", labels={"rack": "r1"})
    return StorageNode(metadata=meta, spec=StorageNodeSpec(type="local"))


async def poison(store: ObjectStore, value: bytes = POISONS["a field of another shape"]) -> None:
    await store.kv.transact([], [Put(object_key(kind_of(StorageNode), "default", "bad"), value)])


async def take(store: ObjectStore, since: str, count: int) -> list[Event[StorageNode]]:
    events: list[Event[StorageNode]] = []
    async with asyncio.timeout(5), aclosing(store.watch(StorageNode, since=since)) as watch:
        async for event in watch:
            events.append(event)
            if len(events) == count:
                break
    return events


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore(MemoryKeyValue())


@pytest.mark.slow
@POISONED
async def test_a_list_leaves_out_what_does_not_fit_and_counts_it(
    store: ObjectStore, value: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    await store.create(node("a"))
    await poison(store, value)
    await store.create(node("z"))
    page = await store.list(StorageNode)
    assert ([item.metadata.name for item in page.items], page.skipped) == (["a", "z"], 1)
    assert 'cannot read storagenode "default/bad"' in capsys.readouterr().err


async def test_parts_of_a_list_go_past_it(store: ObjectStore) -> None:
    for name in ("a", "z"):
        await store.create(node(name))
    await poison(store)
    first = await store.list(StorageNode, labels="rack=r1", limit=1)
    second = await store.list(StorageNode, labels="rack=r1", limit=1, continues=first.continues)
    assert [item.metadata.name for item in (*first.items, *second.items)] == ["a", "z"]
    assert (first.skipped + second.skipped, second.continues) == (1, "")


@POISONED
async def test_reading_it_says_what_it_is_and_how_to_get_rid_of_it(store: ObjectStore, value: bytes) -> None:
    await poison(store, value)
    with pytest.raises(UnreadableError, match=r'cannot read storagenode "default/bad": .*`qm delete storagenode bad`'):
        await store.get(StorageNode, "bad", "default")


async def test_the_field_that_does_not_fit_is_named(store: ObjectStore) -> None:
    await poison(store)
    with pytest.raises(UnreadableError, match=r"spec\.devices"):
        await store.get(StorageNode, "bad", "default")


@POISONED
async def test_it_is_deleted_by_its_name(store: ObjectStore, value: bytes) -> None:
    await poison(store, value)
    gone = await store.delete(StorageNode, "bad", "default")
    assert (type(gone), gone.metadata.name) == (Object, "bad")
    with pytest.raises(NotFoundError):
        await store.get(StorageNode, "bad", "default")


async def test_what_holds_it_back_holds_it_back_all_the_same(store: ObjectStore) -> None:
    held = {**BAD, "metadata": {**BAD["metadata"], "finalizers": ["example.com/x"]}}
    await poison(store, msgspec.json.encode(held))
    with pytest.raises(ConflictError, match="has the uid x"):
        await store.delete(StorageNode, "bad", "default", uid="y")
    marked = await store.delete(StorageNode, "bad", "default", uid="x")
    assert marked.metadata.deletion_timestamp is not None
    assert marked.metadata.finalizers == ("example.com/x",)


async def test_an_apply_mends_it(store: ObjectStore) -> None:
    await poison(store)
    document = {**BAD, "metadata": NAMED, "spec": {"type": "ceph", "devices": ["/a"]}}
    await store.apply(document, manager="ann", force=True)
    assert (await store.get(StorageNode, "bad", "default")).spec.devices == ("/a",)


@pytest.mark.parametrize("metadata", [{"generation": "x"}, {"managedFields": [1]}, {"labels": [1]}], ids=str)
async def test_an_apply_to_metadata_that_do_not_fit_says_so(store: ObjectStore, metadata: Document) -> None:
    await poison(store, msgspec.json.encode({**BAD, "metadata": {**NAMED, **metadata}}))
    with pytest.raises(UnreadableError, match=r'cannot read storagenode "default/bad": .* of the metadata'):
        await store.apply({**BAD, "metadata": NAMED, "spec": {"type": "ceph"}}, force=True)
    await store.delete(StorageNode, "bad", "default", propagation="Foreground")


async def test_a_watch_goes_on_past_it(store: ObjectStore) -> None:
    start = (await store.list(StorageNode)).revision
    await poison(store, POISONS["no JSON"])
    await poison(store)
    await store.delete(StorageNode, "bad", "default")
    await store.create(node("z"))
    (event,) = await take(store, start, 1)
    assert (event.type, event.object and event.object.metadata.name) == ("ADDED", "z")


async def test_what_ceases_to_fit_is_gone_for_a_watch_and_comes_back_when_it_is_mended(store: ObjectStore) -> None:
    good = await store.create(node("bad"))
    await poison(store)
    await poison(store, msgspec.json.encode(to_document(good)))
    events = await take(store, good.metadata.resource_version, 2)
    assert [(event.type, event.object and event.object.spec) for event in events] == [
        ("DELETED", good.spec),
        ("MODIFIED", good.spec),
    ]


async def test_a_list_whose_moment_is_forgotten_on_the_way_is_read_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgets(MemoryKeyValue):
        async def range(self, start: str, end: str, *, limit: int = 0, revision: int = 0) -> Range:
            found = await super().range(start, end, limit=limit, revision=revision)
            if limit:
                await self.transact([], [Put("/elsewhere", b"x")])
                await self.compact(self._revision)
            return found

    monkeypatch.setattr("quartermaster.stores.objects.reading._CHUNK", 2)
    store = ObjectStore(Forgets())
    for name in "abcde":
        await store.create(node(name))
    assert [item.metadata.name for item in (await store.list(StorageNode)).items] == list("abcde")


def lease(duration_s: int = 15) -> Lease:
    return Lease(
        metadata=ObjectMeta(name="leader", namespace="default"),
        spec=LeaseSpec(holder_identity="one", lease_transitions=1, lease_duration_seconds=duration_s),
    )


async def test_a_lease_that_ended_in_the_moment_of_its_renewal_is_renewed_all_the_same() -> None:
    class EndsInBetween(MemoryKeyValue):
        async def keep_alive(self, lease: int) -> bool:
            alive = await super().keep_alive(lease)
            await self.revoke(lease)
            return alive

    store = ObjectStore(EndsInBetween())
    held = await store.create(lease())
    renewed = await store.update(replace(held, spec=replace(held.spec, renew_time="2026-01-01T00:00:00.000000Z")))
    assert renewed.spec.renew_time
    assert await store.lease_held("default", "leader")


async def test_nothing_is_kept_of_a_lease_that_is_deleted_or_released(store: ObjectStore) -> None:
    await store.create(lease())
    await store.delete(Lease, "leader", "default")
    assert not store._leases._held
    held = await store.create(lease())
    await store.update(replace(held, spec=replace(held.spec, holder_identity="")))
    assert not store._leases._held
