"""A revisioned key-value store in memory: for tests, simulation and dry runs.

Deterministic: nothing here depends on hashing, addresses or real time. `faults` lets a test delay calls, make them
fail before or after they took effect, and lose watches.
"""

from __future__ import annotations

import asyncio
import contextvars
from bisect import bisect_left, insort
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, Protocol

from quartermaster.stores.kv.base import Batch, Change, Compare, Entry, Operation, Outcome, Put, Range, Remove, Written
from quartermaster.support.deadlines import within
from quartermaster.support.errors import ExpiredError, NotFoundError

PROGRESS_S = 10.0
HISTORY_LIMIT = 100_000
BATCH_LIMIT = 256


class Faults(Protocol):
    """Asked at every call. May wait, or raise what a real store may raise."""

    async def before(self, call: str, key: str) -> None:
        """Before the call takes effect."""
        ...

    async def after(self, call: str, key: str) -> None:
        """After it took effect: raising here leaves the caller in doubt."""
        ...

    async def deliver(self, key: str) -> None:
        """Before a watch hands out a batch; ExpiredError loses the watch. `key` is where its range starts."""
        ...


class _Step(NamedTuple):
    """One change as it is kept, with what was there before it."""

    change: Change
    before: Entry | None


def _revision_of(step: _Step) -> int:
    return step.change.revision


class _Lease:
    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self.timer: asyncio.TimerHandle | None = None
        self.keys: dict[str, None] = {}


