"""A daemon's output, bounded. The daemon keeps the file open, so the file is emptied in place and not renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TAIL = 1 << 20


class LogFile:
    """Up to `limit` bytes, and as many again in the file beside it that holds what came before."""

    def __init__(self, path: Path, *, limit: int = 16 << 20) -> None:
        self._path = path
        self._before = path.with_name(f"{path.name}.1")
        self._limit = limit

    @contextmanager
    def open(self) -> Iterator[int]:
        """For writing at the end, wherever that is after the file was emptied."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield fd
        finally:
            os.close(fd)

    def bound(self) -> None:
        """Called now and then. Lines written between the copy and the cut are lost, which a log can bear."""
        with suppress(FileNotFoundError):
            if self._path.stat().st_size > self._limit:
                self._before.write_bytes(_end_of(self._path, self._limit))
                os.truncate(self._path, 0)

    def tail(self, lines: int) -> str:
        text = b""
        for path in (self._before, self._path):
            with suppress(FileNotFoundError):
                text += _end_of(path, _TAIL)
        return "".join(text.decode(errors="replace").splitlines(keepends=True)[-lines:])


def _end_of(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return file.read(size)
