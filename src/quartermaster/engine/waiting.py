"""Waiting for one of several things, with a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from quartermaster.support.deadlines import within
from quartermaster.support.tasks import TaskGroup


class Signal(asyncio.Event):
    """An event that also calls those who asked for it: to wait for one of several takes no task for each then."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[object, Callable[[], None]] = {}

    def set(self) -> None:
        super().set()
        for call in list(self._asked.values()):
            call()

    def ask(self, call: Callable[[], None]) -> Callable[[], None]:
        """Have `call` made whenever it is set; returns how to end that."""
        place = object()
        self._asked[place] = call

        def end() -> None:
            self._asked.pop(place, None)

        return end


async def first_of(*events: asyncio.Event, timeout_s: float) -> bool:
    """Wait until one of the events is set; False when the time is over first."""
    if any(event.is_set() for event in events):
        return True
    signals = [event for event in events if isinstance(event, Signal)]
    if len(signals) == len(events):
        await _first_signal(signals, timeout_s)
    elif len(events) == 1:
        with suppress(TimeoutError):
            async with within(timeout_s):
                await events[0].wait()
    else:
        await _first_event(events, timeout_s)
    return any(event.is_set() for event in events)


async def _first_signal(signals: list[Signal], timeout_s: float) -> None:
    loop = asyncio.get_running_loop()
    happened = loop.create_future()

    def happen() -> None:
        if not happened.done():
            happened.set_result(None)

    ends = [signal.ask(happen) for signal in signals]
    timer = loop.call_later(max(0.0, timeout_s), happen)
    try:
        await happened
    finally:
        timer.cancel()
        for end in ends:
            end()


async def _first_event(events: tuple[asyncio.Event, ...], timeout_s: float) -> None:
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
