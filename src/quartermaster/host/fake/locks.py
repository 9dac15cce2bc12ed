"""Locks on a modelled machine: between the tasks of one process, by the same rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quartermaster.host.fake.faults import Faults
from quartermaster.support.deadlines import within
from quartermaster.support.errors import DeadlineError


class FakeLocks:
    def __init__(self, faults: Faults | None = None) -> None:
        self._faults = faults or Faults()
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def hold(self, resource: str, *, timeout_s: float) -> AsyncIterator[None]:
        lock = self._locks.setdefault(resource, asyncio.Lock())
        acquired = False
        try:
            async with self._faults.step(f"lock {resource}"):
                try:
                    async with within(timeout_s):
                        await lock.acquire()
                except TimeoutError:
                    raise DeadlineError(f"cannot lock {resource}: another task has it") from None
                acquired = True
            yield
        finally:
            if acquired:  # also where a fault came after it
                lock.release()
