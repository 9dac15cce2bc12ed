"""The kernel's word that another process has written: inotify on the sidecar, as a descriptor of the event loop.

An idle watcher then costs nothing, and a busy one hears of a commit in less than a millisecond. Linux only; elsewhere,
or when the user's inotify instances are used up, the caller polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

_IN_MODIFY = 0x2
_READ_BYTES = 4096


class Notification:
    """Calls `changed` in the loop after each write to a file; several writes may be one call."""

    def __init__(self, path: Path, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._descriptor = _watch(path)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._ready)

    def close(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _ready(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, _READ_BYTES)
        self._changed()


def _watch(path: Path) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    try:
        start, add = library.inotify_init1, library.inotify_add_watch
    except AttributeError:
        raise OSError("there is no inotify on this system") from None
    descriptor = int(start(os.O_NONBLOCK | os.O_CLOEXEC))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if add(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
        number = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(number, os.strerror(number))
    return descriptor
