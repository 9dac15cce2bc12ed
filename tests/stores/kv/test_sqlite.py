"""The embedded store beyond the contract: the file, group commit, history, leases, watchers that lag."""

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from quartermaster.stores.kv.base import Batch, Compare, KeyValue, Outcome, Put, Remove
from quartermaster.stores.kv.sqlite import HistoryLimits, SqliteKeyValue, default_path, watching
from quartermaster.stores.kv.sqlite.ledger import Clock
from quartermaster.stores.kv.sqlite.watcher import BUFFER_CHANGES
from quartermaster.stores.kv.sqlite.writer import Commit, Work
from quartermaster.support.errors import ExpiredError, InvalidError, NotFoundError, UnavailableError

WAIT_S = 10.0
NEVER_S = 3600.0


class SetClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def boot(self, name: str) -> Clock:
        return Clock(name, lambda: self.now_s)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteKeyValue]:
    opened = await SqliteKeyValue.open(path)
    yield opened
    await opened.close()


async def put(store: KeyValue, key: str, value: bytes = b"x", lease: int = 0) -> int:
    return (await store.transact([], [Put(key, value, lease)])).revision


async def to_the_end(watch: AsyncIterator[Batch]) -> None:
    async for _ in watch:
        pass


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_only_the_owner_may_read_any_of_its_files(store: SqliteKeyValue, path: Path) -> None:
    old = os.umask(0)
    try:
        await put(store, "/secret")
    finally:
        os.umask(old)
    names = {found.name: mode_of(found) for found in path.parent.iterdir()}
    assert names == dict.fromkeys(["store.db", "store.db-wal", "store.db-shm", "store.db-notify"], 0o600)


async def test_the_directory_of_the_default_place_is_made_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert default_path() == tmp_path / "state/quartermaster/store.db"
    await (await SqliteKeyValue.open(default_path())).close()
    assert mode_of(default_path().parent) == 0o700


async def test_the_default_place_is_in_the_home_directory() -> None:
    assert default_path({"HOME": "/home/ada"}) == Path("/home/ada/.local/state/quartermaster/store.db")


async def test_the_default_place_is_with_all_other_state_where_that_is_elsewhere() -> None:
    assert default_path({"HOME": "/home/ada", "QM_STATE_DIR": "/srv/qm"}) == Path("/srv/qm/store.db")


async def test_a_path_with_signs_that_mean_something_in_an_address(tmp_path: Path) -> None:
    path = tmp_path / "what?mode=ro&x#y%20z ü.db"
    store = await SqliteKeyValue.open(path)
    await put(store, "/a")
    await store.close()
    assert path.exists()
    assert store.url == f"sqlite:{path}"


async def test_everything_is_there_after_opening_again(path: Path) -> None:
    store = await SqliteKeyValue.open(path)
    first = await put(store, "/a", b"1")
    second = await put(store, "/a", b"2")
    await store.close()
    store = await SqliteKeyValue.open(path, create=False)
    assert await store.revision() == second
    assert (await store.range("/", "0", revision=first)).entries[0].value == b"1"
    assert await put(store, "/a", b"3") == second + 1
    await store.close()


