"""What happens to hosts, disks, daemons and cables while leader and agents work.

What is lost for good is lost only where every volume that is on it has its newest content elsewhere as often as it
needs: that is what a volume is made for. Whatever comes back by itself may happen at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from quartermaster.backends.glusterfs.daemon import DAEMON
from quartermaster.support import entropy
from quartermaster.testing.simulation import Chaos, SeededFaults, record

from .administrator import LEAST_NODES
from .hosts import GlusterMachine
from .invariants import Auditor
from .model import GlusterModel

Action = Callable[[], Coroutine[Any, Any, bool]]
LONGEST_S = 40.0
VERY_LONG_S = 150.0  # longer than data wait for a silent host
MOST_DISKS = 3
_STUCK = 0.3  # the chance that a brick which is killed is never started again by its glusterd


class Hardware:
    def __init__(
        self,
        machines: Mapping[str, GlusterMachine],
        addresses: Mapping[str, str],
        model: GlusterModel,
        auditor: Auditor,
        chaos: Chaos,
        faults: SeededFaults,
    ) -> None:
        self.done: dict[str, int] = {}
        self.most_destroyed = 1
        self._machines = machines
        self._addresses = addresses
        self._model = model
        self._auditor = auditor
        self._chaos = chaos
        self._faults = faults
        self._until: dict[str, float] = {}  # of what ends by itself: "boot h1" → when

    async def work(self, mean_gap_s: float, enough: asyncio.Event) -> None:
        source = entropy.source()
        actions: tuple[Action, ...] = (
            self._host_crash,
            self._host_crash,
            self._link_cut,
            self._link_cut,
            self._pair_cut,
            self._glusterd_killed,
            self._brick_killed,
            self._disk_died,
            self._disk_died,
            self._disk_pulled,
            self._disk_plugged,
            self._host_destroyed,
        )
        while not enough.is_set():
            await self._pause(source.expovariate(1 / mean_gap_s))
            action = source.choice(actions)
            # What is written in that second is on too few bricks if another one goes: nobody can help that.
            while self._model.delicate:
                await asyncio.sleep(0.1)
            if any(not machine.down for machine in self._machines.values()) and await action():
                name = action.__name__.strip("_").replace("_", " ")
                self.done[name] = self.done.get(name, 0) + 1

    def calm(self) -> None:
        """All that can come back does; who was destroyed stays so."""
        self._until.clear()
        self._model.network.heal_all()
        for machine in self._machines.values():
            machine.put_back()
            machine.down = machine.destroyed

    async def _pause(self, seconds: float) -> None:
        """Meanwhile what was to end ends."""
        ends = asyncio.get_running_loop().time() + seconds
        while (left_s := ends - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left_s, 1.0))
            for what in [one for one, until in self._until.items() if until <= asyncio.get_running_loop().time()]:
                del self._until[what]
                self._end(what)

    def _end(self, what: str) -> None:
        verb, host, *other = what.split()
        if verb == "boot":
            self._machines[host].down = self._machines[host].destroyed
        elif verb == "heal":
            self._model.network.heal(self._addresses[host])
        elif verb == "between":
            self._model.network.heal_between(self._addresses[host], self._addresses[other[0]])
        elif verb == "disks":
            self._machines[host].put_back()
        self._auditor.judge.disturbed(host)
        record("hardware", what)

    def _later(self, what: str) -> float:
        seconds = entropy.source().uniform(1.0, VERY_LONG_S if entropy.source().random() < 0.15 else LONGEST_S)
        self._until.setdefault(what, asyncio.get_running_loop().time() + seconds)
        return seconds

    def _host(self) -> str:
        alive = [host for host, machine in self._machines.items() if not machine.down]
        return entropy.source().choice(alive)

    async def _host_crash(self) -> bool:
        host = self._host()
        await self._crash(host)
        self._later(f"boot {host}")
        return True

    async def _crash(self, host: str) -> None:
        """Its agent is started again at once, and waits until the host is up."""
        machine = self._machines[host]
        record("hardware", host, "crashed")
        self._auditor.judge.disturbed(host)
        machine.down = True
        self._chaos.processes[host].kill()
        machine.reboot()
        self._model.kill_bricks(self._addresses[host])
        await self._chaos._restart(host, 0.0)

    async def _link_cut(self) -> bool:
        """Of the whole host, or of its storage network alone."""
        host = self._host()
        self._model.network.cut(self._addresses[host])
        seconds = self._later(f"heal {host}")
        if entropy.source().random() < 0.7:
            self._faults.cut_off(host, seconds)
        record("hardware", host, "cut off")
        return True

    async def _pair_cut(self) -> bool:
        one, other = self._host(), self._host()
        if one == other:
            return False
        self._model.network.cut_between(self._addresses[one], self._addresses[other])
        self._later(f"between {one} {other}")
        record("hardware", one, other, "cut off from each other")
        return True

    async def _glusterd_killed(self) -> bool:
        machine = self._machines[self._host()]
        process = machine.processes.get(DAEMON)
        if process is None or not process.lives:
            return False
        machine.kill(DAEMON)
        record("hardware", machine.name, "glusterd killed")
        return True

    async def _brick_killed(self) -> bool:
        host = self._host()
        paths = self._model.brick_paths(self._addresses[host])
        if not paths:
            return False
        path = entropy.source().choice(paths)
        self._model.kill_bricks(self._addresses[host], [path])
        record("hardware", host, "brick killed")
        if entropy.source().random() < _STUCK:
            self._model.get_stuck(self._addresses[host], path)
        return True

    async def _disk_died(self) -> bool:
        """A blank one takes its place, at once or some time later."""
        machine = self._machines[self._host()]
        paths = list(machine.storage)
        if not paths:
            return False
        path = entropy.source().choice(paths)
        if not self._may_lose(machine, machine.disks[path].number):
            return False
        machine.die(path)
        self._auditor.judge.disturbed(machine.name)
        if entropy.source().random() < 0.5:
            machine.plug(path.removeprefix("/dev/"))
        return True

    async def _disk_pulled(self) -> bool:
        machine = self._machines[self._host()]
        if not machine.storage:
            return False
        self._auditor.judge.disturbed(machine.name)
        machine.pull(entropy.source().choice(list(machine.storage)))
        self._later(f"disks {machine.name}")
        return True

    async def _disk_plugged(self) -> bool:
        machine = self._machines[self._host()]
        free = next((name for name in ("vdb", "vdc", "vdd") if f"/dev/{name}" not in machine.disks), "")
        if not free or len(machine.storage) >= MOST_DISKS:
            return False
        machine.plug(free)
        return True

    async def _host_destroyed(self) -> bool:
        host = self._host()
        machine = self._machines[host]
        gone = sum(one.destroyed for one in self._machines.values())
        staying = sum(not one.destroyed and not one.leaving for one in self._machines.values() if one is not machine)
        # Whoever leaves has to find others that take what is on it.
        if gone >= self.most_destroyed or staying < LEAST_NODES or not self._may_lose(machine, ""):
            return False
        machine.destroyed = True  # at once: while it crashes somebody may count who is left
        await self._crash(host)
        record("hardware", host, "destroyed")
        return True

    def _may_lose(self, machine: GlusterMachine, number: str) -> bool:
        return all(self._auditor.survives(volume, (machine, number)) for volume in self._model.volumes.values())
