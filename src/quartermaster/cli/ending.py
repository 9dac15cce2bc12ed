"""Signals that end a command, for one whose answer has to agree with what it did.

Until the work begins, a signal ends the command where it stands; while it lasts, it cancels the work, which takes back
what it has begun; and once the work is done or taken back, the answer is settled, and no signal changes it any more:
not while it is printed, and not while the interpreter ends, which would give a finished command the exit code of a
killed one. So the handlers stay until the process is gone; one that goes on takes them away with `restore`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Ended(KeyboardInterrupt):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class _State:
    before: dict[int, Any] = {}  # noqa: RUF012 - there is one set of handlers in a process
    heard: int = 0  # the first signal; the others change nothing
    react: Callable[[], None] | None = None
    settled = False


def listen() -> None:
    """From now on signals are heard, and kept for the first block that heeds them. One that the caller of this program
    has it ignore stays ignored."""
    if _State.before:
        return
    heeded = [number for number in _NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    _State.before = {number: signal.signal(number, _hear) for number in heeded}


def restore() -> None:
    for number, handler in _State.before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
    _State.before, _State.heard, _State.react, _State.settled = {}, 0, None, False


@contextmanager
def raising() -> Iterator[None]:
    """A signal raises `Ended`, also out of a call that blocks; one that was heard before the block does so at once."""
    with _reacting(_raise):
        if _State.heard and not _State.settled:
            _raise()
        yield


@contextmanager
def cancelling() -> Iterator[None]:
    """A signal cancels the task that is in the block; with its end the answer is settled."""
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def cancel() -> None:
        # The task may have come to its end after the signal was heard.
        if task is not None and not _State.settled:
            task.cancel()

    def react() -> None:
        loop.call_soon_threadsafe(cancel)

    with _reacting(react):
        try:
            yield
        finally:
            settle()


def settle() -> None:
    """Ignored by the kernel: handlers of Python's own end before the process does."""
    _State.settled = True
    for number in _State.before:
        signal.signal(number, signal.SIG_IGN)


def heard() -> int:
    """The signal that was heard before the answer was settled; 0 without one."""
    return _State.heard


@contextmanager
def _reacting(react: Callable[[], None]) -> Iterator[None]:
    before, _State.react = _State.react, react
    try:
        yield
    finally:
        _State.react = before


def _hear(number: int, _frame: object) -> None:
    if _State.heard or _State.settled:
        return
    _State.heard = number
    if _State.react is not None:
        _State.react()


def _raise() -> None:
    raise Ended(_State.heard)