def bytes_read() -> int:
    """By this process, from whatever file, so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.slow
async def test_opening_reads_the_same_few_pages_whatever_the_file_holds(path: Path) -> None:
    read = []
    for size in (1, 10_000):
        store = await SqliteKeyValue.open(path)
        await store.transact([], [Put(f"/{number}", b"x" * 100) for number in range(size)])
        await store.close()
        before = bytes_read()
        store = await SqliteKeyValue.open(path)
        read.append(bytes_read() - before)
        await store.close()
    assert path.stat().st_size > 1_000_000
    assert max(read) < 100_000


async def test_many_processes_worth_of_opening_at_once_make_one_store(path: Path) -> None:
    stores = await asyncio.gather(*(SqliteKeyValue.open(path) for _ in range(8)))
    revisions = await asyncio.gather(*(put(store, f"/{number}") for number, store in enumerate(stores)))
    assert sorted(revisions) == list(range(2, 10))
    for store in stores:
        await store.close()


async def test_writes_that_wait_together_keep_their_own_conditions_and_revisions(store: SqliteKeyValue) -> None:
    def claim(name: bytes) -> asyncio.Future[Outcome]:
        return asyncio.ensure_future(store.transact([Compare("/owner", modified=0)], [Put("/owner", name)]))

    outcomes = await asyncio.gather(*(claim(b"%d" % number) for number in range(100)))
    assert [outcome.succeeded for outcome in outcomes] == [True] + [False] * 99
    assert await store.revision() == 2
    loser = outcomes[99].current["/owner"]
    assert loser is not None
    assert loser.value == b"0"

    revisions = await asyncio.gather(*(put(store, f"/{number}") for number in range(100)))
    assert revisions == list(range(3, 103))


async def test_writes_that_wait_together_share_a_commit(store: SqliteKeyValue, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []
    perform = store._writer._perform

    def counted(connection: sqlite3.Connection, works: Sequence[Work]) -> tuple[list[object], Commit]:
        groups.append(len(works))
        return perform(connection, works)

    monkeypatch.setattr(store._writer, "_perform", counted)
    await asyncio.gather(*(put(store, f"/{number}") for number in range(200)))
    assert sum(groups) == 200
    assert len(groups) <= 4


async def test_a_refused_write_leaves_its_neighbours_alone(store: SqliteKeyValue) -> None:
    results = await asyncio.gather(
        put(store, "/a"),
        store.transact([], [Put("/b", b"1"), Remove("/b")]),
        put(store, "/c", lease=77),
        put(store, "/d"),
        return_exceptions=True,
    )
    assert isinstance(results[1], InvalidError)
    assert isinstance(results[2], NotFoundError)
    assert (results[0], results[3]) == (2, 3)
    assert [entry.key for entry in (await store.range("/", "0")).entries] == ["/a", "/d"]


async def test_a_caller_that_gives_up_does_not_disturb_the_others(store: SqliteKeyValue) -> None:
    given_up = [asyncio.ensure_future(put(store, f"/given-up/{number}")) for number in range(20)]
    kept = [asyncio.ensure_future(put(store, f"/kept/{number}")) for number in range(20)]
    await asyncio.sleep(0)
    for task in given_up:
        task.cancel()
    await asyncio.gather(*kept)
    assert len((await store.range("/kept/", "/kept0")).entries) == 20
    assert await store.revision() == 1 + len((await store.range("/", "0")).entries)


@pytest.mark.slow
async def test_more_writes_than_the_queue_holds_all_happen(store: SqliteKeyValue) -> None:
    revisions = await asyncio.gather(*(put(store, f"/{number}") for number in range(3000)))
    assert sorted(revisions) == list(range(2, 3002))


async def test_an_old_revision_shows_keys_that_changed_came_and_went_since(store: SqliteKeyValue) -> None:
    pictures = {}
    for number in range(30):
        operation = Remove(f"/{number % 5}") if number % 7 == 6 else Put(f"/{number % 5}", b"%d" % number)
        revision = (await store.transact([], [operation])).revision
        pictures[revision] = (await store.range("/", "0")).entries
    for revision, entries in pictures.items():
        assert (await store.range("/", "0", revision=revision)).entries == entries


async def test_a_revision_that_is_not_yet_is_expired_as_after_restoring_a_backup(store: SqliteKeyValue) -> None:
    with pytest.raises(ExpiredError, match="kept are revisions 1 to 1"):
        await store.range("/", "0", revision=99)
    with pytest.raises(ExpiredError):
        await anext(store.watch("/", "0", after=99))


@pytest.mark.slow
async def test_history_is_bounded_in_changes(path: Path) -> None:
    store = await SqliteKeyValue.open(path, history=HistoryLimits(changes=100))
    revisions = [await put(store, "/a", b"%d" % number) for number in range(300)]
    with pytest.raises(ExpiredError):
        await store.range("/", "0", revision=revisions[150])
    assert (await store.range("/", "0", revision=revisions[210])).entries[0].value == b"210"
    async with aclosing(store.watch("/", "0", after=revisions[200])) as watch:
        assert [change.value for change in (await anext(watch)).changes] == [b"%d" % n for n in range(201, 300)]
    await store.close()


@pytest.mark.slow
async def test_history_is_bounded_in_bytes_and_the_file_stops_growing(path: Path) -> None:
    store = await SqliteKeyValue.open(path, history=HistoryLimits(size_bytes=1_000_000))

    async def churn() -> int:
        for number in range(150):
            await put(store, f"/{number % 3}", os.urandom(20_000))
        return path.stat().st_size

    await churn()
    settled = await churn()
    assert await churn() <= settled * 1.1
    assert settled < 6_000_000
    await store.close()


async def test_compaction_of_a_long_history_lets_other_writes_pass(store: SqliteKeyValue) -> None:
    for _ in range(20):
        last = (await store.transact([], [Put(f"/{number}", b"x") for number in range(100)])).revision
    compaction = asyncio.ensure_future(store.compact(last))
    await asyncio.gather(compaction, *(put(store, "/between") for _ in range(20)))
    with pytest.raises(ExpiredError):
        await store.range("/", "0", revision=last - 1)
    assert len((await store.range("/", "0", revision=last)).entries) == 100


async def test_a_revision_of_many_changes_is_one_batch(store: SqliteKeyValue) -> None:
    operations = [Put(f"/{number:05}", b"x") for number in range(3 * watching.CHUNK_CHANGES)]
    await put(store, "/first")
    await store.transact([], operations)
    last = await put(store, "/last")
    async with aclosing(store.watch("/", "0", after=1)) as watch, asyncio.timeout(WAIT_S):
        batches: list[Batch] = []
        while not batches or batches[-1].revision < last:
            batches.append(await anext(watch))
    where = [position for position, batch in enumerate(batches) if any(c.revision == 3 for c in batch.changes)]
    assert len(where) == 1
    assert sum(len(batch.changes) for batch in batches) == len(operations) + 2


@pytest.mark.slow
async def test_a_watcher_that_lags_behind_its_buffer_reads_the_rest_from_history(store: SqliteKeyValue) -> None:
    async with aclosing(store.watch("/", "0", after=1)) as watch, asyncio.timeout(WAIT_S):
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.05)
        count = 2 * BUFFER_CHANGES
        await asyncio.gather(*(put(store, f"/{number}") for number in range(count)))
        revisions = [change.revision for change in (await waiting).changes]
        while len(revisions) < count:
            revisions += [change.revision for change in (await anext(watch)).changes]
    assert revisions == list(range(2, count + 2))


@pytest.mark.slow
async def test_a_watcher_that_lags_behind_all_history_is_told_so(path: Path) -> None:
    store = await SqliteKeyValue.open(path, history=HistoryLimits(changes=500))
    async with aclosing(store.watch("/", "0", after=1)) as watch, asyncio.timeout(WAIT_S):
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.05)
        for _ in range(20):
            await store.transact([], [Put(f"/{number}", b"x") for number in range(300)])
        await waiting
        with pytest.raises(ExpiredError):
            await to_the_end(watch)
    await store.close()


async def test_a_watch_of_a_quiet_range_shows_progress(store: SqliteKeyValue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "TICK_S", 0.1)
    async with aclosing(store.watch("/quiet/", "/quiet0", after=1)) as watch, asyncio.timeout(WAIT_S):
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.05)
        last = await put(store, "/elsewhere")
        batch = await waiting
    assert (batch.changes, batch.revision) == ((), last)


async def test_watching_without_the_kernels_help_polls(
    store: SqliteKeyValue, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(path: Path) -> int:
        raise OSError(24, "no more inotify instances")

    monkeypatch.setattr("quartermaster.stores.kv.sqlite.notification._watch", none_left)
    monkeypatch.setattr(watching, "TICK_S", NEVER_S)
    other = await SqliteKeyValue.open(path)
    async with aclosing(store.watch("/", "0", after=1)) as watch, asyncio.timeout(WAIT_S):
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.05)
        await put(other, "/a")
        assert [change.key for change in (await waiting).changes] == ["/a"]
    await other.close()


@pytest.mark.slow
async def test_a_lease_ends_by_itself_and_a_watcher_does_not_wait_for_its_safety_tick(
    store: SqliteKeyValue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "TICK_S", NEVER_S)
    lease = await store.grant(0.3)
    revision = await put(store, "/held", lease=lease)
    async with aclosing(store.watch("/", "0", after=revision)) as watch, asyncio.timeout(WAIT_S):
        batch = await anext(watch)
    assert [(change.key, change.value) for change in batch.changes] == [("/held", None)]


async def test_a_write_after_the_end_of_a_lease_never_finds_its_keys(path: Path) -> None:
    clock = SetClock()
    store = await SqliteKeyValue.open(path, clock=clock.boot("one"))
    lease = await store.grant(10)
    await put(store, "/held", lease=lease)
    clock.now_s += 9
    assert await store.keep_alive(lease)
    clock.now_s += 9
    assert not (await store.transact([Compare("/held", modified=0)], [])).succeeded
    clock.now_s += 2
    assert (await store.transact([Compare("/held", modified=0)], [Put("/held", b"mine")])).succeeded
    assert not await store.keep_alive(lease)
    await store.close()


async def test_leases_of_an_earlier_boot_are_over(path: Path) -> None:
    clock = SetClock()
    store = await SqliteKeyValue.open(path, clock=clock.boot("one"))
    revision = await put(store, "/held", lease=await store.grant(3600))
    await store.close()
    store = await SqliteKeyValue.open(path, clock=clock.boot("one"))
    assert await store.get("/held") is not None
    await store.close()

    clock.now_s = 5.0
    store = await SqliteKeyValue.open(path, clock=clock.boot("two"))
    async with aclosing(store.watch("/", "0", after=revision)) as watch, asyncio.timeout(WAIT_S):
        assert [(change.key, change.value) for change in (await anext(watch)).changes] == [("/held", None)]
    assert await store.get("/held") is None
    await store.close()


async def test_after_closing_every_call_says_that_it_is_closed(store: SqliteKeyValue) -> None:
    watch = store.watch("/", "0", after=1)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0.05)
    written = asyncio.ensure_future(put(store, "/submitted-before"))
    await asyncio.sleep(0)
    await store.close()
    assert await written == 2
    for call in (waiting, store.get("/a"), put(store, "/a"), store.revision()):
        with pytest.raises(UnavailableError, match="closed"):
            await call
