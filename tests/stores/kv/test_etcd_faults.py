"""Real faults under the key-value store on etcd: members killed and frozen, the network cut. Callers notice a delay."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from quartermaster.stores.kv.base import Compare, Put
from quartermaster.stores.kv.etcd import EtcdKeyValue, Settings, connect
from quartermaster.support.errors import ExpiredError, UnavailableError
from quartermaster.testing.servers import EtcdCluster, EtcdMember, ServerProcess, find_etcd
from quartermaster.testing.servers.processes import run_tool

Throwaway = Callable[..., Awaitable[EtcdCluster]]
WRITERS = 4


def addresses(etcd: EtcdCluster) -> tuple[str, ...]:
    return tuple(endpoint.partition("://")[2] for endpoint in etcd.endpoints)


async def leader_of(etcd: EtcdCluster) -> EtcdMember:
    """The member that leads, as the running ones see it."""
    running = ",".join(member.url for member in etcd.members if member.running)
    async with asyncio.timeout(20):
        while True:
            shown = await etcd.etcdctl(f"--endpoints={running}", "endpoint", "status", "--write-out=json")
            for row in msgspec.json.decode(shown):
                if row["Status"]["leader"] == row["Status"]["header"]["member_id"]:
                    return next(member for member in etcd.members if member.url == row["Endpoint"])
            await asyncio.sleep(0.1)


async def freeze(member: EtcdMember) -> None:
    """Returns when all threads stand still: until then they may answer."""
    member.pause()
    threads = Path("/proc", str(member.process.pid), "task")
    async with asyncio.timeout(5):
        while any("State:\tT" not in status.read_text() for status in threads.glob("*/status")):
            await asyncio.sleep(0.005)


class Counter:
    """Writers that count up one key by compare-and-swap until told to stop, each with a store of its own."""

    def __init__(self, settings: Settings) -> None:
        self.stores = [connect(settings) for _ in range(WRITERS)]
        self.marks: list[tuple[int, int]] = []  # (writer, its n-th) in the order of being acknowledged
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Counter":
        await self.stores[0].transact([], [Put("/counter", b"[]")])
        self._tasks = [asyncio.ensure_future(self._write(number)) for number in range(WRITERS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        try:
            async with asyncio.timeout(40):
                await asyncio.gather(*self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for store in self.stores:
                await store.close()

    async def further(self, count: int) -> None:
        """Wait until so many more increments were acknowledged, or a writer failed."""
        goal = len(self.marks) + count
        async with asyncio.timeout(40):
            while len(self.marks) < goal:
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)

    async def _write(self, writer: int) -> None:
        store = self.stores[writer]
        number = 0
        while not self._stop.is_set():
            mark = (writer, number)
            entry = await store.get("/counter")
            assert entry is not None
            marks = msgspec.json.decode(entry.value, type=list[tuple[int, int]])
            # The value carries the last mark of each writer: one whose answer was lost is found there.
            own = dict(marks)
            value = msgspec.json.encode(sorted((own | {writer: number}).items()))
            keys = [Put("/counter", value), Put(f"/mark/{writer}/{number:06}", b"")]
            outcome = await store.transact([Compare("/counter", modified=entry.modified)], keys)
            if not outcome.succeeded and outcome.repeated:
                current = outcome.current["/counter"]
                assert current is not None
                done = dict(msgspec.json.decode(current.value, type=list[tuple[int, int]])).get(writer) == number
            else:
                done = outcome.succeeded
            if done:
                self.marks.append(mark)
                number += 1


async def history(store: EtcdKeyValue, start: int, end: int) -> list[tuple[int, list[str]]]:
    """What a watch shows of the writers' marks: (revision, keys) of each batch up to revision `end`."""
    seen: list[tuple[int, list[str]]] = []
    async with aclosing(store.watch("/mark/", "/mark0", after=start)) as watch:
        async for batch in watch:
            if batch.changes:
                seen.append((batch.revision, [change.key for change in batch.changes]))
            if batch.revision >= end:
                break
    return seen


