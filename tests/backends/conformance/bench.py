"""A backend on modelled hosts without store, leader or time: view, plan, agents, reports, and again until it rests."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from quartermaster.backends.assigning import as_plain
from quartermaster.backends.base import AgentContext, Placement, Refusal, ServiceAgent, Volume, VolumeRequest
from quartermaster.host.fake import FakeMachine, Faults, fake_host
from quartermaster.orchestration.inventory import inventory_of
from quartermaster.planning.cluster import ClusterKey, ClusterPlan, ClusterView, Desired, VolumeView
from quartermaster.planning.gathering import Snapshot, views_of
from quartermaster.planning.health import HostState
from quartermaster.resources import ObjectMeta, StorageNode, StorageStatus, from_document
from quartermaster.resources.marks import HOSTNAME_LABEL, NODE_FINALIZER
from quartermaster.resources.orchestration import (
    FAILED,
    SUCCEEDED,
    Assignment,
    AssignmentSpec,
    AssignmentStatus,
    Host,
    HostSpec,
    HostStatus,
    assignment_name,
)
from quartermaster.resources.storage import ONLINE, StorageNodeStatus, StorageStatusSpec
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import HostError, NotFoundError
from tests.operators.world import facts

from .subjects import Subject

NAMESPACE = "storage"
ROUNDS = 20
# How the calls of fakes begin that leave a machine as it was.
_LOOKS = ("ask", "discover", "inspect", "look", "measure", "status of", "list", "read")


class Bench:
    def __init__(self, subject: Subject, directory: Path) -> None:
        self.subject = subject
        self.backend = subject.backend
        self.key = ClusterKey(NAMESPACE, subject.type, "default")
        self.world = subject.world() if subject.world is not None else None
        self.machines: dict[str, FakeMachine] = {}
        self.faults: dict[str, Faults] = {}
        self.nodes: dict[str, StorageNode] = {}
        self.assignments: dict[str, Assignment] = {}
        self.volumes: dict[str, VolumeView] = {}
        self.silent: list[str] = []
        self.lost: list[str] = []
        self.online = False
        self.memory: dict[str, str] = {}
        self._store = ObjectStore(MemoryKeyValue())
        self._directory = directory
        self._agents: dict[str, ServiceAgent] = {agent.name: agent for agent in self.backend.agents()}

    # What is declared and what happens.

    def add(self, *names: str, **spec: Any) -> None:
        for name in names:
            machine = self.machines.setdefault(name, FakeMachine())
            if not machine.disks:
                machine.add_disk("vdb", serial=f"serial-{name}")
            self.declare(name, **(spec or self.subject.spec))

    def declare(self, name: str, **spec: Any) -> None:
        document = {"type": self.subject.type, "nodeSelector": {HOSTNAME_LABEL: name}, **spec}
        metadata = {"name": name, "namespace": NAMESPACE, "finalizers": [NODE_FINALIZER]}
        self.nodes[name] = from_document(StorageNode, {"metadata": metadata, "spec": document})

    def mark(self, name: str, annotations: dict[str, str] | None = None, *, deleting: bool = False) -> None:
        node = self.nodes[name]
        stamp = "2026-01-01T00:00:00Z" if deleting else node.metadata.deletion_timestamp
        status = StorageNodeStatus(host=name, cluster="default", capacity=node.status.capacity)
        metadata = replace(node.metadata, deletion_timestamp=stamp, annotations=annotations or {})
        self.nodes[name] = replace(node, metadata=metadata, status=status)

    # The leader.

    async def view(self) -> ClusterView:
        hosts = [await self._host(name) for name in sorted(self.machines)]
        status = StorageStatus(
            metadata=ObjectMeta(name=self.key.status_name, namespace=NAMESPACE),
            spec=StorageStatusSpec(type=self.key.type, status=ONLINE if self.online else "OFFLINE"),
        )
        snapshot = Snapshot(
            namespace=NAMESPACE,
            nodes=[self.nodes[name] for name in sorted(self.nodes)],
            hosts=hosts,
            statuses=(status,),
            assignments=[self.assignments[name] for name in sorted(self.assignments)],
            volumes={self.key: tuple(self.volumes.values())},
            memories={self.key: dict(self.memory)},
            agents={self.subject.type: tuple(self._agents)},
            always=(self.key,),
        )
        return views_of(snapshot, self)[self.key]

    def of(
        self, host: str, *, unhealthy_after_s: float | None = None, move_data_after_s: float | None = None
    ) -> HostState:
        return HostState(healthy=host not in self.silent, lost=host in self.lost)

    async def plan(self) -> ClusterPlan:
        return self.backend.plan(await self.view())

    async def settle(self) -> ClusterPlan:
        """Until two rounds in a row ask for the same and all of it is done."""
        for _ in range(ROUNDS):
            before = dict(self.assignments)
            plan = await self.plan()
            self.memory = dict(plan.memory)
            for desired in plan.assignments:
                self.ask(desired)
            await self.work()
            if before == self.assignments and plan == await self.plan():
                return plan
        raise AssertionError(f"{self.subject.type} does not come to rest within {ROUNDS} rounds")

    def forget(self, name: str) -> None:
        """The node is gone, and with it what was asked of its host."""
        del self.nodes[name]
        for key in [key for key, one in self.assignments.items() if one.spec.host == name]:
            del self.assignments[key]

    def ask(self, desired: Desired) -> None:
        name = assignment_name(desired.agent, desired.host, desired.instance)
        config = as_plain(desired.config) if desired.config is not None else None
        old = self.assignments.get(name)
        if old is None and config is None:
            return
        if old is not None and old.spec.desired == config and bool(old.spec.absent) == (config is None):
            return
        spec = AssignmentSpec(
            host=desired.host,
            agent=desired.agent,
            instance=desired.instance,
            generation=(old.spec.generation if old is not None else 0) + 1,
            desired=config,
            absent=True if config is None else None,
        )
        status = old.status if old is not None else AssignmentStatus()
        self.assignments[name] = Assignment(
            metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=spec, status=status
        )

    # The agents.

    async def work(self, *, again: bool = False, only: str = "") -> None:
        """Every living agent does what it is asked for; `again`: also what it has done already; `only`: one kind."""
        for name, assignment in sorted(self.assignments.items()):
            status, spec = assignment.status, assignment.spec
            done = status.state == SUCCEEDED and status.observed_generation == spec.generation
            if spec.host in self.silent or (done and not again) or spec.agent != (only or spec.agent):
                continue
            try:
                result = await self.run(assignment)
            except HostError as error:
                report = AssignmentStatus(
                    state=FAILED,
                    observed_generation=spec.generation,
                    message=str(error),
                    reason=error.reason,
                    result=status.result,
                )
            else:
                report = AssignmentStatus(state=SUCCEEDED, observed_generation=spec.generation, result=result)
            if spec.absent and report.state == SUCCEEDED:
                del self.assignments[name]
            else:
                self.assignments[name] = replace(assignment, status=report)

    async def run(self, assignment: Assignment, faults: Faults | None = None) -> dict[str, Any] | None:
        """One call of an agent, by an agent that has just started."""
        agent = self._agents[assignment.spec.agent]
        context = self.context(assignment.spec.host, agent, faults)
        await agent.initialize(context)
        if assignment.spec.absent:
            context = with_fields(context, assignment=await self._stored(assignment))
            await agent.destroy_local_service(context)
            return None
        context = with_fields(context, assignment=assignment)
        return as_plain(await agent.configure_local_service(context))

    async def _stored(self, assignment: Assignment) -> Assignment:
        """As the agent finds it in the store, where it looks whether that is asked for still."""
        name = assignment.metadata.name
        with suppress(NotFoundError):
            await self._store.delete(Assignment, name, NAMESPACE)
        metadata = ObjectMeta(name=name, namespace=NAMESPACE, annotations=assignment.metadata.annotations)
        return replace(await self._store.create(replace(assignment, metadata=metadata)), status=assignment.status)

    def context(self, host: str, agent: ServiceAgent, faults: Faults | None = None) -> AgentContext:
        async def report(_: str) -> None:
            pass

        used = faults or self.faults.setdefault(host, Faults())
        machine = self.machines[host]
        commands = self.world.commands(self.address(host), machine, used) if self.world is not None else None
        return AgentContext(
            host=host,
            namespace=NAMESPACE,
            machine=fake_host(machine, used, commands=commands),
            directory=self._directory / host / agent.name,
            store=self._store,
            assignment=None,
            report=report,
        )

    # Volumes.

    def request(self, name: str, size: int, *, host: str = "", current: Placement | None = None) -> VolumeRequest:
        return VolumeRequest(
            name, NAMESPACE, "claim", size, access_modes=("ReadWriteOnce",), host=host, current=current
        )

    async def make(self, name: str, size: int) -> Volume:
        placed = self.backend.volumes().place(self.request(name, size), await self.view())
        assert not isinstance(placed, Refusal), placed
        volume = Volume(name, size, placed)
        self.volumes[name] = VolumeView(name, size, placed.hosts, dict(placed.details))
        self.ask(self.backend.volumes().desired(volume))
        await self.work()
        return volume

    def result_of(self, volume: Volume) -> dict[str, Any]:
        desired = self.backend.volumes().desired(volume)
        found = self.assignments[assignment_name(desired.agent, desired.host, desired.instance)]
        assert found.status.state == SUCCEEDED, found.status.message
        return found.status.result or {}

    # What is there.

    def state(self, host: str) -> dict[str, Any]:
        """Everything of a machine that an agent could have changed; numbers of mounts and processes do not count."""
        machine = self.machines[host]
        return {
            "disks": {path: disk.signatures for path, disk in sorted(machine.disks.items())},
            "mounts": sorted((mount.source, mount.root, mount.target) for mount in machine.mounts),
            "daemons": sorted(name for name, process in machine.processes.items() if process.lives),
            "directories": sorted(path for _, path in machine.directories),
        }

    def changes(self, host: str) -> list[str]:
        return [call for call in self.faults[host].trace if not call.startswith(_LOOKS)]

    def address(self, name: str) -> str:
        return f"10.0.0.{sorted(self.machines).index(name) + 1}"

    async def _host(self, name: str) -> Host:
        devices = await fake_host(self.machines[name]).devices.discover()
        own = [
            uuid
            for assignment in self.assignments.values()
            if assignment.spec.host == name
            for uuid in getattr(self._agents[assignment.spec.agent], "file_systems", lambda _: ())(
                assignment.spec.desired or {}
            )
        ]
        address = self.address(name)
        return Host(
            metadata=ObjectMeta(name=name, namespace=NAMESPACE, labels={HOSTNAME_LABEL: name}),
            spec=HostSpec(addresses=(address,)),
            status=HostStatus(inventory=inventory_of(devices, own, facts(address))),
        )


def frozen(value: Any) -> bytes:
    """A picture of a view or a plan, by which a change shows."""
    return msgspec.json.encode(value, order="sorted")
