"""A leader that is killed at any step of changing the members is continued, by itself or by another.

Hosts are processes of their own and die by SIGKILL; the members are real. One run without a kill records the steps;
every `make test` kills at a handful of them in one more run, `make test-deep` at each, in a run of its own.
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
from msgspec.structs import replace

from quartermaster.backends.etcd.memory import Memory
from quartermaster.orchestration.joining.bootstrap import bootstrap
from quartermaster.orchestration.joining.client import join

from .host_process import Told
from .hosts import FLAGS, SETTINGS, Cluster, LoopbackHost, cluster

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
HANDFUL = ("add_learner", "promote", "remove", "write etcd-4 serving")
# etcd would wait 5 s after each change before it takes another; test_growing.py does wait.
QUICK = replace(SETTINGS, flags=(*FLAGS, "--strict-reconfig-check=false"))


class Processes:
    """The processes of hosts, and what those that led did, in the order in which they did it."""

    def __init__(self, directory: Path, made: Cluster, kill_at: int, kill_first: tuple[str, ...]) -> None:
        self.trace = directory / "trace"
        self.trace.touch()
        self._directory = directory
        self._cluster = made
        self._kill_at = kill_at
        self._kill_first = kill_first
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.deaths = 0

    def start(self, host: LoopbackHost) -> None:
        told = Told(
            str(self._directory), host.name, host.address, str(self.trace), QUICK, self._kill_at, self._kill_first
        )
        path = self._directory / f"{host.name}.json"
        path.write_bytes(msgspec.json.encode(told))
        script = Path(__file__).with_name("host_process.py")
        with (self._directory / f"{host.name}.log").open("ab") as log:
            self._running[host.name] = subprocess.Popen(
                [sys.executable, str(script), str(path)], stdout=log, stderr=log, env=os.environ
            )

    def revive(self) -> None:
        """Start who died again: the trace is longer now than the step at which that was."""
        for name, process in list(self._running.items()):
            if process.poll() is not None:
                self.deaths += 1
                self.start(self._cluster.hosts[name])

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
async def processes(
    directory: Path, kill_at: int, kill_first: tuple[str, ...]
) -> AsyncIterator[tuple[Cluster, Processes]]:
    async with cluster(directory) as made:
        running = Processes(directory, made, kill_at, kill_first)
        try:
            yield made, running
        finally:
            running.close()


async def grow_and_replace(directory: Path, kill_at: int = -1, kill_first: tuple[str, ...] = ()) -> list[str]:
    """Three members, then the third's host is lost for good and a fourth takes its place."""
    async with processes(directory, kill_at, kill_first) as (made, running):
        first = made.host("h1")
        await bootstrap(first.directory, "h1", first.addresses, machine=first.machine, flags=QUICK.flags)
        running.start(first)
        for name in ("h2", "h3"):
            await add(made, running, name)
        await running.until_members("h1", "h2", "h3")
        await running.lose("h3")
        await add(made, running, "h4")
        memory = await running.until_members("h1", "h2", "h4")
        assert len({seat.id for seat in memory.seats}) == 3
        assert running.deaths == (kill_at >= 0) + len(kill_first)
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
    steps = await grow_and_replace(tmp_path)
    # A promotion that is refused is asked for again.
    assert [step for number, step in enumerate(steps) if steps[number - 1 : number] != [step]] == list(STEPS)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_leaders_killed_before_some_of_the_steps_are_continued(etcd_program: Path, tmp_path: Path) -> None:
    steps = await grow_and_replace(tmp_path, kill_first=HANDFUL)
    assert all(steps.count(step) >= 2 for step in HANDFUL), "each was made by somebody after it cost a life"


@pytest.mark.deep
@pytest.mark.timeout(240)
@pytest.mark.parametrize("step", range(len(STEPS)), ids=lambda step: f"{step}-{STEPS[step].replace(' ', '-')}")
async def test_a_leader_killed_before_any_step_is_continued(etcd_program: Path, tmp_path: Path, step: int) -> None:
    steps = await grow_and_replace(tmp_path, step)
    assert len(steps) > step
