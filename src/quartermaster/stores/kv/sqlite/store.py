"""`KeyValue` on one SQLite file: the embedded default store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Self

from quartermaster.stores.kv.base import Batch, Compare, Entry, Operation, Outcome, Range, Written
from quartermaster.stores.kv.sqlite import queries
from quartermaster.stores.kv.sqlite.ledger import Clock, HistoryLimits, Ledger, machine_clock
from quartermaster.stores.kv.sqlite.opening import StoreFile
from quartermaster.stores.kv.sqlite.watching import Hub
from quartermaster.stores.kv.sqlite.worker import Worker
from quartermaster.stores.kv.sqlite.writer import Writer

LOCK_WAIT_S = 10.0
_DEFAULT_HISTORY = HistoryLimits()


class SqliteKeyValue:
    """See `KeyValue` for the contract. Belongs to the event loop in which it was opened."""

    def __init__(self, file: StoreFile, history: HistoryLimits, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._reader = Worker("reader", file.connect_reader, file.check, f"read {file.url}")
        self._hub = Hub(file, clock, sweep=self._end_leases, writing=lambda: self._writer.busy)
        self._writer = Writer(file, history, clock, self._hub.settled)
        self._closing: asyncio.Lock = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        create: bool = True,
        history: HistoryLimits = _DEFAULT_HISTORY,
        lock_wait_s: float = LOCK_WAIT_S,
        clock: Clock | None = None,
    ) -> Self:
        """Open the file, or make it. Several processes may have it open; `history` is the writer's choice."""
        file = StoreFile(path, create=create, lock_wait_s=lock_wait_s)
        store = cls(file, history, clock or machine_clock())
        try:
            store._hub.start(await store._reader.run(queries.pulse))
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def url(self) -> str:
        return self._file.url

    async def revision(self) -> int:
        return (await self._reader.run(queries.pulse)).revision

    async def get(self, key: str) -> Entry | None:
        return await self._reader.run(lambda connection: queries.get(connection, key))

    async def range(self, start: str, end: str, *, limit: int = 0, revision: int = 0) -> Range:
        return await self._reader.run(lambda c: queries.read_range(c, start, end, limit, revision))

    async def written(self, start: str, end: str, *, after: int = 0) -> Written:
        return await self._reader.run(lambda c: queries.read_written(c, start, end, after))

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        conditions, steps = tuple(compares), tuple(operations)
        return await self._writer.submit(lambda ledger: ledger.transact(conditions, steps))

    def watch(self, start: str, end: str, *, after: int) -> AsyncGenerator[Batch, None]:
        return self._hub.watch(start, end, after)

    async def grant(self, ttl_s: float) -> int:
        lease = await self._writer.submit(lambda ledger: ledger.grant(ttl_s))
        self._hub.expect(self._clock.now() + ttl_s)
        return lease

    async def keep_alive(self, lease: int) -> bool:
        return await self._writer.submit(lambda ledger: ledger.keep_alive(lease))

    async def revoke(self, lease: int) -> None:
        await self._writer.submit(lambda ledger: ledger.revoke(lease))

    async def compact(self, revision: int) -> None:
        """In pieces, so that other writes pass in between."""
        await self._writer.submit(lambda ledger: ledger.forget(revision))
        while await self._writer.submit(Ledger.trim):
            pass

    async def close(self) -> None:
        """What was submitted is finished; watchers get an error. Closing twice is no mistake."""
        async with self._closing:
            await self._hub.close()
            await self._writer.close()
            await self._reader.close()
            self._file.close()

    async def _end_leases(self) -> None:
        # Every group ends the leases that are over, an empty one too.
        await self._writer.submit(lambda _: None)
