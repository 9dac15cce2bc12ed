"""Workers that take keys from a queue and do something about each, whatever that may throw at them.

Nothing that the work does ends a worker: an error is logged, counted and answered with back-off. Two things do: the
end of leadership (FencedError), which must stop everything, and being cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import msgspec

from quartermaster.engine.metrics import RECONCILE_RESULTS, Metrics
from quartermaster.engine.queue import WorkQueue
from quartermaster.support.deadlines import within
from quartermaster.support.errors import (
    ApplyConflictError,
    ConflictError,
    FencedError,
    QuartermasterError,
    TerminalError,
    UnavailableError,
)
from quartermaster.support.log import logger
from quartermaster.support.tasks import TaskGroup

K = TypeVar("K", bound=Hashable)

# For so long a worker goes on to the next key at once. On a store that never makes it wait it would go on until the
# queue is empty, and watches, timers and leases would not have their turn.
_TURN_S = 0.005

_log = logger("engine.workers")


class Result(msgspec.Struct, frozen=True):
    """What a piece of work says about its key when it did not fail."""

    requeue_after_s: float = 0.0  # look again then, even if nothing changed; 0: only when something changes


DONE = Result()


class Workers(Generic[K]):
    """`count` workers on one queue."""

    def __init__(
        self,
        name: str,
        queue: WorkQueue[K],
        work: Callable[[K], Awaitable[Result]],
        *,
        count: int,
        timeout_s: float,
        metrics: Metrics,
    ) -> None:
        self._name = name
        self._queue = queue
        self._work = work
        self._count = count
        self._timeout_s = timeout_s
        outcomes = ("done", "requeued", "conflict", "error", "timeout", "terminal")
        self._results = {outcome: metrics.counter(RECONCILE_RESULTS, name, outcome) for outcome in outcomes}

    async def run(self, stopping: asyncio.Event, *, drain_s: float) -> None:
        """Work until `stopping`; then finish what is in hand within `drain_s`, and leave the rest where it is.

        What is left in the queue is found again by the next start, which should not have to wait for us.
        """
        limit: asyncio.TimerHandle | None = None
        try:
            async with TaskGroup() as group:
                for number in range(self._count):
                    group.start(self._worker(), name=f"{self._name}-worker-{number}")
                await stopping.wait()
                self._queue.close(drop=True)
                limit = asyncio.get_running_loop().call_later(drain_s, group.cancel)
        finally:
            if limit is not None:
                limit.cancel()

    async def _worker(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (key := await self._queue.get()) is not None:
            try:
                await self._handle(key)
            finally:
                self._queue.done(key)
            if loop.time() - began > _TURN_S:
                await asyncio.sleep(0)
                began = loop.time()

    async def _handle(self, key: K) -> None:
        try:
            async with within(self._timeout_s) as limit:
                result = await self._work(key)
                delay_s = result.requeue_after_s
        except FencedError:
            raise
        except TerminalError as error:
            self._results["terminal"].inc()
            self._queue.forget(key)
            _log.warning("given up until it changes", controller=self._name, key=str(key), error=str(error))
        except ApplyConflictError as error:
            self._report(key, "conflict", error)  # a person has to decide who owns the fields
        except ConflictError:
            self._failed(key, "conflict")  # the everyday price of deciding on a cache
        except TimeoutError as error:
            self._report(key, "timeout" if limit.expired() else "error", error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._report(key, "error", error)  # something that the work awaited was cancelled, not this worker
        except Exception as error:
            self._report(key, "error", error)
        else:
            self._queue.forget(key)
            if delay_s > 0:
                self._results["requeued"].inc()
                self._queue.add_after(key, delay_s)
            else:
                self._results["done"].inc()

    def _report(self, key: K, outcome: str, error: BaseException) -> None:
        at_least_s = error.retry_after_s if isinstance(error, UnavailableError) else 0.0
        self._failed(key, outcome, at_least_s)
        known = isinstance(error, QuartermasterError | TimeoutError)
        _log.warning(
            "reconcile failed",
            controller=self._name,
            key=str(key),
            outcome=outcome,
            failures=self._queue.failures(key),
            error=f"{type(error).__name__}: {error}",
            exc_info=None if known else error,
        )

    def _failed(self, key: K, outcome: str, at_least_s: float = 0.0) -> None:
        self._results[outcome].inc()
        self._queue.add_failed(key, at_least_s=at_least_s)
