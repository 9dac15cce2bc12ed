"""What the tests of leader and agents share: a service that is easy to watch, a manager for it, modelled hosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from quartermaster.backends.assigning import Assigning
from quartermaster.backends.base import AgentContext, RefreshEvent, RefreshKey
from quartermaster.engine import Scope
from quartermaster.engine.election import Election
from quartermaster.engine.runtime import Runtime
from quartermaster.host import Daemon, Facts
from quartermaster.host.fake import FakeMachine, fake_host
from quartermaster.orchestration.agent import AgentRuntime
from quartermaster.orchestration.inventory import GatherFacts
from quartermaster.orchestration.leader import Orchestrator
from quartermaster.orchestration.timings import Timings
from quartermaster.planning.cluster import Desired
from quartermaster.planning.health import HostHealth
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Assignment, AssignmentSpec, Host, assignment_name
from quartermaster.stores.base import Store
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.tasks import TaskGroup

NAMESPACE = "storage"
TIMINGS = Timings(
    heartbeat_s=1.0,
    unhealthy_after_s=6.0,
    move_data_after_s=60.0,
    debounce_s=0.0,
    sweep_s=300.0,
    verify_s=30.0,
    daemons_s=1.0,
    inventory_s=60.0,
)
FACTS = Facts(
    name="modelled",
    addresses=("10.0.0.1",),
    boot="b",
    kernel="6.1",
    architecture="x86_64",
    distribution="Modelled Linux",
    memory=8 << 30,
    cores=4,
    root=True,
    systemd=False,
    tools={"mkfs.xfs": "/sbin/mkfs.xfs", "glusterd": ""},
)


def still_facts(facts: Facts) -> GatherFacts:
    """Facts that do not change."""

    async def gather() -> Facts:
        return facts

    return gather


def memory_store() -> ObjectStore:
    return ObjectStore(MemoryKeyValue())


class Echo:
    """A service agent: keeps one daemon, says what it was given, and may be told to fail or to take its time."""

    def __init__(self, name: str = "echo") -> None:
        self._name = name
        self.initialized = 0
        self.configured: list[dict[str, Any]] = []
        self.destroyed: list[str] = []
        self.fails: Exception | None = None
        self.takes_s = 0.0
        self.at_once = self.most_at_once = 0

    @property
    def name(self) -> str:
        return self._name

    async def initialize(self, context: AgentContext) -> None:
        self.initialized += 1
        if self.fails is not None:
            raise self.fails

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await context.report("working")
            await asyncio.sleep(self.takes_s)
        finally:
            self.at_once -= 1
        if self.fails is not None:
            raise self.fails
        self.configured.append(context.desired)
        await context.machine.daemons.ensure(Daemon(name=f"{self.name}d", argv=("echod",)))
        return {"echo": context.desired.get("say", ""), "list": (1, 2)}

    async def destroy_local_service(self, context: AgentContext) -> None:
        if self.fails is not None:
            raise self.fails
        self.destroyed.append(context.instance)
        await context.machine.daemons.stop(f"{self.name}d")

    def keeps(self, daemon: str) -> bool:
        return daemon == f"{self.name}d"


class EchoManager:
    """Wants the text of the ConfigMap `wish` on each healthy host, and nothing where there is none."""

    def __init__(self, scope: Scope, health: HostHealth, log: list[RefreshEvent]) -> None:
        self._hosts = scope.caches.of(Host, NAMESPACE)
        self._wishes = scope.caches.of(ConfigMap, NAMESPACE)
        self._health = health
        self._log = log
        self.assigning = Assigning(scope, NAMESPACE)
        self.fails: list[Exception] = []

    @property
    def name(self) -> str:
        return "echo"

    def refresh_keys(self) -> Sequence[RefreshKey]:
        return [RefreshKey(ConfigMap, field="data"), RefreshKey(Assignment, field="status.state")]

    async def handle_refresh(self, event: RefreshEvent) -> None:
        self._log.append(event)
        if self.fails:
            raise self.fails.pop(0)
        wish = next((one.data["say"] for one in self._wishes.list() if one.metadata.name == "wish"), None)
        for host in self._hosts.list():
            name = host.metadata.name
            if wish is None:
                await self.assigning.retire(name, "echo")
            elif self._health.of(name).healthy:
                await self.assigning.ensure(Desired(name, "echo", {"say": wish}))


class Cluster:
    """A leader and modelled hosts on one store, started and stopped at will."""

    def __init__(self, store: ObjectStore, group: TaskGroup, timings: Timings = TIMINGS) -> None:
        self.store = store
        self.timings = timings
        self.events: list[RefreshEvent] = []
        self.managers: list[EchoManager] = []
        self.machines: dict[str, FakeMachine] = {}
        self.echoes: dict[str, Echo] = {}
        self.agents: dict[str, AgentRuntime] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group = group

    def lead(self, name: str = "leader") -> Orchestrator:
        def build(scope: Scope, health: HostHealth) -> EchoManager:
            self.managers.append(EchoManager(scope, health, self.events))
            return self.managers[-1]

        orchestrator = Orchestrator([build], self.timings, namespace=NAMESPACE, reads=[ConfigMap])
        election = Election(self.store, name="leader", namespace=NAMESPACE, identity=name, lease_s=7, retry_s=2.0)
        runtime = Runtime(self.store, election=election)
        runtime.add(orchestrator)
        self._tasks[name] = self._group.start(runtime.run())
        return orchestrator

    def host(self, name: str, *others: Echo) -> AgentRuntime:
        machine = self.machines.setdefault(name, FakeMachine())
        echo = self.echoes.setdefault(name, Echo())
        agent = AgentRuntime(
            self.store,
            name,
            fake_host(machine),
            [echo, *others],
            namespace=NAMESPACE,
            directory=Path("/nowhere"),
            addresses=("10.0.0.1",),
            timings=self.timings,
            facts=still_facts(FACTS),
        )
        self.agents[name] = agent
        self._tasks[name] = self._group.start(agent.run())
        return agent

    async def stop(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.wait([self._tasks.pop(name)])

    async def wish(self, text: str) -> None:
        await self.store.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "wish", "namespace": NAMESPACE},
                "data": {"say": text},
            }
        )

    async def assign(self, host: str, config: dict[str, Any] | None, *, instance: str = "", **spec: Any) -> Assignment:
        """As a leader would, without one."""
        meta = ObjectMeta(name=assignment_name("echo", host, instance), namespace=NAMESPACE)
        wanted = AssignmentSpec(host=host, agent="echo", instance=instance, generation=1, desired=config, **spec)
        return await self.store.create(Assignment(metadata=meta, spec=wanted))

    async def assignment(self, host: str, instance: str = "") -> Assignment:
        return await self.store.get(Assignment, assignment_name("echo", host, instance), NAMESPACE)


@asynccontextmanager
async def cluster(store: Store | None = None, timings: Timings = TIMINGS) -> AsyncIterator[Cluster]:
    async with TaskGroup() as group:
        made = Cluster(store if isinstance(store, ObjectStore) else memory_store(), group, timings)
        yield made
        group.cancel()


async def settled(seconds: float = 3.0) -> None:
    """Virtual time in which everything that has to happen does."""
    await asyncio.sleep(seconds)
