"""Events about objects, for people: recorded without waiting, written in the background, never a reason to fail.

- The same again (object, type, reason, message) counts up the Event that is there instead of making another.
- Many similar ones (object, type and reason alike, more than ten messages within ten minutes) become one whose
  message says that it stands for several.
- One object may speak 25 times at once and then once every 5 minutes; what is more is counted and dropped.
- At most a thousand Events wait to be written. When the store does not take them they are dropped, and counted.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Literal, NamedTuple, TypeVar

import msgspec

from quartermaster.engine.metrics import EVENTS_DROPPED, SILENT, Metrics
from quartermaster.engine.rates import TokenBucket
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.core import Event, EventSource, ObjectReference
from quartermaster.resources.model import Object, ObjectMeta
from quartermaster.stores.base import Store
from quartermaster.support import clock, entropy
from quartermaster.support.backoff import Backoff
from quartermaster.support.deadlines import within
from quartermaster.support.errors import AlreadyExistsError, ConflictError, NotFoundError, UnavailableError
from quartermaster.support.log import logger
from quartermaster.support.redaction import redact

EventType = Literal["Normal", "Warning"]
K = TypeVar("K")
V = TypeVar("V")

MESSAGE_LIMIT = 1024
BUFFER_LIMIT = 1_000
MEMORY_LIMIT = 4_096  # objects and series that are remembered
SIMILAR_LIMIT = 10
SIMILAR_WINDOW_S = 600.0
BURST = 25
REFILL_PER_S = 1 / 300
WRITE_TIMEOUT_S = 10.0
WRITE_ATTEMPTS = 5
COMBINED = "(combined from similar events): "

_log = logger("engine.events")


class _SeriesKey(NamedTuple):
    about: ObjectReference
    type: EventType
    reason: str
    message: str


class _Series:
    """One Event as it is written, and what has to be written yet."""

    def __init__(self, first: str) -> None:
        self.first = self.last = first
        self.message = ""
        self.count = 0
        self.written: Event | None = None


class _Similar:
    def __init__(self, since: float) -> None:
        self.since = since
        self.messages: dict[str, None] = {}


class EventRecorder:
    """`record` at any time; `run` writes until it is cancelled."""

    def __init__(self, store: Store, component: str, *, metrics: Metrics = SILENT) -> None:
        self._store = store
        self._component = component
        self._dropped = {cause: metrics.counter(EVENTS_DROPPED, cause) for cause in ("full", "rate", "store")}
        self._pending: dict[_SeriesKey, None] = {}
        self._series: OrderedDict[_SeriesKey, _Series] = OrderedDict()
        self._similar: OrderedDict[tuple[ObjectReference, str, str], _Similar] = OrderedDict()
        self._buckets: OrderedDict[ObjectReference, TokenBucket] = OrderedDict()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._backoff = Backoff(first_s=0.5, limit_s=10.0)

    def record(self, about: Object, reason: str, message: str, *, type: EventType = "Normal") -> None:
        """Say that something happened to `about`. `reason` is one CamelCase word, `message` a sentence."""
        now = clock.monotonic()
        reference = _reference(about)
        if not _remembered(self._buckets, reference, TokenBucket(REFILL_PER_S, BURST)).take(now):
            self._dropped["rate"].inc()
            return
        text = str(redact(message))[:MESSAGE_LIMIT]
        key = _SeriesKey(reference, type, reason, self._combined(reference, type, reason, text, now))
        if key not in self._pending and len(self._pending) >= BUFFER_LIMIT:
            self._dropped["full"].inc()
            return
        series = _remembered(self._series, key, _Series(clock.timestamp()))
        series.count += 1
        series.last = clock.timestamp()
        series.message = f"{COMBINED}{text}"[:MESSAGE_LIMIT] if key.message == COMBINED else text
        self._pending[key] = None
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                key = next(iter(self._pending))
                await self._write(key)
            self._idle.set()

    async def flush(self, timeout_s: float) -> None:
        """Give what waits a last chance, while `run` is running."""
        try:
            async with within(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            _log.info("events were left unwritten", count=len(self._pending))

    def _combined(self, reference: ObjectReference, type: str, reason: str, text: str, now: float) -> str:
        """The message as part of the key: the same for all once there are too many different ones."""
        similar = _remembered(self._similar, (reference, type, reason), _Similar(now))
        if now - similar.since > SIMILAR_WINDOW_S:
            similar.since = now
            similar.messages.clear()
        if text not in similar.messages:
            if len(similar.messages) >= SIMILAR_LIMIT:
                return COMBINED
            similar.messages[text] = None
        return text

    async def _write(self, key: _SeriesKey) -> None:
        for attempt in range(WRITE_ATTEMPTS):
            # Taken out before it is written: what is recorded meanwhile puts it back.
            self._pending.pop(key, None)
            series = self._series.get(key)
            if series is None:
                return
            try:
                async with within(WRITE_TIMEOUT_S):
                    series.written = await self._put(key, series)
            except (UnavailableError, TimeoutError):
                await asyncio.sleep(self._backoff.delay_s(attempt))
            except (NotFoundError, ConflictError, AlreadyExistsError):
                series.written = None  # it has expired or is somebody's: begin a new one
            except Exception as error:  # an Event is never worth more than a line in the log
                _log.info("cannot write an event", reason=key.reason, error=f"{type(error).__name__}: {error}")
                break
            else:
                return
        self._dropped["store"].inc()

    async def _put(self, key: _SeriesKey, series: _Series) -> Event:
        if series.written is not None:
            changed = msgspec.structs.replace(
                series.written, count=series.count, last_timestamp=series.last, message=series.message
            )
            return await self._store.update(changed)
        about = key.about
        return await self._store.create(
            Event(
                metadata=ObjectMeta(
                    name=f"{about.name[:236]}.{entropy.name_suffix(16)}", namespace=about.namespace or "default"
                ),
                involved_object=about,
                reason=key.reason,
                message=series.message,
                type=key.type,
                count=series.count,
                first_timestamp=series.first,
                last_timestamp=series.last,
                source=EventSource(component=self._component),
                reporting_component=self._component,
            )
        )


def _reference(about: Object) -> ObjectReference:
    info, meta = kind_of(about), about.metadata
    return ObjectReference(
        api_version=info.api_version, kind=info.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid
    )


def _remembered(memory: OrderedDict[K, V], key: K, new: V) -> V:
    """What is known under the key, else `new`; the longest unused is forgotten when there is too much."""
    found = memory.setdefault(key, new)
    memory.move_to_end(key)
    if len(memory) > MEMORY_LIMIT:
        memory.popitem(last=False)
    return found
