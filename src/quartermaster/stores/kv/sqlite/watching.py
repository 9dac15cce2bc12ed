"""One reader of new changes for all watchers of a process, and the timer by which leases end.

A watcher first reads history by itself until it has caught up, then it is live: the hub hands it every change as it
reads it, or as this process commits it. A live watcher that does not keep up (its buffer is full), or whose hub met an
error, goes back to reading for itself; so nothing is lost, and an error reaches exactly those whom it concerns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from quartermaster.stores.kv.base import Batch, Change
from quartermaster.stores.kv.sqlite import queries
from quartermaster.stores.kv.sqlite.ledger import Clock
from quartermaster.stores.kv.sqlite.opening import StoreFile
from quartermaster.stores.kv.sqlite.watcher import Watcher
from quartermaster.stores.kv.sqlite.worker import ANSWER_S, Worker
from quartermaster.stores.kv.sqlite.writer import Commit
from quartermaster.support.deadlines import within
from quartermaster.support.errors import StoreError, UnavailableError

# Covers a writer that died between its commit and its word to the others, and carries signs of progress.
TICK_S = 2.0
POLL_S = 0.05  # where the kernel cannot notify
CHUNK_CHANGES = 500
_EVERYTHING = ("", "\U0010ffff\U0010ffff")


class Hub:
    """Follows the store while it is open. `sweep` ends the leases that are over; `writing`: a commit is under way."""

    def __init__(
        self, file: StoreFile, clock: Clock, *, sweep: Callable[[], Awaitable[None]], writing: Callable[[], bool]
    ) -> None:
        self._file = file
        self._clock = clock
        self._sweep = sweep
        self._writing = writing
        self._worker = Worker("watcher", file.connect_reader, file.check, f"watch {file.url}")
        self._watchers: dict[Watcher, None] = {}
        self._tail = 0  # every live watcher was offered everything up to here
        self._deadline_s: float | None = None
        self._signal = asyncio.Event()
        self._stop_listening: Callable[[], None] | None = None
        self._polls = False
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self.reads = 0

    def start(self, seen: queries.Pulse) -> None:
        self._tail = seen.revision
        self._learn(seen)
        self._task = asyncio.get_running_loop().create_task(self._follow(), name="sqlite-follow")

    async def watch(self, start: str, end: str, after: int) -> AsyncGenerator[Batch, None]:
        self._listen()
        watcher = Watcher(start, end, after)
        self._watchers[watcher] = None
        try:
            while not self._closed:
                batch = watcher.take()
                if batch is None and not watcher.live:
                    batch = await self._catch_up(watcher)
                if batch is not None:
                    yield batch
                elif watcher.live:
                    await watcher.wake.wait()
                    watcher.wake.clear()
        finally:
            self._watchers.pop(watcher, None)
        raise UnavailableError(f"cannot watch {self._file.url}: it was closed", hint="open it again")

    def settled(self, commit: Commit | None) -> None:
        """This process has committed (None: tried to). What it changed is at hand and need not be read again."""
        if commit is not None and commit.revision_before == self._tail:
            self._dispatch(commit.changes, commit.revision)
        self._look()

    def expect(self, deadline_s: float) -> None:
        """A lease was granted here."""
        if self._deadline_s is None or deadline_s < self._deadline_s:
            self._deadline_s = deadline_s
            self._signal.set()

    async def close(self) -> None:
        self._end()
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=ANSWER_S)
        await self._worker.close()

    def _end(self) -> None:
        self._closed = True
        for watcher in self._watchers:
            watcher.wake.set()

    async def _follow(self) -> None:
        try:
            while True:
                ticked = not await self._signalled()
                try:
                    await self._advance()
                    if ticked:
                        for watcher in self._live():
                            watcher.progress(self._tail)
                except StoreError:
                    for watcher in self._live():
                        watcher.fall_back()
                await self._end_leases()
        finally:
            self._end()

    async def _signalled(self) -> bool:
        wait_s = POLL_S if self._polls and self._watchers else TICK_S
        if self._deadline_s is not None:
            wait_s = min(wait_s, max(0.0, self._deadline_s - self._clock.now()))
        try:
            async with within(wait_s):
                await self._signal.wait()
        except TimeoutError:
            return False
        self._signal.clear()
        return True

    async def _advance(self) -> None:
        """Read what is new, once for all watchers."""
        self.reads += 1
        after = self._tail
        if not self._live():
            pulse = await self._worker.run(queries.pulse)
            self._learn(pulse)
            if not self._live():
                self._tail = pulse.revision
            return
        news = await self._worker.run(lambda c: queries.read_changes(c, *_EVERYTHING, after, CHUNK_CHANGES))
        self._learn(news.pulse)
        # A watcher that joined meanwhile may need what lies before this piece: then it is read again from there.
        if after <= self._tail:
            self._dispatch(news.changes, news.through)
        if self._tail < news.pulse.revision:
            self._signal.set()

    async def _catch_up(self, watcher: Watcher) -> Batch | None:
        start, end, after = watcher.start, watcher.end, watcher.reached
        news = await self._worker.run(lambda c: queries.read_changes(c, start, end, after, CHUNK_CHANGES))
        watcher.reached = news.through
        if news.through == news.pulse.revision:
            self._tail = min(self._tail, news.through) if self._live() else news.through
            watcher.live = True
            self._look()
        return Batch(news.changes, news.through) if news.changes else None

    def _dispatch(self, changes: Sequence[Change], through: int) -> None:
        self._tail = max(self._tail, through)
        for watcher in self._live():
            watcher.offer(changes, through)

    def _live(self) -> list[Watcher]:
        return [watcher for watcher in self._watchers if watcher.live]

    def _learn(self, pulse: queries.Pulse) -> None:
        self._deadline_s = pulse.deadline_s
        if pulse.deadline_s is not None and pulse.boot != self._clock.boot:
            self._deadline_s = self._clock.now()

    async def _end_leases(self) -> None:
        if self._deadline_s is None or self._deadline_s > self._clock.now():
            return
        # Forgotten until the store is read again: where it cannot be written, that is one try per tick.
        self._deadline_s = None
        try:
            await self._sweep()
        except StoreError as error:
            _warn("cannot end leases", store=self._file.url, reason=error.reason)
        else:
            self._signal.set()

    def _look(self) -> None:
        """Has anybody committed what the live watchers have not been offered?"""
        if self._watchers and self._file.sidecar.announced() != self._tail:
            self._signal.set()

    def _notified(self) -> None:
        # What this process is committing is handed on when the commit ends, without another read.
        if not self._writing():
            self._look()

    def _listen(self) -> None:
        if self._stop_listening is not None or self._polls:
            return
        # Loading ctypes takes milliseconds that a command which does not watch need not spend.
        from quartermaster.stores.kv.sqlite.notification import Notification

        try:
            self._stop_listening = Notification(self._file.sidecar.path, self._notified).close
        except OSError as error:
            self._polls = True
            _warn("watching by polling", store=self._file.url, cause=error.strerror)


def _warn(message: str, **facts: str | None) -> None:
    # The logging library is half of what importing this store would take, and most commands never warn.
    from quartermaster.support.log import logger

    logger("stores.sqlite").warning(message, **facts)
