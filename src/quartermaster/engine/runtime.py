"""A process that runs controllers: store, caches, election, services, endpoints, signals, and a clean end.

Caches run from the beginning, so that a candidate that takes the lead acts on warm ones. Services run only while
leading, or throughout where there is no election. When the lead is lost they are cancelled at once, all of them, and
the process stands for election again; what it knew in that term is gone with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from quartermaster.engine.cache import Cache, Caches
from quartermaster.engine.controller import Scope, Service
from quartermaster.engine.election import Election, Leadership
from quartermaster.engine.endpoints import serving
from quartermaster.engine.events import EventRecorder
from quartermaster.engine.fenced import FencedStore
from quartermaster.engine.metrics import Metrics
from quartermaster.engine.waiting import Signal, first_of
from quartermaster.stores.base import Store
from quartermaster.support.errors import FencedError
from quartermaster.support.log import logger
from quartermaster.support.tasks import TaskGroup

_FLUSH_S = 2.0
# What comes after the drain: cancelled work unwinds, the lease is released.
_GRACE_S = 1.0

_log = logger("engine.runtime")


class Listen(msgspec.Struct, frozen=True):
    """Where health and metrics are served."""

    host: str = "127.0.0.1"
    port: int = 8080


class Runtime:
    """Add services, then `run`; it ends after `stop` or a signal. Made inside a running loop."""

    def __init__(
        self,
        store: Store,
        *,
        component: str = "quartermaster",
        election: Election | None = None,
        listen: Listen | None = None,
        metrics: Metrics | None = None,
        drain_s: float = 5.0,
        signals: bool = False,
    ) -> None:
        self.store = store
        self.metrics = metrics or Metrics()
        self.caches = Caches(store, metrics=self.metrics)
        self.events = EventRecorder(store, component, metrics=self.metrics)
        self.leadership: Leadership | None = None
        self.port = 0  # where the endpoints are, once they are
        self._election = election
        self._listen = listen
        self._drain_s = drain_s
        self._signals = signals
        self._services: list[Service] = []
        self._stopping = Signal()

    def add(self, service: Service) -> None:
        """A controller, the collector, the expiry of Events: anything that the leader runs."""
        self._services.append(service)

    def stop(self) -> None:
        """End cleanly: finish what is in hand within `drain_s`, release the lead, stop."""
        self._stopping.set()

    async def run(self) -> None:
        """Raises what makes going on senseless, such as a port that is taken; a lost lead or store is not that."""
        with self._catching_signals():
            async with TaskGroup() as group, self._endpoints():
                for service in self._services:
                    service.prepare(self.caches)
                self.caches.start_with(lambda cache: self._start_cache(group, cache))
                group.start(self.events.run(), name="events")
                terms = group.start(self._terms(), name="terms")
                await self._stopping.wait()
                if self._election is not None and self.leadership is None:
                    terms.cancel()  # a candidate has nothing to finish
                # Services drain by themselves; the cancellation is for one that does not.
                await asyncio.wait([terms], timeout=self._drain_s + _GRACE_S)
                terms.cancel()
                await asyncio.wait([terms], timeout=self._drain_s + _GRACE_S)
                await self.events.flush(_FLUSH_S)
                group.cancel()

    async def _terms(self) -> None:
        if self._election is None:
            await self._term(None)
            return
        while not self._stopping.is_set():
            try:
                async with self._election.leading() as leadership:
                    self.leadership = leadership
                    await self._term(leadership)
            except FencedError as error:
                _log.warning("the lead is lost", error=str(error))
            finally:
                self.leadership = None
            # Others have their chance, and whatever went wrong is not repeated without end.
            await first_of(self._stopping, timeout_s=self._election.retry_s)

    async def _term(self, leadership: Leadership | None) -> None:
        scope = Scope(
            store=self.store if leadership is None else FencedStore(self.store, leadership),
            caches=self.caches,
            events=self.events,
            metrics=self.metrics,
            stopping=self._stopping,
            fence=None if leadership is None else leadership.fence,
            drain_s=self._drain_s,
        )
        async with TaskGroup() as group:
            for service in self._services:
                group.start(service.run(scope), name=service.name)
            await self._stopping.wait()

    def not_alive(self) -> list[str]:
        """A leader whose lease has run out and who still believes to lead hangs: it is better started anew."""
        if self.leadership is not None and not self.leadership.holds:
            return ["the lead has run out"]
        return []

    def not_ready(self) -> list[str]:
        wrong = []
        for cache in self.caches.all():
            if not cache.synced.is_set():
                wrong.append(f"{cache.key}: not listed yet")
            elif cache.stale_s:
                wrong.append(f"{cache.key}: stale for {cache.stale_s:.0f} s")
        return wrong

    def _start_cache(self, group: TaskGroup, cache: Cache[Any]) -> None:
        group.start(cache.run(), name=f"cache {cache.key}")

    @contextlib.asynccontextmanager
    async def _endpoints(self) -> AsyncIterator[None]:
        if self._listen is None:
            yield
            return
        async with serving(
            self._listen.host, self._listen.port, alive=self.not_alive, ready=self.not_ready, metrics=self.metrics
        ) as port:
            self.port = port
            yield

    @contextlib.contextmanager
    def _catching_signals(self) -> Iterator[None]:
        if not self._signals:
            yield
            return
        loop = asyncio.get_running_loop()
        caught = (signal.SIGTERM, signal.SIGINT)
        for number in caught:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)
