"""Group commit: writes that wait while a commit is under way go together into the next one.

Each write keeps its own conditions and its own revision, in the order of arrival; they share one SQLite transaction and
one sync of the disk, after which all of them are acknowledged. Nothing is acknowledged before.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from quartermaster.stores.kv.base import Change
from quartermaster.stores.kv.sqlite.ledger import Clock, HistoryLimits, Ledger
from quartermaster.stores.kv.sqlite.opening import StoreFile
from quartermaster.stores.kv.sqlite.worker import ANSWER_S, QUEUE_LIMIT, Worker
from quartermaster.support.deadlines import within
from quartermaster.support.errors import QuartermasterError, UnavailableError

T = TypeVar("T")
Work = Callable[[Ledger], Any]

GROUP_LIMIT = 256


class Commit(NamedTuple):
    """What a group did: every change after `revision_before`."""

    revision_before: int
    revision: int
    changes: Sequence[Change]


class _Job(NamedTuple):
    work: Work
    answer: asyncio.Future[Any]


class Writer:
    """The one writer of this process."""

    def __init__(
        self, file: StoreFile, limits: HistoryLimits, clock: Clock, settled: Callable[[Commit | None], None]
    ) -> None:
        self._file = file
        self._limits = limits
        self._clock = clock
        self._settled = settled
        self._action = f"write {file.url}"
        self._worker = Worker("writer", file.connect_writer, file.check, self._action)
        self._slots = asyncio.Semaphore(QUEUE_LIMIT)
        self._pending: deque[_Job] = deque()
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def busy(self) -> bool:
        return not self._idle.is_set()

    async def submit(self, work: Callable[[Ledger], T]) -> T:
        """The result of `work`, once it is durable. A caller that stops waiting does not know whether it happened."""
        try:
            async with within(ANSWER_S), self._slots:
                if self._closed:
                    raise UnavailableError(f"cannot {self._action}: it was closed", hint="open it again")
                job = _Job(work, asyncio.get_running_loop().create_future())
                self._pending.append(job)
                if not self.busy:
                    self._start()
                result: T = await job.answer
                return result
        except TimeoutError:
            raise UnavailableError(
                f"cannot {self._action}: no answer in {ANSWER_S:g} s; it may have happened",
                hint="read before repeating",
            ) from None

    async def close(self) -> None:
        """After everything that was submitted."""
        self._closed = True
        try:
            async with within(ANSWER_S):
                await self._idle.wait()
        except TimeoutError:
            pass
        await self._worker.close()

    def _start(self) -> None:
        jobs: list[_Job] = []
        while self._pending and len(jobs) < GROUP_LIMIT:
            job = self._pending.popleft()
            if not job.answer.done():
                jobs.append(job)
        if not jobs:
            self._idle.set()
            return
        self._idle.clear()
        works = [job.work for job in jobs]
        group = self._worker.start(lambda connection: self._perform(connection, works))
        group.add_done_callback(lambda done: self._finish(jobs, done))

    def _finish(self, jobs: list[_Job], group: asyncio.Future[tuple[list[Any], Commit]]) -> None:
        error = asyncio.CancelledError() if group.cancelled() else group.exception()
        results: Sequence[Any] = [error] * len(jobs) if error is not None else group.result()[0]
        for job, result in zip(jobs, results, strict=True):
            if job.answer.done():
                continue
            if isinstance(result, asyncio.CancelledError):
                job.answer.cancel()
            elif isinstance(result, BaseException):
                job.answer.set_exception(result)
            else:
                job.answer.set_result(result)
        self._start()
        self._settled(None if error is not None else group.result()[1])

    def _perform(self, connection: sqlite3.Connection, works: Sequence[Work]) -> tuple[list[Any], Commit]:
        """In the writer's thread: one transaction for all, and the word to other processes."""
        sidecar = self._file.sidecar
        with sidecar.locked(self._file.lock_wait_s, self._action):
            connection.execute("BEGIN IMMEDIATE")
            try:
                ledger = Ledger(connection, self._limits, self._clock)
                results = [_attempt(work, ledger) for work in works]
                ledger.trim()
                connection.execute("COMMIT" if ledger.save() else "ROLLBACK")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if ledger.changes:
                sidecar.announce(ledger.revision)
        return results, Commit(ledger.revision_before, ledger.revision, ledger.changes)


def _attempt(work: Work, ledger: Ledger) -> Any:
    """A write that is refused leaves the others of its group alone."""
    try:
        return work(ledger)
    except QuartermasterError as error:
        return error
