"""Two leaders, three hosts, an administrator and hardware that fails: one run of a seed.

The operator and the agents are the real ones, with the backend that needs no daemons; hosts, disks and time are
modelled. First everything goes wrong at random, then nothing more does, and all must come right: see `invariants`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from quartermaster.backends.registry import backend_of
from quartermaster.host.fake import Faults, fake_host
from quartermaster.orchestration.timings import Timings
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import INTENT
from quartermaster.resources.orchestration import Assignment
from quartermaster.resources.storage import StorageNode, StorageStatus
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import entropy
from quartermaster.testing.simulation import ROUGH, Chaos, SeededFaults, record
from tests.simulation.commandline import Tally

from .administrator import TYPE, Administrator
from .expecting import Rest, wrong_with
from .hosts import OFFERED, OWN_DISK, WitnessedMachine
from .invariants import CONVERGES, NAMESPACE, NO_LEAK, Witness
from .staging import LEADERS, LEASE_S, HostTrouble, Wrong, agent_of, check_second_run, lead, settle, state_directory

HOSTS = ("h0", "h1", "h2")
PROCESS_FAULTS = 8
MEAN_FAULT_GAP_S = 4.0
MEAN_ACTION_GAP_S = 1.5
CONTESTED = 0.15  # the chance that somebody else writes to a blank disk right after it was chosen
HOST_TROUBLE = 0.02  # the chance that a call of the host layer fails, before or after its effect
PATIENCE_S = 600.0
BACKEND = backend_of(TYPE)
TIMINGS = Timings(
    heartbeat_s=4.0,
    unhealthy_after_s=12.0,
    move_data_after_s=120.0,
    debounce_s=0.5,
    sweep_s=40.0,
    verify_s=12.0,
    daemons_s=10.0,
    inventory_s=8.0,
)


class Scenario:
    """The state of one run."""

    def __init__(self) -> None:
        self.kv = MemoryKeyValue()
        self.faults = SeededFaults(self.kv)
        self.witness = Witness(self.kv, self.faults)
        self.chaos = Chaos(self.kv, self.faults, longest_s=2 * LEASE_S)
        self.machines = {name: WitnessedMachine(name, self.witness) for name in HOSTS}
        self.witness.chosen = self._contest
        self.store = ObjectStore(self.kv, manager="administrator")
        self.administrator = Administrator(self.store, self.machines)
        self.directory = Path()
        self.trouble = HostTrouble(HOST_TROUBLE)

    async def run(self) -> Tally:
        with state_directory() as self.directory:
            self.trouble.directory = self.directory
            return await self._run()

    async def _run(self) -> Tally:
        for machine in self.machines.values():
            machine.plug("vdb")
            machine.plug("vdc")
            machine.install()
        for name in LEADERS:
            self.chaos.start(name, lambda name=name: self.candidate(name))
        for name in HOSTS:
            self.chaos.start(name, lambda name=name: self.agent(name))
        enough = asyncio.Event()
        self.chaos.start("administrator", lambda: self.administrator.work(MEAN_ACTION_GAP_S, enough))
        self.faults.rates = ROUGH
        await self.chaos.torment(faults=PROCESS_FAULTS, mean_gap_s=MEAN_FAULT_GAP_S)
        self.witness.raise_violation()
        enough.set()
        await self._come_to_rest()
        await check_second_run(self.chaos, self.witness, self.machines, 1.5 * TIMINGS.verify_s)
        await self._take_everything_away()
        await self.chaos.stop()
        self.witness.raise_violation()
        events = {"writes": self.witness.writes, "host faults": self.trouble.count, "volumes": self.witness.finished}
        events |= self.administrator.done
        return Tally({**self.faults.counts, **self.chaos.counts}, events)

    async def candidate(self, name: str) -> None:
        await lead(self.kv, self.witness, name, BACKEND, TIMINGS)

    async def agent(self, name: str) -> None:
        host = fake_host(self.machines[name], self.make_faults(name))
        await agent_of(self.kv, name, host, BACKEND, TIMINGS, self.directory, "10.0.0.1").run()

    def make_faults(self, _host: str) -> Faults:
        """What goes wrong on one host while one agent of it lives."""
        return Faults(self.trouble)

    def _contest(self, host: str, serial: str) -> None:
        machine = self.machines[host]
        blank = [path for path, disk in machine.storage.items() if disk.serial == serial and not disk.signatures]
        if blank and self.trouble.rate and entropy.source().random() < CONTESTED:
            machine.scribble(blank[0])

    async def _come_to_rest(self) -> None:
        record("calm")
        self.trouble.rate = 0.0
        self.chaos.calm()
        await asyncio.wait([self.chaos.processes["administrator"].task], timeout=PATIENCE_S)
        await self._miss_own_disks()
        for machine in self.machines.values():
            machine.put_back()
        await self.settle(self._unsettled)

    async def _miss_own_disks(self) -> None:
        """Hosts come up without the disk that their administrator offered: volumes on it are not made anew."""
        holding = [one for one in self.machines.values() if one.holds_volume(one.disks[OWN_DISK])]
        for machine in holding:
            machine.unmount_own()
        if holding:
            await asyncio.sleep(1.5 * TIMINGS.verify_s)
            self.witness.raise_violation()

    async def settle(self, what: Callable[[], Awaitable[Wrong]]) -> None:
        await settle(self.witness, what, PATIENCE_S)

    async def _unsettled(self) -> Wrong:
        before = self.witness.writes
        # So long that every inventory was taken and every configuration run again since hardware last changed.
        await asyncio.sleep(1.5 * max(TIMINGS.inventory_s, TIMINGS.verify_s))
        if self.witness.writes != before:
            return CONVERGES, f"something is still written: {self.witness.trace[-3:]}"
        rest = Rest(
            self.machines,
            self.witness,
            (await self.store.list(StorageNode, NAMESPACE)).items,
            (await self.store.list(Assignment, NAMESPACE)).items,
            (await self.store.list(PersistentVolume)).items,
        )
        if wrong := wrong_with(rest):
            return CONVERGES, wrong
        return await self._volumes_unsettled()

    async def _volumes_unsettled(self) -> Wrong:
        claims = (await self.store.list(PersistentVolumeClaim, NAMESPACE)).items
        for claim in claims:
            if claim.metadata.deletion_timestamp:
                return CONVERGES, f"{claim.key} does not go: {claim.metadata.finalizers}"
            if INTENT in claim.metadata.annotations and claim.status.phase != "Bound":
                return CONVERGES, f"{claim.key} is not finished: {claim.status}"
        wanted = [f"pvc-{claim.metadata.uid}" for claim in claims]
        for volume in (await self.store.list(PersistentVolume)).items:
            if volume.metadata.name not in wanted:
                return CONVERGES, f"{volume.key} does not go: {volume.status}"
        return None

    async def _take_everything_away(self) -> None:
        for claim in (await self.store.list(PersistentVolumeClaim, NAMESPACE)).items:
            await self.store.delete(PersistentVolumeClaim, claim.metadata.name, NAMESPACE)
        await self.settle(self._volumes_left)
        for node in (await self.store.list(StorageNode, NAMESPACE)).items:
            await self.store.delete(StorageNode, node.metadata.name, NAMESPACE)
        await self.settle(self._services_left)

    async def _volumes_left(self) -> Wrong:
        for kind in (PersistentVolumeClaim, PersistentVolume):
            for left in (await self.store.list(kind)).items:
                return CONVERGES, f"{left.key} is still there: {left.metadata.finalizers}"
        for name, machine in self.machines.items():
            for number, path in machine.directories:
                if "/pvc-" in path and not machine.is_hidden(number, path) and not machine.is_remembered(path):
                    return NO_LEAK, f"{path} on {name}"
        return None

    async def _services_left(self) -> Wrong:
        for kind in (StorageNode, Assignment, StorageStatus):
            for left in (await self.store.list(kind, NAMESPACE)).items:
                return CONVERGES, f"{left.key} is still there: {left}"
        for name, machine in self.machines.items():
            if left := [mount for mount in machine.mounts if mount.target not in ("/", OFFERED)]:
                return NO_LEAK, f"{left} on {name}"
        return None
