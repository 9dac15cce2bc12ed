"""A queue of keys, from which several workers take without two ever holding the same key.

- A key that waits already is not added twice; one that arrives while it is worked on is handed out once more after.
- First come, first served among keys: however often one key is added, the others have their turn in between.
- Delays: of several wishes for one key the earliest wins, and an add without delay is the earliest. One heap and one
  timer serve all of them.
- Failures are counted per key and answered with an exponentially growing delay until `forget`; a token bucket may
  bound the retries of all keys together.
- Bounded: at most `bound` keys wait ready and as many delayed. An add beyond that is refused and remembered as a
  mark; when half of the bound is free, `everything()` is gone through, from one end to the other, as room permits.
  An error in it ends that passage and hurts nobody who takes keys.
  Keys are names of objects in a cache, so what was refused is found again there. Only the name of an object that has
  gone meanwhile is not: who must clean up after an object holds a finalizer, which keeps it in the cache.
- After `close` nothing is added; what is ready is still handed out (or dropped), then `get` returns None.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from quartermaster.engine.metrics import (
    NOTHING,
    QUEUE_DEPTH,
    QUEUE_ERRORS,
    QUEUE_LATENCY,
    QUEUE_OVERFLOWS,
    QUEUE_RETRIES,
    RECONCILE_DURATION,
    Counter,
    Gauge,
    Histogram,
    Metrics,
)
from quartermaster.engine.rates import TokenBucket
from quartermaster.support.backoff import Backoff
from quartermaster.support.log import logger

K = TypeVar("K", bound=Hashable)

DEFAULT_BOUND = 100_000
RETRY_BACKOFF = Backoff(first_s=0.05, limit_s=300.0)
# How many keys one `get` takes over from `everything()`: more than it removes, few enough not to hold up the loop.
_REFILL_STEP = 256

_log = logger("engine.queue")


class QueueMeters(msgspec.Struct, frozen=True):
    """Where the queue reports to."""

    depth: Gauge = NOTHING
    latency: Histogram = NOTHING
    duration: Histogram = NOTHING
    retries: Counter = NOTHING
    overflows: Counter = NOTHING
    errors: Counter = NOTHING


def queue_meters(metrics: Metrics, controller: str) -> QueueMeters:
    return QueueMeters(
        depth=metrics.gauge(QUEUE_DEPTH, controller),
        latency=metrics.histogram(QUEUE_LATENCY, controller),
        duration=metrics.histogram(RECONCILE_DURATION, controller),
        retries=metrics.counter(QUEUE_RETRIES, controller),
        overflows=metrics.counter(QUEUE_OVERFLOWS, controller),
        errors=metrics.counter(QUEUE_ERRORS, controller),
    )


class WorkQueue(Generic[K]):
    """Made inside a running loop. Everything but `get` returns at once."""

    def __init__(
        self,
        *,
        bound: int = DEFAULT_BOUND,
        backoff: Backoff = RETRY_BACKOFF,
        bucket: TokenBucket | None = None,
        meters: QueueMeters | None = None,
        everything: Callable[[], Iterable[K]] = tuple,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._bound = bound
        self._backoff = backoff
        self._bucket = bucket
        self._meters = meters or QueueMeters()
        self._everything = everything
        self._ready: dict[K, float] = {}  # since when; also those that wait for their own worker to end
        self._order: deque[K] = deque()  # of the ready keys those that may be handed out
        self._processing: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._due: dict[K, float] = {}  # the delayed keys
        self._heap: list[tuple[float, int, K]] = []  # may hold entries that `_due` no longer confirms
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._refused_ready = False
        self._refused_delayed = False
        self._refill: Iterator[K] | None = None
        self._closed = False

    def __len__(self) -> int:
        """Keys that a worker could take now."""
        return len(self._order)

    @property
    def delayed(self) -> int:
        return len(self._due)

    @property
    def closed(self) -> bool:
        return self._closed

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    def add(self, key: K) -> None:
        """The key wants a worker."""
        if self._closed or key in self._ready:
            return
        if len(self._ready) >= self._bound:
            self._refused_ready = True
            self._meters.overflows.inc()
            return
        self._due.pop(key, None)
        self._ready[key] = self._loop.time()
        if key not in self._processing:
            self._enqueue(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """The key wants a worker in `delay_s` seconds, unless it gets one before."""
        if delay_s <= 0:
            self.add(key)
            return
        if self._closed or key in self._ready:
            return
        when = self._loop.time() + delay_s
        waiting = self._due.get(key)
        if waiting is not None and waiting <= when:
            return
        if waiting is None and len(self._due) >= self._bound:
            self._refused_delayed = True
            self._failures.pop(key, None)
            self._meters.overflows.inc()
            return
        self._due[key] = when
        self._sequence += 1
        heapq.heappush(self._heap, (when, self._sequence, key))
        self._arm()

    def add_failed(self, key: K, *, at_least_s: float = 0.0) -> None:
        """The key failed and is tried again, later after each failure in a row."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay_s = max(self._backoff.delay_s(failures), at_least_s)
        if self._bucket is not None:
            delay_s = max(delay_s, self._bucket.reserve(self._loop.time()))
        self._meters.retries.inc()
        self.add_after(key, delay_s)

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure is its first."""
        self._failures.pop(key, None)

    async def get(self) -> K | None:
        """The next key, which is the caller's alone until `done`; None when the queue is closed and empty."""
        while True:
            self._take_over()
            if self._order:
                key = self._order.popleft()
                now = self._loop.time()
                self._meters.latency.observe(now - self._ready.pop(key))
                self._meters.depth.set(len(self._order))
                self._processing[key] = now
                return key
            if self._closed:
                return None
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                if self._order and not waiter.cancelled():
                    self._wake()  # the key that woke this worker is for another one
                raise

    def done(self, key: K) -> None:
        """The caller is through with the key, whatever came of it."""
        started = self._processing.pop(key)
        self._meters.duration.observe(self._loop.time() - started)
        if key in self._ready:
            self._enqueue(key)

    def close(self, *, drop: bool = False) -> None:
        """Nothing more is added. With `drop` nothing more is handed out either."""
        self._closed = True
        self._due.clear()
        self._heap.clear()
        self._refill = None
        self._refused_ready = self._refused_delayed = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if drop:
            self._ready.clear()
            self._order.clear()
            self._meters.depth.set(0)
        while self._waiters:
            self._wake()

    def _enqueue(self, key: K) -> None:
        self._order.append(key)
        self._meters.depth.set(len(self._order))
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _arm(self) -> None:
        """One timer, for the earliest entry that still counts."""
        heap = self._heap
        if len(heap) > 64 + 2 * len(self._due):
            heap[:] = [entry for entry in heap if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(heap)
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        if not heap:
            return
        if self._timer is not None:
            if self._timer_at <= heap[0][0]:
                return
            self._timer.cancel()
        # Kept here and not asked for: what uvloop returns for a time that has come already does not know it.
        self._timer_at = heap[0][0]
        self._timer = self._loop.call_at(heap[0][0], self._fire, heap[0][0])

    def _fire(self, when: float) -> None:
        self._timer = None
        # a loop may call a little early, by its clock's resolution
        now = max(when, self._loop.time())
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == at:
                del self._due[key]
                self.add(key)
        self._arm()
        self._take_over()

    def _take_over(self) -> None:
        """After an overflow: go through everything, a few keys at a time, as far as there is room."""
        if self._refill is None:
            half = self._bound // 2
            ready = self._refused_ready and len(self._ready) <= half
            delayed = self._refused_delayed and len(self._due) <= half and len(self._ready) <= half
            if not (ready or delayed):
                return
            self._refused_ready = self._refused_delayed = False
            self._refill = _lazily(self._everything)
        for _ in range(_REFILL_STEP):
            if len(self._ready) >= self._bound:
                return
            try:
                key = next(self._refill)
            except StopIteration:
                self._refill = None
                return
            except Exception:  # somebody else's bug must not end a worker
                _log.exception("cannot go through everything after an overflow")
                self._meters.errors.inc()
                self._refill = None
                return
            self.add(key)


def _lazily(everything: Callable[[], Iterable[K]]) -> Iterator[K]:
    """So that an error in the call itself comes where those of the passage do."""
    yield from everything()
