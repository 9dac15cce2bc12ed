"""The file of the store and the sidecar beside it.

The sidecar (`FILE-notify`) is locked by whoever writes, and holds the newest revision; writing that number there wakes
the watchers of other processes. The -wal file could not serve: it goes and comes with the last connection. The lock
stands above SQLite's own so that no process writes while another one copies the log into the database: SQLite before
3.51.3 can damage the file when the two meet.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Generator, Mapping
from pathlib import Path

from quartermaster.stores.kv.sqlite.faults import busy
from quartermaster.support.errors import DamagedError, NotFoundError, UsageError
from quartermaster.support.files import sync_directory

_POLL_FIRST_S = 0.0001
_POLL_LIMIT_S = 0.002
_REVISION_BYTES = 8


def default_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the embedded store is when nobody says otherwise."""
    if given := environment.get("QM_STATE_DIR"):
        return Path(given) / "store.db"
    state = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".local/state")
    return Path(state) / "quartermaster" / "store.db"


def ensure_file(path: Path, url: str, *, create: bool) -> None:
    """See that there is a file, readable by its owner alone when it is new: it may hold secrets."""
    if path.is_dir():
        raise UsageError(f"cannot open {url}: it is a directory", hint="name a file in it")
    if path.exists():
        return
    if not create:
        raise NotFoundError(f"cannot open {url}: there is no such file", hint="`qm apply` makes it")
    if not path.parent.is_dir():
        if path != default_path():
            raise NotFoundError(
                f"cannot open {url}: the directory {path.parent} does not exist", hint="make the directory first"
            )
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_directory(path.parent.parent)
    with contextlib.suppress(FileExistsError):
        # Exclusive, and never opened by us again: closing any descriptor of the file would drop SQLite's locks on it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        sync_directory(path.parent)


class Identity:
    """Which file was opened, to notice that somebody removed or replaced it: writes to it would be lost."""

    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._url = url
        status = os.stat(path)
        self._was = (status.st_dev, status.st_ino)

    def check(self) -> None:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            pass
        else:
            if (status.st_dev, status.st_ino) == self._was:
                return
        raise DamagedError(
            f"cannot use {self._url}: the file was removed or replaced while it was open",
            hint="restart the programs that use it",
        )


class Sidecar:
    """The write lock of all processes, and the newest revision as the last writer told it.

    Without the right to make or write it (a read-only directory, a full disk) the store can still be read, so that is
    an error only to a writer, who tries again each time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + "-notify")
        self._database = path
        self._descriptor = -1
        with contextlib.suppress(OSError):
            self.require()

    def require(self) -> None:
        """Have it open, or say by an OSError why that cannot be."""
        if self._descriptor >= 0:
            return
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Whoever may use the database may use its sidecar; only the owner can (and need) say so.
        with contextlib.suppress(PermissionError):
            os.fchmod(self._descriptor, os.stat(self._database).st_mode & 0o777)

    @contextlib.contextmanager
    def locked(self, wait_s: float, action: str) -> Generator[None, None, None]:
        """Hold the lock; UnavailableError when it cannot be had in time. Blocks: for threads of the store only."""
        self.require()
        deadline = time.monotonic() + wait_s
        pause_s = _POLL_FIRST_S
        while not self._try():
            if time.monotonic() >= deadline:
                raise busy(action)
            time.sleep(pause_s)
            pause_s = min(_POLL_LIMIT_S, pause_s * 1.5)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def announce(self, revision: int) -> None:
        """Wake the watchers of other processes. Failing is harmless: they look by themselves every few seconds."""
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, revision.to_bytes(_REVISION_BYTES, "little"), 0)

    def announced(self) -> int:
        if self._descriptor < 0:
            return 0
        return int.from_bytes(os.pread(self._descriptor, _REVISION_BYTES, 0), "little")

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _try(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
