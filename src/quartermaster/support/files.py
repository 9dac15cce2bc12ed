"""What everybody who writes files needs: errors that name the file, and names that outlive a power cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def about(path: Path) -> Iterator[None]:
    """While the file is made: an error names it, and not its temporary name, nor none at all as a full disk does."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def sync_directory(directory: Path) -> None:
    """The names in it are on the disk when this returns."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
