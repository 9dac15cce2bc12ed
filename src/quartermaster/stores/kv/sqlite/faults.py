"""What SQLite and the system say about the file, as errors of our own: what failed, why, and what to do next."""

from __future__ import annotations

import errno
import sqlite3

from quartermaster.support.errors import (
    DamagedError,
    InvalidError,
    QuartermasterError,
    UnavailableError,
)

_FULL = ("the disk is full", "free some space and try again: nothing was half written")
_READ_ONLY = ("the file or its directory is read-only", "make it writable for this user, or name another file")
_REFUSED = ("the file or its directory may not be used by this user", "run as its owner, or name another file")
_CORRUPT = (
    "the file is corrupt",
    "keep a copy of it with its -wal file, then restore a backup or save what is readable: sqlite3 FILE .recover",
)
_NO_DATABASE = ("the file is not a database", "name another file, or move this one away and a new one is made")
_FAILED = ("the disk failed", "look at the kernel's log; whether the last write happened is known after the next read")

_BY_CODE = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _REFUSED,
    sqlite3.SQLITE_CANTOPEN: _REFUSED,
    sqlite3.SQLITE_CORRUPT: _CORRUPT,
    sqlite3.SQLITE_NOTADB: _NO_DATABASE,
    sqlite3.SQLITE_IOERR: _FAILED,
    sqlite3.SQLITE_ERROR: _CORRUPT,  # our statements are right: a table that is missing was damaged
}
_BY_ERRNO = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _REFUSED,
    errno.EPERM: _REFUSED,
}


def is_busy(error: sqlite3.Error) -> bool:
    return _primary(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def is_confined(error: sqlite3.Error) -> bool:
    """SQLite could not make the files that it wants beside the database."""
    return _primary(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL)


def explain(error: Exception, action: str) -> QuartermasterError:
    """`action` reads "write sqlite:/path"."""
    if isinstance(error, QuartermasterError):
        return error
    if isinstance(error, sqlite3.Error):
        return _explain_sqlite(error, action)
    if isinstance(error, OSError):
        cause, hint = _BY_ERRNO.get(error.errno or 0, (error.strerror or str(error), ""))
        return DamagedError(f"cannot {action}: {cause}", hint=hint)
    raise error


def _explain_sqlite(error: sqlite3.Error, action: str) -> QuartermasterError:
    if is_busy(error):
        return busy(action)
    code = _primary(error)
    if code == sqlite3.SQLITE_TOOBIG:
        return InvalidError(f"cannot {action}: a value is larger than the store takes")
    if code == sqlite3.SQLITE_NOMEM:
        return UnavailableError(f"cannot {action}: there is not enough memory", hint="try again")
    cause, hint = _BY_CODE.get(code, (str(error), ""))
    return DamagedError(f"cannot {action}: {cause}", hint=hint)


def busy(action: str) -> UnavailableError:
    return UnavailableError(
        f"cannot {action}: another process has kept it locked for too long",
        hint="try again; `fuser` on the file shows who has it open",
        retry_after_s=1.0,
    )


def _primary(error: sqlite3.Error) -> int:
    code = int(getattr(error, "sqlite_errorcode", 0))
    # The index of the log is shared memory with a file behind it: a full disk shows as a failure to enlarge that.
    return sqlite3.SQLITE_FULL if code == sqlite3.SQLITE_IOERR_SHMSIZE else code & 0xFF