async def assert_nothing_lost_or_doubled(counter: Counter, store: EtcdKeyValue, start: int) -> None:
    """Every acknowledged mark was made by exactly one revision, and no other mark is there."""
    acknowledged = sorted(f"/mark/{writer}/{number:06}" for writer, number in counter.marks)
    entries = (await store.range("/mark/", "/mark0")).entries
    assert [entry.key for entry in entries] == acknowledged
    assert all(entry.created == entry.modified for entry in entries)
    last = max(entry.modified for entry in entries)
    async with asyncio.timeout(30):
        assert await history(store, start, last) == sorted((entry.modified, [entry.key]) for entry in entries)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.6", "3.4"])
async def test_killing_members_under_load_loses_and_doubles_nothing(etcd_throwaway: Throwaway, version: str) -> None:
    etcd = await etcd_throwaway(size=3, version=version)
    store = connect(Settings(endpoints=addresses(etcd)))
    start = await store.revision()
    async with Counter(Settings(endpoints=addresses(etcd))) as counter:
        for member in (*etcd.members, await leader_of(etcd)):
            await counter.further(50)
            await member.kill()
            await counter.further(50)
            await member.start()
            await etcd.ready()
        await (await leader_of(etcd)).kill()
        await counter.further(50)
    await assert_nothing_lost_or_doubled(counter, store, start)
    await store.close()


@pytest.mark.slow
async def test_every_member_knows_the_revision_of_what_was_written_through_another(etcd_throwaway: Throwaway) -> None:
    etcd = await etcd_throwaway(size=3)
    stores = [connect(Settings(endpoints=(address,))) for address in addresses(etcd)]
    for number in range(90):
        written = await stores[number % 3].transact([], [Put(f"/{number}", b"")])
        assert await stores[(number + 1) % 3].revision() >= written.revision
    for store in stores:
        await store.close()


@pytest.mark.slow
async def test_a_frozen_leader_is_a_delay(etcd_throwaway: Throwaway) -> None:
    etcd = await etcd_throwaway(size=3)
    store = connect(Settings(endpoints=addresses(etcd)))
    start = await store.revision()
    async with Counter(Settings(endpoints=addresses(etcd))) as counter:
        await counter.further(20)
        frozen = await leader_of(etcd)
        await freeze(frozen)
        await counter.further(100)
        frozen.resume()
        await counter.further(20)
    await assert_nothing_lost_or_doubled(counter, store, start)
    await store.close()


@pytest.mark.slow
async def test_a_lost_quorum_is_a_delay(etcd_throwaway: Throwaway) -> None:
    etcd = await etcd_throwaway(size=3)
    alive, *frozen = etcd.members
    # The store knows only the member that stays, and so meets "no leader" and not a dead connection.
    store = connect(Settings(endpoints=(alive.url.removeprefix("http://"),)))
    first = await store.transact([], [Put("/a", b"1")])
    async with aclosing(store.watch("/", "0", after=first.revision)) as watch:
        watching = asyncio.ensure_future(anext(watch))
        for member in frozen:
            await freeze(member)
        writing = asyncio.ensure_future(store.transact([Compare("/a", modified=first.revision)], [Put("/a", b"2")]))
        done, _ = await asyncio.wait([writing, watching], timeout=7)
        assert not done
        for member in frozen:
            member.resume()
        async with asyncio.timeout(15):
            outcome = await writing
            # The answer to one of the attempts may have been lost, and with it who did it.
            assert outcome.succeeded or outcome.repeated
            [change] = (await watching).changes
        assert (change.value, change.previous) == (b"2", b"1")
    await store.close()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.6", "3.4"])
async def test_a_watch_outlives_every_member_in_turn(etcd_throwaway: Throwaway, version: str) -> None:
    etcd = await etcd_throwaway(size=3, version=version)
    store = connect(Settings(endpoints=addresses(etcd)))
    start = await store.revision()
    live: list[tuple[int, list[str]]] = []

    async def follow() -> None:
        async with aclosing(store.watch("/mark/", "/mark0", after=start)) as watch:
            async for batch in watch:
                assert not live or batch.revision > live[-1][0]
                live.append((batch.revision, [change.key for change in batch.changes]))

    following = asyncio.ensure_future(follow())
    async with Counter(Settings(endpoints=addresses(etcd))) as counter:
        for member in etcd.members:
            await counter.further(30)
            await member.kill()
            await counter.further(30)
            await member.start()
            await etcd.ready()
    entries = (await store.range("/mark/", "/mark0")).entries
    made = sorted((entry.modified, [entry.key]) for entry in entries)
    async with asyncio.timeout(30):
        while (not live or live[-1][0] < made[-1][0]) and not following.done():
            await asyncio.sleep(0.05)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert [(revision, keys) for revision, keys in live if keys] == made
    await store.close()


