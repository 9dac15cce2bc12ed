"""Connections to the file: one that writes durably, ones that read, and what must be so before the first of them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from quartermaster.stores.kv.sqlite import schema
from quartermaster.stores.kv.sqlite.faults import explain, is_confined
from quartermaster.stores.kv.sqlite.files import Identity, Sidecar, ensure_file
from quartermaster.support.errors import DamagedError

_CHECKPOINT_PAGES = 1000
_LOG_LIMIT_BYTES = 16 << 20


class FrozenConnection(sqlite3.Connection):
    """Reads a file that cannot change; good for one read, because somebody with more rights may change it after all."""


class StoreFile:
    """A path that becomes a store with the first connection to it."""

    def __init__(self, path: Path, *, create: bool, lock_wait_s: float) -> None:
        self.path = path.absolute()
        self.url = f"sqlite:{path}"
        self.lock_wait_s = lock_wait_s
        self._create = create
        self._identity: Identity | None = None
        self._sidecar: Sidecar | None = None

    @property
    def sidecar(self) -> Sidecar:
        if self._sidecar is None:
            raise DamagedError(f"cannot use {self.url}: it was not opened", hint="open it first")
        return self._sidecar

    def check(self) -> None:
        """Still the file that was opened?"""
        if self._identity is not None:
            self._identity.check()

    def connect_reader(self) -> sqlite3.Connection:
        if self._identity is not None:
            return _connect_reader(self.path, self.lock_wait_s)
        try:
            return self._establish()
        except (sqlite3.Error, OSError) as error:
            raise explain(error, f"open {self.url}") from error

    def connect_writer(self) -> sqlite3.Connection:
        """A commit on this connection is on the disk when it returns."""
        if self._sidecar is not None:
            self._sidecar.require()
        connection = _connect(f"{self.path.as_uri()}?mode=rw", self.lock_wait_s)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_LOG_LIMIT_BYTES}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        if self._sidecar is not None:
            self._sidecar.close()

    def _establish(self) -> sqlite3.Connection:
        ensure_file(self.path, self.url, create=self._create)
        identity = Identity(self.path, self.url)
        sidecar = Sidecar(self.path)
        try:
            connection = _connect_reader(self.path, self.lock_wait_s)
            try:
                if not schema.is_prepared(connection, self.url):
                    self._prepare(sidecar)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            sidecar.close()
            raise
        self._identity, self._sidecar = identity, sidecar
        return connection

    def _prepare(self, sidecar: Sidecar) -> None:
        with sidecar.locked(self.lock_wait_s, f"open {self.url}"):
            connection = self.connect_writer()
            try:
                schema.prepare(connection, self.url)
            finally:
                connection.close()


def _connect_reader(path: Path, wait_s: float) -> sqlite3.Connection:
    """On a read-only or full disk too, where SQLite cannot keep its shared index of the log."""
    connection = _connect(f"{path.as_uri()}?mode=rw", wait_s)
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        connection.close()
        if not is_confined(error) or _has_log(path):
            raise
        # Without a log everything is in the database file.
        return sqlite3.connect(
            f"{path.as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None, factory=FrozenConnection
        )
    return connection


def _connect(location: str, wait_s: float) -> sqlite3.Connection:
    return sqlite3.connect(location, uri=True, timeout=wait_s, isolation_level=None)


def _has_log(path: Path) -> bool:
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0
