"""Reading, changing and writing back: one read, and no version that was overtaken is taken for the one there is."""

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from quartermaster.resources import ConfigMap, ObjectMeta, StorageNode
from quartermaster.resources.storage import StorageNodeSpec, StorageNodeStatus
from quartermaster.stores.kv.base import Entry
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.modify import modify
from quartermaster.stores.objects import ObjectStore
from quartermaster.stores.objects.remembered import Remembered
from quartermaster.support.errors import ConflictError, NotFoundError, QuartermasterError

Accident = Callable[[ObjectStore], Awaitable[object]]


class CountsReads(MemoryKeyValue):
    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def get(self, key: str) -> Entry | None:
        self.reads += 1
        return await super().get(key)


def settings(**data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="a", namespace="default"), data=data)


def with_data(**data: str) -> Callable[[ConfigMap], ConfigMap]:
    return lambda found: replace(found, data=data)


async def overtake(other: ObjectStore) -> object:
    return await modify(other, ConfigMap, "a", "default", with_data(whose="other"))


async def remove(other: ObjectStore) -> object:
    return await other.delete(ConfigMap, "a")


async def test_a_change_reads_once_and_what_follows_it_not_at_all() -> None:
    kv = CountsReads()
    store = ObjectStore(kv)
    await store.create(settings(n="0"))
    written = await modify(store, ConfigMap, "a", "default", with_data(n="1"))
    assert kv.reads == 1
    await store.update(replace(written, data={"n": "2"}))
    assert kv.reads == 1
    assert (await store.get(ConfigMap, "a")).data == {"n": "2"}


async def test_a_status_is_written_after_one_read() -> None:
    kv = CountsReads()
    store = ObjectStore(kv)
    node = StorageNode(metadata=ObjectMeta(name="n"), spec=StorageNodeSpec(type="local"))
    await store.create(node)
    said = await modify(
        store,
        StorageNode,
        "n",
        "default",
        lambda found: replace(found, status=StorageNodeStatus(cluster="c")),
        status=True,
    )
    assert (kv.reads, said.status.cluster if said.status else "") == (1, "c")


@pytest.mark.parametrize(
    ("accident", "error"), [(overtake, ConflictError), (remove, NotFoundError)], ids=["overtaken", "deleted"]
)
@pytest.mark.parametrize("data", [{"n": "1"}, {"n": "0"}], ids=["a change", "no change"])
@pytest.mark.parametrize("dry_run", [False, True], ids=["written", "dry run"])
async def test_what_was_read_and_is_no_more_is_not_written_over(
    accident: Accident, error: type[QuartermasterError], data: dict[str, str], dry_run: bool
) -> None:
    kv = MemoryKeyValue()
    store = ObjectStore(kv)
    await store.create(settings(n="0"))
    read = await store.get(ConfigMap, "a")
    await accident(ObjectStore(kv))
    with pytest.raises(error):
        await store.update(replace(read, data=data), dry_run=dry_run)


def test_only_the_latest_entries_are_kept_and_only_for_the_version_that_is_asked_for() -> None:
    remembered = Remembered()
    for number in range(200):
        remembered.keep(Entry(f"/k{number}", b"", 1, number))
    remembered.keep(Entry("/k199", b"", 1, 1000))
    kept = [number for number in range(199) if remembered.version(f"/k{number}", str(number))]
    assert kept == list(range(72, 199))
    assert remembered.version("/k199", "199") is None
    assert remembered.version("/k199", "1000") is not None
