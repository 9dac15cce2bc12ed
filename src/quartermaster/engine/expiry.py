"""Events end by age on our own stores, as they do in Kubernetes.

Age is read off the Events' own timestamps, which other hosts wrote by their clocks: a wrong clock makes an Event last
longer or shorter, and nothing else depends on it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from quartermaster.engine.cache import Caches
from quartermaster.engine.controller import Scope
from quartermaster.engine.metrics import COLLECTED
from quartermaster.engine.ownership import PAGE_SIZE
from quartermaster.engine.rates import TokenBucket
from quartermaster.engine.waiting import first_of
from quartermaster.resources.kubernetes.core import Event
from quartermaster.stores.base import Store
from quartermaster.support import clock
from quartermaster.support.errors import ConflictError, FencedError, NotFoundError, StoreError
from quartermaster.support.log import logger

TTL_S = 3600.0
INTERVAL_S = 300.0
DELETIONS_PER_S = 50.0

_log = logger("engine.expiry")


class Expiry:
    """A service of the engine."""

    name = "expiry"

    def __init__(
        self, *, ttl_s: float = TTL_S, interval_s: float = INTERVAL_S, deletions_per_s: float = DELETIONS_PER_S
    ) -> None:
        self._ttl_s = ttl_s
        self._interval_s = interval_s
        self._per_s = deletions_per_s

    def prepare(self, caches: Caches) -> None:
        """None: Events may be very many, and are looked at once in a while."""

    async def run(self, scope: Scope) -> None:
        if not scope.store.fences:
            return  # an API server does it by itself
        counter = scope.metrics.counter(COLLECTED, "expired")
        while not scope.stopping.is_set():
            try:
                counter.inc(await expire_events(scope.store, self._ttl_s, self._per_s, scope.stopping))
            except FencedError:
                raise
            except StoreError as error:
                _log.info("cannot expire events now", error=f"{type(error).__name__}: {error}")
            await first_of(scope.stopping, timeout_s=self._interval_s)


async def expire_events(
    store: Store, ttl_s: float, per_s: float = DELETIONS_PER_S, stopping: asyncio.Event | None = None
) -> int:
    """Delete what was last seen longer ago than `ttl_s`, one page after the other; returns how many went."""
    loop = asyncio.get_running_loop()
    bucket = TokenBucket(per_s, per_s)
    oldest = clock.wall_time() - ttl_s
    count = 0
    continues = ""
    while True:
        page = await store.list(Event, limit=PAGE_SIZE, continues=continues)
        for event in page.items:
            if _last_seen(event) >= oldest:
                continue
            await asyncio.sleep(bucket.reserve(loop.time()))
            if stopping is not None and stopping.is_set():
                return count
            # Counted up or gone meanwhile: then it is not old, or no longer our business.
            with suppress(NotFoundError, ConflictError):
                meta = event.metadata
                await store.delete(Event, meta.name, meta.namespace, uid=meta.uid, revision=meta.resource_version)
                count += 1
        continues = page.continues
        if not continues:
            return count


def _last_seen(event: Event) -> float:
    text = (
        (event.series.last_observed_time if event.series else None)
        or event.last_timestamp
        or event.event_time
        or event.first_timestamp
        or event.metadata.creation_timestamp
    )
    try:
        return clock.parse_timestamp(text) if text else 0.0
    except ValueError:
        return 0.0
