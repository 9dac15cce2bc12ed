"""Small files that are whole or not there at all, also after a power cut; and secrets that only their owner reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quartermaster.support import entropy
from quartermaster.support.files import about, sync_directory


def write_whole(path: Path, data: bytes, *, mode: int = 0o600, sync_data: bool = True, sync_name: bool = True) -> None:
    """The new content replaces the old one in one step and is on the disk when this returns.

    After a power cut there may be the old content where the name is not synced, and none where the data are not.
    """
    with about(path):
        _write_whole(path, data, mode, sync_data=sync_data)
    if sync_name:
        sync_directory(path.parent)


def _write_whole(path: Path, data: bytes, mode: int, *, sync_data: bool) -> None:
    temporary = path.with_name(f".{path.name}.{entropy.name_suffix(10)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        try:
            _write_all(fd, data)
            if sync_data:
                os.fsync(fd)
        finally:
            os.close(fd)
        temporary.rename(path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise


def remove(path: Path) -> None:
    """Remove a file for good; it may be gone already."""
    with suppress(FileNotFoundError):
        path.unlink()
        sync_directory(path.parent)


@contextmanager
def private_file(directory: Path, data: bytes) -> Iterator[Path]:
    """A file with a secret for one command, readable by nobody else and gone afterwards."""
    path = directory / f".private-{entropy.name_suffix(10)}"
    write_whole(path, data)
    try:
        yield path
    finally:
        remove(path)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
