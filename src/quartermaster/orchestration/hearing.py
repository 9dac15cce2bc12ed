"""How a leader hears the heartbeats of all hosts: it asks again and again which were written, or is told of each.

To be told wakes the process for every single heartbeat; a thousand hosts took a tenth of a core, nearly all of it for
waking up. Our own stores say in one answer who has written since the last time. An API server cannot, and is watched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from quartermaster.engine.cache import Cache, Caches
from quartermaster.orchestration.health import Heartbeats
from quartermaster.orchestration.heartbeat import heartbeat_name, host_of
from quartermaster.resources.kubernetes.core import Lease
from quartermaster.resources.model import Key
from quartermaster.stores.base import TellsWhatWasWritten
from quartermaster.support.deadlines import within
from quartermaster.support.errors import StoreError
from quartermaster.support.log import logger

_TIMEOUT_S = 10.0

_log = logger("orchestration.hearing")


def lease_caches(caches: Caches, namespace: str) -> tuple[Cache[Lease], ...]:
    """The heartbeats, where they have to be watched."""
    return () if hasattr(caches.store, "written") else (caches.of(Lease, namespace),)


class Hearing:
    """For one term. Of a host that is not known nothing is heard: any agent may write such a Lease."""

    def __init__(self, caches: Caches, namespace: str, health: Heartbeats, is_known: Callable[[str], bool]) -> None:
        self._store = cast(TellsWhatWasWritten, caches.store)  # where there is no cache
        self._caches = lease_caches(caches, namespace)
        self._namespace = namespace
        self._health = health
        self._is_known = is_known
        self._since = ""
        self._news = False  # somebody is known who was not asked about

    def expect(self, host: str) -> None:
        """A host has become known. What it wrote before counts as one sign of life."""
        self._news = True
        for cache in self._caches:
            lease = cache.get(Key(self._namespace, heartbeat_name(host)))
            if lease is not None:
                self._health.heard(host, lease.metadata.resource_version)

    def watch(self) -> list[Callable[[], None]]:
        return [cache.subscribe(self._on_lease) for cache in self._caches]

    async def run(self) -> None:
        """Ends by being cancelled; at once where the heartbeats are watched."""
        while not self._caches:
            try:
                await self._ask()
            except (StoreError, TimeoutError) as error:
                _log.info("cannot ask for heartbeats", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(self._health.look_every_s)

    async def _ask(self) -> None:
        since, self._news = "" if self._news else self._since, False
        try:
            async with within(_TIMEOUT_S):
                written = await self._store.written(Lease, self._namespace, since=since)
        except BaseException:
            self._news = self._news or not since
            raise
        self._since = written.revision
        for name, version in written.versions.items():
            self._hear(host_of(name), version)

    def _on_lease(self, _old: Lease | None, new: Lease | None) -> None:
        if new is not None:
            self._hear(host_of(new.metadata.name), new.metadata.resource_version)

    def _hear(self, host: str, version: str) -> None:
        if host and self._is_known(host):
            self._health.heard(host, version)
