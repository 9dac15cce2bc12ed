"""Deadlines for what is awaited: `async with within(5.0): …` raises TimeoutError when the time is up.

As asyncio.timeout, which until Python 3.11.2 (that of Debian 12) lets CancelledError out in place of TimeoutError where
the task had been cancelled before: whoever cleans up after Ctrl-C would then stop in the middle of it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self


class _Deadline(asyncio.Timeout):  # type: ignore[misc]  # final for type checkers alone
    async def __aenter__(self) -> Self:
        self._cancelled_before = _cancellations()
        await super().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(TimeoutError):  # it is raised below, with its cause
            await super().__aexit__(kind, error, trace)
        if kind is asyncio.CancelledError and self.expired() and _cancellations() <= self._cancelled_before:
            raise TimeoutError from error


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def within(seconds: float | None) -> asyncio.Timeout:
    """None is no deadline, until `reschedule` gives one."""
    return _Deadline(asyncio.get_running_loop().time() + seconds if seconds is not None else None)


def until(when: float | None) -> asyncio.Timeout:
    """By the clock of the loop."""
    return _Deadline(when)
