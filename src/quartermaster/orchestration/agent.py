"""The agent of one host: it registers, gives signs of life, keeps the inventory and runs what it is assigned.

It needs the store and the machine, and no other agent. It may die at any line: daemons live on, and the next start
finds everything in the store and on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from quartermaster import host as machines
from quartermaster.backends.base import AgentContext, KeepsDaemons, KnowsFileSystems, ServiceAgent
from quartermaster.engine.cache import Caches
from quartermaster.engine.controller import Scope
from quartermaster.engine.metrics import Metrics
from quartermaster.engine.runtime import Listen, Runtime
from quartermaster.engine.waiting import first_of
from quartermaster.orchestration.daemons import DaemonWatch
from quartermaster.orchestration.heartbeat import Heartbeat
from quartermaster.orchestration.inventory import GatherFacts, InventoryKeeper
from quartermaster.orchestration.registration import Registration
from quartermaster.orchestration.running import AssignmentRunner
from quartermaster.orchestration.timings import Timings
from quartermaster.resources.orchestration import Assignment, Wishes
from quartermaster.stores.base import Store
from quartermaster.support.backoff import Backoff
from quartermaster.support.deadlines import within
from quartermaster.support.log import logger

_INITIALIZE_TIMEOUT_S = 60.0
_RETRY = Backoff(first_s=0.5, limit_s=60.0)

_log = logger("orchestration.agent")


class AgentRuntime:
    """`run` until `stop`, or a signal where `signals` is set. Made inside a running loop."""

    def __init__(
        self,
        store: Store,
        host: str,
        machine: machines.Host,
        agents: Sequence[ServiceAgent],
        *,
        namespace: str = "default",
        directory: Path,
        addresses: Sequence[str] = (),
        labels: Mapping[str, str | None] | None = None,
        wishes: Wishes | None = None,
        timings: Timings = Timings(),  # noqa: B008 - frozen
        facts: GatherFacts | None = None,
        device_directories: Sequence[Path] = (),
        metrics: Metrics | None = None,
        listen: Listen | None = None,
        signals: bool = False,
    ) -> None:
        """`directory` is the host's state directory; each service agent has its own below it."""
        self.host = host
        self.namespace = namespace
        self.runtime = Runtime(store, component="agent", metrics=metrics, listen=listen, signals=signals)
        self._machine = machine
        self._directory = directory
        self._agents = {agent.name: agent for agent in agents}
        registration = Registration(host, namespace, tuple(addresses), dict(labels or {}), wishes)
        self.inventory = InventoryKeeper(
            machine,
            registration,
            facts=facts or partial(machines.gather_facts, machine.commands),
            agents=agents,
            every_s=timings.inventory_s,
            directories=device_directories,
            disks_changed=self._disks_changed,
        )
        self._initializing = _Initializing(tuple(agents), self._context)
        self.assignments = AssignmentRunner(
            host,
            namespace,
            self._agents,
            self._context,
            timings,
            ready=self._initializing.waits_for,
            finished=self.inventory.look_again,
        )
        for service in (
            self.inventory,
            Heartbeat(host, namespace, every_s=timings.heartbeat_s),
            self._initializing,
            self.assignments,
            DaemonWatch(machine.daemons, self._dead, every_s=timings.daemons_s),
        ):
            self.runtime.add(service)

    async def run(self) -> None:
        await self.runtime.run()

    def stop(self) -> None:
        self.runtime.stop()

    def _dead(self, daemon: str) -> None:
        self.assignments.verify(keeper_of(daemon, tuple(self._agents.values())))

    def _disks_changed(self) -> None:
        """One that is back is mounted again at once, and one that is gone is said to be."""
        for agent in self._agents.values():
            if isinstance(agent, KnowsFileSystems):
                self.assignments.verify(agent.name)

    def _context(
        self, store: Store, agent: ServiceAgent, assignment: Assignment | None, report: Callable[[str], Any]
    ) -> AgentContext:
        return AgentContext(
            host=self.host,
            namespace=self.namespace,
            machine=self._machine,
            directory=self._directory / "agents" / agent.name,
            store=store,
            assignment=assignment,
            report=report,
        )


def keeper_of(daemon: str, agents: Sequence[ServiceAgent]) -> str:
    """The name of the agent whose daemon it is: of one that says so, else of the one after which the daemon is named,
    as `<agent>` or `<agent>-…`; "" where nobody knows it.
    """
    for agent in agents:
        if isinstance(agent, KeepsDaemons) and agent.keeps(daemon):
            return agent.name
    named = [agent.name for agent in agents if daemon == agent.name or daemon.startswith(f"{agent.name}-")]
    return max(named, key=len, default="")


class _Initializing:
    """A service: calls `initialize` of each agent until it succeeds; an assignment of one that has not waits."""

    name = "initializing"

    def __init__(self, agents: Sequence[ServiceAgent], make_context: Callable[..., AgentContext]) -> None:
        self._agents = agents
        self._make_context = make_context
        self._waiting = {agent.name: "it has not been initialized yet" for agent in agents}

    def waits_for(self, agent: str) -> str:
        return self._waiting.get(agent, "")

    def prepare(self, caches: Caches) -> None:
        """None."""

    async def run(self, scope: Scope) -> None:
        failures = 0
        while self._waiting and not scope.stopping.is_set():
            for agent in self._agents:
                if agent.name in self._waiting:
                    await self._initialize(scope.store, agent)
            if self._waiting:
                await first_of(scope.stopping, timeout_s=_RETRY.delay_s(failures))
                failures += 1

    async def _initialize(self, store: Store, agent: ServiceAgent) -> None:
        async def unheard(_message: str) -> None:
            pass

        try:
            async with within(_INITIALIZE_TIMEOUT_S):
                await agent.initialize(self._make_context(store, agent, None, unheard))
        except Exception as error:  # the other agents of the host are not to suffer from it
            self._waiting[agent.name] = f"it cannot be initialized: {type(error).__name__}: {error}"
            _log.warning("an agent cannot be initialized", agent=agent.name, error=f"{type(error).__name__}: {error}")
        else:
            del self._waiting[agent.name]
