"""A file that is missing, foreign, corrupt, locked, read-only or on a full disk: one sentence each, no half write."""

import asyncio
import fcntl
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from quartermaster.stores.kv.base import Put
from quartermaster.stores.kv.sqlite import SqliteKeyValue
from quartermaster.support.errors import (
    DamagedError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    UsageError,
)

PROGRAM = Path(__file__).with_name("sqlite_process.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 2 MiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(directory)], check=True)
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def remount(directory: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(directory)], check=True)


async def put(store: SqliteKeyValue, key: str, value: bytes = b"x") -> int:
    return (await store.transact([], [Put(key, value)])).revision


async def write_without_end(store: SqliteKeyValue, written: list[str]) -> None:
    for number in itertools.count():
        await put(store, f"/{number:04}", os.urandom(10_000))
        written.append(f"/{number:04}")


async def read_all(path: Path) -> None:
    store = await SqliteKeyValue.open(path)
    try:
        await store.range("/", "0")
    finally:
        await store.close()


async def fill(path: Path, count: int = 200) -> None:
    store = await SqliteKeyValue.open(path)
    await store.transact([], [Put(f"/{number:04}", b"x" * 1000) for number in range(count)])
    await store.close()


async def test_a_directory_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"cannot open sqlite:{tmp_path}: it is a directory; name a file in it"):
        await SqliteKeyValue.open(tmp_path)


async def test_a_file_that_is_not_there(path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no such file"):
        await SqliteKeyValue.open(path, create=False)
    assert list(path.parent.iterdir()) == []


async def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"the directory .*/absent does not exist; make the directory first"):
        await SqliteKeyValue.open(tmp_path / "absent" / "store.db")


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    store = await SqliteKeyValue.open(path)
    assert await put(store, "/a") == 2
    await store.close()


async def test_a_file_that_is_no_database_is_left_as_it_is(path: Path) -> None:
    text = b"kind: StorageNode\n" * 1000
    path.write_bytes(text)
    with pytest.raises(DamagedError, match=r"cannot open sqlite:.*: the file is not a database; name another file"):
        await SqliteKeyValue.open(path)
    assert path.read_bytes() == text


async def test_a_database_of_another_program_is_left_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    before = path.read_bytes()
    with pytest.raises(DamagedError, match="a database of another program"):
        await SqliteKeyValue.open(path)
    assert path.read_bytes() == before


