"""What a lab and its hosts share: the state with its lock, the keepers, and how a host is started and ended.

Every change holds the lab's lock and begins with reading the state again, so a test and a terminal may work on the
same lab.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from quartermaster.host import procfs
from quartermaster.host.commands import HostCommands
from quartermaster.host.locks import FileLocks
from quartermaster.testing.lab import disks, network
from quartermaster.testing.lab.plans import Applied, plan_of, prepare_directory, write_plan
from quartermaster.testing.lab.processes import HUB, Keeper, end_keepers, entering, find_keepers, start_keeper
from quartermaster.testing.lab.state import HOSTS, LabError, LabState, read_state, write_state

_LOCK_TIMEOUT_S = 120.0
# Two labs that choose a subnet at once would choose the same.
_MACHINE_LOCKS = Path("/run/lock")
_REFRESH_TIMEOUT_S = 10.0
_LOOK_S = 0.002

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """For callers who do not watch."""


class LabCore:
    def __init__(self, directory: Path, state: LabState) -> None:
        self.directory = directory
        self.state = state
        self.commands = HostCommands()
        self._locks = FileLocks(directory / "locks")
        self._keepers: dict[str, Keeper] = {}

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[LabState]:
        async with self._locks.hold("lab", timeout_s=_LOCK_TIMEOUT_S):
            self.state = read_state(self.directory)
            yield self.state

    def save(self, state: LabState) -> None:
        """Before anything is done about it."""
        write_state(self.directory, state)
        self.state = state

    def host_directory(self, name: str) -> Path:
        return self.directory / HOSTS / name

    def keeper(self, name: str) -> Keeper | None:
        """The first process of a host that is up, or of the hub."""
        known = self._keepers.get(name)
        if known is not None and known.lives:
            return known
        self._keepers = {keeper.name: keeper for keeper in find_keepers(self.state.id) if keeper.ready}
        return self._keepers.get(name)

    def host_keeper(self, name: str) -> Keeper:
        found = self.keeper(f"host {name}")
        if found is None:
            self.state.host(name)
            raise LabError(f"cannot use the host {name}: it is down", hint=f"`qm lab boot {name}` starts it")
        return found

    def on_host(self, name: str) -> HostCommands:
        return HostCommands(prefix=entering(self.host_keeper(name).pid, only_network=True))

    async def in_hub(self, progress: Progress = silent) -> HostCommands:
        """Where the switch is. It is made anew when its keeper has ended, as after a start of the machine."""
        hub = self.keeper(HUB)
        if hub is None:
            hub = await self._start_hub(progress)
        return HostCommands(prefix=entering(hub.pid, only_network=True))

    async def _start_hub(self, progress: Progress) -> Keeper:
        """Under a lock of the machine until the route stands, by which the next one sees that the subnet is taken."""
        self._refuse_dead_owner()
        async with FileLocks(_MACHINE_LOCKS).hold("quartermaster-lab-subnet", timeout_s=_LOCK_TIMEOUT_S):
            await end_keepers(self.state.id, [HUB])
            await network.remove_machine_cable(self.commands, self.state)
            taken = await network.taken_subnets(self.commands)
            subnet = network.choose_subnet(taken, self.state.subnet)
            self.save(msgspec.structs.replace(self.state, subnet=subnet))
            progress(f"subnet {subnet} is free")
            state = self.state
            verb = f"start the switch of the lab {state.name}"
            hub = await start_keeper(self.commands, state.id, HUB, plan=None, owner=state.owner, verb=verb)
            self._keepers[HUB] = hub
            progress("the switch is there")
            in_hub = HostCommands(prefix=entering(hub.pid, only_network=True))
            await network.lay_switch(self.commands, in_hub, state, hub.pid)
            progress("this machine is connected")
        return hub

    async def boot(self, name: str) -> None:
        """Start a host that is in the state; nothing happens when it is up."""
        host = self.state.host(name)
        if self.keeper(f"host {name}") is not None:
            return
        self._refuse_dead_owner()
        in_hub = await self.in_hub()
        await end_keepers(self.state.id, [f"host {name}"])
        directory = self.host_directory(name)
        directory.mkdir(parents=True, exist_ok=True)
        await disks.refuse_loops(directory, f"start the host {name}")
        prepare_directory(host, directory)
        for disk in host.disks:
            if not disk.lost:
                disks.make_disk(directory, disk)
        plan = directory / "plan.json"
        write_plan(plan_of(host, directory, self.directory), plan)
        keeper = await start_keeper(
            self.commands, self.state.id, name, plan=plan, owner=self.state.owner, verb=f"start the host {name}"
        )
        self._keepers[keeper.name] = keeper
        await network.lay_cable(in_hub, self.on_host(name), self.state, host, keeper.pid)

    async def end(self, name: str) -> None:
        """Everything on the host is gone when this returns, the use of its disks included."""
        await end_keepers(self.state.id, [f"host {name}"])
        await disks.refuse_loops(self.host_directory(name), f"end the host {name}")
        if self.keeper(HUB) is not None:
            await network.pull_cable(await self.in_hub(), self.state.host(name))

    async def refresh(self, name: str) -> None:
        """A host that is up gets and loses disks, as the state says."""
        keeper = self.keeper(f"host {name}")
        if keeper is None:
            return
        directory = self.host_directory(name)
        plan = plan_of(self.state.host(name), directory, self.directory)
        write_plan(plan, directory / "plan.json")
        os.kill(keeper.pid, signal.SIGHUP)
        applied = await _answer(directory, plan.revision)
        if applied is None:
            raise LabError(f"cannot change the disks of {name}: no answer within {_REFRESH_TIMEOUT_S:g} s")
        if applied.problem:
            raise LabError(f"cannot change the disks of {name}: {applied.problem}")

    def _refuse_dead_owner(self) -> None:
        owner = self.state.owner
        if not owner.pid:
            return
        found = procfs.process_stat(owner.pid)
        if found is None or not found.lives or found.started != owner.started:
            raise LabError(
                f"cannot start anything in the lab {self.state.name}: it ended with its process {owner.pid}",
                hint=f"what is left is in {self.directory}; `Lab.open(…).destroy()` removes it",
            )


async def _answer(directory: Path, revision: str) -> Applied | None:
    """None when there is none in time."""
    file = directory / "applied"
    loop = asyncio.get_running_loop()
    ends = loop.time() + _REFRESH_TIMEOUT_S
    while loop.time() < ends:
        with suppress(FileNotFoundError):
            applied = msgspec.json.decode(file.read_bytes(), type=Applied)
            if applied.revision == revision:
                return applied
        await asyncio.sleep(_LOOK_S)
    return None
