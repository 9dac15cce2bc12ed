"""What writes do: the rules of revisions, conditions, leases and history, inside one open SQLite transaction.

A ledger lives as long as that transaction. Several writes of one process pass through it in order, each with its own
conditions and its own revision; they become durable together or not at all.

Leases end by the monotonic clock, which all processes of a machine share and which nobody can set. It starts again with
the machine, and so does every process that kept a lease: leases of an earlier boot are over.
"""

from __future__ import annotations

import functools
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from quartermaster.stores.kv.base import Change, Compare, Entry, Operation, Outcome, Put, Remove
from quartermaster.stores.kv.sqlite.schema import POSITION_BITS, first_id
from quartermaster.support.errors import InvalidError, NotFoundError

_ROW_BYTES = 64  # what a row of history takes beside its key and its value
_TRIM_ROWS = 256


class HistoryLimits(msgspec.Struct, frozen=True):
    """How much of the past is kept for watchers that resume and for lists in parts. Older is forgotten by itself."""

    changes: int = 50_000
    size_bytes: int = 64 << 20


class Clock(NamedTuple):
    """The time by which leases end, and the boot since which it runs."""

    boot: str
    now: Callable[[], float]


@functools.cache
def machine_clock() -> Clock:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        boot = "unknown"  # not Linux: a lease of an earlier boot may then end late, never early
    return Clock(boot, time.monotonic)


class _Row(NamedTuple):
    value: bytes
    created: int
    modified: int


