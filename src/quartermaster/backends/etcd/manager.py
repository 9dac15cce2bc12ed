"""The service manager of etcd: it grows, shrinks and looks after the cluster that the program itself stands on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from quartermaster.backends.base import RefreshEvent, RefreshKey
from quartermaster.backends.etcd.agent import AGENT
from quartermaster.backends.etcd.files import CERTIFICATES
from quartermaster.backends.etcd.maintenance import Maintenance
from quartermaster.backends.etcd.membership import EtcdSettings, Membership
from quartermaster.backends.etcd.memory import MEMORY_NAME, Book
from quartermaster.backends.etcd.rights import Rights
from quartermaster.engine.controller import Scope
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.support.errors import NotFoundError, RefusedError, UnavailableError
from quartermaster.support.log import logger

_LEAST_S = 0.01
_log = logger("backends.etcd")


class EtcdManager:
    """See `ServiceManager`."""

    name = AGENT

    def __init__(
        self,
        scope: Scope,
        membership: Membership,
        rights: Rights,
        maintenance: Maintenance,
        *,
        namespace: str,
        settings: EtcdSettings,
    ) -> None:
        self._store = scope.store
        self._hosts = scope.caches.of(Host, namespace)
        self._membership = membership
        self._rights = rights
        self._maintenance = maintenance
        self._namespace = namespace
        self._settings = settings
        self._next_look = 0.0

    def refresh_keys(self) -> Sequence[RefreshKey]:
        return (RefreshKey(Assignment, field="status"), RefreshKey(Host, field="metadata"))

    async def handle_refresh(self, event: RefreshEvent) -> float | None:
        loop = asyncio.get_running_loop()
        if not self._concerns(event) and loop.time() < self._next_look:
            # Not less: the difference of two readings may be too small for any clock to pass.
            return max(self._next_look - loop.time(), _LEAST_S)
        if not self._hosts.synced.is_set():
            return self._settings.step_s
        try:
            found = await self._store.get(ConfigMap, MEMORY_NAME, self._namespace)
        except NotFoundError:
            return None  # the store is not an etcd of ours
        try:
            moving = await self._refresh(found, event)
        except (UnavailableError, RefusedError) as error:
            _log.warning("etcd cannot be looked after now", error=str(error))
            moving = True
        pause_s = self._settings.step_s if moving else self._settings.look_s
        self._next_look = loop.time() + pause_s
        return pause_s

    async def _refresh(self, found: ConfigMap, event: RefreshEvent) -> bool:
        book = Book(self._store, found)
        moving = await self._membership.advance(book)
        await self._rights.refresh(book.memory, event)
        serving = [seat.config.client_url for seat in book.memory.seats if seat.phase == "serving"]
        await self._maintenance.refresh(serving, all_answer=self._membership.all_answer)
        return moving

    def _concerns(self, event: RefreshEvent) -> bool:
        if event.full or event.added or event.removed or event.changed or event.unhealthy:
            return True
        ours = (AGENT, CERTIFICATES)
        return any(one.kind is Assignment and one.key.name.partition(".")[0] in ours for one in event.touched)
