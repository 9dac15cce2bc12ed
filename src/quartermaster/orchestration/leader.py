"""The leader's part: it notices, waits a moment, and lets the service managers decide, one after the other.

One pass per event, however many changes are in it, and again until nothing is pending. A new leader begins with a
refresh of everything, and so does a slow sweep for what was lost. A manager that fails is given the same event again
after a pause of its own; the others do not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from quartermaster.backends.assigning import is_gone
from quartermaster.backends.base import RefreshEvent, ServiceManager
from quartermaster.engine.cache import Cache, Caches
from quartermaster.engine.controller import Scope, all_synced
from quartermaster.engine.waiting import first_of
from quartermaster.orchestration.health import Heartbeats, HostHealth
from quartermaster.orchestration.hearing import Hearing, lease_caches
from quartermaster.orchestration.heartbeat import heartbeat_name, shortest
from quartermaster.orchestration.marking import Marking
from quartermaster.orchestration.refresh import (
    NOTHING,
    Pending,
    cache_of,
    merged,
    selection,
    watch_hosts,
    watch_keys,
)
from quartermaster.orchestration.timings import Timings
from quartermaster.resources.kubernetes.core import Lease
from quartermaster.resources.model import Key, Object
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.resources.storage import StorageCluster
from quartermaster.stores.base import Store
from quartermaster.support.backoff import Backoff
from quartermaster.support.deadlines import within
from quartermaster.support.errors import ConflictError, FencedError, NotFoundError, QuartermasterError
from quartermaster.support.log import logger
from quartermaster.support.tasks import TaskGroup

BuildManager = Callable[[Scope, HostHealth], ServiceManager]
"""Makes a manager for one term. It may ask `scope.caches` for more; what it reads is best named in `reads`."""

_RETRY = Backoff(first_s=0.5, limit_s=60.0)
_READ_TIMEOUT_S = 10.0
# A manager that always wants to look again must not keep the process from everything else.
_LEAST_AGAIN_S = 0.1

_log = logger("orchestration.leader")


class _Turn:
    """A manager, what it has not handled yet, and when its next turn is due."""

    def __init__(self, manager: ServiceManager) -> None:
        self.manager = manager
        self.event = NOTHING
        self.failures = 0
        self.not_before = 0.0  # after a failure
        self.again_at: float | None = None  # by its own wish


class Orchestrator:
    """A service of the engine. `managers` are built anew for each term; `reads` are kinds that they read in caches."""

    name = "orchestrator"

    def __init__(
        self,
        managers: Sequence[BuildManager],
        timings: Timings = Timings(),  # noqa: B008 - frozen
        *,
        namespace: str = "default",
        reads: Sequence[type[Object]] = (),
    ) -> None:
        self._build = tuple(managers)
        self._timings = timings
        self._namespace = namespace
        self._reads = tuple(reads)
        self.refreshes = 0  # how many events were handled, by all terms of this process

    def prepare(self, caches: Caches) -> None:
        self._caches(caches)

    def _caches(self, caches: Caches) -> list[Cache[Any]]:
        kinds: dict[type[Object], None] = dict.fromkeys((Host, Assignment, StorageCluster, *self._reads))
        return [*lease_caches(caches, self._namespace), *(cache_of(caches, kind, self._namespace) for kind in kinds)]

    async def run(self, scope: Scope) -> None:
        caches = self._caches(scope.caches)
        if not await all_synced(self.name, caches, scope.stopping):
            return
        term = _Term(scope, self._timings, self._namespace)
        turns = [_Turn(build(scope, term.health)) for build in self._build]
        keys = [key for turn in turns for key in turn.manager.refresh_keys()]
        if not await all_synced(
            self.name, [selection(scope.caches, key, self._namespace) for key in keys], scope.stopping
        ):
            return
        with ExitStack() as watching:
            for end in (*term.watch(), *watch_keys(scope.caches, keys, self._namespace, term.pending)):
                watching.callback(end)
            # What was there before this term is not news: all of it is looked at first.
            term.pending.take()
            term.pending.note(full=True)
            async with TaskGroup() as group:
                group.start(term.hearing.run(), name="hearing")
                group.start(term.health.run(term.read_heartbeat), name="heartbeats")
                group.start(term.marking.run(scope.stopping), name="marking")
                await self._refresh(scope, term, turns)
                group.cancel()

    async def _refresh(self, scope: Scope, term: _Term, turns: Sequence[_Turn]) -> None:
        loop = asyncio.get_running_loop()
        sweep_at = loop.time() + self._timings.sweep_s
        begun = False
        while not scope.stopping.is_set():
            due = min([sweep_at, *(_due(turn) for turn in turns)])
            if not term.pending.there.is_set() and due > loop.time():
                await first_of(term.pending.there, scope.stopping, timeout_s=due - loop.time())
            if loop.time() >= sweep_at:
                sweep_at = loop.time() + self._timings.sweep_s
                term.pending.note(full=True)
            if term.pending.there.is_set() and begun:
                await first_of(scope.stopping, timeout_s=self._debounce_s(scope.caches))
            begun = True
            if scope.stopping.is_set():
                return
            event = term.pending.take() if term.pending.there.is_set() else NOTHING
            self.refreshes += event != NOTHING
            for turn in turns:
                turn.event = merged(turn.event, event)
                if _due(turn) <= loop.time():
                    await self._handle(turn)

    def _debounce_s(self, caches: Caches) -> float:
        """The shortest that any StorageCluster asks for, else our own: whoever is in a hurry is not kept waiting."""
        asked = shortest(cache_of(caches, StorageCluster, self._namespace).list(), "debounce_seconds")
        return self._timings.debounce_s if asked is None else asked

    async def _handle(self, turn: _Turn) -> None:
        loop = asyncio.get_running_loop()
        manager, event = turn.manager, turn.event
        turn.event, turn.again_at = NOTHING, None
        try:
            async with within(self._timings.manager_s):
                again_s = await manager.handle_refresh(event)
        except FencedError:
            raise
        except Exception as error:  # one manager's mistake must not cost the others their turn
            turn.event = merged(event, turn.event) if event != NOTHING else RefreshEvent(full=True, since=loop.time())
            pause_s = _RETRY.delay_s(turn.failures)
            turn.failures += 1
            turn.not_before = loop.time() + pause_s
            known = isinstance(error, QuartermasterError | TimeoutError)
            write = _log.info if isinstance(error, ConflictError) else _log.warning
            write(
                "a manager failed",
                manager=manager.name,
                error=f"{type(error).__name__}: {error}",
                again_in_s=round(pause_s, 1),
                exc_info=None if known else error,
            )
        else:
            turn.failures, turn.not_before = 0, 0.0
            turn.again_at = loop.time() + max(again_s, _LEAST_AGAIN_S) if again_s is not None else None


def _due(turn: _Turn) -> float:
    if turn.event != NOTHING:
        return turn.not_before
    return turn.again_at if turn.again_at is not None else float("inf")


class _Term:
    """What the leader knows in one term."""

    def __init__(self, scope: Scope, timings: Timings, namespace: str) -> None:
        self.pending = Pending()
        self._store: Store = scope.store
        self._namespace = namespace
        self._hosts: Cache[Host] = cache_of(scope.caches, Host, namespace)
        self._assignments: Cache[Assignment] = cache_of(scope.caches, Assignment, namespace)
        self.health = Heartbeats(timings, self._health_changed)
        self.hearing = Hearing(scope.caches, namespace, self.health, self._is_known)
        self.marking = Marking(scope.store, namespace, self._hosts, self.health, self._assignments)

    def watch(self) -> list[Callable[[], None]]:
        return [
            watch_hosts(self._hosts, self.pending),
            self._hosts.subscribe(self._on_host),
            *self.hearing.watch(),
            self._assignments.subscribe(self._on_assignment),
        ]

    async def read_heartbeat(self, host: str) -> str:
        try:
            async with within(_READ_TIMEOUT_S):
                lease = await self._store.get(Lease, heartbeat_name(host), self._namespace)
        except NotFoundError:
            return ""
        return lease.metadata.resource_version

    def _on_host(self, old: Host | None, new: Host | None) -> None:
        if new is None:
            if old is not None:
                self.health.forget(old.metadata.name)
        elif old is None:
            name = new.metadata.name
            self.health.known(name)
            self.hearing.expect(name)
            self.marking.host(name)
        elif old.status.state != new.status.state:
            self.marking.host(new.metadata.name)

    def _is_known(self, host: str) -> bool:
        return self._hosts.get(Key(self._namespace, host)) is not None

    def _on_assignment(self, _old: Assignment | None, new: Assignment | None) -> None:
        if new is not None and is_gone(new):
            self.marking.assignment(new.metadata.name)

    def _health_changed(self, host: str) -> None:
        if self.health.of(host).healthy:
            self.pending.note(host=(host, "changed"))
        else:
            self.pending.note(unhealthy=host)
        self.marking.host(host)
