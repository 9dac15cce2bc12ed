"""What a host has: its devices with the verdict on each, its addresses, its facts.

Looked at when something happens to the devices, after every run of an agent that puts file systems on them, and now and
then. A new disk is noticed by itself. Only a difference is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from quartermaster import host as machines
from quartermaster.backends.base import KnowsFileSystems, ServiceAgent
from quartermaster.engine.cache import Cache, Caches
from quartermaster.engine.controller import Scope, all_synced
from quartermaster.engine.waiting import Signal, first_of
from quartermaster.host.devices import twins
from quartermaster.host.devices.judging import made_by_us
from quartermaster.orchestration.registration import Registration, publish
from quartermaster.resources.devices import Device
from quartermaster.resources.orchestration import Assignment, Inventory
from quartermaster.support.deadlines import within
from quartermaster.support.errors import QuartermasterError
from quartermaster.support.log import logger
from quartermaster.support.tasks import TaskGroup

GatherFacts = Callable[[], Awaitable[machines.Facts]]

# Devices come in bursts: partitions, links and all. One look a moment later sees all of it.
_SETTLE_S = 0.3
_RETRY_S = 5.0
_LOOK_TIMEOUT_S = 60.0

_log = logger("orchestration.inventory")


class InventoryKeeper:
    """A service of an agent's runtime."""

    name = "inventory"

    def __init__(
        self,
        machine: machines.Host,
        registration: Registration,
        *,
        facts: GatherFacts,
        agents: Sequence[ServiceAgent] = (),
        every_s: float = 300.0,
        directories: Sequence[Path] = (),
        disks_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`disks_changed` is called when one came or went; it returns at once."""
        self.looks = 0
        self.latest: Inventory | None = None
        self._machine = machine
        self._registration = registration
        self._facts = facts
        self._agents = {agent.name: agent for agent in agents}
        self._every_s = every_s
        self._directories = tuple(directories)
        self._disks_changed = disks_changed
        self._wanted = Signal()

    def prepare(self, caches: Caches) -> None:
        self._assignments(caches)

    def look_again(self) -> None:
        """Something may have changed; returns at once."""
        self._wanted.set()

    async def run(self, scope: Scope) -> None:
        assignments = self._assignments(scope.caches)
        # Before they are known, our own file systems look like somebody else's.
        if not await all_synced(self.name, [assignments], scope.stopping):
            return
        async with TaskGroup() as group:
            group.start(self._listen(), name="device-events")
            while not scope.stopping.is_set():
                self._wanted.clear()
                try:
                    async with within(_LOOK_TIMEOUT_S):
                        await publish(scope.store, self._registration, await self.look(assignments))
                    pause_s = self._every_s
                except (QuartermasterError, TimeoutError, OSError) as error:
                    _log.warning("cannot take the inventory", error=f"{type(error).__name__}: {error}")
                    pause_s = _RETRY_S
                await first_of(self._wanted, scope.stopping, timeout_s=pause_s)
                if not scope.stopping.is_set() and self._wanted.is_set():
                    await first_of(scope.stopping, timeout_s=_SETTLE_S)
            group.cancel()

    async def look(self, assignments: Cache[Assignment]) -> Inventory:
        """What is there now."""
        self.looks += 1
        own = [uuid for assignment in assignments.list() for uuid in self._file_systems(assignment)]
        facts = await self._facts()
        before, self.latest = self.latest, inventory_of(await self._machine.devices.discover(), own, facts)
        if before is not None and disks_in(before) != disks_in(self.latest):
            self._disks_changed()
        return self.latest

    async def _listen(self) -> None:
        async with self._machine.events.watch(directories=self._directories) as changes:
            async for _ in changes:
                self._wanted.set()

    def _file_systems(self, assignment: Assignment) -> Sequence[str]:
        agent = self._agents.get(assignment.spec.agent)
        return tuple(agent.file_systems(assignment.spec.desired or {})) if isinstance(agent, KnowsFileSystems) else ()

    def _assignments(self, caches: Caches) -> Cache[Assignment]:
        registration = self._registration
        return caches.of(Assignment, registration.namespace, fields=f"spec.host={registration.name}")


def inventory_of(found: Sequence[machines.Device], own: Iterable[str], facts: machines.Facts) -> Inventory:
    """Every device with the verdict on it; pure."""
    around = machines.Surroundings(own=tuple(own), twins=twins(found))
    devices = []
    for device in sorted(found, key=lambda one: one.path):
        verdict = machines.judge(device, around)
        devices.append(
            Device(
                path=device.path,
                id=device.identity,
                serial=device.serial if device.serial != device.identity else "",
                size=device.size,
                rotational=device.rotational,
                state=str(verdict.state),
                reason=str(verdict.reason),
                message=verdict.message,
                file_system=made_by_us(device),
            )
        )
    return Inventory(devices=tuple(devices), addresses=facts.addresses, facts=plain_facts(facts))


def disks_in(inventory: Inventory) -> list[tuple[str, str]]:
    """Which disks are there, and where; whatever is on them."""
    return [(device.path, device.id) for device in inventory.devices]


def plain_facts(facts: machines.Facts) -> dict[str, str]:
    """As a person reads them; of the programs only those that are missing."""
    missing = [name for name, path in sorted(facts.tools.items()) if not path]
    shown = {
        "architecture": facts.architecture,
        "boot": facts.boot,
        "cores": str(facts.cores),
        "distribution": facts.distribution,
        "kernel": facts.kernel,
        "memory": str(facts.memory),
        "missing": ", ".join(missing),
        "root": str(facts.root).lower(),
        "systemd": str(facts.systemd).lower(),
    }
    return {name: value for name, value in shown.items() if value}
