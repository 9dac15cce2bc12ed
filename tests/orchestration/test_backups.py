"""Backups that the leader makes by itself: often enough, no more than are wanted, and none that is not whole."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quartermaster.engine.runtime import Runtime
from quartermaster.orchestration.backups import Backups, BackupSchedule
from quartermaster.resources import ConfigMap, ObjectMeta
from quartermaster.stores import Store, open_store
from quartermaster.stores.objects.copying import open_backup
from quartermaster.support import clock
from quartermaster.support.tasks import TaskGroup

SOON = BackupSchedule(every_s=0.05, first_s=0.0, keep=3)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:{tmp_path}/store.db")
    await opened.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
def every_backup_has_its_own_second(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()

    def next_one() -> str:
        minutes, second = divmod(next(seconds), 60)
        return f"2026-01-01T00:{minutes:02}:{second:02}Z"

    monkeypatch.setattr(clock, "timestamp", next_one)


@asynccontextmanager
async def leading(store: Store, url: str, directory: Path) -> AsyncIterator[None]:
    runtime = Runtime(store)
    runtime.add(Backups(url, directory, SOON))
    async with TaskGroup() as group:
        group.start(runtime.run())
        yield
        runtime.stop()


async def until_there(directory: Path, count: int) -> list[Path]:
    async with asyncio.timeout(10):
        while len(found := sorted(directory.glob("*.qmb"))) < count:
            await asyncio.sleep(0.01)
    return found


@pytest.mark.slow
async def test_the_latest_are_kept_whole_and_private(store: Store, tmp_path: Path) -> None:
    directory = tmp_path / "backups"
    async with leading(store, f"sqlite:{tmp_path}/store.db", directory):
        first = (await until_there(directory, 1))[0]
        async with asyncio.timeout(10):
            while first.exists():
                await asyncio.sleep(0.01)
    kept = sorted(directory.iterdir())
    assert len(kept) == 3
    assert all(open_backup(path).objects == 1 for path in kept)
    assert {path.stat().st_mode & 0o777 for path in (*kept, directory)} == {0o600, 0o700}


async def test_what_a_leader_that_died_left_unfinished_goes(store: Store, tmp_path: Path) -> None:
    directory = tmp_path / "backups"
    directory.mkdir()
    torn = directory / ".store-2025-12-31T235959Z.qmb.new"
    torn.write_text("half of it")
    async with leading(store, f"sqlite:{tmp_path}/store.db", directory):
        await until_there(directory, 1)
    assert not torn.exists()


async def test_a_backup_that_cannot_be_written_is_tried_again_at_its_next_time(store: Store, tmp_path: Path) -> None:
    directory = tmp_path / "backups"
    directory.write_text("in the way")
    async with leading(store, f"sqlite:{tmp_path}/store.db", directory):
        await asyncio.sleep(0.12)
        directory.unlink()
        assert await until_there(directory, 1)
