"""What a simulation says when it cannot go on: the seed, the moment, and who waits for what and where."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quartermaster.support.errors import QuartermasterError


class SimulationError(QuartermasterError):
    """The run itself went wrong: it hangs, never ends, or leaves something behind. `problems` has a line for each."""

    reason = "Simulation"

    def __init__(self, message: str, problems: Sequence[str] = (), *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  {problem}" for problem in self.problems)])


def describe_task(task: asyncio.Task[Any]) -> str:
    """The task's name and the innermost line at which it waits."""
    awaited: Any = task.get_coro()
    frame = None
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None) or frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    if frame is None:
        return task.get_name()
    place = Path(frame.f_code.co_filename)
    return f"{task.get_name()} waits in {frame.f_code.co_name} ({place.parent.name}/{place.name}:{frame.f_lineno})"


def describe_exception(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return text
    place = Path(trace.tb_frame.f_code.co_filename)
    return f"{text} ({place.parent.name}/{place.name}:{trace.tb_lineno})"
