"""The sign of life of a host: a Lease that its agent renews, as Kubernetes has it for nodes.

The Lease is named `heartbeat.<host>`, so that it lies among what the host's own role may write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from quartermaster.engine.cache import Caches
from quartermaster.engine.controller import Scope
from quartermaster.engine.waiting import Signal, first_of
from quartermaster.resources.kubernetes.core import Lease, LeaseSpec
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.storage import StorageCluster
from quartermaster.stores.base import Store
from quartermaster.support import clock
from quartermaster.support.backoff import Backoff
from quartermaster.support.deadlines import within
from quartermaster.support.errors import NotFoundError
from quartermaster.support.log import logger

PREFIX = "heartbeat."
_LEAST_S = 0.2

_log = logger("orchestration.heartbeat")


def heartbeat_name(host: str) -> str:
    return f"{PREFIX}{host}"


def host_of(lease: str) -> str:
    """The host whose sign of life the Lease of that name is; "" where it is another one."""
    return lease.removeprefix(PREFIX) if lease.startswith(PREFIX) else ""


def shortest(clusters: Sequence[StorageCluster], timing: str) -> float | None:
    """Of one of the timings of StorageClusters; None where nobody gives it."""
    timings = [cluster.spec.timings for cluster in clusters if cluster.spec.timings is not None]
    given = [value for one in timings if (value := getattr(one, timing)) is not None]
    return min(given, default=None)


class Heartbeat:
    """A service of an agent's runtime."""

    name = "heartbeat"

    def __init__(self, host: str, namespace: str, *, every_s: float) -> None:
        self._host = host
        self._namespace = namespace
        self._every_s = every_s
        self._lease: Lease | None = None
        self._backoff = Backoff(first_s=min(0.5, every_s), limit_s=every_s)

    def prepare(self, caches: Caches) -> None:
        caches.of(StorageCluster, self._namespace)

    def interval_s(self, caches: Caches) -> float:
        """The shortest that any StorageCluster asks for, else the agent's own."""
        asked = shortest(caches.of(StorageCluster, self._namespace).list(), "heartbeat_seconds")
        return self._every_s if asked is None else max(asked, _LEAST_S)

    async def run(self, scope: Scope) -> None:
        asked = Signal()  # somebody asks for another interval
        unsubscribe = scope.caches.of(StorageCluster, self._namespace).subscribe(lambda _old, _new: asked.set())
        try:
            await self._beat_on(scope, asked)
        finally:
            unsubscribe()

    async def _beat_on(self, scope: Scope, asked: asyncio.Event) -> None:
        failures = 0
        while not scope.stopping.is_set():
            asked.clear()
            try:
                async with within(2 * self._every_s):
                    await self.beat(scope.store)
                failures, pause_s = 0, self.interval_s(scope.caches)
            except Exception as error:  # whatever it is, the next one may succeed; silence would be taken for death
                _log.info("cannot renew the heartbeat", host=self._host, error=f"{type(error).__name__}: {error}")
                pause_s = self._backoff.delay_s(failures)
                failures += 1
            await first_of(scope.stopping, asked, timeout_s=pause_s)

    async def beat(self, store: Store) -> None:
        """One renewal. What is there is read only at the start and after somebody else wrote it."""
        lease = self._lease or await self._find(store)
        self._lease = None
        if lease is None:
            metadata = ObjectMeta(name=heartbeat_name(self._host), namespace=self._namespace)
            self._lease = await store.create(Lease(metadata=metadata, spec=self._spec()))
        else:
            self._lease = await store.update(replace(lease, spec=self._spec()))

    async def _find(self, store: Store) -> Lease | None:
        try:
            return await store.get(Lease, heartbeat_name(self._host), self._namespace)
        except NotFoundError:
            return None

    def _spec(self) -> LeaseSpec:
        return LeaseSpec(
            holder_identity=self._host,
            lease_duration_seconds=max(1, round(8 * self._every_s)),
            renew_time=clock.micro_timestamp(),
        )
