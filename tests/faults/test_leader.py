"""The leader is killed, or stopped for longer than its lease: the next one leads in time, the old one is refused."""

import asyncio
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import datetime
from pathlib import Path

import pytest

from quartermaster.resources import ConfigMap, Lease
from quartermaster.resources.kubernetes.core import LeaseSpec
from quartermaster.stores import Store, open_store
from quartermaster.support import entropy
from quartermaster.testing.servers import EtcdAccess, KubernetesAccess

LEASE_S = 3
RETRY_S = 1.0
# Beyond lease + retry, which the simulation checks exactly: an attempt that is slow where other tests run. It stays
# below lease - retry: else a lease that is waited for twice would pass.
SLACK_S = 1.5
SQLITE = "sqlite"
ETCD = pytest.param("etcd", marks=pytest.mark.etcd)
KUBERNETES = pytest.param("kubernetes", marks=pytest.mark.kubernetes)

pytestmark = pytest.mark.slow


class Home:
    """A store that several processes open, and the name of what they quarrel about in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lease = f"fault-{entropy.name_suffix(10)}"

    async def counter(self) -> dict[str, str]:
        async with self.opened() as store:
            return (await store.get(ConfigMap, self.lease, "default")).data

    async def lease_spec(self) -> LeaseSpec:
        async with self.opened() as store:
            return (await store.get(Lease, self.lease, "default")).spec

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        store = await open_store(self.url)
        try:
            yield store
        finally:
            await store.close()


@pytest.fixture
async def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Home]:
    if request.param == "kubernetes":
        kubernetes: KubernetesAccess = request.getfixturevalue("kubernetes_server")
        monkeypatch.setenv("KUBECONFIG", str(kubernetes.kubeconfig))
        home = Home("kubernetes:")
    elif request.param == "etcd":
        etcd: EtcdAccess = request.getfixturevalue("etcd_servers")
        endpoints = ",".join(endpoint.removeprefix("http://") for endpoint in etcd.endpoints)
        home = Home(f"etcd://{endpoints}/{tmp_path.name}-{time.time_ns()}")
    else:
        home = Home(f"sqlite:{tmp_path}/store.db")
    yield home
    async with home.opened() as store:
        await store.delete(ConfigMap, home.lease, "default")
        await store.delete(Lease, home.lease, "default")


class Candidate:
    """One process and what it told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.told: list[tuple[float, str]] = []

    async def until(self, word: str, *, after: int = 0, timeout_s: float = 25.0) -> tuple[float, str]:
        """When it first told `word`, beyond its first `after` lines, and what came with it."""
        assert self.process.stdout is not None
        for at, text in self.told[after:]:
            if text.startswith(word):
                return at, text.removeprefix(word).strip()
        async with asyncio.timeout(timeout_s):
            async for line in self.process.stdout:
                at, _, text = line.decode().strip().partition(" ")
                self.told.append((float(at), text))
                if text.startswith(word):
                    return float(at), text.removeprefix(word).strip()
        raise AssertionError(f'the candidate ended without "{word}"; it told {self.told[-5:]}')


@asynccontextmanager
async def candidate(home: Home, name: str) -> AsyncIterator[Candidate]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.faults.candidate",
        home.url,
        home.lease,
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


@pytest.mark.parametrize("home", [SQLITE, ETCD, KUBERNETES], indirect=True)
async def test_after_a_killed_leader_the_next_one_leads_within_lease_and_retry(home: Home) -> None:
    async with candidate(home, "one") as first:
        _, epoch = await first.until("leads")
        await first.until("counted")
        async with candidate(home, "two") as second:
            await second.until("stood")
            first.process.kill()
            await first.process.wait()
            left = await home.lease_spec()
            assert left.holder_identity == "one"
            _, next_epoch = await second.until("leads")
            assert int(next_epoch) > int(epoch)
            taken = await home.lease_spec()
            # By the words of the processes themselves: what it takes to start, to read and to print is no part of it.
            waited_s = (moment(taken.acquire_time) - moment(left.renew_time)).total_seconds()
            assert LEASE_S <= waited_s <= LEASE_S + RETRY_S + SLACK_S
            await second.until("counted")
            assert (await home.counter())["history"] == f"{epoch} {next_epoch}"


@pytest.mark.parametrize("home", [SQLITE, ETCD, KUBERNETES], indirect=True)
async def test_a_leader_that_was_stopped_past_its_lease_is_refused(home: Home) -> None:
    async with candidate(home, "one") as first:
        _, epoch = await first.until("leads")
        await first.until("counted")
        async with candidate(home, "two") as second:
            await second.until("stood")
            await freeze(home, first)
            _, next_epoch = await second.until("leads")
            await second.until("counted")
            first.process.send_signal(signal.SIGCONT)
            _, outcome = await first.until("late write")
            assert outcome.startswith("refused:")
            on_kubernetes = home.url == "kubernetes:"
            assert (f"its epoch {epoch} is over" if on_kubernetes else f"no longer leads in epoch {epoch}") in outcome
            await second.until("counted", after=len(second.told))
            assert (await home.counter())["history"] == f"{epoch} {next_epoch}"


def moment(text: str | None) -> datetime:
    assert text is not None
    return datetime.fromisoformat(text)


async def freeze(home: Home, leader: Candidate) -> None:
    """Stop it between two writes: in one it would keep the lock of an embedded store, and nobody could lead."""
    for _ in range(50):
        leader.process.send_signal(signal.SIGSTOP)
        await until_stopped(leader.process.pid)
        if not home.url.startswith("sqlite:") or is_unlocked(home.url.removeprefix("sqlite:")):
            return
        leader.process.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.01)
    raise AssertionError("the leader was met inside a write every time")


async def until_stopped(pid: int) -> None:
    """The signal is only on its way when `kill` returns: a thread on another core goes on for a moment."""
    async with asyncio.timeout(5.0):
        while any(state_of(thread) != "T" for thread in Path(f"/proc/{pid}/task").iterdir()):
            await asyncio.sleep(0.001)


def state_of(thread: Path) -> str:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


def is_unlocked(path: str) -> bool:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True
