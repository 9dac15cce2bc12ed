"""The tables of the embedded store, and the check that a file is one of ours.

History is an undo log: a change keeps what the key held before it, and every value is stored once, either as current or
as somebody's `previous`. A read at an old revision takes, for each key, what its first later change replaced, and to
forget history is nothing but to delete its oldest rows.
"""

from __future__ import annotations

import sqlite3

from quartermaster.support.errors import DamagedError, RefusedError

APPLICATION_ID = 0x514D4B56  # "QMKV"
VERSION = 1

# The id of a change is its revision and its place in it, so that the table is ordered by both without another index.
POSITION_BITS = 20

_STATEMENTS = (
    """CREATE TABLE state (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        revision INTEGER NOT NULL,      -- the newest
        forgotten INTEGER NOT NULL,     -- changes up to this revision are no longer kept
        lease INTEGER NOT NULL,         -- the newest lease
        boot TEXT NOT NULL,             -- the boot of the machine whose clock the deadlines of leases mean
        history_rows INTEGER NOT NULL,
        history_bytes INTEGER NOT NULL
    )""",
    # The first change gets revision 2: 0 means "now" to a reader and must never name an empty store.
    "INSERT INTO state VALUES (1, 1, 0, 0, '', 0, 0)",
    """CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        value BLOB NOT NULL,
        created INTEGER NOT NULL,
        modified INTEGER NOT NULL,
        lease INTEGER NOT NULL          -- 0: none
    )""",
    "CREATE INDEX entries_by_lease ON entries (lease) WHERE lease != 0",
    """CREATE TABLE history (
        id INTEGER PRIMARY KEY,         -- revision << 20 | place in the revision
        key TEXT NOT NULL,
        created INTEGER NOT NULL,
        removed INTEGER NOT NULL,
        previous BLOB,
        previous_created INTEGER NOT NULL,
        previous_modified INTEGER NOT NULL  -- 0: the key was absent
    )""",
    "CREATE INDEX history_by_key ON history (key)",
    "CREATE TABLE leases (id INTEGER PRIMARY KEY, ttl_s REAL NOT NULL, deadline_s REAL NOT NULL)",
    "CREATE INDEX leases_by_deadline ON leases (deadline_s)",
)


def first_id(revision: int) -> int:
    """The id that the first change of a revision has."""
    return revision << POSITION_BITS


def is_prepared(connection: sqlite3.Connection, url: str) -> bool:
    """Whether the tables are there; raises when the file is somebody else's or newer than this program."""
    application, version, tables = _marks(connection)
    if application == APPLICATION_ID and version == VERSION:
        return True
    if application == APPLICATION_ID and version > VERSION:
        raise RefusedError(
            f"cannot open {url}: it was written by a newer Quartermaster (format {version}, this one knows {VERSION})",
            hint="upgrade this program, or name another file",
        )
    if application == 0 and version == 0 and tables == 0:
        return False
    raise DamagedError(
        f"cannot open {url}: it is a database of another program",
        hint="name a file of its own for Quartermaster",
    )


def prepare(connection: sqlite3.Connection, url: str) -> None:
    """Make the tables, all or none. The caller holds the write lock of the sidecar."""
    if is_prepared(connection, url):
        return
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise DamagedError(
            f"cannot open {url}: this file system does not allow a write-ahead log",
            hint="put the file on a local disk",
        )
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _STATEMENTS:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _marks(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Application, format and number of tables, as of one moment: another process may be making them just now."""
    connection.execute("BEGIN")
    try:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return _pragma(connection, "application_id"), _pragma(connection, "user_version"), int(tables)
    finally:
        connection.execute("ROLLBACK")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
