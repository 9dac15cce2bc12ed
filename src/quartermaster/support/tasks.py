"""Tasks with an owner, kept in the order in which they were started.

`asyncio.TaskGroup` keeps its tasks in a set ordered by memory address, so cancellation order differs between two
runs of the same seed. This group keeps them in a dict, and otherwise promises the same: leaving the block waits
for all tasks; the first failure cancels the others and is raised as it is (the rest are attached as notes). Where
something else has to be raised (the block's own error, or the cancellation of the whole), the failure is a note to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class TaskGroup:
    """`async with TaskGroup() as group: group.start(work())`."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._error: BaseException | None = None
        self._parent: asyncio.Task[Any] | None = None
        self._closing = False
        self._cancelled = False
        self._wakened_parent = False

    def start(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start a task that ends no later than the block does."""
        if self._closing and not self._tasks:
            work.close()
            raise RuntimeError("cannot start a task: its group has ended")
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        if self._cancelled:
            task.cancel()
        return task

    def cancel(self) -> None:
        """Ask every task to end, and each that is started from now on; the block then ends without an error."""
        self._cancelled = True
        for task in list(self._tasks):
            task.cancel()

    async def __aenter__(self) -> Self:
        self._parent = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._closing = True
        if error is not None:
            self.cancel()
        cancelled = error if isinstance(error, asyncio.CancelledError) else None
        while self._tasks:
            try:
                await asyncio.wait(list(self._tasks))
            except asyncio.CancelledError as again:
                cancelled = again
                self.cancel()
        if self._wakened_parent and self._parent is not None and self._parent.uncancel() == 0:
            cancelled = None
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self._note_failure(error)
            return False
        if cancelled is not None:
            self._note_failure(cancelled)
            if error is cancelled:
                return False
            raise cancelled
        if self._error is not None:
            raise self._error
        return error is not None

    def _note_failure(self, raised: BaseException) -> None:
        if self._error is not None and self._error is not raised:
            raised.add_note(f"after a task failed: {type(self._error).__name__}: {self._error}")

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if self._error is not None:
            self._error.add_note(f"and another task failed: {type(error).__name__}: {error}")
            return
        self._error = error
        self.cancel()
        if not self._closing and self._parent is not None:
            self._wakened_parent = True
            self._parent.cancel()
