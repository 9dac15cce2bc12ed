"""Two leaders, five hosts with disks, people, and a world in which everything fails: one run of a seed.

The operator and the agents are the real ones with the real GlusterFS backend; gluster, hosts and time are modelled.
Somebody writes to the volumes all the while. First things go wrong at random, then nothing more does, and all must come
right: see `invariants`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace

from quartermaster.backends.glusterfs.daemon import DAEMON
from quartermaster.backends.glusterfs.looking import KEPT_S
from quartermaster.backends.registry import backend_of
from quartermaster.host import Host
from quartermaster.host.daemons.base import Daemon
from quartermaster.host.fake import FakeProcess, Faults, fake_host
from quartermaster.host.fake.machine import ROOT
from quartermaster.orchestration.timings import Timings
from quartermaster.resources import storage
from quartermaster.resources.kubernetes.volumes import PersistentVolumeClaim
from quartermaster.resources.storage import StorageNode
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import entropy
from quartermaster.testing.simulation import ROUGH, Chaos, Process, SeededFaults, record, simulation_loop
from tests.simulation.commandline import Tally
from tests.simulation.orchestration.invariants import NAMESPACE
from tests.simulation.orchestration.staging import (
    LEADERS,
    LEASE_S,
    RETRY_S,
    HostTrouble,
    Wrong,
    agent_of,
    check_second_run,
    lead,
    settle,
    state_directory,
    written_since,
)

from .administrator import CLAIMS, TYPE, Administrator
from .commands import ModelCommands
from .expecting import Rest, tell, wrong_with, wrong_with_what_is_left
from .hardware import Hardware
from .hosts import GlusterMachine
from .invariants import CONVERGES, PHOTOS, QUIET, STRANGER, Auditor, Witness
from .judging import Judge
from .lineage import FILES, is_split, newest_of
from .model import PING_TIMEOUT, PING_TIMEOUT_S, TICK_S, GlusterModel
from .verbs import Verbs

HOSTS = ("h0", "h1", "h2", "h3", "h4")
ADDRESSES = {host: f"10.0.0.{number}" for number, host in enumerate(HOSTS, 1)}
PROCESS_FAULTS = 8
MEAN_FAULT_GAP_S = 15.0
MEAN_ACTION_GAP_S = 12.0
MEAN_TROUBLE_GAP_S = 15.0
MEAN_WRITE_GAP_S = 2.0
MEAN_USE_S = 20.0
HEALING = (0.3, 0.3, 0.05)  # how likely a file that can be healed is, in a second: some clusters are slow
HOST_TROUBLE = 0.01  # the chance that a call of the host layer fails, before or after its effect
PROGRESS_S = 120.0  # seventy watches are idle most of the time
PATIENCE_S = 1_500.0
DOUBT_S = 150.0  # so long after the storm somebody looks after what could not be settled without him
BACKEND = backend_of(TYPE)
TIMINGS = Timings(
    heartbeat_s=6.0,
    unhealthy_after_s=18.0,
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


class Scenario:
    """The state of one run. `retains`: somebody keeps volumes whose deletion has begun."""

    def __init__(self, *, retains: bool = False) -> None:
        self.kv = MemoryKeyValue(progress_s=PROGRESS_S)
        self.faults = SeededFaults(self.kv)
        self.witness = Witness(self.kv, self.faults)
        self.chaos = Chaos(self.kv, self.faults, longest_s=2 * LEASE_S)
        self.machines = {name: GlusterMachine(name, self.witness) for name in HOSTS}
        self.stranger = GlusterMachine("stranger", self.witness)
        self.model = GlusterModel()
        self.model.machines = {ADDRESSES[name]: machine for name, machine in self.machines.items()}
        self.model.machines[STRANGER] = self.stranger
        self.auditor = Auditor(
            self.model, self.witness, {**self.machines, "stranger": self.stranger}, Judge(ADDRESSES, self.machines)
        )
        self.witness.auditor = self.auditor
        self.verbs = Verbs(self.model, self.auditor)
        self.store = ObjectStore(self.kv, manager="administrator")
        self.administrator = Administrator(self.store, self.machines, ADDRESSES, self.verbs, retains=retains)
        self.hardware = Hardware(self.machines, ADDRESSES, self.model, self.auditor, self.chaos, self.faults)
        self.directory = Path()
        self.trouble = HostTrouble(0.0)
        self._calm_since = 0.0
        self._world: list[Process[None]] = []

    async def run(self) -> Tally:
        with state_directory() as self.directory:
            self.trouble.directory = self.directory
            return await self._run()

    async def _run(self) -> Tally:
        await self._begin()
        enough = asyncio.Event()
        self.chaos.start("administrator", lambda: self.administrator.work(MEAN_ACTION_GAP_S, enough))
        trouble = simulation_loop().start_process("hardware", self.hardware.work(MEAN_TROUBLE_GAP_S, enough))
        self.faults.rates, self.trouble.rate = ROUGH, HOST_TROUBLE
        await self.chaos.torment(faults=PROCESS_FAULTS, mean_gap_s=MEAN_FAULT_GAP_S)
        self.witness.raise_violation()
        enough.set()
        record("calm")
        self._calm_since = asyncio.get_running_loop().time()
        self.model.users.clear()
        self.trouble.rate = 0.0
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
        self.model.healing = entropy.source().choice(HEALING)
        for name in LEADERS:
            self.chaos.start(name, lambda name=name: self.candidate(name))
        for name in HOSTS:
            self.chaos.start(name, lambda name=name: self.agent(name))
        loop = simulation_loop()
        world = {"world": self._turn, "client": self._write, "user": self._use}
        self._world = [loop.start_process(name, work()) for name, work in world.items()]
        await self.administrator.begin(OWN_TIMINGS)
        await asyncio.sleep(entropy.source().uniform(0.0, 30.0))
        for name in CLAIMS[:2]:
            await self.administrator.claim(name)
        await asyncio.sleep(entropy.source().uniform(0.0, 30.0))

    def _bring_stranger(self) -> None:
        settings = self.directory / "stranger" / "glusterd.vol"
        daemon = Daemon(DAEMON, argv=("glusterd", "--volfile", str(settings)))
        self.stranger.processes[DAEMON] = FakeProcess(daemon, 1)
        self.stranger.directories[ROOT.number, "/srv"] = None

    async def candidate(self, name: str) -> None:
        await lead(self.kv, self.witness, name, BACKEND, TIMINGS)

    async def agent(self, name: str) -> None:
        while self.machines[name].down:
            await asyncio.sleep(1.0)
        await agent_of(self.kv, name, self._host(name), BACKEND, TIMINGS, self.directory, ADDRESSES[name]).run()

    def _host(self, name: str) -> Host:
        faults = Faults(self.trouble)
        commands = ModelCommands(self.verbs, ADDRESSES[name], faults, self.auditor.heard)
        return replace(fake_host(self.machines[name], faults), commands=commands)

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
            volumes = [one for one in self.model.volumes.values() if self.auditor.is_wanted(one)]
            if volumes:
                volume = source.choice(volumes)
                self.model.write(volume, source.randrange(FILES))

    async def _use(self) -> None:
        """Somebody mounts a volume by hand, and has it also when its claim is gone."""
        source = entropy.source()
        while not self._calm_since:
            await asyncio.sleep(source.expovariate(1 / MEAN_USE_S))
            volumes = [one.name for one in self.model.volumes.values() if one.name in self.auditor.bound]
            self.model.users = {name: None for name in volumes if source.random() < 1 / 3 and not self._calm_since}

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
        in_doubt = asyncio.get_running_loop().time() > self._calm_since + DOUBT_S
        await self._give_up_dead_disks(bricks=in_doubt)
        if in_doubt:
            await self._clear_old_disks()
            await self._settle_splits()
            await self._settle_refused()
            await self.administrator.let_go_of_retained()

    async def _settle_refused(self) -> None:
        """Two that were cut off from each other changed the same volume: the guide says how one takes it over."""
        for host, machine in self.machines.items():
            if not self.model.refusing(ADDRESSES[host]) or not await self.administrator.is_refused(host):
                continue
            for address, volume in self.model.disputes(ADDRESSES[host]):
                timeout = volume.options.get(PING_TIMEOUT, str(PING_TIMEOUT_S))
                await self.administrator.by_hand(address, "volume", "set", volume.name, PING_TIMEOUT, timeout)
            machine.kill(DAEMON)

    async def _settle_splits(self) -> None:
        """Files of which no copy can be taken for the right one: as the cluster says, somebody has to choose."""
        for volume in list(self.model.volumes.values()):
            for members in volume.sets:
                copies = self.model.answering(volume, members)
                files = self.model.files_of(volume, members) if not volume.shape.data else ()
                for file in [one for one in files if is_split(volume.shape, copies, one)]:
                    newest = volume.bricks[members.start + newest_of(volume.shape, copies, file)]
                    words = ("volume", "heal", volume.name, "split-brain", "source-brick", newest.name, f"/{file}")
                    await self.administrator.by_hand(newest.address, *words)

    async def _clear_old_disks(self) -> None:
        """A disk came back to a host that is another node by now: it is refused until somebody has wiped it."""
        held = [self.model.holder(one) for volume in self.model.volumes.values() for one in volume.bricks]
        for host, machine in self.machines.items():
            needed = [number for address, number in held if address == ADDRESSES[host]]
            machine.clear(needed, await self.administrator.refused_file_systems(host))

    async def _give_up_dead_disks(self, *, bricks: bool) -> None:
        """Those that a node misses; with a brick on it only where nobody else knows what was on it, and says so."""
        held = [self.model.holder(one) for volume in self.model.volumes.values() for one in volume.bricks]
        for host, machine in self.machines.items():
            for number, serial in machine.dead.items():
                may_go = bricks or (ADDRESSES[host], number) not in held
                if may_go and await self.administrator.misses_disk(host, serial):
                    await self.administrator.give_up_disk(host, serial)
            for uuid in await self.administrator.misses_file_systems(host) if bricks and machine.dead else ():
                await self.administrator.give_up_disk(host, uuid)

    async def settle(self, what: Callable[[], Awaitable[str]]) -> None:
        async def wrong() -> Wrong:
            found = await what()
            return (CONVERGES, found) if found else None

        await settle(self.witness, wrong, PATIENCE_S, pause_s=2 * RETRY_S, tell=lambda: tell(self._rest()))

    async def _unsettled(self) -> str:
        """Looked at twice; in between every configuration was run again, by a new look at the pool."""
        await self._repair()
        rest = self._rest()
        if wrong := await wrong_with(rest):
            return wrong
        before = len(self.witness.trace)
        await asyncio.sleep(KEPT_S + 1.5 * max(TIMINGS.inventory_s, TIMINGS.verify_s))
        if written := written_since(self.witness, before, self._of_hosts()):
            return f"something is still written: {written[-3:]}"
        return await wrong_with(rest)

    async def _check_second_run(self) -> None:
        commands = len(self.auditor.changes)
        alive = {name: machine for name, machine in self.machines.items() if not machine.destroyed}
        await check_second_run(self.chaos, self.witness, alive, 1.5 * TIMINGS.verify_s, beside=self._of_hosts())
        if self.auditor.changes[commands:]:
            self.witness.violated(QUIET, f"{self.auditor.changes[commands:]}")
        self.witness.raise_violation()

    def _of_hosts(self) -> list[str]:
        """What is said of hosts counts for nothing, for one that was destroyed is lost some time later; nor does what
        such a one was asked for, which is looked through now and then.
        """
        destroyed = [host for host, machine in self.machines.items() if machine.destroyed]
        return ["/hosts/", *(f"/assignments/{NAMESPACE}/{host}/" for host in destroyed)]

    async def _take_everything_away(self) -> None:
        await self._clear_old_disks()  # a disk that is refused is nobody's any more, and agents never touch it
        if PHOTOS in {volume.name for volume in self.model.volumes.values()}:
            await self.administrator.by_hand(STRANGER, "volume", "delete", PHOTOS)
        for address in ADDRESSES.values():
            await self.administrator.by_hand(address, "peer", "detach", STRANGER)
        for claim in (await self.store.list(PersistentVolumeClaim, NAMESPACE)).items:
            await self.store.delete(PersistentVolumeClaim, claim.metadata.name, NAMESPACE)
        for node in (await self.store.list(StorageNode, NAMESPACE)).items:
            await self.store.delete(StorageNode, node.metadata.name, NAMESPACE)
        await self.settle(lambda: wrong_with_what_is_left(self._rest()))

    def _rest(self) -> Rest:
        return Rest(self.store, self.model, self.auditor, self.machines, ADDRESSES)

    def _tally(self) -> Tally:
        events = {
            "writes to the store": self.witness.writes,
            "host faults": self.trouble.count,
            "files written": self.model.writes,
            "files healed": self.model.heals,
            "bricks replaced": self.auditor.replacements,
            "commands that change": len(self.auditor.changes),
        }
        events |= {**self.administrator.done, **self.hardware.done}
        return Tally({**self.faults.counts, **self.chaos.counts}, events)
