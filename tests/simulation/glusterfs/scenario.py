"""Two leaders, five hosts with disks, people, and a world in which everything fails: one run of a seed.

The operator and the agents are the real ones with the real GlusterFS backend; gluster, hosts and time are modelled.
Somebody writes to the volumes all the while. First things go wrong at random, then nothing more does, and all must come
right: see `invariants`.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from quartermaster.backends.glusterfs.daemon import DAEMON
from quartermaster.backends.registry import backend_of
from quartermaster.engine.metrics import Metrics
from quartermaster.host import Host
from quartermaster.host.daemons.base import Daemon
from quartermaster.host.fake import FakeProcess, Faults, Moment, fake_host
from quartermaster.host.fake.machine import ROOT
from quartermaster.operators.assembly import operator_runtime
from quartermaster.orchestration.agent import AgentRuntime
from quartermaster.orchestration.timings import Timings
from quartermaster.resources import storage
from quartermaster.resources.kubernetes.volumes import PersistentVolumeClaim
from quartermaster.resources.storage import StorageNode
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import entropy
from quartermaster.testing.simulation import ROUGH, Chaos, Process, SeededFaults, record, simulation_loop
from quartermaster.testing.simulation.process import PROCESS
from tests.simulation.orchestration.invariants import NAMESPACE

from .administrator import CLAIMS, TYPE, Administrator
from .commands import ModelCommands
from .expecting import Rest, tell, wrong_with, wrong_with_what_is_left
from .hardware import Hardware
from .hosts import GlusterMachine, gather_facts
from .invariants import CONVERGES, PHOTOS, QUIET, STRANGER, Auditor, Witness
from .judging import Judge
from .lineage import FILES
from .model import TICK_S, GlusterModel
from .verbs import Verbs

LEASE_S = 7
RETRY_S = 2.0
LEADERS = ("leader-0", "leader-1")
HOSTS = ("h0", "h1", "h2", "h3", "h4")
ADDRESSES = {host: f"10.0.0.{number}" for number, host in enumerate(HOSTS, 1)}
PROCESS_FAULTS = 8
MEAN_FAULT_GAP_S = 15.0
MEAN_ACTION_GAP_S = 12.0
MEAN_TROUBLE_GAP_S = 15.0
MEAN_WRITE_GAP_S = 2.0
HOST_TROUBLE = 0.01  # the chance that a call of the host layer fails, before or after its effect
PATIENCE_S = 1_500.0
DOUBT_S = 300.0  # so long after the storm somebody looks after what could not be settled without him
BACKEND = backend_of(TYPE)
TIMINGS = Timings(
    heartbeat_s=4.0,
    unhealthy_after_s=12.0,
    move_data_after_s=60.0,
    debounce_s=0.5,
    sweep_s=60.0,
    verify_s=20.0,
    daemons_s=5.0,
    inventory_s=20.0,
)
OWN_TIMINGS = storage.Timings(
    unhealthy_after_seconds=TIMINGS.unhealthy_after_s, move_data_after_seconds=TIMINGS.move_data_after_s
)


class Tally(msgspec.Struct, frozen=True):
    """How often each kind of fault happened, and how much of what was meant to happen did."""

    faults: dict[str, int]
    events: dict[str, int]


class Scenario:
    """The state of one run."""

    def __init__(self) -> None:
        self.kv = MemoryKeyValue()
        self.faults = SeededFaults(self.kv)
        self.witness = Witness(self.kv, self.faults)
        self.chaos = Chaos(self.kv, self.faults, longest_s=2 * LEASE_S)
        self.metrics = Metrics(enabled=False)
        self.machines = {name: GlusterMachine(name, self.witness) for name in HOSTS}
        self.stranger = GlusterMachine("stranger", self.witness)
        self.model = GlusterModel()
        self.model.machines = {ADDRESSES[name]: machine for name, machine in self.machines.items()}
        self.model.machines[STRANGER] = self.stranger
        self.auditor = Auditor(self.model, self.witness, {**self.machines, "stranger": self.stranger}, Judge(ADDRESSES))
        self.witness.auditor = self.auditor
        self.verbs = Verbs(self.model, self.auditor)
        self.store = ObjectStore(self.kv, manager="administrator")
        self.administrator = Administrator(self.store, self.machines, ADDRESSES, self.verbs)
        self.hardware = Hardware(self.machines, ADDRESSES, self.model, self.auditor, self.chaos, self.faults)
        self.directory = Path()
        self.trouble = 0.0
        self.host_faults = 0
        self._incarnations = 0
        self._calm_since = 0.0
        self._world: list[Process[None]] = []

    async def run(self) -> Tally:
        self.directory = Path(tempfile.mkdtemp(prefix="simulated-", dir=_quick_directory()))
        try:
            return await self._run()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    async def _run(self) -> Tally:
        await self._begin()
        enough = asyncio.Event()
        self.chaos.start("administrator", lambda: self.administrator.work(MEAN_ACTION_GAP_S, enough))
        trouble = simulation_loop().start_process("hardware", self.hardware.work(MEAN_TROUBLE_GAP_S, enough))
        self.faults.rates, self.trouble = ROUGH, HOST_TROUBLE
        await self.chaos.torment(faults=PROCESS_FAULTS, mean_gap_s=MEAN_FAULT_GAP_S)
        self.witness.raise_violation()
        enough.set()
        record("calm")
        self._calm_since = asyncio.get_running_loop().time()
        self.trouble = 0.0
        self.chaos.calm()
        await asyncio.wait([self.chaos.processes["administrator"].task, trouble.task], timeout=PATIENCE_S)
        self.hardware.calm()
        await self.settle(self._unsettled)
        await self._check_second_run()
        await self._take_everything_away()
        await self.chaos.stop()
        for process in self._world:
            process.task.cancel()
            await asyncio.wait([process.task], timeout=1.0)
        self.witness.raise_violation()
        return self._tally()

    async def _begin(self) -> None:
        for machine in self.machines.values():
            machine.plug("vdb")
            if entropy.source().random() < 0.5:
                machine.plug("vdc")
        self._bring_stranger()
        for name in LEADERS:
            self.chaos.start(name, lambda name=name: self.candidate(name))
        for name in HOSTS:
            self.chaos.start(name, lambda name=name: self.agent(name))
        loop = simulation_loop()
        self._world = [loop.start_process("world", self._turn()), loop.start_process("client", self._write())]
        await self.administrator.begin(OWN_TIMINGS)
        await asyncio.sleep(entropy.source().uniform(0.0, 60.0))
        for name in CLAIMS[:2]:
            await self.administrator.claim(name)
        await asyncio.sleep(entropy.source().uniform(0.0, 60.0))

    def _bring_stranger(self) -> None:
        settings = self.directory / "stranger" / "glusterd.vol"
        daemon = Daemon(DAEMON, argv=("glusterd", "--volfile", str(settings)))
        self.stranger.processes[DAEMON] = FakeProcess(daemon, 1)
        self.stranger.directories[ROOT.number, "/srv"] = None

    async def candidate(self, name: str) -> None:
        self._incarnations += 1
        runtime = operator_runtime(
            ObjectStore(self.kv, manager="quartermaster"),
            namespace=NAMESPACE,
            backends=[BACKEND],
            timings=TIMINGS,
            identity=f"{name}-{self._incarnations}",
            lease_s=LEASE_S,
            retry_s=RETRY_S,
            metrics=self.metrics,
        )
        process = PROCESS.get()
        assert process is not None
        self.witness.leaders[process] = runtime
        await runtime.run()

    async def agent(self, name: str) -> None:
        while self.machines[name].down:
            await asyncio.sleep(1.0)
        agent = AgentRuntime(
            ObjectStore(self.kv, manager=name),
            name,
            self._host(name),
            BACKEND.agents(),
            namespace=NAMESPACE,
            directory=self.directory / name,
            addresses=(ADDRESSES[name],),
            timings=TIMINGS,
            facts=gather_facts,
            metrics=self.metrics,
        )
        await agent.run()

    def _host(self, name: str) -> Host:
        faults = Faults(self._host_fault)
        commands = ModelCommands(self.verbs, ADDRESSES[name], faults, self.auditor.heard)
        return replace(fake_host(self.machines[name], faults), commands=commands)

    def _host_fault(self, _number: int, name: str) -> Moment | None:
        if not self.trouble or entropy.source().random() >= self.trouble:
            return None
        self.host_faults += 1
        record("host fault", name.replace(str(self.directory), "STATE"))
        return entropy.source().choice(list(Moment))

    async def _turn(self) -> None:
        """What gluster does by itself."""
        while True:
            self.model.tick()
            self.auditor.look()
            await asyncio.sleep(TICK_S)

    async def _write(self) -> None:
        """Somebody has every volume mounted, and writes."""
        source = entropy.source()
        while True:
            await asyncio.sleep(source.expovariate(1 / MEAN_WRITE_GAP_S))
            volumes = [one for one in self.model.volumes.values() if one.name in self.auditor.bound]
            if volumes:
                volume = source.choice(volumes)
                self.model.write(volume, source.randrange(FILES))

    async def _repair(self) -> None:
        """What a person does when the storm is over: a blank disk where there is none, and a node on every host."""
        for host, machine in self.machines.items():
            if machine.destroyed:
                await self.administrator.give_up(host)
            elif not machine.storage:
                machine.plug("vdb")
        declared = [node.metadata.name for node in await self.administrator.nodes()]
        for host in HOSTS:
            if not self.machines[host].destroyed and f"node-{host}" not in declared:
                await self.administrator.declare(host)
        if asyncio.get_running_loop().time() > self._calm_since + DOUBT_S:
            await self._give_up_dead_disks()
            self._clear_old_disks()

    def _clear_old_disks(self) -> None:
        """A disk came back to a host that is another node by now: it is refused until somebody has wiped it."""
        bricks = {(one.address, one.path): None for volume in self.model.volumes.values() for one in volume.bricks}
        for host, machine in self.machines.items():
            own = [one for one in self.model.copies if one[0] == ADDRESSES[host] and (one[0], one[2]) in bricks]
            machine.clear([number for _, number, _ in own])

    async def _give_up_dead_disks(self) -> None:
        """What waits for a person: a brick whose disk is gone, and no other copy is known to be whole."""
        waiting = [
            brick
            for volume in self.model.volumes.values()
            for brick in volume.bricks
            if brick.address != STRANGER and self.auditor.stored(brick) is None
        ]
        for brick in waiting:
            host = next(name for name, address in ADDRESSES.items() if address == brick.address)
            for address, number, path in self.model.copies:
                serial = self.machines[host].dead.get(number, "")
                if (address, path) == (brick.address, brick.path) and serial:
                    await self.administrator.give_up_disk(host, serial)

    async def settle(self, what: Callable[[], Awaitable[str]]) -> None:
        """Wait until nothing is wrong any more; after a while, say what is."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while wrong := await what():
            self.witness.raise_violation()
            if asyncio.get_running_loop().time() > deadline:
                await tell(self._rest())
                self.witness.violated(CONVERGES, wrong)
            self.witness.raise_violation()
            await asyncio.sleep(2 * RETRY_S)
        record("settled")

    async def _unsettled(self) -> str:
        """Looked at twice, so long apart that every configuration was run again in between."""
        await self._repair()
        rest = self._rest()
        if wrong := await wrong_with(rest):
            return wrong
        before = len(self.witness.trace)
        await asyncio.sleep(1.5 * max(TIMINGS.inventory_s, TIMINGS.verify_s))
        if written := self._written(before):
            return f"something is still written: {written[-3:]}"
        return await wrong_with(rest)

    async def _check_second_run(self) -> None:
        """New agents on unchanged hosts, and every configuration runs again: nothing changes and nothing is written."""
        alive = [name for name in HOSTS if not self.machines[name].destroyed]
        before = {name: self.machines[name].acts() for name in alive}
        writes, commands = len(self.witness.trace), len(self.auditor.changes)
        for name in alive:
            self.chaos.processes[name].kill()
            await self.chaos._restart(name, 0.1)
        await asyncio.sleep(1.5 * TIMINGS.verify_s)
        if self.auditor.changes[commands:]:
            self.witness.violated(QUIET, f"{self.auditor.changes[commands:]}")
        for name in alive:
            now = self.machines[name].acts()
            if changed := {what: (before[name][what], now[what]) for what in now if now[what] != before[name][what]}:
                self.witness.violated(QUIET, f"on {name}: {changed}")
        if written := self._written(writes):
            self.witness.violated(QUIET, f"{written}")
        self.witness.raise_violation()

    async def _take_everything_away(self) -> None:
        if PHOTOS in {volume.name for volume in self.model.volumes.values()}:
            await self.administrator.by_hand(STRANGER, "volume", "delete", PHOTOS)
        for address in ADDRESSES.values():
            await self.administrator.by_hand(address, "peer", "detach", STRANGER)
        for claim in (await self.store.list(PersistentVolumeClaim, NAMESPACE)).items:
            await self.store.delete(PersistentVolumeClaim, claim.metadata.name, NAMESPACE)
        for node in (await self.store.list(StorageNode, NAMESPACE)).items:
            await self.store.delete(StorageNode, node.metadata.name, NAMESPACE)
        await self.settle(lambda: wrong_with_what_is_left(self._rest()))

    def _written(self, since: int) -> list[tuple[str, str]]:
        """But for what is said of hosts: one that was destroyed is lost some time later."""
        return [one for one in self.witness.trace[since:] if "/hosts/" not in one[1]]

    def _rest(self) -> Rest:
        return Rest(self.store, self.model, self.auditor, self.machines, ADDRESSES)

    def _tally(self) -> Tally:
        events = {
            "writes to the store": self.witness.writes,
            "host faults": self.host_faults,
            "files written": self.model.writes,
            "files healed": self.model.heals,
            "bricks replaced": self.auditor.replacements,
            "commands that change": len(self.auditor.changes),
        }
        events |= {**self.administrator.done, **self.hardware.done}
        return Tally({**self.faults.counts, **self.chaos.counts}, events)


def _quick_directory() -> str | None:
    """Memory, where the machine offers it: agents keep small files, and sync each of them."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
