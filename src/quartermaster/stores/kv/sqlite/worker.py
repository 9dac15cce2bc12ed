"""One thread with one SQLite connection: the loop never waits for a disk, and no connection is shared.

The thread starts with its first piece of work and opens the connection then. What SQLite raises leaves here as an error
of our own; after anything but a lock the connection is made anew, so that a fault that passes leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from quartermaster.stores.kv.sqlite.faults import explain, is_busy
from quartermaster.stores.kv.sqlite.opening import FrozenConnection
from quartermaster.support.deadlines import within
from quartermaster.support.errors import UnavailableError

T = TypeVar("T")

# Longer than any lock is waited for: only a disk that hangs, or a queue that does not move, reaches this.
ANSWER_S = 30.0
QUEUE_LIMIT = 1024


class Worker:
    """Runs functions of a connection, one after the other, in a thread of its own."""

    def __init__(
        self, name: str, connect: Callable[[], sqlite3.Connection], check: Callable[[], None], action: str
    ) -> None:
        self._connect = connect
        self._check = check
        self._action = action
        self._connection: sqlite3.Connection | None = None
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"quartermaster-sqlite-{name}")
        self._slots = asyncio.Semaphore(QUEUE_LIMIT)
        self._used = False
        self._closed = False

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """The function's result; waits for its turn, bounded."""
        try:
            async with within(ANSWER_S), self._slots:
                return await self.start(function)
        except TimeoutError:
            raise UnavailableError(f"cannot {self._action}: no answer in {ANSWER_S:g} s", hint="try again") from None

    def start(self, function: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """As `run`, for a caller that bounds by itself how much it starts."""
        if self._closed:
            raise UnavailableError(f"cannot {self._action}: it was closed", hint="open it again")
        self._used = True
        return asyncio.get_running_loop().run_in_executor(self._executor, self._call, function)

    async def close(self) -> None:
        """After what is under way. A thread that hangs in the kernel is left behind rather than waited for."""
        if self._closed:
            return
        self._closed = True
        if self._used:
            try:
                async with within(ANSWER_S):
                    await asyncio.get_running_loop().run_in_executor(self._executor, self._disconnect)
            except TimeoutError:
                self._executor.shutdown(wait=False, cancel_futures=True)
                return
        self._executor.shutdown(wait=True)

    def _call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        try:
            self._check()
            if self._connection is None:
                self._connection = self._connect()
            result = function(self._connection)
        except (sqlite3.Error, OSError) as error:
            if not (isinstance(error, sqlite3.Error) and is_busy(error)):
                self._disconnect()
            raise explain(error, self._action) from error
        if isinstance(self._connection, FrozenConnection):
            self._disconnect()
        return result

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
