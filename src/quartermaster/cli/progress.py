"""How far a long command is: one line on a terminal, from the second second on, and nothing anywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from quartermaster.support import clock

_AFTER_S = 1.0
_EVERY_S = 0.1
_LARGE_BYTES = 1_500_000


def announce_reading(files: Sequence[str]) -> None:
    """Reading a few megabytes takes seconds, and nothing can be said before all of it is checked."""
    if not sys.stderr.isatty():
        return
    paths = [path for name in files for path in ([Path(name)] if not os.path.isdir(name) else Path(name).rglob("*"))]
    size = sum(path.stat().st_size for path in paths if path.is_file())
    if size > _LARGE_BYTES:
        sys.stderr.write(f"reading {size / 1_000_000:.0f} MB\n")


class Progress:
    """`step` after each piece of work, `clear` before anything else is printed and in the end."""

    def __init__(self, verb: str, total: int) -> None:
        self._verb = verb
        self._total = total
        self._done = 0
        self._next = clock.monotonic() + _AFTER_S
        # Where each object has a line of its own on the same terminal, these lines are the progress.
        self._wanted = sys.stderr.isatty() and not sys.stdout.isatty()
        self._shown = False

    def step(self) -> None:
        self._done += 1
        if self._wanted and clock.monotonic() >= self._next:
            self._next = clock.monotonic() + _EVERY_S
            self._shown = True
            sys.stderr.write(f"\r{self._verb} {self._done} of {self._total}\x1b[K")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            self._shown = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class Status:
    """What a command waits for, from the second second on: one line on a terminal, elsewhere a line per new reason."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._from = clock.monotonic() + _AFTER_S
        self._terminal = sys.stderr.isatty()
        self._shown = ""

    def __enter__(self) -> Status:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown and self._terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, why: str) -> None:
        if why == self._shown or clock.monotonic() < self._from:
            return
        self._shown = why
        sys.stderr.write(f"\r{self._what}: {why}\x1b[K" if self._terminal else f"{self._what}: {why}\n")
        sys.stderr.flush()
