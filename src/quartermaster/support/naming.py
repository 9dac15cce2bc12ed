"""Which file an error of the system is about."""

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
