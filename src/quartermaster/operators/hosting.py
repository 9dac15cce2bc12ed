"""Everything that runs on one host, in one process: its agent, the keeper of its etcd, a candidate for the lead.

A host on an etcd of our own may lead while it has the leader's certificate, which comes and goes as etcd grows and
shrinks; on the embedded store the one process is everything. Daemons are not part of it and outlive it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path

from quartermaster.backends.registry import installed_agents
from quartermaster.engine.metrics import SILENT, Metrics
from quartermaster.engine.runtime import Listen, Runtime
from quartermaster.engine.waiting import first_of
from quartermaster.host import Host
from quartermaster.operators.settings import HostSettings
from quartermaster.orchestration.agent import AgentRuntime
from quartermaster.orchestration.joining.access import StoreAccess, read_access
from quartermaster.stores import open_store
from quartermaster.stores.base import Store
from quartermaster.support.backoff import Backoff
from quartermaster.support.errors import QuartermasterError, UsageError
from quartermaster.support.log import logger
from quartermaster.support.tasks import TaskGroup

_LOOK_S = 1.0
_END_S = 8.0
_AGAIN = Backoff(first_s=1.0, limit_s=30.0)

_log = logger("operators.hosting")

BuildOperator = Callable[[Store, StoreAccess | None], Runtime]


class HostProcess:
    """`run` until `stop`, or a signal where `signals` is set. Made inside a running loop."""

    def __init__(
        self,
        directory: Path,
        settings: HostSettings,
        machine: Host,
        *,
        device_directories: Sequence[Path] = (),
        listen: Listen | None = None,
        signals: bool = False,
        operator: BuildOperator | None = None,
    ) -> None:
        """`operator` makes what stands for the lead, where it is not to be the usual one."""
        self._directory = directory
        self._settings = settings
        self._machine = machine
        self._device_directories = tuple(device_directories)
        self._listen = listen
        # What nobody can ask for is not counted: the instruments are a good part of what an idle agent holds.
        self._metrics = Metrics() if listen is not None else SILENT
        self._signals = signals
        self._operator = operator or self._usual_operator
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        with _signals_to(self.stop, wanted=self._signals):
            access = None if self._settings.store else read_access(self._directory)
            if access is not None:
                await self._run_with_member(access)
            elif self._settings.store:
                await self._run_on(self._settings.store)
            else:
                raise UsageError(
                    f"cannot start the agent of {self._settings.name}: it belongs to no cluster",
                    hint="`qm up` makes one, `qm join TOKEN` joins one, --store names a store",
                )

    async def _run_on(self, url: str) -> None:
        async with aclosing(_Opened(await open_store(url))) as opened:
            runs = [self._agent(opened.store, None).runtime]
            if self._settings.leads:
                runs.append(self._operator(opened.store, None))
            await self._run_all(runs)

    async def _run_with_member(self, access: StoreAccess) -> None:
        """The member first: the store may be nowhere but in it."""
        from quartermaster.orchestration.joining.keeping import keep_member

        async with TaskGroup() as group:
            group.start(keep_member(self._directory, self._machine), name="etcd-member")
            candidate = group.start(self._stand(), name="candidate")
            async with aclosing(_Opened(await open_store(access.url))) as opened:
                await self._run_all([self._agent(opened.store, access).runtime])
            await asyncio.wait([candidate], timeout=_END_S)
            group.cancel()

    async def _stand(self) -> None:
        """Stand for the lead while this host may. Whatever goes wrong with leading, the agent and the member go on."""
        failures = 0
        while not self._stopping.is_set():
            pause_s = _LOOK_S
            try:
                access = read_access(self._directory)
                if access is not None and access.leader_url:
                    async with aclosing(_Opened(await open_store(access.leader_url))) as opened:
                        await self._lead_while_allowed(self._operator(opened.store, access))
                failures = 0
            except Exception as error:
                pause_s, failures = _AGAIN.delay_s(failures), failures + 1
                known = isinstance(error, QuartermasterError | OSError)
                _log.warning(
                    "this host cannot stand for the lead",
                    error=f"{type(error).__name__}: {error}",
                    again_in_s=round(pause_s, 1),
                    exc_info=None if known else error,
                )
            await first_of(self._stopping, timeout_s=pause_s)

    async def _lead_while_allowed(self, runtime: Runtime) -> None:
        async with TaskGroup() as group:
            running = group.start(runtime.run(), name="operator")
            while not self._stopping.is_set() and not running.done():
                await first_of(self._stopping, timeout_s=_LOOK_S)
                access = read_access(self._directory)
                if access is None or not access.leader_url:
                    break
            runtime.stop()
            await asyncio.wait([running], timeout=_END_S)
            group.cancel()

    async def _run_all(self, runtimes: Sequence[Runtime]) -> None:
        async with TaskGroup() as group:
            running = [group.start(runtime.run(), name="runtime") for runtime in runtimes]
            await self._stopping.wait()
            for runtime in runtimes:
                runtime.stop()
            await asyncio.wait(running, timeout=_END_S)
            group.cancel()

    def _agent(self, store: Store, access: StoreAccess | None) -> AgentRuntime:
        settings = self._settings
        agents = list(installed_agents())
        if access is not None:
            from quartermaster.orchestration.joining.roles import standalone_agents

            agents = [*standalone_agents(self._directory), *agents]
        return AgentRuntime(
            store,
            settings.name,
            self._machine,
            agents,
            namespace=settings.namespace,
            directory=self._directory,
            addresses=settings.addresses,
            labels=settings.labels,
            wishes=settings.wishes,
            timings=settings.timings,
            device_directories=self._device_directories,
            metrics=self._metrics,
            listen=self._listen,
        )

    def _usual_operator(self, store: Store, access: StoreAccess | None) -> Runtime:
        # Most hosts never lead, and need not hold what leaders do.
        from quartermaster.operators.assembly import operator_runtime

        return operator_runtime(
            store,
            namespace=self._settings.namespace,
            timings=self._settings.timings,
            access=access,
            metrics=self._metrics,
        )


class _Opened:
    """A store that is closed at the end of a block."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def aclose(self) -> None:
        await self.store.close()


@contextmanager
def _signals_to(stop: Callable[[], None], *, wanted: bool) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    caught = (signal.SIGTERM, signal.SIGINT) if wanted else ()
    for number in caught:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
