"""A controller: objects of one kind, each brought to what it declares, again and again.

A Request carries only a name. What happened is not said, because a reconciler that acted on "what happened" would be
wrong after a lost event, a restart or two changes in one; it reads what is and what should be, and makes up the
difference. So any number of changes may become one call, and a call for nothing is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from quartermaster.engine.cache import Cache, Caches
from quartermaster.engine.events import EventRecorder
from quartermaster.engine.metrics import HANDLER_ERRORS, Metrics
from quartermaster.engine.queue import DEFAULT_BOUND, RETRY_BACKOFF, WorkQueue, queue_meters
from quartermaster.engine.rates import TokenBucket
from quartermaster.engine.waiting import first_of
from quartermaster.engine.watching import (
    Predicate,
    Request,
    Watch,
    forgiving,
    forgiving_predicate,
    requests_of,
)
from quartermaster.engine.workers import DONE, Result, Workers
from quartermaster.resources.model import Object
from quartermaster.stores.base import Fence, Store
from quartermaster.support.backoff import Backoff
from quartermaster.support.log import logger

__all__ = ["DONE", "Controller", "Reconciler", "Request", "Result", "Scope", "Service"]

T = TypeVar("T", bound=Object)
# How often a controller that still waits for its caches says so.
_PATIENCE_S = 60.0

_log = logger("engine.controller")


class Reconciler(Protocol):
    """Brings one object to what it declares."""

    async def reconcile(self, request: Request) -> Result:
        """Called with a name, whenever something about it may have changed; never twice at once for one name.

        The object may be gone by now, and the name may stand for a new one. What the call ends with says what follows:

        - `DONE`: nothing until something changes. Failures so far are forgotten.
        - `Result(requeue_after_s=n)`: the same, and look again in n seconds, unless there is a reason before.
        - an exception (ConflictError among them): try again, after a delay that doubles with each failure in a row.
          It need not be caught here; it is logged, counted, and hurts nobody else. Taking longer than the
          controller's timeout is one too.
        - `TerminalError`: trying again cannot help. Nothing until something changes; say in the status why.
        - `FencedError`: somebody else leads. Everything stops at once.
        """
        ...


@dataclass(frozen=True)
class Scope:
    """What a service is given for one term: from taking the lead (or starting, without election) to the end of it."""

    store: Store  # every write through it is fenced with this term's epoch
    caches: Caches
    events: EventRecorder
    metrics: Metrics
    stopping: asyncio.Event  # set once, when the process should end
    fence: Fence | None = None
    drain_s: float = 5.0


class Service(Protocol):
    """Something that the leader runs."""

    @property
    def name(self) -> str: ...

    def prepare(self, caches: Caches) -> None:
        """Ask for the caches that `run` will need, so that they are warm before the lead is taken."""
        ...

    async def run(self, scope: Scope) -> None:
        """Return soon after `scope.stopping`; end at once when cancelled: then the lead is lost."""
        ...


@dataclass(frozen=True)
class Controller(Generic[T]):
    """The declaration of a controller. `build` makes the reconciler anew for each term.

    Nothing that was known or half done in an earlier term survives in it, for somebody else may have led in between.
    """

    name: str
    kind: type[T]
    build: Callable[[Scope], Reconciler]
    predicate: Predicate | None = None
    watches: Sequence[Watch] = ()
    reads: Sequence[type[Object]] = ()  # kinds that the reconciler reads from caches and that cause no request
    namespace: str | None = None
    labels: str = ""
    fields: str = ""
    workers: int = 4
    timeout_s: float = 60.0
    backoff: Backoff = RETRY_BACKOFF
    retries_per_s: float = 0.0  # of all keys together; 0: no such bound
    queue_bound: int = DEFAULT_BOUND

    def prepare(self, caches: Caches) -> None:
        self._caches(caches)

    async def run(self, scope: Scope) -> None:
        source, watched, read = self._caches(scope.caches)
        watched = [(forgiving(watch, self._failed(scope.metrics, cache)), cache) for watch, cache in watched]
        reconciler = self.build(scope)
        queue: WorkQueue[Request] = WorkQueue(
            bound=self.queue_bound,
            backoff=self.backoff,
            bucket=TokenBucket(self.retries_per_s, 10 * self.retries_per_s) if self.retries_per_s else None,
            meters=queue_meters(scope.metrics, self.name),
            everything=lambda: _everything(source, watched),
        )
        matters = forgiving_predicate(self.predicate, self._failed(scope.metrics, source))
        unsubscribe = [source.subscribe(_on_source(queue, matters))]
        unsubscribe += [cache.subscribe(_on_watched(queue, watch)) for watch, cache in watched]
        try:
            if not await all_synced(self.name, [source, *(cache for _, cache in watched), *read], scope.stopping):
                return
            workers = Workers(
                self.name,
                queue,
                reconciler.reconcile,
                count=self.workers,
                timeout_s=self.timeout_s,
                metrics=scope.metrics,
            )
            await workers.run(scope.stopping, drain_s=scope.drain_s)
        finally:
            for end in unsubscribe:
                end()
            queue.close(drop=True)

    def _caches(self, caches: Caches) -> tuple[Cache[T], list[tuple[Watch, Cache[Any]]], list[Cache[Any]]]:
        source = caches.of(self.kind, self.namespace, labels=self.labels, fields=self.fields)
        watched = [
            (watch, caches.of(watch.kind, watch.namespace, labels=watch.labels, fields=watch.fields))
            for watch in self.watches
        ]
        return source, watched, [caches.of(kind) for kind in self.reads]

    def _failed(self, metrics: Metrics, cache: Cache[Any]) -> Callable[[], None]:
        """For a predicate or mapper that raises, to be called while that is handled."""
        errors = metrics.counter(HANDLER_ERRORS, str(cache.key))

        def note() -> None:
            errors.inc()
            _log.exception("predicate or mapper failed", controller=self.name, cache=str(cache.key))

        return note


def _on_source(queue: WorkQueue[Request], matters: Predicate) -> Callable[[Any, Any], None]:
    def handle(old: Object | None, new: Object | None) -> None:
        obj = new if new is not None else old
        if obj is not None and matters(old, new):
            queue.add(obj.key)

    return handle


def _on_watched(queue: WorkQueue[Request], watch: Watch) -> Callable[[Any, Any], None]:
    def handle(old: Object | None, new: Object | None) -> None:
        if watch.predicate is None or watch.predicate(old, new):
            for request in requests_of(watch, old, new):
                queue.add(request)

    return handle


def _everything(source: Cache[Any], watched: Sequence[tuple[Watch, Cache[Any]]]) -> Iterator[Request]:
    yield from source.keys()
    for watch, cache in watched:
        for obj in cache.list():
            yield from watch.mapper(obj)


async def all_synced(name: str, caches: Sequence[Cache[Any]], stopping: asyncio.Event) -> bool:
    """Wait for the first complete list of each, however long the store is away; False if stopped before."""
    loop = asyncio.get_running_loop()
    for cache in caches:
        since = loop.time()
        while not cache.synced.is_set():
            if stopping.is_set():
                return False
            await first_of(cache.synced, stopping, timeout_s=_PATIENCE_S)
            if not cache.synced.is_set() and not stopping.is_set():
                waited_s = round(loop.time() - since)
                _log.warning("still waiting for a cache", controller=name, cache=str(cache.key), waited_s=waited_s)
    return True
