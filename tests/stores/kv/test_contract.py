"""The contract of `KeyValue`, the same for every implementation."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from quartermaster.stores.kv.base import Batch, Change, Compare, KeyValue, Put, Remove, prefix_end
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.support import entropy
from quartermaster.support.errors import ExpiredError, NotFoundError
from quartermaster.testing.servers import EtcdAccess, EtcdCluster

IMPLEMENTATIONS = ["memory", "sqlite", pytest.param("etcd", marks=pytest.mark.etcd)]
WAIT_S = 20.0


@asynccontextmanager
async def opened(name: str, directory: Path, endpoints: tuple[str, ...]) -> AsyncIterator[KeyValue]:
    kv: KeyValue
    if name == "memory":
        kv = MemoryKeyValue()
    elif name == "sqlite":
        from quartermaster.stores.kv.sqlite import SqliteKeyValue

        kv = await SqliteKeyValue.open(directory / "store.db")
    else:
        from quartermaster.stores.kv.etcd import Settings, connect

        addresses = tuple(endpoint.removeprefix("http://") for endpoint in endpoints)
        kv = connect(Settings(endpoints=addresses, prefix=f"/{entropy.new_uid()}"))
    try:
        yield kv
    finally:
        await kv.close()


@pytest.fixture(params=IMPLEMENTATIONS)
async def kv(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KeyValue]:
    """A store without keys. Its revisions may be counted up by others too."""
    endpoints: tuple[str, ...] = ()
    if request.param == "etcd":
        access: EtcdAccess = request.getfixturevalue("etcd_servers")
        endpoints = access.endpoints
    async with opened(request.param, tmp_path, endpoints) as store:
        yield store


@pytest.fixture(params=IMPLEMENTATIONS)
async def kv_alone(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KeyValue]:
    """A store that nobody else uses, for tests that compact it or count its revisions."""
    if request.param == "etcd":
        async with EtcdCluster(tmp_path / "etcd", size=1) as etcd, opened("etcd", tmp_path, etcd.endpoints) as store:
            yield store
    else:
        async with opened(request.param, tmp_path, ()) as store:
            yield store


async def put(kv: KeyValue, key: str, value: bytes, lease: int = 0) -> int:
    outcome = await kv.transact([], [Put(key, value, lease)])
    assert outcome.succeeded
    return outcome.revision


async def changes_until(watch: AsyncGenerator[Batch, None], revision: int) -> list[Change]:
    """All changes up to a revision. Checks on the way that revisions come whole and in order."""
    found: list[Change] = []
    reached = 0
    async with asyncio.timeout(WAIT_S):
        async for batch in watch:
            revisions = [change.revision for change in batch.changes]
            assert revisions == sorted(revisions)
            assert all(reached < number <= batch.revision for number in revisions)
            assert batch.revision > reached
            reached = batch.revision
            found.extend(batch.changes)
            if reached >= revision:
                return found
    raise AssertionError("the watch ended by itself")


async def next_changes(watch: AsyncGenerator[Batch, None]) -> list[Change]:
    """What happens next. What others count up meanwhile comes as batches without changes."""
    async with asyncio.timeout(WAIT_S):
        async for batch in watch:
            if batch.changes:
                return list(batch.changes)
    raise AssertionError("the watch ended by itself")


async def test_a_key_that_is_not_there_is_none(kv: KeyValue) -> None:
    assert await kv.get("/absent") is None


async def test_which_keys_were_written_after_a_revision_is_told_without_their_values(kv: KeyValue) -> None:
    first = await put(kv, "/w/a", b"1")
    second = await put(kv, "/w/b", b"1")
    await put(kv, "/x", b"1")
    everything = await kv.written("/w/", "/w0")
    assert everything.keys == {"/w/a": first, "/w/b": second}
    assert everything.revision > second
    third = await put(kv, "/w/a", b"2")
    await kv.transact([], [Remove("/w/b")])
    assert (await kv.written("/w/", "/w0", after=everything.revision)).keys == {"/w/a": third}
    assert (await kv.written("/w/", "/w0", after=third)).keys == {}


async def test_a_written_key_carries_its_revisions(kv: KeyValue) -> None:
    first = await put(kv, "/a", b"1")
    second = await put(kv, "/a", b"2")
    entry = await kv.get("/a")
    assert entry is not None
    assert (entry.key, entry.value, entry.created, entry.modified) == ("/a", b"2", first, second)
    assert first < second <= await kv.revision()


async def test_a_key_made_again_counts_as_new(kv: KeyValue) -> None:
    await put(kv, "/a", b"1")
    await kv.transact([], [Remove("/a")])
    again = await put(kv, "/a", b"2")
    entry = await kv.get("/a")
    assert entry is not None
    assert (entry.created, entry.modified) == (again, again)


async def test_modified_0_holds_only_while_the_key_is_absent(kv: KeyValue) -> None:
    compare = Compare("/a", modified=0)
    assert (await kv.transact([compare], [Put("/a", b"1")])).succeeded
    assert not (await kv.transact([compare], [Put("/a", b"2")])).succeeded
    await kv.transact([], [Remove("/a")])
    assert (await kv.transact([compare], [Put("/a", b"3")])).succeeded


async def test_a_stale_revision_writes_nothing_and_shows_what_is_there(kv: KeyValue) -> None:
    old = await put(kv, "/a", b"1")
    new = await put(kv, "/a", b"2")
    outcome = await kv.transact([Compare("/a", modified=old), Compare("/b", modified=0)], [Put("/a", b"3")])
    assert not outcome.succeeded
    assert outcome.current.keys() == {"/a", "/b"}
    assert outcome.current["/b"] is None
    current = outcome.current["/a"]
    assert current == await kv.get("/a")
    assert current is not None
    assert (current.value, current.modified) == (b"2", new)


async def test_a_value_is_compared_and_never_equals_an_absent_one(kv: KeyValue) -> None:
    await put(kv, "/a", b"")
    assert (await kv.transact([Compare("/a", value=b"")], [])).succeeded
    assert not (await kv.transact([Compare("/a", value=b"x")], [])).succeeded
    assert not (await kv.transact([Compare("/absent", value=b"")], [])).succeeded


async def test_all_conditions_must_hold(kv: KeyValue) -> None:
    revision = await put(kv, "/a", b"1")
    compares = [Compare("/a", modified=revision), Compare("/a", value=b"other")]
    outcome = await kv.transact(compares, [Put("/b", b"1"), Remove("/a")])
    assert not outcome.succeeded
    assert await kv.get("/b") is None
    assert await kv.get("/a") is not None


async def test_all_operations_share_one_revision(kv: KeyValue) -> None:
    await put(kv, "/c", b"1")
    outcome = await kv.transact([], [Put("/a", b"1"), Put("/b", b"2"), Remove("/c")])
    found = await kv.range("/", "0")
    assert [(entry.key, entry.modified) for entry in found.entries] == [
        ("/a", outcome.revision),
        ("/b", outcome.revision),
    ]


async def test_concurrent_increments_are_all_counted(kv: KeyValue) -> None:
    await put(kv, "/n", b"0")

    async def increment() -> None:
        while True:
            entry = await kv.get("/n")
            assert entry is not None
            compare = Compare("/n", modified=entry.modified)
            if (await kv.transact([compare], [Put("/n", str(int(entry.value) + 1).encode())])).succeeded:
                return

    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*(increment() for _ in range(20)))
    entry = await kv.get("/n")
    assert entry is not None
    assert entry.value == b"20"


async def test_a_transaction_that_changes_nothing_makes_no_revision(kv_alone: KeyValue) -> None:
    revision = await put(kv_alone, "/a", b"1")
    for operations in ([], [Remove("/absent")]):
        outcome = await kv_alone.transact([], operations)
        assert (outcome.succeeded, outcome.revision) == (True, revision)
    assert not (await kv_alone.transact([Compare("/a", modified=0)], [Put("/a", b"2")])).succeeded
    assert await kv_alone.revision() == revision
    assert await put(kv_alone, "/a", b"2") == revision + 1


async def test_a_range_has_its_start_and_not_its_end(kv: KeyValue) -> None:
    await kv.transact([], [Put(key, b"") for key in ("/a", "/b", "/b/x", "/c")])
    found = await kv.range("/b", "/c")
    assert [entry.key for entry in found.entries] == ["/b", "/b/x"]
    assert not found.more
    assert (await kv.range("/d", "/e")).entries == ()


async def test_keys_are_ordered_by_their_utf8_bytes(kv: KeyValue) -> None:
    # UTF-16 would put the last before the two before it; a collation would put é beside e.
    keys = ["/k/", "/k/E", "/k/e", "/k/z", "/k/é", "/k/\uff5a", "/k/\ufffd", "/k/\U0001f5c4"]
    assert keys == sorted(keys, key=str.encode)
    await kv.transact([], [Put(key, b"") for key in reversed(keys)])
    found = await kv.range("/k/", prefix_end("/k/"))
    assert [entry.key for entry in found.entries] == keys
    assert [entry.key for entry in (await kv.range("/k/é", "/k/\U0001f5c4")).entries] == keys[4:7]


async def test_a_range_shows_an_old_revision_as_it_was(kv: KeyValue) -> None:
    created = await kv.transact([], [Put("/a", b"1"), Put("/b", b"1")])
    await kv.transact([], [Put("/a", b"2"), Remove("/b"), Put("/c", b"2")])
    old = await kv.range("/", "0", revision=created.revision)
    assert old.revision == created.revision
    assert [(entry.key, entry.value, entry.modified) for entry in old.entries] == [
        ("/a", b"1", created.revision),
        ("/b", b"1", created.revision),
    ]
    assert [entry.key for entry in (await kv.range("/", "0")).entries] == ["/a", "/c"]


async def test_pages_of_one_revision_are_one_picture(kv: KeyValue) -> None:
    keys = [f"/k/{number}" for number in range(7)]
    await kv.transact([], [Put(key, b"old") for key in keys])
    first = await kv.range("/k/", "/k0", limit=3)
    assert first.more
    await kv.transact([], [Put("/k/5", b"new"), Remove("/k/6"), Put("/k/7", b"new")])
    seen = list(first.entries)
    page = first
    while page.more:
        page = await kv.range(seen[-1].key + "\0", "/k0", limit=3, revision=first.revision)
        assert page.revision == first.revision
        seen.extend(page.entries)
    assert [(entry.key, entry.value) for entry in seen] == [(key, b"old") for key in keys]


@pytest.mark.parametrize(("limit", "more"), [(1, True), (2, False), (3, False), (0, False)])
async def test_more_says_whether_the_limit_cut_something(kv: KeyValue, limit: int, more: bool) -> None:
    await kv.transact([], [Put("/a", b""), Put("/b", b"")])
    found = await kv.range("/", "0", limit=limit)
    assert (len(found.entries), found.more) == (min(limit or 2, 2), more)


async def test_a_long_range_comes_whole_and_in_order(kv: KeyValue) -> None:
    keys = [f"/k/{number:04}" for number in range(1200)]
    for position in range(0, len(keys), 100):
        await kv.transact([], [Put(key, b"x") for key in keys[position : position + 100]])
    found = await kv.range("/k/", "/k0")
    assert [entry.key for entry in found.entries] == keys
    assert not found.more
    cut = await kv.range("/k/", "/k0", limit=700)
    assert [entry.key for entry in cut.entries] == keys[:700]
    assert cut.more


async def test_a_watch_tells_every_change_with_what_was_before(kv: KeyValue) -> None:
    before = await kv.revision()
    created = await put(kv, "/w/a", b"1")
    changed = await put(kv, "/w/a", b"2")
    await put(kv, "/x", b"not in the range")
    removed = (await kv.transact([], [Remove("/w/a")])).revision
    async with aclosing(kv.watch("/w/", "/w0", after=before)) as watch:
        assert await changes_until(watch, removed) == [
            Change("/w/a", b"1", created, created, None),
            Change("/w/a", b"2", changed, created, b"1"),
            Change("/w/a", None, removed, created, b"2"),
        ]


async def test_a_watch_goes_on_with_what_happens_after_it_began(kv: KeyValue) -> None:
    start = await put(kv, "/w/a", b"0")
    async with aclosing(kv.watch("/w/", "/w0", after=start)) as watch:
        for number in range(1, 4):
            revision = await put(kv, "/w/a", str(number).encode())
            [change] = await changes_until(watch, revision)
            assert (change.value, change.previous) == (str(number).encode(), str(number - 1).encode())


async def test_changes_of_one_revision_come_in_one_batch(kv: KeyValue) -> None:
    before = await kv.revision()
    keys = [f"/w/{number:02}" for number in range(40)]
    outcome = await kv.transact([], [Put(key, b"x") for key in keys])
    async with aclosing(kv.watch("/w/", "/w0", after=before)) as watch:
        found = await next_changes(watch)
    assert sorted(change.key for change in found) == keys
    assert {change.revision for change in found} == {outcome.revision}


async def test_a_watch_resumed_from_any_batch_misses_and_repeats_nothing(kv: KeyValue) -> None:
    before = await kv.revision()
    revisions = [await put(kv, "/w/a", str(number).encode()) for number in range(10)]
    for position, after in enumerate([before, *revisions[:-1]]):
        async with aclosing(kv.watch("/w/", "/w0", after=after)) as watch:
            found = await changes_until(watch, revisions[-1])
        assert [change.revision for change in found] == revisions[position:]


async def test_watches_side_by_side_see_the_same(kv: KeyValue) -> None:
    before = await kv.revision()

    async def follow() -> list[Change]:
        async with aclosing(kv.watch("/w/", "/w0", after=before)) as watch:
            found = await next_changes(watch)
            while found[-1].value != b"last":
                found += await next_changes(watch)
            return found

    followers = [asyncio.ensure_future(follow()) for _ in range(5)]
    for number in range(50):
        await put(kv, f"/w/{number % 7}", str(number).encode())
    await put(kv, "/w/end", b"last")
    async with asyncio.timeout(WAIT_S):
        first, *others = await asyncio.gather(*followers)
    assert [change.value for change in first] == [*(str(number).encode() for number in range(50)), b"last"]
    assert all(other == first for other in others)


@pytest.mark.slow
async def test_a_waiting_watch_can_be_cancelled(kv: KeyValue) -> None:
    watch = kv.watch("/w/", "/w0", after=await kv.revision())
    waiting = asyncio.ensure_future(changes_until(watch, 2**62))
    await asyncio.wait([waiting], timeout=0.2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await watch.aclose()
    assert await kv.get("/w/a") is None


async def test_what_was_compacted_is_expired(kv_alone: KeyValue) -> None:
    revisions = [await put(kv_alone, "/a", str(number).encode()) for number in range(6)]
    await kv_alone.compact(revisions[3])
    with pytest.raises(ExpiredError):
        await kv_alone.range("/", "0", revision=revisions[2])
    with pytest.raises(ExpiredError):
        async with aclosing(kv_alone.watch("/", "0", after=revisions[0])) as watch, asyncio.timeout(WAIT_S):
            await anext(watch)
    kept = await kv_alone.range("/", "0", revision=revisions[3])
    assert [entry.value for entry in kept.entries] == [b"3"]
    async with aclosing(kv_alone.watch("/", "0", after=revisions[3])) as watch:
        assert [change.value for change in await changes_until(watch, revisions[5])] == [b"4", b"5"]


async def test_compacting_again_or_less_far_is_no_error(kv_alone: KeyValue) -> None:
    revisions = [await put(kv_alone, "/a", b"x") for _ in range(4)]
    await kv_alone.compact(revisions[2])
    await kv_alone.compact(revisions[2])
    await kv_alone.compact(revisions[0])
    with pytest.raises(ExpiredError):
        await kv_alone.range("/", "0", revision=revisions[1])
    assert (await kv_alone.range("/", "0", revision=revisions[2])).revision == revisions[2]


async def test_compaction_does_not_disturb_a_watch_that_is_up_to_date(kv_alone: KeyValue) -> None:
    start = await put(kv_alone, "/a", b"0")
    async with aclosing(kv_alone.watch("/", "0", after=start)) as watch:
        for number in range(1, 4):
            revision = await put(kv_alone, "/a", str(number).encode())
            assert len(await changes_until(watch, revision)) == 1
            await kv_alone.compact(revision)


async def test_a_removed_key_stays_removed_after_compaction(kv_alone: KeyValue) -> None:
    await put(kv_alone, "/a", b"1")
    removed = (await kv_alone.transact([], [Remove("/a")])).revision
    last = await put(kv_alone, "/b", b"1")
    await kv_alone.compact(last)
    assert await kv_alone.get("/a") is None
    assert [entry.key for entry in (await kv_alone.range("/", "0")).entries] == ["/b"]
    with pytest.raises(ExpiredError):
        await kv_alone.range("/", "0", revision=removed)


async def test_a_revoked_lease_takes_its_keys_and_a_watch_tells(kv: KeyValue) -> None:
    lease = await kv.grant(60)
    created = (await kv.transact([], [Put("/l/a", b"1", lease), Put("/l/b", b"2", lease), Put("/l/c", b"3")])).revision
    async with aclosing(kv.watch("/l/", "/l0", after=created)) as watch:
        await kv.revoke(lease)
        found = await next_changes(watch)
    assert sorted((change.key, change.value, change.previous) for change in found) == [
        ("/l/a", None, b"1"),
        ("/l/b", None, b"2"),
    ]
    assert [entry.key for entry in (await kv.range("/l/", "/l0")).entries] == ["/l/c"]
    assert not await kv.keep_alive(lease)
    await kv.revoke(lease)


async def test_a_key_written_again_without_the_lease_outlives_it(kv: KeyValue) -> None:
    lease = await kv.grant(60)
    await put(kv, "/l/a", b"1", lease)
    await put(kv, "/l/a", b"2")
    await kv.revoke(lease)
    assert await kv.get("/l/a") is not None


async def test_a_key_cannot_be_put_under_a_lease_that_ended(kv: KeyValue) -> None:
    lease = await kv.grant(60)
    await kv.revoke(lease)
    with pytest.raises(NotFoundError):
        await kv.transact([], [Put("/l/a", b"1", lease)])
    assert await kv.get("/l/a") is None


@pytest.mark.slow
async def test_a_lease_that_nobody_keeps_alive_ends_with_its_keys(kv: KeyValue) -> None:
    kept, left = await kv.grant(2), await kv.grant(2)
    created = (await kv.transact([], [Put("/l/kept", b"1", kept), Put("/l/left", b"2", left)])).revision

    async def keep() -> None:
        while True:
            assert await kv.keep_alive(kept)
            await asyncio.sleep(0.3)

    keeping = asyncio.ensure_future(keep())
    try:
        async with aclosing(kv.watch("/l/", "/l0", after=created)) as watch:
            [change] = await next_changes(watch)
    finally:
        keeping.cancel()
    assert (change.key, change.value, change.previous) == ("/l/left", None, b"2")
    assert not await kv.keep_alive(left)
    assert await kv.get("/l/kept") is not None


async def test_closing_twice_is_closing_once(kv: KeyValue) -> None:
    await put(kv, "/a", b"1")
    url = kv.url
    await kv.close()
    await kv.close()
    assert kv.url == url
