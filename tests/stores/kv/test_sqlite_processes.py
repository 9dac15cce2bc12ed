"""Several processes on one file: nothing lost, nothing doubled, and each hears of the others at once."""

import asyncio
import os
import signal
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from quartermaster.stores.kv.base import Put
from quartermaster.stores.kv.sqlite import SqliteKeyValue, watching

PROGRAM = Path(__file__).with_name("sqlite_process.py")
WAIT_S = 30.0


@asynccontextmanager
async def process(mode: str, path: Path, *numbers: object) -> AsyncIterator[Process]:
    arguments = [str(PROGRAM), mode, str(path), *map(str, numbers)]
    child = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def line_of(child: Process) -> str:
    assert child.stdout is not None
    async with asyncio.timeout(WAIT_S):
        return (await child.stdout.readline()).decode().strip()


@pytest.mark.slow
async def test_two_processes_lose_and_double_no_increment_and_a_third_sees_each_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    count = 150
    store = await SqliteKeyValue.open(path)
    async with process("increment", path, count) as first, process("increment", path, count) as second:
        for child in (first, second):
            assert await line_of(child) == "ready"
        for child in (first, second):
            assert child.stdin is not None
            child.stdin.write(b"go\n")
        seen: list[tuple[int, bytes | None]] = []
        async with aclosing(store.watch("/", "0", after=1)) as watch, asyncio.timeout(WAIT_S):
            async for batch in watch:
                seen += [(change.revision, change.value) for change in batch.changes]
                if len(seen) >= 2 * count:
                    break
        outputs = [await child.communicate() for child in (first, second)]
    made = sorted(int(revision) for output, _ in outputs for revision in output.split())
    assert made == list(range(2, 2 * count + 2))
    assert seen == [(number + 1, str(number).encode()) for number in range(1, 2 * count + 1)]
    await store.close()


@pytest.mark.slow
async def test_two_processes_that_write_at_once_share_the_store_fairly(tmp_path: Path) -> None:
    """Plain writes: who loses a compare-and-swap may lose the next one too, however fair the lock is."""
    path = tmp_path / "store.db"
    await (await SqliteKeyValue.open(path)).close()
    async with process("write", path) as first, process("write", path) as second:
        children = (first, second)
        for child in children:
            await line_of(child)
        progress = [0, 0]

        async def follow(index: int) -> None:
            while min(progress) < 200:
                await line_of(children[index])
                progress[index] += 1

        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(follow(0), follow(1))
    assert max(progress) < 10 * min(progress)


@pytest.mark.slow
async def test_a_watcher_hears_of_another_process_without_polling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With a safety tick that does not come, only the other process's word can wake the watcher.
    monkeypatch.setattr(watching, "TICK_S", 3600.0)
    path = tmp_path / "store.db"
    store = await SqliteKeyValue.open(path)
    seen = 0
    async with process("write-alone", path, 100), aclosing(store.watch("/", "0", after=1)) as watch:
        async with asyncio.timeout(WAIT_S):
            while seen < 100:
                seen += len((await anext(watch)).changes)
    assert seen == 100
    await store.close()


@pytest.mark.slow
async def test_a_watcher_that_the_kernel_does_not_wake_looks_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "TICK_S", 0.2)
    path = tmp_path / "store.db"
    store, other = await SqliteKeyValue.open(path), await SqliteKeyValue.open(path)
    async with aclosing(store.watch("/", "0", after=1)) as watch:
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.05)
        # As if the writer had died between its commit and its word to the others.
        monkeypatch.setattr(other._file.sidecar, "announce", lambda revision: None)
        await other.transact([], [Put("/a", b"1")])
        async with asyncio.timeout(5):
            batch = await waiting
    assert [change.key for change in batch.changes] == ["/a"]
    await store.close()
    await other.close()


@pytest.mark.slow
async def test_the_lease_of_a_killed_process_ends_in_the_others(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await SqliteKeyValue.open(path)
    async with process("lease", path, 0.6) as holder, aclosing(store.watch("/", "0", after=1)) as watch:
        assert await line_of(holder) == "held"
        os.kill(holder.pid, signal.SIGKILL)
        async with asyncio.timeout(10):
            assert [change.value for change in (await anext(watch)).changes] == [b"by a process"]
            batch = await anext(watch)
    assert [(change.key, change.value) for change in batch.changes] == [("/held", None)]
    await store.close()


@pytest.mark.slow
async def test_an_idle_watcher_wakes_only_for_its_safety_tick(tmp_path: Path) -> None:
    store = await SqliteKeyValue.open(tmp_path / "store.db")
    async with aclosing(store.watch("/", "0", after=1)) as watch:
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.1)
        reads_before, began = store._hub.reads, time.monotonic()
        await asyncio.sleep(watching.TICK_S * 1.25)
        ticks = (time.monotonic() - began) / watching.TICK_S  # more than asked for on a busy machine
        assert 1 <= store._hub.reads - reads_before <= ticks + 1
        waiting.cancel()
        await asyncio.wait([waiting])
    await store.close()


@pytest.mark.slow
async def test_a_process_reads_nothing_back_that_it_wrote_itself(tmp_path: Path) -> None:
    store = await SqliteKeyValue.open(tmp_path / "store.db")
    seen = 0
    async with aclosing(store.watch("/", "0", after=1)) as watch:
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.1)
        before = store._hub.reads
        for number in range(50):
            await store.transact([], [Put(f"/{number}", b"x")])
        async with asyncio.timeout(5):
            seen += len((await waiting).changes)
            while seen < 50:
                seen += len((await anext(watch)).changes)
    assert store._hub.reads - before <= 3
    await store.close()


async def test_closing_leaves_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def use() -> None:
        store = await SqliteKeyValue.open(tmp_path / "store.db")
        watch = store.watch("/", "0", after=1)
        await store.transact([], [Put("/a", b"1")])
        await anext(watch)
        await watch.aclose()
        await store.close()

    await use()
    before = (threading.active_count(), descriptors())
    await use()
    assert (threading.active_count(), descriptors()) == before
