"""What reads do: keys now, keys at an old revision, and the changes after a revision."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator
from typing import NamedTuple

from quartermaster.stores.kv.base import Change, Entry, Range, Written
from quartermaster.stores.kv.sqlite.schema import POSITION_BITS, first_id
from quartermaster.support.errors import ExpiredError

_NOW = """
    SELECT key, value, created, modified FROM entries WHERE key >= :start AND key < :end ORDER BY key LIMIT :limit
"""
_WRITTEN = "SELECT key, modified FROM entries WHERE key >= :start AND key < :end AND modified > :after ORDER BY key"
# What a key held at a revision is what its first later change replaced (min(id) picks that row), else what it holds.
_THEN = """
    SELECT key, value, created, modified FROM entries
    WHERE key >= :start AND key < :end AND modified < :later
    UNION ALL
    SELECT key, previous, previous_created, previous_modified FROM (
        SELECT key, previous, previous_created, previous_modified, min(id) FROM history
        WHERE key >= :start AND key < :end AND id >= :later << 20 GROUP BY key
    ) WHERE previous_modified != 0
    ORDER BY key LIMIT :limit
"""
# The plus keeps SQLite on the order of ids: an index by key would sort the whole history first.
_CHANGES = """
    SELECT change.id, change.key, change.created, change.removed, change.previous, entry.value
    FROM history AS change
    LEFT JOIN entries AS entry ON entry.key = change.key AND entry.modified = change.id >> 20
    WHERE change.id >= :first AND change.id < :end_id AND +change.key >= :start AND +change.key < :end
    ORDER BY change.id LIMIT :limit
"""
_REPLACED_BY = "SELECT previous FROM history WHERE key = ? AND id > ? ORDER BY id LIMIT 1"
Row = tuple[int, str, int, int, bytes | None, bytes | None]
_END_OF_TIME = (1 << 63) - 1


class Pulse(NamedTuple):
    """The little that tells whether anything has to be done."""

    revision: int
    forgotten: int
    boot: str
    deadline_s: float | None  # when the next lease ends, if it is not kept alive


class News(NamedTuple):
    """Changes, whole revisions only, complete up to `through`."""

    changes: tuple[Change, ...]
    through: int
    pulse: Pulse


def pulse(connection: sqlite3.Connection) -> Pulse:
    row = connection.execute(
        "SELECT revision, forgotten, boot, (SELECT min(deadline_s) FROM leases) FROM state"
    ).fetchone()
    return Pulse(*row)


def get(connection: sqlite3.Connection, key: str) -> Entry | None:
    select = "SELECT key, value, created, modified FROM entries WHERE key = ?"
    row = connection.execute(select, (key,)).fetchone()
    return Entry(*row) if row else None


def read_range(connection: sqlite3.Connection, start: str, end: str, limit: int, revision: int) -> Range:
    with _snapshot(connection):
        now = pulse(connection)
        at = revision or now.revision
        if at <= now.forgotten or at > now.revision:
            raise _expired(f"read revision {at}", now)
        parameters = {"start": start, "end": end, "limit": limit + 1 if limit else -1, "later": at + 1}
        rows = connection.execute(_NOW if at == now.revision else _THEN, parameters).fetchall()
    more = bool(limit) and len(rows) > limit
    return Range(tuple(Entry(*row) for row in (rows[:limit] if more else rows)), more, at)


def read_written(connection: sqlite3.Connection, start: str, end: str, after: int) -> Written:
    with _snapshot(connection):
        revision = pulse(connection).revision
        rows = connection.execute(_WRITTEN, {"start": start, "end": end, "after": after}).fetchall()
    return Written(dict(rows), revision)


def read_changes(connection: sqlite3.Connection, start: str, end: str, after: int, limit: int) -> News:
    """About `limit` changes in [start, end) after a revision: the last revision is always complete."""
    with _snapshot(connection):
        now = pulse(connection)
        if after < now.forgotten or after > now.revision:
            raise _expired(f"watch from revision {after}", now)
        bounds = {"start": start, "end": end, "first": first_id(after + 1), "end_id": _END_OF_TIME, "limit": limit}
        rows = connection.execute(_CHANGES, bounds).fetchall()
        through = now.revision
        if len(rows) == limit:
            last = rows[-1][0]
            through = last >> POSITION_BITS
            bounds.update(first=last + 1, end_id=first_id(through + 1), limit=-1)
            rows += connection.execute(_CHANGES, bounds).fetchall()
        changes = tuple(_change(connection, row) for row in rows)
    return News(changes, through, now)


def _change(connection: sqlite3.Connection, row: Row) -> Change:
    identity, key, created, removed, previous, value = row
    if not removed and value is None:
        (value,) = connection.execute(_REPLACED_BY, (key, identity)).fetchone()
    return Change(key, value, identity >> POSITION_BITS, created, previous)


@contextlib.contextmanager
def _snapshot(connection: sqlite3.Connection) -> Generator[None, None, None]:
    """All reads inside see one moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def _expired(action: str, now: Pulse) -> ExpiredError:
    return ExpiredError(
        f"cannot {action}: kept are revisions {now.forgotten + 1} to {now.revision}",
        hint="list again, watch from there",
    )