class Proxy:
    """Stands between a client and etcd, and can keep the answers to itself."""

    def __init__(self, target: str) -> None:
        self.muted = False
        self._host, _, self._port = target.rpartition(":")
        self._server: asyncio.Server | None = None
        self._connections: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def break_connections(self) -> None:
        for writers in self._connections:
            for writer in writers:
                writer.transport.abort()
        self._connections.clear()

    def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.break_connections()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._connections.append((writer, far_writer))
        await asyncio.gather(
            self._forward(reader, far_writer, answers=False), self._forward(far_reader, writer, answers=True)
        )

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if not (answers and self.muted):
                    writer.write(data)
        writer.transport.abort()


async def test_a_transaction_whose_answer_was_lost_says_that_it_was_repeated(etcd_throwaway: Throwaway) -> None:
    etcd = await etcd_throwaway(size=1)
    direct = connect(Settings(endpoints=addresses(etcd)))
    proxy = Proxy(*addresses(etcd))
    store = connect(Settings(endpoints=(await proxy.start(),)))
    assert not (await store.transact([Compare("/a", modified=1)], [])).repeated
    proxy.muted = True
    writing = asyncio.ensure_future(store.transact([Compare("/a", modified=0)], [Put("/a", b"mine")]))
    async with asyncio.timeout(10):
        while (written := await direct.get("/a")) is None:
            await asyncio.sleep(0.01)
    proxy.muted = False
    proxy.break_connections()
    outcome = await writing
    assert (outcome.succeeded, outcome.repeated) == (False, True)
    assert outcome.current == {"/a": written}
    await store.close()
    await direct.close()
    proxy.close()


class Island:
    """One etcd in a network namespace, reached over a link that can be cut."""

    def __init__(self, directory: Path) -> None:
        # A /30 of the range for network tests, and names, by process: runs beside each other do not meet.
        base = os.getpid() % 16384 * 4
        self.name = f"qm-etcd-{os.getpid()}"
        self.link = f"qm{os.getpid()}"
        self.near, self.far = (f"198.18.{base // 256}.{base % 256 + offset}" for offset in (1, 2))
        self.address = f"{self.far}:2379"
        flags = ["--name", "island", "--data-dir", str(directory / "data"), "--unsafe-no-fsync", "--log-level", "warn"]
        flags += ["--listen-client-urls", f"http://{self.address},http://127.0.0.1:2379"]
        flags += ["--advertise-client-urls", f"http://{self.address}", "--listen-peer-urls", "http://127.0.0.1:2380"]
        command = [*self._inside, str(find_etcd("etcd", "3.6")), *flags]
        process = ServerProcess("etcd", command, directory / "etcd.log", directory=directory)
        self.member = EtcdMember(f"http://{self.address}", process, None)

    @property
    def _inside(self) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.name}"]

    async def run(self, *command: str) -> str:
        return await run_tool(command, timeout_s=10, environment=os.environ, stdin="")

    async def etcdctl(self, *arguments: str) -> str:
        """Speaks to the server from its own side of the link."""
        return await self.run(*self._inside, str(find_etcd("etcdctl", "3.6")), *arguments)

    async def start(self) -> None:
        await self.run("ip", "netns", "add", self.name)
        await self.run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        await self.run("ip", "address", "add", f"{self.near}/30", "dev", self.link)
        await self.run("ip", "-n", self.name, "address", "add", f"{self.far}/30", "dev", "eth0")
        await self.run("ip", "link", "set", self.link, "up")
        await self.run("ip", "-n", self.name, "link", "set", "lo", "up")
        await self.join()
        await self.member.start()
        await self.member.process.until(self.member.healthy, 30)

    async def cut(self) -> None:
        # On the far side: without its own end of the link, this one would send packets along the default route.
        await self.run("ip", "-n", self.name, "link", "set", "eth0", "down")

    async def join(self) -> None:
        await self.run("ip", "-n", self.name, "link", "set", "eth0", "up")

    async def remove(self) -> None:
        await self.member.kill()
        # Sockets that still say goodbye keep a deleted namespace, and with it the link, for a while.
        await self.run("ip", "link", "delete", self.link)
        await self.run("ip", "netns", "delete", self.name)


