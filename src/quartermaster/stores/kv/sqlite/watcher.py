"""One range that somebody watches, and the bounded buffer between the hub and that somebody."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from quartermaster.stores.kv.base import Batch, Change

BUFFER_CHANGES = 2000


class Watcher:
    """What is up to `reached` was delivered, or waits in the buffer. While `live`, the hub offers what is new."""

    def __init__(self, start: str, end: str, reached: int) -> None:
        self.start = start
        self.end = end
        self.reached = reached
        self.live = False
        self.wake = asyncio.Event()
        self._buffer: deque[Batch] = deque()
        self._buffered = 0

    def offer(self, changes: Sequence[Change], through: int) -> None:
        mine = tuple(c for c in changes if self.start <= c.key < self.end and c.revision > self.reached)
        if not mine:
            return
        if self._buffer and self._buffered + len(mine) > BUFFER_CHANGES:
            self.live = False
        else:
            self._push(Batch(mine, through))

    def progress(self, revision: int) -> None:
        if not self._buffer and self.reached < revision:
            self._push(Batch((), revision))

    def fall_back(self) -> None:
        self.live = False
        self.wake.set()

    def take(self) -> Batch | None:
        if not self._buffer:
            return None
        batch = self._buffer.popleft()
        self._buffered -= len(batch.changes)
        return batch

    def _push(self, batch: Batch) -> None:
        self._buffer.append(batch)
        self._buffered += len(batch.changes)
        self.reached = batch.revision
        self.wake.set()
