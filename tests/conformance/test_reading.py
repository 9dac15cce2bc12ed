"""Lists and watches: the same on every store."""

import asyncio
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from quartermaster.resources import Lease, Namespace, ObjectMeta, StorageNode
from quartermaster.resources.storage import StorageNodeSpec
from quartermaster.stores import Event, Store
from quartermaster.support.errors import ExpiredError, InvalidError, QuartermasterError
from tests.conformance.conftest import Home


def node(namespace: str, name: str, *, type: str = "glusterfs", **labels: str) -> StorageNode:
    return StorageNode(
        metadata=ObjectMeta(name=name, namespace=namespace, labels=labels), spec=StorageNodeSpec(type=type)
    )


def names(items: tuple[StorageNode, ...]) -> list[str]:
    return [item.metadata.name for item in items]


async def take(store: Store, namespace: str, since: str, count: int, **options: str) -> list[Event[StorageNode]]:
    """The next `count` changes; progress marks are passed over."""
    found: list[Event[StorageNode]] = []
    async with asyncio.timeout(20), aclosing(store.watch(StorageNode, namespace, since=since, **options)) as events:
        async for event in events:
            if event.type != "BOOKMARK":
                found.append(event)
            if len(found) == count:
                break
    return found


def brief(events: list[Event[StorageNode]]) -> list[tuple[str, str]]:
    return [(event.type, event.object.metadata.name if event.object else "") for event in events]


async def test_a_list_is_ordered_by_name(store: Store, namespace: str) -> None:
    for name in ("b", "c", "a-1", "a"):
        await store.create(node(namespace, name))
    assert names((await store.list(StorageNode, namespace)).items) == ["a", "a-1", "b", "c"]


async def test_a_list_of_a_kind_that_belongs_to_hosts_is_ordered_by_name_too(store: Store, namespace: str) -> None:
    # Where a host's objects lie together, "b.host1" comes before "a.host2", and what belongs to none before both.
    for name in ("b.host1", "a.host2", "a.host1", "leader"):
        await store.create(Lease(metadata=ObjectMeta(name=name, namespace=namespace)))
    listed = (await store.list(Lease, namespace)).items
    assert [item.metadata.name for item in listed] == ["a.host1", "a.host2", "b.host1", "leader"]
    found: list[str] = []
    continues = ""
    while len(found) < 4:
        page = await store.list(Lease, namespace, limit=3, continues=continues)
        found += [item.metadata.name for item in page.items]
        continues = page.continues
    assert sorted(found) == ["a.host1", "a.host2", "b.host1", "leader"]
    assert continues == ""


async def test_a_list_of_all_namespaces_is_ordered_by_namespace_first(store: Store, namespace: str, home: Home) -> None:
    # As keys, "x-1/a" comes before "x/a".
    longer = f"{namespace}-1"
    if home.name == "kubernetes":
        await store.create(Namespace(metadata=ObjectMeta(name=longer)))
    await store.create(node(longer, "a"))
    await store.create(node(namespace, "b"))
    spaces = [item.metadata.namespace for item in (await store.list(StorageNode)).items]
    assert [space for space in spaces if space.startswith(namespace)] == [namespace, longer]
    if home.name == "kubernetes":
        await store.delete(Namespace, longer)


async def test_a_list_of_all_namespaces_has_them_all(store: Store, namespace: str) -> None:
    await store.create(node(namespace, "a"))
    everything = await store.list(StorageNode)
    assert (namespace, "a") in [(i.metadata.namespace, i.metadata.name) for i in everything.items]


