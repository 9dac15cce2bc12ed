"""What was acknowledged is there after a crash, and what is there is a prefix of what was written."""

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from quartermaster.stores.kv.base import Put
from quartermaster.stores.kv.sqlite import SqliteKeyValue

PROGRAM = Path(__file__).with_name("sqlite_process.py")
KILLS = 100
WRITES = 20
LOG_HEADER_BYTES = 32
FRAME_BYTES = 24 + 4096


async def verify_history(store: SqliteKeyValue, after: int) -> int:
    """Every revision is there once, in order, and shows what the keys hold. Returns the newest."""
    newest = await store.revision()
    seen = after
    if newest == after:
        return newest
    async with aclosing(store.watch("", "\U0010ffff", after=after)) as watch:
        async for batch in watch:
            for change in batch.changes:
                assert change.revision in (seen, seen + 1), "a revision is missing or out of order"
                seen = change.revision
            assert batch.revision == seen
            if seen >= newest:
                return newest
    raise AssertionError("the watch ended")


@pytest.mark.slow
async def test_nothing_acknowledged_is_lost_when_the_writer_is_killed_a_hundred_times(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await (await SqliteKeyValue.open(path)).close()
    chance = random.Random(3)
    acknowledged: dict[str, int] = {}
    verified = 1
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), "nursery", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for _ in range(KILLS):
            nursery.stdin.write("next\n")
            nursery.stdin.flush()
            pid = int(nursery.stdout.readline().removeprefix("pid "))
            wanted = chance.randrange(0, 40)
            lines = [nursery.stdout.readline() for _ in range(wanted)]
            time.sleep(chance.uniform(0, 0.004))
            os.kill(pid, signal.SIGKILL)
            while (line := nursery.stdout.readline()) != "ended\n":
                lines.append(line)
            newly = {f"/n/{int(number):09}": int(revision) for number, revision in map(str.split, lines)}
            acknowledged |= newly

            store = await SqliteKeyValue.open(path, create=False)
            for key, revision in newly.items():
                entry = await store.get(key)
                assert entry is not None
                assert entry.modified == revision
            verified = await verify_history(store, verified)
            await store.close()
        nursery.stdin.close()

    store = await SqliteKeyValue.open(path, create=False)
    found = await store.range("/n/", "/n0")
    assert {entry.key: entry.modified for entry in found.entries}.items() >= acknowledged.items()
    assert sorted(entry.modified for entry in found.entries) == list(range(2, found.revision + 1))
    await store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    assert len(acknowledged) > KILLS


@pytest.mark.slow
async def test_a_log_cut_at_any_frame_holds_all_writes_acknowledged_before_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    log = Path(f"{path}-wal")
    store = await SqliteKeyValue.open(path)
    log_bytes: list[int] = []  # as long as the log was when each write was acknowledged
    for number in range(WRITES):
        outcome = await store.transact([], [Put(f"/n/{number:09}", b"x" * 1500), Put("/newest", b"%d" % number)])
        assert outcome.revision == number + 2
        log_bytes.append(log.stat().st_size)
    database, whole = path.read_bytes(), log.read_bytes()
    await store.close()

    frames = (len(whole) - LOG_HEADER_BYTES) // FRAME_BYTES
    assert len(whole) == LOG_HEADER_BYTES + frames * FRAME_BYTES == log_bytes[-1]
    boundaries = [LOG_HEADER_BYTES + frame * FRAME_BYTES for frame in range(frames + 1)]
    kept: list[int] = []
    for length in [0, *boundaries, *(boundary + 100 for boundary in boundaries[::10])]:
        directory = tmp_path / "cut"
        directory.mkdir()
        cut = directory / "store.db"
        cut.write_bytes(database)
        Path(f"{cut}-wal").write_bytes(whole[:length])
        store = await SqliteKeyValue.open(cut)
        found = await store.range("/n/", "/n0")
        expected = sum(size <= length for size in log_bytes)
        assert [entry.key for entry in found.entries] == [f"/n/{number:09}" for number in range(expected)]
        assert await verify_history(store, 1) == expected + 1
        outcome = await store.transact([], [Put("/after", b"the crash")])
        assert outcome.revision == expected + 2
        await store.close()
        shutil.rmtree(directory)
        kept.append(expected)
    assert min(kept) == 0
    assert max(kept) == WRITES


@pytest.mark.slow  # strace comes with the packages of `make test`
def test_the_log_is_synced_before_each_acknowledgement(tmp_path: Path) -> None:
    assert shutil.which("strace"), "strace is missing: apt-get install strace"
    trace = tmp_path / "trace"
    count = 20
    strace = ["strace", "-f", "-y", "-e", "trace=pwrite64,write,fsync,fdatasync", "-o", str(trace)]
    program = [sys.executable, str(PROGRAM), "write-alone", str(tmp_path / "store.db"), str(count)]
    subprocess.run(
        [*strace, *program],
        check=True,
        timeout=60,
        stdout=subprocess.DEVNULL,
    )
    pending, synced, acknowledgements = 0, 0, 0
    # A call that another thread interrupts stands on two lines, and the second one does not say which file it is about.
    syncing: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        pid = line.split()[0]
        if re.search(r"pwrite64\(\d+<[^>]*-wal>", line):
            pending += 1
        elif begun := re.search(r"f(?:data)?sync\(\d+<([^>]*)> <unfinished", line):
            syncing[pid] = begun[1]
        elif done := re.search(r"f(?:data)?sync(?:\(\d+<([^>]*)>\)|( resumed>)\)) += 0$", line):
            if (syncing.pop(pid) if done[2] else done[1]).endswith("-wal"):
                synced += pending
                pending = 0
        elif "acknowledged" in line and "write(1" in line:
            acknowledgements += 1
            assert synced > 0, "acknowledged what was not written to the log"
            assert pending == 0, "acknowledged before the log was synced"
            synced = 0
    assert acknowledgements == count
