"""Notices of changes in directories, from the kernel's inotify, for which Python's library has no door.

To close one that has watched something takes the kernel up to 20 ms, in which nothing else can be done here. So one is
kept for whoever comes next: `borrow` and `give_back`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_NONBLOCKING = os.O_NONBLOCK | os.O_CLOEXEC
_CLOSE_WRITE, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x8, 0x4, 0x40, 0x80, 0x100, 0x200
_MASK = _CLOSE_WRITE | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_HEADER = struct.Struct("iIII")
_BUFFER = 65536


class Inotify:
    """OSError from the constructor and from `watch` where the kernel refuses."""

    def __init__(self) -> None:
        import ctypes

        self._errno = ctypes.get_errno
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._call("inotify_init1", _NONBLOCKING)
        self.owner = os.getpid()
        self._watched: dict[int, None] = {}

    def watch(self, directory: Path) -> None:
        self._watched[self._call("inotify_add_watch", self.fd, os.fsencode(directory), _MASK)] = None

    def forget(self) -> None:
        """Nothing is watched any more, and nothing is left to be read."""
        for number in self._watched:
            with suppress(OSError):  # its directory is gone
                self._call("inotify_rm_watch", self.fd, number)
        self._watched.clear()
        with suppress(BlockingIOError):
            while os.read(self.fd, _BUFFER):
                pass

    def read(self) -> Iterator[str]:
        """The names of what changed since the last time; an empty one where the kernel lost count."""
        try:
            data = os.read(self.fd, _BUFFER)
        except BlockingIOError:
            return
        place = 0
        while place < len(data):
            _, _, _, length = _HEADER.unpack_from(data, place)
            place += _HEADER.size
            yield os.fsdecode(data[place : place + length].rstrip(b"\0"))
            place += length

    def close(self) -> None:
        os.close(self.fd)

    def _call(self, function: str, *arguments: int | bytes) -> int:
        answer = int(getattr(self._libc, function)(*arguments))
        if answer < 0:
            number = self._errno()
            raise OSError(number, os.strerror(number))
        return answer


_kept: list[Inotify] = []


def borrow() -> Inotify:
    """One that watches nothing. OSError where the kernel refuses."""
    while _kept:
        found = _kept.pop()
        # One of the process that we were forked from is read by that process too, and may not even be open here.
        if found.owner == os.getpid():
            return found
    return Inotify()


def give_back(inotify: Inotify) -> None:
    if _kept or inotify.owner != os.getpid():
        inotify.close()
    else:
        inotify.forget()
        _kept.append(inotify)