async def test_a_list_of_nothing_is_empty(store: Store, namespace: str) -> None:
    page = await store.list(StorageNode, namespace)
    assert page.items == ()
    assert page.revision


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("rack=r1", ["a"]),
        ("rack==r1", ["a"]),
        ("rack!=r1", ["b", "c"]),
        ("rack in (r1,r2)", ["a", "b"]),
        ("rack notin (r1)", ["b", "c"]),
        ("rack", ["a", "b"]),
        ("!rack", ["c"]),
        ("rack,zone=z1", ["b"]),
    ],
)
async def test_labels_select(store: Store, namespace: str, selector: str, found: list[str]) -> None:
    await store.create(node(namespace, "a", rack="r1"))
    await store.create(node(namespace, "b", rack="r2", zone="z1"))
    await store.create(node(namespace, "c"))
    assert names((await store.list(StorageNode, namespace, labels=selector)).items) == found


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("metadata.name=a", ["a"]),
        ("metadata.name!=a", ["b"]),
        ("spec.type=ceph", ["b"]),
        ("spec.type!=ceph,metadata.name=b", []),
    ],
)
async def test_fields_select(store: Store, namespace: str, selector: str, found: list[str]) -> None:
    await store.create(node(namespace, "a"))
    await store.create(node(namespace, "b", type="ceph"))
    assert names((await store.list(StorageNode, namespace, fields=selector)).items) == found


@pytest.mark.parametrize("impossible", ["../x", "a/b", "-", "A", "a.b", "x" * 64])
async def test_where_no_namespace_can_be_nothing_is_looked_for(store: Store, impossible: str) -> None:
    with pytest.raises(InvalidError, match=r"cannot address storagenodes.*metadata\.namespace"):
        await store.list(StorageNode, impossible)
    with pytest.raises(InvalidError):
        await store.get(StorageNode, "a", impossible)
    with pytest.raises(InvalidError):
        await anext(store.watch(StorageNode, impossible, since="1"))


async def test_a_field_that_cannot_be_selected_is_refused(store: Store, namespace: str) -> None:
    with pytest.raises(QuartermasterError, match=r"spec\.devices"):
        await store.list(StorageNode, namespace, fields="spec.devices=x")


async def test_a_selector_that_cannot_be_read_is_refused(store: Store, namespace: str) -> None:
    with pytest.raises(QuartermasterError):
        await store.list(StorageNode, namespace, labels="a in (b")


async def test_pages_show_one_moment(store: Store, namespace: str) -> None:
    for name in "abcdefg":
        await store.create(node(namespace, name))
    first = await store.list(StorageNode, namespace, limit=3)
    await store.create(node(namespace, "aa"))
    await store.delete(StorageNode, "e", namespace)
    second = await store.list(StorageNode, namespace, limit=3, continues=first.continues)
    third = await store.list(StorageNode, namespace, limit=3, continues=second.continues)
    assert [names(p.items) for p in (first, second, third)] == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
    assert third.continues == ""
    assert first.revision == second.revision == third.revision


async def test_a_limit_counts_what_the_selector_leaves(store: Store, namespace: str) -> None:
    for number in range(6):
        await store.create(node(namespace, f"n{number}", odd=str(number % 2)))
    found: list[str] = []
    continues = ""
    for _ in range(3):
        page = await store.list(StorageNode, namespace, labels="odd=1", limit=2, continues=continues)
        found += names(page.items)
        continues = page.continues
        if not continues:
            break
    assert found == ["n1", "n3", "n5"]


