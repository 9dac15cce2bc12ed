"""Adding a node and removing it again, with a process killed at one chosen step: a write, or a call on a host.

Without a kill a run records its steps. Each of them is then a place to die at, before it takes effect or right after;
whoever is left, or started anew, must bring the same thing to the same end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec

from quartermaster.host.fake import Faults, Moment
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.storage import StorageNode, StorageNodeSpec, StorageStatus
from quartermaster.support.errors import NotFoundError
from quartermaster.testing.simulation import record, run
from quartermaster.testing.simulation.process import PROCESS

from .administrator import TYPE
from .hosts import GIB
from .invariants import CONVERGES, NAMESPACE, UNFENCED, Witness
from .scenario import HOSTS, Scenario
from .staging import LEADERS, RETRY_S

SEED = 7
OLD, NEW = HOSTS[0], HOSTS[1]  # a node that is there throughout, and the one that comes and goes
WAIT_S = 90.0


class Step(msgspec.Struct, frozen=True, order=True):
    """Something that a leader or an agent did while a node was added or removed."""

    phase: str  # add, remove
    who: str  # leader, agent
    what: str  # "write assignments/local-default.h1", "mount /dev/vdb on …"
    number: int = 0  # which of several alike

    def __str__(self) -> str:
        return f"{self.phase}: {self.who}: {self.what}" + (f" ({self.number + 1})" if self.number else "")


class Journal:
    """Numbers the steps of a phase, and says when the one has come at which somebody is to die."""

    def __init__(self, fatal: tuple[Step, Moment] | None = None) -> None:
        self.phase = ""
        self.steps: list[Step] = []
        self.killed = 0
        self._fatal = fatal

    def step(self, what: str) -> Step | None:
        process = PROCESS.get()
        if process is None or not self.phase or process.name not in (*LEADERS, NEW):
            return None
        who = "agent" if process.name == NEW else "leader"
        alike = sum(one.phase == self.phase and one.who == who and one.what == what for one in self.steps)
        self.steps.append(Step(self.phase, who, what, alike))
        return self.steps[-1]

    def is_fatal(self, step: Step | None, moment: Moment) -> bool:
        return step is not None and not self.killed and self._fatal == (step, moment)

    async def die(self, step: Step) -> None:
        """The process that calls this runs no further."""
        process = PROCESS.get()
        assert process is not None
        record("killed", str(step))
        self.killed += 1
        process.kill()
        await asyncio.sleep(0)


class KillingFaults(Faults):
    """The faults of one modelled host."""

    def __init__(self, journal: Journal, directory: str) -> None:
        super().__init__()
        self._journal = journal
        self._directory = directory

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        step = self._journal.step(name.replace(self._directory, "STATE"))
        await asyncio.sleep(0)
        if step is not None and self._journal.is_fatal(step, Moment.BEFORE):
            await self._journal.die(step)
        yield
        if step is not None and self._journal.is_fatal(step, Moment.AFTER):
            await self._journal.die(step)


class KillingWitness(Witness):
    """Also dies at writes. Leases and Events are no steps: every death is one of a lease, and on Events nobody acts."""

    journal: Journal

    async def before(self, call: str, key: str) -> None:
        if call == "transact" and not key.startswith(UNFENCED):
            step = self.journal.step(_written(key))
            if step is not None and self.journal.is_fatal(step, Moment.BEFORE):
                await self.journal.die(step)
            self._step = step
        await super().before(call, key)

    async def after(self, call: str, key: str) -> None:
        step = self._step if call == "transact" and not key.startswith(UNFENCED) else None
        await super().after(call, key)
        if step is not None and self.journal.is_fatal(step, Moment.AFTER):
            await self.journal.die(step)

    _step: Step | None = None


def _written(key: str) -> str:
    parts = key.split("/")
    return f"write {parts[3]}/{parts[-1]}"


class Killing(Scenario):
    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal
        self.witness = KillingWitness(self.kv, self.faults)
        self.witness.journal = journal
        for machine in self.machines.values():
            machine.witness = self.witness

    async def _run(self) -> object:  # type: ignore[override]
        for name in (OLD, NEW):
            self.machines[name].plug("vdb")
            self.chaos.start(name, lambda name=name: self.agent(name))
        for name in LEADERS:
            self.chaos.start(name, lambda name=name: self.candidate(name))
        await self._declare(OLD)
        await self._until("the first node is ready", OLD)
        self.journal.phase = "add"
        await self._declare(NEW)
        await self._until("the new node is ready", OLD, NEW)
        self.journal.phase = "remove"
        await self.store.delete(StorageNode, f"node-{NEW}", NAMESPACE)
        await self._until("the node is gone", OLD)
        self.journal.phase = ""
        await self._revive()
        await self._until("it stays so", OLD)
        await self._check_machines()
        await self.chaos.stop()
        self.witness.raise_violation()
        return self.journal

    def make_faults(self, name: str) -> Faults:
        return KillingFaults(self.journal, str(self.directory)) if name == NEW else Faults()

    async def _declare(self, host: str) -> None:
        spec = StorageNodeSpec(type=TYPE, node_selector={HOSTNAME_LABEL: host}, devices=("/dev/vdb",))
        await self.store.create(StorageNode(metadata=ObjectMeta(name=f"node-{host}", namespace=NAMESPACE), spec=spec))

    async def _until(self, what: str, *hosts: str) -> None:
        """Until exactly these nodes serve and everybody says so; who was killed is started again meanwhile."""
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while wrong := await self._wrong(hosts):
            self.witness.raise_violation()
            await self._revive()
            if asyncio.get_running_loop().time() > deadline:
                self.witness.violated(CONVERGES, f"{what}: {wrong}")
                self.witness.raise_violation()
            await asyncio.sleep(0.5)
        record("settled", what)

    async def _revive(self) -> None:
        for name, process in self.chaos.processes.items():
            if process.killed:
                await self.chaos._restart(name, RETRY_S)

    async def _wrong(self, hosts: tuple[str, ...]) -> str:
        nodes = (await self.store.list(StorageNode, NAMESPACE)).items
        if sorted(node.metadata.name for node in nodes) != [f"node-{host}" for host in hosts]:
            return f"there are {[node.metadata.name for node in nodes]}"
        for node in nodes:
            if node.status.state != "Ready" or node.status.observed_generation != node.metadata.generation:
                return f"{node.metadata.name} is {node.status.state}: {node.status.message}"
        try:
            status = await self.store.get(StorageStatus, f"{TYPE}-default", NAMESPACE)
        except NotFoundError:
            return "there is no status"
        capacity = status.status.capacity
        if status.spec.status != "ONLINE" or capacity is None or capacity.total != f"{10 * len(hosts)}Gi":
            return f"the status says {status.spec.status} with {capacity}"
        return ""

    async def _check_machines(self) -> None:
        """Nothing of the node is left on its host but what was on the disk, and the other one serves on."""
        for host, mounts in ((OLD, 2), (NEW, 1)):
            if len(self.machines[host].mounts) != mounts:
                self.witness.violated(CONVERGES, f"{host} has {self.machines[host].mounts}")
            if self.machines[host].disks["/dev/vdb"].size != 10 * GIB:
                self.witness.violated(CONVERGES, f"{host} lost its disk")


def recorded_steps() -> list[Step]:
    """What adding and removing a node takes, when nobody dies."""
    journal = Journal()
    run(lambda: Killing(journal).run(), seed=SEED, shuffle=False)
    return journal.steps


def killed_at(step: Step, moment: Moment) -> int:
    """How often somebody died; ViolationError when that was not survived."""
    journal = Journal((step, moment))
    run(lambda: Killing(journal).run(), seed=SEED, shuffle=False)
    return journal.killed


def every_death(steps: list[Step]) -> Iterator[tuple[Step, Moment]]:
    for step in steps:
        for moment in Moment:
            yield step, moment
