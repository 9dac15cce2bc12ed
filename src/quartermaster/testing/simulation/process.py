"""What would be one process on a real machine: all tasks that descend from one. It can be paused and killed.

Membership travels in the context of a task, which asyncio copies to whatever the task starts or schedules.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Process(Generic[T]):
    """Made by `SimulationLoop.start_process`."""

    task: asyncio.Task[T]

    def __init__(self, name: str, run_again: Callable[[list[asyncio.Handle]], None]) -> None:
        self.name = name
        self._run_again = run_again
        self.wall_offset_s = 0.0  # how wrong its wall clock is
        self.killed = False
        self._paused = False
        self._waking: asyncio.TimerHandle | None = None
        self._held: list[asyncio.Handle] = []

    def pause(self, seconds: float) -> None:
        """Nothing of it runs for so long, timers included: as between SIGSTOP and SIGCONT."""
        if not self._paused and not self.killed:
            self._paused = True
            self._waking = asyncio.get_running_loop().call_later(seconds, self.resume, context=contextvars.Context())

    def resume(self) -> None:
        if self._waking is not None:
            self._waking.cancel()
        if self._paused and not self.killed:
            self._paused = False
            self._release()

    def kill(self) -> None:
        """Nothing of it ever runs again, `finally` blocks neither: as after SIGKILL."""
        self.killed = True

    def revive(self) -> None:
        """After the end of a run: let what was held run, so that it can be cancelled."""
        self.killed = self._paused = False
        self._release()

    def holds(self, handle: asyncio.Handle) -> bool:
        """Whether the callback must not run now; it is then kept."""
        if self._paused or self.killed:
            self._held.append(handle)
            return True
        return False

    def _release(self) -> None:
        held, self._held = self._held, []
        self._run_again(held)


PROCESS: contextvars.ContextVar[Process[Any] | None] = contextvars.ContextVar("simulated_process", default=None)