async def test_a_watch_from_a_list_misses_nothing(store: Store, namespace: str) -> None:
    await store.create(node(namespace, "before"))
    page = await store.list(StorageNode, namespace)
    made = await store.create(node(namespace, "a"))
    made = await store.update(replace(made, spec=replace(made.spec, devices=("/dev/vdb",))))
    await store.delete(StorageNode, "a", namespace)
    await store.create(node(namespace, "b"))
    events = await take(store, namespace, page.revision, 4)
    assert brief(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    assert events[1].object == made


@pytest.mark.slow
async def test_a_watch_sees_what_happens_later(store: Store, namespace: str) -> None:
    page = await store.list(StorageNode, namespace)
    waiting = asyncio.ensure_future(take(store, namespace, page.revision, 1))
    await asyncio.sleep(0.2)
    await store.create(node(namespace, "a"))
    assert brief(await waiting) == [("ADDED", "a")]


async def test_a_watch_resumes_after_any_event(store: Store, namespace: str) -> None:
    page = await store.list(StorageNode, namespace)
    for name in "abcd":
        await store.create(node(namespace, name))
    events = await take(store, namespace, page.revision, 4)
    for position, event in enumerate(events[:-1]):
        rest = await take(store, namespace, event.revision, 3 - position)
        assert rest == events[position + 1 :]


async def test_a_deletion_shows_the_last_state_and_a_version_of_its_own(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace, "a", rack="r1"))
    await store.delete(StorageNode, "a", namespace)
    (event,) = await take(store, namespace, made.metadata.resource_version, 1)
    assert event.type == "DELETED"
    assert event.object is not None
    assert event.object.metadata.labels == {"rack": "r1"}
    assert event.object.metadata.uid == made.metadata.uid
    assert event.object.metadata.resource_version != made.metadata.resource_version


async def test_a_selector_turns_changes_into_arrivals_and_departures(store: Store, namespace: str) -> None:
    page = await store.list(StorageNode, namespace)
    made = await store.create(node(namespace, "a", rack="r2"))
    for rack in ("r1", "r1", "r2"):
        labels = {"rack": rack, "step": made.metadata.resource_version}
        made = await store.update(replace(made, metadata=replace(made.metadata, labels=labels)))
    await store.delete(StorageNode, "a", namespace)
    await store.create(node(namespace, "b", rack="r1"))
    events = await take(store, namespace, page.revision, 4, labels="rack=r1")
    assert brief(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    # What departs is shown as it was while it matched, with the version of the change.
    last, departed = events[1].object, events[2].object
    assert last is not None
    assert departed is not None
    assert departed.metadata.labels == last.metadata.labels
    assert departed.metadata.resource_version == events[2].revision != last.metadata.resource_version


async def test_a_field_selector_filters_a_watch(store: Store, namespace: str) -> None:
    page = await store.list(StorageNode, namespace)
    await store.create(node(namespace, "a"))
    await store.create(node(namespace, "b", type="ceph"))
    assert brief(await take(store, namespace, page.revision, 1, fields="spec.type=ceph")) == [("ADDED", "b")]


async def test_a_watch_of_one_namespace_sees_no_other(store: Store, namespace: str, home: Home) -> None:
    page = await store.list(StorageNode)
    outside = await store.create(node("default", f"other-{namespace}"))
    await store.create(node(namespace, "a"))
    await store.delete(StorageNode, outside.metadata.name, "default")
    assert brief(await take(store, namespace, page.revision, 1)) == [("ADDED", "a")]


async def test_a_write_that_changes_nothing_makes_no_event(store: Store, namespace: str) -> None:
    made = await store.create(node(namespace, "a"))
    await store.update(made)
    await store.create(node(namespace, "b"))
    assert brief(await take(store, namespace, made.metadata.resource_version, 1)) == [("ADDED", "b")]


async def test_another_client_sees_the_same(store: Store, namespace: str, home: Home) -> None:
    page = await store.list(StorageNode, namespace)
    other = await home.open("other")
    made = await store.create(node(namespace, "a"))
    assert await other.get(StorageNode, "a", namespace) == made
    assert brief(await take(other, namespace, page.revision, 1)) == [("ADDED", "a")]


async def test_a_revision_that_is_forgotten_says_so(store: Store, namespace: str, home: Home) -> None:
    await store.create(node(namespace, "a"))
    await store.create(node(namespace, "b"))
    await home.forget(store)
    with pytest.raises(ExpiredError):
        await take(store, namespace, "1", 1)
    assert names((await store.list(StorageNode, namespace)).items) == ["a", "b"]


async def test_a_revision_that_makes_no_sense_is_refused(store: Store, namespace: str) -> None:
    with pytest.raises(QuartermasterError):
        await take(store, namespace, "yesterday", 1)
