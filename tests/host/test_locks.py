"""Locks: real files, several tasks and several processes."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quartermaster.host.fake import FakeLocks
from quartermaster.host.locks import FileLocks, Locks, lock_name
from quartermaster.support.errors import DeadlineError

WORKER = """
import asyncio, sys
from pathlib import Path
from quartermaster.host.locks import FileLocks

async def main():
    counter = Path(sys.argv[2])
    for _ in range(20):
        async with FileLocks(Path(sys.argv[1])).hold("volume/1", timeout_s=30):
            value = int(counter.read_text())
            await asyncio.sleep(0)
            counter.write_text(str(value + 1))

asyncio.run(main())
"""
HOLDER = """
import asyncio, sys
from pathlib import Path
from quartermaster.host.locks import FileLocks

async def main():
    async with FileLocks(Path(sys.argv[1])).hold("volume/1", timeout_s=5):
        print("held", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture(params=["file", "fake"])
def locks(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Locks]:
    fake = FakeLocks()
    return (lambda: FileLocks(tmp_path / "locks")) if request.param == "file" else (lambda: fake)


async def test_one_at_a_time_and_other_resources_are_not_held_back(locks: Callable[[], Locks]) -> None:
    inside: list[int] = []

    async def work() -> None:
        async with locks().hold("volume/1", timeout_s=10):
            inside.append(1)
            assert len(inside) == 1
            await asyncio.sleep(0.002)
            inside.pop()

    async with locks().hold("volume/2", timeout_s=1):
        await asyncio.gather(*(work() for _ in range(10)))
    assert inside == []


async def test_waiting_ends_in_time_and_a_cancelled_waiter_leaves_the_lock_alone(locks: Callable[[], Locks]) -> None:
    async def wait() -> None:
        async with locks().hold("volume/1", timeout_s=30):
            pytest.fail("two at a time")

    async with locks().hold("volume/1", timeout_s=1):
        with pytest.raises(DeadlineError, match=r"cannot lock volume/1: .*has"):
            await locks().hold("volume/1", timeout_s=0.02).__aenter__()
        waiter = asyncio.ensure_future(wait())
        await asyncio.sleep(0.01)
        waiter.cancel()
        await asyncio.wait([waiter])
        assert waiter.cancelled()
    async with locks().hold("volume/1", timeout_s=0.1):
        pass


async def test_the_error_names_who_has_it_and_nothing_is_left_after_release(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path)
    async with locks.hold("volume/1", timeout_s=1):
        assert len(list(tmp_path.iterdir())) == 1
        with pytest.raises(DeadlineError, match=f"process {os.getpid()} has had it for all of 0.01 s"):
            await locks.hold("volume/1", timeout_s=0.01).__aenter__()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_processes_count_without_losing_one(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    argv = [sys.executable, "-c", WORKER, str(tmp_path / "locks"), str(counter)]
    workers = [subprocess.Popen(argv) for _ in range(3)]
    assert [worker.wait(30) for worker in workers] == [0, 0, 0]
    assert counter.read_text() == "60"


async def test_the_kernel_takes_the_lock_from_the_dead(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DeadlineError, match=f"process {holder.pid} has had it"):
            await FileLocks(tmp_path).hold("volume/1", timeout_s=0.02).__aenter__()
        holder.send_signal(signal.SIGKILL)
        async with FileLocks(tmp_path).hold("volume/1", timeout_s=5):
            pass


def test_different_resources_have_different_files() -> None:
    names = ["a", "a/b", "a_b", "a b", "x" * 300, "x" * 301, "..", "."]
    assert len({lock_name(name) for name in names}) == len(names)
    assert all("/" not in lock_name(name) and len(lock_name(name)) < 200 for name in names)


async def test_a_lock_on_a_file_that_was_replaced_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, others = fcntl.flock, []
    path = tmp_path / lock_name("volume")

    def released_and_taken_by_another(fd: int, operation: int) -> None:
        if not others:
            path.unlink()
            others.append(os.open(path, os.O_RDWR | os.O_CREAT))
            flock(others[0], operation)
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", released_and_taken_by_another)
    with pytest.raises(DeadlineError):
        await FileLocks(tmp_path).hold("volume", timeout_s=0.02).__aenter__()
    os.close(others[0])
    async with FileLocks(tmp_path).hold("volume", timeout_s=1):
        pass