async def test_a_newer_format_is_refused_with_the_reason(path: Path) -> None:
    await fill(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 7")
    with pytest.raises(RefusedError, match=r"written by a newer Quartermaster \(format 7, this one knows 1\); upgrade"):
        await SqliteKeyValue.open(path)


async def test_a_corrupt_header_is_told_with_a_way_out(path: Path) -> None:
    await fill(path)
    with path.open("r+b") as file:
        file.write(os.urandom(100))
    with pytest.raises(DamagedError, match="not a database"):
        await SqliteKeyValue.open(path)


async def test_a_corrupt_page_is_told_with_a_way_out(path: Path) -> None:
    await fill(path)
    with path.open("r+b") as file:
        for page in range(2, path.stat().st_size // 4096):
            file.seek(page * 4096)
            file.write(os.urandom(4096))
    with pytest.raises(DamagedError, match=r"the file is corrupt; keep a copy .* sqlite3 FILE \.recover"):
        await read_all(path)


async def test_a_file_cut_short_is_told(path: Path) -> None:
    await fill(path)
    os.truncate(path, 4096 * 5)
    with pytest.raises(DamagedError, match="the file is corrupt"):
        await read_all(path)


@pytest.mark.slow
@pytest.mark.parametrize("lock", ["sidecar", "database"])
async def test_a_lock_that_is_held_for_too_long_is_told_and_then_forgotten(path: Path, lock: str) -> None:
    store = await SqliteKeyValue.open(path, lock_wait_s=0.2)
    await put(store, "/a")
    with closing(sqlite3.connect(path, isolation_level=None)) as other, open(f"{path}-notify") as sidecar:
        if lock == "sidecar":
            fcntl.flock(sidecar, fcntl.LOCK_EX)
        else:
            other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError, match=r"cannot write sqlite:.*: another process has kept it locked"):
            await put(store, "/b")
        assert await store.get("/a") is not None
    assert await put(store, "/b") == 3
    await store.close()


async def test_a_short_lock_is_waited_for(path: Path) -> None:
    store = await SqliteKeyValue.open(path)
    await put(store, "/a")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.ensure_future(put(store, "/b"))
        await asyncio.wait([writing], timeout=0.1)
        assert not writing.done()
        other.execute("ROLLBACK")
        assert await writing == 3
    await store.close()


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_removed_or_replaced_while_open_takes_no_more_writes(path: Path, replaced: bool) -> None:
    store = await SqliteKeyValue.open(path)
    await put(store, "/a")
    path.rename(path.with_name("moved"))
    if replaced:
        shutil.copy(path.with_name("moved"), path)
    for call in (put(store, "/b"), store.get("/a"), anext(store.watch("/", "0", after=1))):
        with pytest.raises(DamagedError, match="removed or replaced while it was open"):
            await call
    await store.close()


@pytest.mark.slow  # only root may mount
@pytest.mark.parametrize("crashed", [False, True])
async def test_a_read_only_medium_is_read_and_not_written(small_disk: Path, crashed: bool) -> None:
    path = small_disk / "store.db"
    await fill(path, 20)
    if crashed:
        with subprocess.Popen([sys.executable, str(PROGRAM), "write", str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
    remount(small_disk, "ro")
    store = await SqliteKeyValue.open(path)
    assert len((await store.range("/0", "/1")).entries) == 20
    assert (await store.get("/newest") is not None) is crashed
    with pytest.raises(DamagedError, match=r"cannot write sqlite:.*: the file or its directory is read-only; make it"):
        await put(store, "/b")
    async with aclosing(store.watch("/0", "/1", after=1)) as watch:
        assert len((await anext(watch)).changes) == 20
    await store.close()


@pytest.mark.slow  # only root may mount
async def test_a_medium_that_becomes_writable_again_is_written_again(small_disk: Path) -> None:
    path = small_disk / "store.db"
    await fill(path, 20)
    remount(small_disk, "ro")
    store = await SqliteKeyValue.open(path)
    with pytest.raises(DamagedError, match="read-only"):
        await put(store, "/b")
    remount(small_disk, "rw")
    assert await put(store, "/b") == 3
    assert await store.get("/b") is not None
    await store.close()


@pytest.mark.slow  # only root may mount
async def test_a_new_store_on_a_read_only_medium_is_told(small_disk: Path) -> None:
    remount(small_disk, "ro")
    with pytest.raises(DamagedError, match=r"cannot open sqlite:.*: the file or its directory is read-only"):
        await SqliteKeyValue.open(small_disk / "store.db")


@pytest.mark.slow  # only root may mount
async def test_a_full_disk_loses_nothing_and_takes_writes_again_when_there_is_space(small_disk: Path) -> None:
    path, ballast = small_disk / "store.db", small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_000_000)
    store = await SqliteKeyValue.open(path)
    written: list[str] = []
    with pytest.raises(DamagedError, match=r"cannot write sqlite:.*: the disk is full; free some space"):
        await write_without_end(store, written)
    with pytest.raises(DamagedError, match="the disk is full"):
        await put(store, "/again", os.urandom(100_000))
    found = await store.range("/", "0")
    assert [entry.key for entry in found.entries] == written
    assert found.revision == len(written) + 1

    ballast.unlink()
    assert await put(store, "/again", os.urandom(10_000)) == found.revision + 1
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.slow  # only root may mount
async def test_a_store_on_a_full_disk_can_be_read(small_disk: Path) -> None:
    path = small_disk / "store.db"
    await fill(path, 20)
    _fill_up(small_disk)
    store = await SqliteKeyValue.open(path)
    assert len((await store.range("/", "0")).entries) == 20
    with pytest.raises(DamagedError, match="the disk is full"):
        await put(store, "/b", os.urandom(10_000))
    await store.close()


@pytest.mark.slow  # only root may mount
async def test_a_new_store_on_a_full_disk_is_told(small_disk: Path) -> None:
    _fill_up(small_disk)
    with pytest.raises(DamagedError, match=r"cannot open sqlite:.*: the disk is full"):
        await SqliteKeyValue.open(small_disk / "store.db")


def _fill_up(directory: Path) -> None:
    with open(directory / "ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return