@pytest.fixture
async def etcd_island(tmp_path: Path) -> AsyncIterator[Island]:
    island = Island(tmp_path)
    try:
        await island.start()
        yield island
    finally:
        await island.remove()


@contextmanager
def lasting(least_s: float, most_s: float) -> Iterator[None]:
    started = asyncio.get_running_loop().time()
    yield
    assert least_s <= asyncio.get_running_loop().time() - started <= most_s


@pytest.mark.slow
@pytest.mark.netns
async def test_calls_and_watches_resume_when_the_network_is_back(etcd_island: Island) -> None:
    store = connect(Settings(endpoints=(etcd_island.address,)))
    first = await store.transact([], [Put("/a", b"1")])
    async with aclosing(store.watch("/", "0", after=first.revision - 1)) as watch:
        assert (await anext(watch)).revision == first.revision
        await etcd_island.cut()
        reading = asyncio.ensure_future(store.get("/a"))
        writing = asyncio.ensure_future(store.transact([Compare("/a", modified=first.revision)], [Put("/a", b"2")]))
        watching = asyncio.ensure_future(anext(watch))
        done, _ = await asyncio.wait([reading, writing, watching], timeout=12)
        assert not done
        await etcd_island.etcdctl("put", "/quartermaster/while-away", "x")
        await etcd_island.join()
        with lasting(0, 20):
            outcome = await writing
            assert outcome.succeeded
            assert await reading is not None
            seen = [await watching]
            while seen[-1].revision < outcome.revision:
                seen.append(await anext(watch))
    changes = [(change.key, change.value) for batch in seen for change in batch.changes]
    assert changes == [("/while-away", b"x"), ("/a", b"2")]
    await store.close()


@pytest.mark.slow
@pytest.mark.netns
async def test_a_cut_network_ends_calls_and_watches_after_the_deadline(etcd_island: Island) -> None:
    store = connect(Settings(endpoints=(etcd_island.address,), deadline_s=3.0))
    revision = await store.revision()
    async with aclosing(store.watch("/", "0", after=revision)) as watch:
        watching = asyncio.ensure_future(anext(watch))
        await asyncio.wait([watching], timeout=2)
        await etcd_island.cut()
        with lasting(2.5, 15), pytest.raises(UnavailableError, match=f"no member of {etcd_island.address}"):
            await store.get("/a")
        with pytest.raises(UnavailableError, match="cannot watch /"):
            await asyncio.wait_for(watching, 20)
    await etcd_island.join()
    assert await store.get("/a") is None
    await store.close()


@pytest.mark.slow
@pytest.mark.netns
async def test_a_watch_learns_that_it_missed_a_compaction(etcd_island: Island) -> None:
    store = connect(Settings(endpoints=(etcd_island.address,)))
    first = await store.transact([], [Put("/a", b"1")])
    async with aclosing(store.watch("/", "0", after=first.revision - 1)) as watch:
        assert (await anext(watch)).revision == first.revision
        await etcd_island.cut()
        # The process that serves the watch must know nothing of it: the kernel sends what it wrote even after its end.
        await etcd_island.member.kill()
        await etcd_island.member.start()
        for number in range(5):
            await etcd_island.etcdctl("put", "/quartermaster/a", str(number))
        await etcd_island.etcdctl("compact", str(first.revision + 5))
        await etcd_island.join()
        with pytest.raises(ExpiredError, match="list again"):
            await asyncio.wait_for(anext(watch), 30)
    assert [entry.value for entry in (await store.range("/", "0")).entries] == [b"4"]
    await store.close()
