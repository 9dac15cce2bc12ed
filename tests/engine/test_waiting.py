"""Waiting for the first of several things."""

from __future__ import annotations

import asyncio

import pytest

from quartermaster.engine.waiting import Signal, first_of
from quartermaster.testing.simulation import simulated

KINDS = [(Signal, Signal), (asyncio.Event, asyncio.Event), (Signal, asyncio.Event)]


@pytest.mark.parametrize(("one", "other"), KINDS)
@simulated(range(3))
async def test_the_first_that_is_set_ends_the_wait(one: type[asyncio.Event], other: type[asyncio.Event]) -> None:
    loop = asyncio.get_running_loop()
    events = one(), other()
    for event in events:
        event.clear()
        began = loop.time()
        loop.call_later(2.0, event.set)
        assert await first_of(*events, timeout_s=60.0)
        assert loop.time() == began + 2.0
        event.clear()


@pytest.mark.parametrize(("one", "other"), KINDS)
@simulated(range(3))
async def test_when_the_time_is_over_it_says_that_nothing_was_set(
    one: type[asyncio.Event], other: type[asyncio.Event]
) -> None:
    began = asyncio.get_running_loop().time()
    assert not await first_of(one(), other(), timeout_s=5.0)
    assert asyncio.get_running_loop().time() == began + 5.0


@simulated()
async def test_what_is_set_already_is_not_waited_for() -> None:
    signal = Signal()
    signal.set()
    assert await first_of(Signal(), signal, timeout_s=5.0)
    assert asyncio.get_running_loop().time() == 0.0


@simulated(range(3))
async def test_who_waited_is_not_called_any_more() -> None:
    signal, other = Signal(), Signal()
    called = []
    end = signal.ask(lambda: called.append(1))
    assert not await first_of(signal, other, timeout_s=1.0)
    signal.set()
    end()
    signal.set()
    assert called == [1]


@simulated(range(3))
async def test_who_is_cancelled_while_waiting_leaves_nothing_behind() -> None:
    signal = Signal()
    waiting = asyncio.get_running_loop().create_task(first_of(signal, Signal(), timeout_s=60.0))
    await asyncio.sleep(1.0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    signal.set()
    assert signal._asked == {}