class Ledger:
    """The store as one SQLite transaction sees and changes it."""

    def __init__(self, connection: sqlite3.Connection, limits: HistoryLimits, clock: Clock) -> None:
        self._connection = connection
        self._limits = limits
        self._now = clock.now()
        row = connection.execute(
            "SELECT revision, forgotten, lease, boot, history_rows, history_bytes FROM state"
        ).fetchone()
        self._saved = tuple(row)
        self.revision, self._forgotten, self._lease, self._boot, self._rows, self._bytes = row
        self.revision_before = self.revision
        self.changes: list[Change] = []
        self._leases_changed = False
        self._end_leases(clock.boot)

    def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        """Errors are raised before anything is changed: other writes share the SQLite transaction."""
        current = {compare.key: self._row(compare.key) for compare in compares}
        if not all(_holds(compare, current[compare.key]) for compare in compares):
            entries = {key: row and Entry(key, *row) for key, row in current.items()}
            return Outcome(succeeded=False, revision=self.revision, current=entries)
        if len({operation.key for operation in operations}) != len(operations):
            raise InvalidError("cannot write: a key occurs twice in one transaction")
        if len(operations) >> POSITION_BITS:
            raise InvalidError("cannot write: too many operations in one transaction", hint="split it")
        for operation in operations:
            if isinstance(operation, Put) and operation.lease and not self._lease_exists(operation.lease):
                raise NotFoundError(f"cannot put {operation.key}: its lease has ended", hint="ask for a new lease")
        self._perform(operations, current)
        return Outcome(succeeded=True, revision=self.revision)

    def grant(self, ttl_s: float) -> int:
        self._lease += 1
        self._leases_changed = True
        self._connection.execute("INSERT INTO leases VALUES (?, ?, ?)", (self._lease, ttl_s, self._now + ttl_s))
        return int(self._lease)

    def keep_alive(self, lease: int) -> bool:
        update = "UPDATE leases SET deadline_s = ? + ttl_s WHERE id = ?"
        alive = self._connection.execute(update, (self._now, lease)).rowcount > 0
        self._leases_changed |= alive
        return alive

    def revoke(self, lease: int) -> None:
        rows = self._connection.execute("SELECT key FROM entries WHERE lease = ? AND lease != 0 ORDER BY key", (lease,))
        self._perform([Remove(key) for (key,) in rows.fetchall()], {})
        if self._connection.execute("DELETE FROM leases WHERE id = ?", (lease,)).rowcount:
            self._leases_changed = True

    def forget(self, revision: int) -> None:
        """Changes before `revision` are no longer shown; `trim` removes their rows."""
        self._forgotten = max(self._forgotten, min(revision, self.revision) - 1)

    def trim(self) -> bool:
        """Remove the oldest history that is forgotten or over the limits, a bounded piece; False when none is left.

        What this transaction itself added stays: a watcher must get a chance to see it.
        """
        budget = max(_TRIM_ROWS, 2 * len(self.changes))
        select = "SELECT id, key, length(previous) FROM history WHERE id < ? ORDER BY id LIMIT ?"
        if not self._over_limits() and not self._garbage():
            return False
        last = 0
        for identity, key, size in self._connection.execute(select, (first_id(self.revision_before + 1), budget)):
            revision = identity >> POSITION_BITS
            if revision > self._forgotten:
                if not self._over_limits():
                    break
                # The rest of that revision is forgotten with it, and removed by the next piece at the latest.
                self._forgotten = revision
            last = identity
            self._rows -= 1
            self._bytes -= _size(key, size or 0)
        self._connection.execute("DELETE FROM history WHERE id <= ?", (last,))
        return last > 0

    def save(self) -> bool:
        """Write down the counters; False when nothing has changed and there is nothing to commit."""
        state = (self.revision, self._forgotten, self._lease, self._boot, self._rows, self._bytes)
        if state == self._saved:
            return self._leases_changed
        self._connection.execute(
            "UPDATE state SET revision = ?, forgotten = ?, lease = ?, boot = ?, history_rows = ?, history_bytes = ?",
            state,
        )
        return True

    def _perform(self, operations: Sequence[Operation], known: dict[str, _Row | None]) -> None:
        revision = self.revision + 1
        position = 0
        for operation in operations:
            key = operation.key
            before = known[key] if key in known else self._row(key)
            if isinstance(operation, Put):
                created = before.created if before else revision
                value: bytes | None = operation.value
                self._put(operation, created, revision, exists=before is not None)
            elif before is not None:
                created, value = before.created, None
                self._connection.execute("DELETE FROM entries WHERE key = ?", (key,))
            else:
                continue
            change = Change(key, value, revision, created, before.value if before else None)
            self._record(first_id(revision) + position, change, before)
            position += 1
        if position:
            self.revision = revision

    def _put(self, operation: Put, created: int, revision: int, *, exists: bool) -> None:
        statement = (
            "UPDATE entries SET value = ?, created = ?, modified = ?, lease = ? WHERE key = ?"
            if exists
            else "INSERT INTO entries (value, created, modified, lease, key) VALUES (?, ?, ?, ?, ?)"
        )
        self._connection.execute(statement, (operation.value, created, revision, operation.lease, operation.key))

    def _record(self, identity: int, change: Change, before: _Row | None) -> None:
        self._connection.execute(
            "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                identity,
                change.key,
                change.created,
                change.value is None,
                change.previous,
                before.created if before else 0,
                before.modified if before else 0,
            ),
        )
        self._rows += 1
        self._bytes += _size(change.key, len(change.previous or b""))
        self.changes.append(change)

    def _row(self, key: str) -> _Row | None:
        row = self._connection.execute("SELECT value, created, modified FROM entries WHERE key = ?", (key,)).fetchone()
        return _Row(*row) if row else None

    def _lease_exists(self, lease: int) -> bool:
        return self._connection.execute("SELECT 1 FROM leases WHERE id = ?", (lease,)).fetchone() is not None

    def _end_leases(self, boot: str) -> None:
        """Each lease that is over takes its keys with it, under a revision of its own."""
        limit = self._now if self._boot == boot else float("inf")
        self._boot = boot
        select = "SELECT id FROM leases WHERE deadline_s <= ? ORDER BY deadline_s, id"
        for (lease,) in self._connection.execute(select, (limit,)).fetchall():
            self.revoke(lease)

    def _over_limits(self) -> bool:
        return bool(self._rows > self._limits.changes or self._bytes > self._limits.size_bytes)

    def _garbage(self) -> bool:
        oldest = self._connection.execute("SELECT min(id) FROM history").fetchone()[0]
        return oldest is not None and oldest >> POSITION_BITS <= self._forgotten


def _holds(compare: Compare, row: _Row | None) -> bool:
    if compare.modified is not None:
        return (row.modified if row else 0) == compare.modified
    return row is not None and row.value == compare.value


def _size(key: str, value_bytes: int) -> int:
    return _ROW_BYTES + len(key) + value_bytes
