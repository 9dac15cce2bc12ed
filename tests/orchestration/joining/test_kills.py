"""A leader that is killed at any step of changing the members is continued, by itself or by another.

Hosts are processes of their own and die by SIGKILL; the members are real. One run without a kill records the steps;
every `make test` kills at a handful of them, `make test-deep` at each.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from quartermaster.backends.etcd.memory import Memory
from quartermaster.orchestration.joining.bootstrap import bootstrap
from quartermaster.orchestration.joining.client import join

from .host_process import Told
from .hosts import FLAGS, Cluster, LoopbackHost, cluster

# As the run without a kill records them; a new step here is a new place to die at.
STEPS = (
    "write etcd-2 preparing",
    "write etcd-2 joining",
    "add_learner",
    "write etcd-2 joining",
    "promote",
    "write etcd-2 serving",
    "write etcd-3 preparing",
    "write etcd-3 joining",
    "add_learner",
    "write etcd-3 joining",
    "promote",
    "write etcd-3 serving",
    "write etcd-3 removing",
    "remove",
    "forget etcd-3",
    "write etcd-4 preparing",
    "write etcd-4 joining",
    "add_learner",
    "write etcd-4 joining",
    "promote",
    "write etcd-4 serving",
)
HANDFUL = (2, 4, 13, 20)


class Processes:
    """The processes of hosts, and what h1 did in the order in which it did it."""

    def __init__(self, directory: Path, made: Cluster, kill_at: int) -> None:
        self.trace = directory / "trace"
        self.trace.touch()
        self._directory = directory
        self._cluster = made
        self._kill_at = kill_at
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.deaths = 0

    def start(self, host: LoopbackHost) -> None:
        """Only h1 is told to die: it leads, for the others may not yet when the first steps are taken."""
        first = host.name == "h1"
        trace = self.trace if first else self._directory / f"trace-{host.name}"
        told = Told(str(self._directory), host.name, host.address, str(trace), self._kill_at if first else -1)
        path = self._directory / f"{host.name}.json"
        path.write_bytes(msgspec.json.encode(told))
        trace.touch()
        script = Path(__file__).with_name("host_process.py")
        with (self._directory / f"{host.name}.log").open("ab") as log:
            self._running[host.name] = subprocess.Popen(
                [sys.executable, str(script), str(path)], stdout=log, stderr=log, env=os.environ
            )

    def revive(self) -> None:
        """Start h1 again if it died, which it does once: its trace is longer then than the step it dies at."""
        if self._running["h1"].poll() is not None:
            self.deaths += 1
            self.start(self._cluster.hosts["h1"])

    async def until_members(self, *hosts: str) -> Memory:
        deadline = asyncio.get_running_loop().time() + 90
        while True:
            self.revive()
            try:
                return await self._cluster.until_members(*hosts, timeout_s=1.0)
            except AssertionError:
                if asyncio.get_running_loop().time() > deadline:
                    raise

    async def lose(self, name: str) -> None:
        self.end(name)
        await self._cluster.hosts[name].lose()

    def end(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            process.kill()
            process.wait(10)

    def steps(self) -> list[str]:
        return self.trace.read_text().splitlines()

    def close(self) -> None:
        for name in list(self._running):
            self.end(name)


@asynccontextmanager
async def processes(directory: Path, kill_at: int) -> AsyncIterator[tuple[Cluster, Processes]]:
    async with cluster(directory) as made:
        running = Processes(directory, made, kill_at)
        try:
            yield made, running
        finally:
            running.close()


async def grow_and_replace(directory: Path, kill_at: int) -> list[str]:
    """Three members, then the third's host is lost for good and a fourth takes its place."""
    async with processes(directory, kill_at) as (made, running):
        first = made.host("h1")
        await bootstrap(first.directory, "h1", first.addresses, machine=first.machine, flags=FLAGS)
        running.start(first)
        for name in ("h2", "h3"):
            await add(made, running, name)
        await running.until_members("h1", "h2", "h3")
        await running.lose("h3")
        await add(made, running, "h4")
        memory = await running.until_members("h1", "h2", "h4")
        assert len({seat.id for seat in memory.seats}) == 3
        assert running.deaths == (kill_at >= 0)
        return running.steps()


async def add(made: Cluster, running: Processes, name: str) -> None:
    host = made.host(name)
    token = await made.token()
    joining = asyncio.ensure_future(join(host.directory, token, host=name, addresses=host.addresses, patience_s=60))
    while not joining.done():
        running.revive()
        await asyncio.wait([joining], timeout=0.5)
    await joining
    running.start(host)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_the_recorded_steps_are_those_at_which_leaders_are_killed(etcd_program: Path, tmp_path: Path) -> None:
    steps = await grow_and_replace(tmp_path, -1)
    # Another host may have taken the lead on a busy machine, and a refused promotion is asked for again.
    assert [step for number, step in enumerate(steps) if steps[number - 1 : number] != [step]] == list(STEPS)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("step", HANDFUL, ids=lambda step: f"{step}-{STEPS[step].replace(' ', '-')}")
async def test_a_leader_killed_before_a_step_is_continued(etcd_program: Path, tmp_path: Path, step: int) -> None:
    steps = await grow_and_replace(tmp_path, step)
    assert len(steps) > step


@pytest.mark.deep
@pytest.mark.timeout(240)
@pytest.mark.parametrize("step", sorted(set(range(len(STEPS))) - set(HANDFUL)))
async def test_a_leader_killed_before_any_step_is_continued(etcd_program: Path, tmp_path: Path, step: int) -> None:
    steps = await grow_and_replace(tmp_path, step)
    assert len(steps) > step
