"""Days in the life of an etcd over its twin: hosts are lost, come back, join and leave, leaders die, at random.

However it goes, no act of the manager costs the majority, no name is used twice and no host carries two members; and
when the faults stop, as many members serve as there should be.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from quartermaster.planning.quorum import majority, wanted_size
from quartermaster.resources.marks import LEAVING
from quartermaster.resources.orchestration import Host
from quartermaster.stores.modify import modify
from quartermaster.support import entropy
from quartermaster.support.errors import NotFoundError
from quartermaster.testing.simulation import record, run

from .modelled import LEADERS, ModelledCluster, address, host_of

ACTS = ("lose", "return", "replace", "join", "leave", "kill leader", "take out", "wait")
LONGEST_S = 90.0


class Life:
    def __init__(self, made: ModelledCluster, source: Random) -> None:
        self.made = made
        self.source = source
        self.up: dict[str, None] = {}
        self.lost: dict[str, None] = {}
        self.numbers = 3

    async def act(self, act: str) -> None:
        record("act", act)
        match act:
            case "lose" if self._can_lose():
                self._lose(self.source.choice(list(self.up)))
            case "return" if self.lost:
                name = self.source.choice(list(self.lost))
                del self.lost[name]
                self._start(name)
            case "replace" if self.lost:
                name = self.source.choice(list(self.lost))
                del self.lost[name]
                self.made.wipe(name)
                self._start(name)
            case "join" if self.numbers < 9:
                self.numbers += 1
                self._start(f"h{self.numbers}")
            case "leave" if len(self.up) > 3 and not self.lost:
                await self._leave(self.source.choice(list(self.up)))
            case "take out" if self.lost:
                await self._take_out(self.source.choice(list(self.lost)))
            case "kill leader":
                name = self.source.choice(LEADERS)
                self.made.processes[name].kill()
                self.made.lead(name)
        await asyncio.sleep(self.source.random() * LONGEST_S)

    def _can_lose(self) -> bool:
        """What happens by itself must leave a majority: what the manager does is on trial here, not fate."""
        voters = [host_of(one.peer_urls[0]) for one in self.made.etcd.voters]
        running = sum(name in self.made.daemons() for name in voters)
        return len(self.up) > 2 and running - 1 >= majority(len(voters))

    def _start(self, name: str) -> None:
        self.up[name] = None
        self.made.host(name)

    def _lose(self, name: str) -> None:
        del self.up[name]
        self.lost[name] = None
        self.made.lose(name)

    async def _leave(self, name: str) -> None:
        def leaving(host: Host) -> Host:
            return replace(host, metadata=replace(host.metadata, annotations={LEAVING: "now"}))

        await modify(self.made.store, Host, name, "default", leaving)
        deadline = asyncio.get_running_loop().time() + 240
        while (await self.made.memory()).at(name) is not None:
            if asyncio.get_running_loop().time() > deadline:
                return  # it cannot leave now; it stays marked, and goes when it can
            await asyncio.sleep(1.0)
        del self.up[name]
        self.made.processes[name].kill()
        await self.made.store.delete(Host, name, "default")

    async def _take_out(self, name: str) -> None:
        del self.lost[name]
        try:
            await self.made.take_out(name)
        except NotFoundError:
            return


async def life(acts: int) -> int:
    with tempfile.TemporaryDirectory() as directory:
        made = ModelledCluster(Path(directory))
        await made.begin()
        for name in LEADERS:
            made.lead(name)
        lived = Life(made, entropy.source())
        for name in ("h1", "h2", "h3"):
            lived._start(name)
        for _ in range(acts):
            await lived.act(lived.source.choice(ACTS))
            assert made.etcd.violations == []
        while lived.lost:
            await lived.act("return")
        await converge(made)
        promoted = [step for step in made.etcd.history if step.startswith("promote ")]
        assert len(promoted) == len(set(promoted)), "a name was used twice"
        await made.stop()
        return len(made.etcd.history)


async def converge(made: ModelledCluster) -> None:
    """All hosts are well: the number of members is right, each on a host that stays, each running."""
    deadline = asyncio.get_running_loop().time() + 900
    while True:
        hosts = (await made.store.list(Host, "default")).items
        staying = [host.metadata.name for host in hosts if LEAVING not in host.metadata.annotations]
        memory = await made.memory()
        serving = [seat.host for seat in memory.seats if seat.phase == "serving"]
        voters = [host_of(one.peer_urls[0]) for one in made.etcd.voters]
        right = sorted(serving) == sorted(voters) and len(memory.seats) == len(serving)
        if right and len(serving) == wanted_size(len(staying)) and all(name in made.daemons() for name in serving):
            break
        assert asyncio.get_running_loop().time() < deadline, (memory.seats, staying, voters, made.daemons())
        await asyncio.sleep(2.0)
    assert made.etcd.violations == []
    assert all(address(name) in made.machines for name in serving)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_to_hosts_and_leaders_etcd_keeps_its_majority(seed: int) -> None:
    changes = run(partial(life, 8), seed=seed, max_steps=3_000_000).value
    assert changes >= 4


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(6, 200))
def test_whatever_happens_for_longer_etcd_keeps_its_majority(seed: int) -> None:
    assert run(partial(life, 25), seed=seed, max_steps=20_000_000).value >= 4
