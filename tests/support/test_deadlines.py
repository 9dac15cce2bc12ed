"""Deadlines for what is awaited."""

from __future__ import annotations

import asyncio

import pytest

from quartermaster.support.deadlines import until, within


async def test_time_that_is_up_is_told() -> None:
    with pytest.raises(TimeoutError):
        async with within(0.001):
            await asyncio.sleep(60)


async def test_until_a_moment_of_the_loop() -> None:
    with pytest.raises(TimeoutError):
        async with until(asyncio.get_running_loop().time()):
            await asyncio.sleep(60)


async def test_who_cleans_up_after_a_cancellation_can_have_a_deadline() -> None:
    said: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            try:
                async with within(0.001):
                    await asyncio.sleep(60)
            except TimeoutError:
                said.append("cleaned up")

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert said == ["cleaned up"]


async def test_a_cancellation_from_outside_stays_one() -> None:
    async def work() -> None:
        async with within(60):
            await asyncio.sleep(60)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_without_an_end_can_be_given_one() -> None:
    limit = within(None)

    async def work() -> None:
        async with limit:
            limit.reschedule(asyncio.get_running_loop().time())
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await work()
    assert limit.expired()
