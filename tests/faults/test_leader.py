"""The leader is killed, or stopped for longer than its lease: the next one leads in time, the old one is refused."""

import asyncio
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from quartermaster.resources import ConfigMap
from quartermaster.stores import open_store
from quartermaster.testing.servers import EtcdAccess
from tests.faults.candidate import COUNTER

LEASE_S = 3
RETRY_S = 1.0
# Beyond lease + retry: starting an attempt and writing it, on a machine that runs other tests.
SLACK_S = 1.5

pytestmark = pytest.mark.slow


class Candidate:
    """One process and what it told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.told: list[tuple[float, str]] = []

    async def until(self, word: str, *, after: int = 0, timeout_s: float = 25.0) -> float:
        """When it first told `word`, beyond its first `after` lines."""
        assert self.process.stdout is not None
        for at, text in self.told[after:]:
            if text.startswith(word):
                return at
        async with asyncio.timeout(timeout_s):
            async for line in self.process.stdout:
                at, _, text = line.decode().strip().partition(" ")
                self.told.append((float(at), text))
                if text.startswith(word):
                    return float(at)
        raise AssertionError(f'the candidate ended without "{word}"; it told {self.told[-5:]}')


@asynccontextmanager
async def candidate(url: str, name: str) -> AsyncIterator[Candidate]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.faults.candidate",
        url,
        name,
        str(LEASE_S),
        str(RETRY_S),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        yield Candidate(process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        await process.communicate()


@pytest.fixture(params=["sqlite", pytest.param("etcd", marks=pytest.mark.etcd)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path}/store.db"
    access: EtcdAccess = request.getfixturevalue("etcd_servers")
    return f"etcd://{','.join(e.removeprefix('http://') for e in access.endpoints)}/{tmp_path.name}-{time.time_ns()}"


async def counter(url: str) -> dict[str, str]:
    store = await open_store(url)
    try:
        return (await store.get(ConfigMap, COUNTER)).data
    finally:
        await store.close()


async def test_after_a_killed_leader_the_next_one_leads_within_lease_and_retry(url: str) -> None:
    async with candidate(url, "one") as first:
        await first.until("leads 1")
        await first.until("counted")
        async with candidate(url, "two") as second:
            await second.until("found")
            first.process.kill()
            killed = time.monotonic()
            led = await second.until("leads 2")
            assert led - killed <= LEASE_S + RETRY_S + SLACK_S
            await second.until("counted")
            assert (await counter(url))["epoch"] == "2"


async def test_a_leader_that_was_stopped_past_its_lease_is_refused(url: str) -> None:
    async with candidate(url, "one") as first:
        await first.until("counted")
        async with candidate(url, "two") as second:
            await second.until("found")
            await stopped_and_refused(url, first, second)


async def freeze(url: str, leader: Candidate) -> None:
    """Stop it between two writes: in one it would keep the lock of an embedded store, and nobody could lead."""
    for _ in range(50):
        leader.process.send_signal(signal.SIGSTOP)
        if not url.startswith("sqlite:") or is_unlocked(url.removeprefix("sqlite:")):
            return
        leader.process.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.01)
    raise AssertionError("the leader was met inside a write every time")


def is_unlocked(path: str) -> bool:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


async def stopped_and_refused(url: str, first: Candidate, second: Candidate) -> None:
    await freeze(url, first)
    await second.until("leads 2")
    await second.until("counted")
    told = len(first.told)
    first.process.send_signal(signal.SIGCONT)
    await first.until("refused", after=told)
    before = int((await counter(url))["count"])
    await second.until("counted", after=len(second.told))
    found = await counter(url)
    assert found["epoch"] == "2"
    assert int(found["count"]) >= before
