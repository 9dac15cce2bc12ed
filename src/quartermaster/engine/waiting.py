"""Waiting for one of several things, with a bound."""

from __future__ import annotations

import asyncio
from typing import Any

from quartermaster.support.deadlines import within
from quartermaster.support.tasks import TaskGroup


async def first_of(*events: asyncio.Event, timeout_s: float) -> bool:
    """Wait until one of the events is set; False when the time is over first."""
    if any(event.is_set() for event in events):
        return True
    happened = asyncio.Event()

    def notice(_: asyncio.Task[Any]) -> None:
        happened.set()

    async with TaskGroup() as group:
        for event in events:
            group.start(event.wait()).add_done_callback(notice)
        try:
            async with within(timeout_s):
                await happened.wait()
        except TimeoutError:
            pass
        group.cancel()
    return any(event.is_set() for event in events)