class MemoryKeyValue:
    """See `KeyValue` for the contract."""

    def __init__(
        self, *, history_limit: int = HISTORY_LIMIT, faults: Faults | None = None, progress_s: float = PROGRESS_S
    ) -> None:
        """A watch on which nothing happens says every `progress_s` how far it is."""
        self.faults = faults
        self._progress_s = progress_s
        # The end of a lease is the store's own doing: it must not depend on the caller, which a simulation may pause.
        self._context = contextvars.copy_context()
        self._revision = 1
        self._compacted = 0  # changes up to here are forgotten
        self._entries: dict[str, Entry] = {}
        self._keys: list[str] = []
        self._history: list[_Step] = []
        self._history_limit = history_limit
        self._watchers: dict[_Watcher, None] = {}
        self._leases: dict[int, _Lease] = {}
        self._lease_of: dict[str, int] = {}
        self._next_lease = 1

    @property
    def url(self) -> str:
        return "memory:"

    async def revision(self) -> int:
        return self._revision

    async def get(self, key: str) -> Entry | None:
        await self._before("get", key)
        return self._entries.get(key)

    async def range(self, start: str, end: str, *, limit: int = 0, revision: int = 0) -> Range:
        await self._before("range", start)
        at = revision or self._revision
        if at < self._compacted or at > self._revision:
            raise ExpiredError(f"cannot read revision {at}: the oldest kept is {self._compacted}", hint="list again")
        past = self._undone(start, end, at) if at < self._revision else {}
        found: list[Entry] = []
        low, high = bisect_left(self._keys, start), bisect_left(self._keys, end)
        keys = self._keys[low:high]
        if past:
            keys = sorted({*keys, *past})
        for key in keys:
            entry = past[key] if key in past else self._entries.get(key)
            if entry is None:
                continue
            if limit and len(found) == limit:
                return Range(tuple(found), True, at)
            found.append(entry)
        return Range(tuple(found), False, at)

    async def written(self, start: str, end: str, *, after: int = 0) -> Written:
        found = await self.range(start, end)
        return Written({one.key: one.modified for one in found.entries if one.modified > after}, found.revision)

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        key = operations[0].key if operations else ""
        await self._before("transact", key)
        if not all(self._holds(c) for c in compares):
            current = {c.key: self._entries.get(c.key) for c in compares}
            return Outcome(succeeded=False, revision=self._revision, current=current)
        for operation in operations:
            if isinstance(operation, Put) and operation.lease and operation.lease not in self._leases:
                raise NotFoundError(f"cannot put {operation.key}: its lease has ended", hint="ask for a new lease")
        self._perform(operations)
        revision = self._revision
        if self.faults is not None:
            await self.faults.after("transact", key)
        return Outcome(succeeded=True, revision=revision)

    async def watch(self, start: str, end: str, *, after: int) -> AsyncGenerator[Batch, None]:
        watcher = _Watcher(start, end)
        self._watchers[watcher] = None
        seen = told = after
        complete = False  # whether everything up to `seen` was told: then what comes next begins at `watcher.first`
        try:
            while True:
                watcher.wake.clear()
                first, watcher.first = watcher.first, 0
                if complete and first:
                    seen = max(seen, first - 1)
                if seen < self._compacted:
                    raise ExpiredError(f"cannot watch from revision {after}: it was compacted", hint="list again")
                nothing = complete and not first
                changes, seen = ((), self._revision) if nothing else self._since(seen, start, end)
                complete = len(changes) < BATCH_LIMIT
                if changes:
                    if self.faults is not None:
                        await self.faults.deliver(start)
                    told = seen
                    yield Batch(changes, seen)
                    continue
                try:
                    async with within(self._progress_s):
                        await watcher.wake.wait()
                except TimeoutError:
                    # A change may have come in the same moment as the timeout: then this is no time for a bookmark.
                    seen = seen if watcher.wake.is_set() else max(seen, self._revision)
                    if seen > told:
                        told = seen
                        yield Batch((), seen)
        finally:
            self._watchers.pop(watcher, None)

    async def grant(self, ttl_s: float) -> int:
        await self._before("grant", "")
        identity = self._next_lease
        self._next_lease += 1
        self._leases[identity] = _Lease(ttl_s)
        self._arm(identity)
        return identity

    async def keep_alive(self, lease: int) -> bool:
        await self._before("keep_alive", "")
        if lease not in self._leases:
            return False
        self._arm(lease)
        return True

    async def revoke(self, lease: int) -> None:
        self._end_lease(lease)

    async def compact(self, revision: int) -> None:
        self._compacted = max(self._compacted, min(revision, self._revision))
        kept = bisect_left(self._history, self._compacted + 1, key=_revision_of)
        del self._history[:kept]
        for watcher in self._watchers:
            watcher.wake.set()

    async def close(self) -> None:
        for identity in list(self._leases):
            timer = self._leases[identity].timer
            if timer is not None:
                timer.cancel()

    async def _before(self, call: str, key: str) -> None:
        if self.faults is not None:
            await self.faults.before(call, key)

    def _holds(self, compare: Compare) -> bool:
        entry = self._entries.get(compare.key)
        if compare.modified is not None:
            return (entry.modified if entry else 0) == compare.modified
        return entry is not None and entry.value == compare.value

    def _perform(self, operations: Sequence[Operation]) -> None:
        effective = [o for o in operations if isinstance(o, Put) or o.key in self._entries]
        if not effective:
            return
        self._revision += 1
        for operation in effective:
            previous = self._entries.get(operation.key)
            self._history.append(_Step(self._change(operation, previous), previous))
        if len(self._history) > self._history_limit:
            # A tenth more than needed, so that the list is not moved at every write.
            self._compacted = self._history[self._history_limit // 10].change.revision
            del self._history[: bisect_left(self._history, self._compacted + 1, key=_revision_of)]
        keys = [operation.key for operation in effective]
        for watcher in self._watchers:
            start, end = watcher.start, watcher.end
            for key in keys:
                if start <= key < end:
                    watcher.first = watcher.first or self._revision
                    watcher.wake.set()
                    break

    def _change(self, operation: Operation, previous: Entry | None) -> Change:
        key = operation.key
        old_lease = self._lease_of.pop(key, 0)
        if old_lease in self._leases:
            self._leases[old_lease].keys.pop(key, None)
        before = previous.value if previous else None
        if isinstance(operation, Remove):
            del self._entries[key]
            del self._keys[bisect_left(self._keys, key)]
            return Change(key, None, self._revision, previous.created if previous else 0, before)
        if previous is None:
            insort(self._keys, key)
        if operation.lease:
            self._leases[operation.lease].keys[key] = None
            self._lease_of[key] = operation.lease
        created = previous.created if previous else self._revision
        self._entries[key] = Entry(key, operation.value, created, self._revision)
        return Change(key, operation.value, self._revision, created, before)

    def _since(self, seen: int, start: str, end: str) -> tuple[tuple[Change, ...], int]:
        """Changes of the range after `seen`, whole revisions only, and how far that is."""
        position = bisect_left(self._history, seen + 1, key=_revision_of)
        found: list[Change] = []
        for at in range(position, len(self._history)):
            change = self._history[at].change
            if len(found) >= BATCH_LIMIT and change.revision > seen:
                break
            seen = change.revision
            if start <= change.key < end:
                found.append(change)
        return tuple(found), max(seen, self._revision) if len(found) < BATCH_LIMIT else seen

    def _undone(self, start: str, end: str, at: int) -> dict[str, Entry | None]:
        """What the keys that changed after revision `at` were then."""
        position = bisect_left(self._history, at + 1, key=_revision_of)
        past: dict[str, Entry | None] = {}
        for step in self._history[position:]:
            if start <= step.change.key < end:
                past.setdefault(step.change.key, step.before)
        return past

    def _arm(self, identity: int) -> None:
        lease = self._leases[identity]
        if lease.timer is not None:
            lease.timer.cancel()
        lease.timer = asyncio.get_running_loop().call_later(
            lease.ttl_s, self._end_lease, identity, context=self._context
        )

    def _end_lease(self, identity: int) -> None:
        lease = self._leases.pop(identity, None)
        if lease is None:
            return
        if lease.timer is not None:
            lease.timer.cancel()
        self._perform([Remove(key) for key in lease.keys])


class _Watcher:
    def __init__(self, start: str, end: str) -> None:
        self.start = start
        self.end = end
        self.wake = asyncio.Event()
        self.first = 0  # the first change since it last looked; 0: none
