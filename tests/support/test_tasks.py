"""Groups of tasks: who waits for whom, what a failure does to the others, and what is raised in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from quartermaster.support.deadlines import within
from quartermaster.support.tasks import TaskGroup


async def fail(message: str = "the cause", *, after_s: float = 0.0) -> None:
    await asyncio.sleep(after_s)
    raise ValueError(message)


async def forever() -> None:
    await asyncio.Event().wait()


async def raised_by(work: Awaitable[object]) -> BaseException:
    try:
        await work
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


async def test_the_block_ends_when_all_tasks_have_and_gives_their_results() -> None:
    async with TaskGroup() as group:
        first = group.start(asyncio.sleep(0.01, "one"))
        second = group.start(asyncio.sleep(0, "two"))
    assert (first.result(), second.result()) == ("one", "two")


async def test_the_first_failure_cancels_block_and_tasks_and_is_raised_as_it_is() -> None:
    others: list[asyncio.Task[None]] = []

    async def block() -> None:
        async with TaskGroup() as group:
            others.append(group.start(forever()))
            group.start(fail())
            await forever()

    with pytest.raises(ValueError, match="the cause"):
        await block()
    assert others[0].cancelled()


async def test_further_failures_are_notes_to_the_first() -> None:
    async def block() -> None:
        async with TaskGroup() as group:
            group.start(fail("first"))
            group.start(fail("second"))

    error = await raised_by(block())
    assert str(error) == "first"
    assert notes(error) == ["and another task failed: ValueError: second"]


async def test_when_the_block_fails_while_it_is_ended_by_a_failure_that_failure_is_a_note() -> None:
    async def block() -> None:
        async with TaskGroup() as group:
            group.start(fail())
            try:
                await forever()
            finally:
                raise KeyError("clean-up")

    error = await raised_by(block())
    assert isinstance(error, KeyError)
    assert notes(error) == ["after a task failed: ValueError: the cause"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_an_error_of_the_block_cancels_the_tasks_and_is_raised() -> None:
    started: list[asyncio.Task[None]] = []

    async def block() -> None:
        async with TaskGroup() as group:
            started.append(group.start(forever()))
            raise KeyError("the block's own")

    with pytest.raises(KeyError):
        await block()
    assert started[0].cancelled()


async def test_a_cancellation_from_outside_ends_the_tasks_and_goes_on() -> None:
    started: list[asyncio.Task[None]] = []

    async def block() -> None:
        async with TaskGroup() as group:
            started.append(group.start(forever()))
            await forever()

    outer = asyncio.ensure_future(block())
    await asyncio.sleep(0)
    outer.cancel()
    await asyncio.wait([outer])
    assert outer.cancelled()
    assert started[0].cancelled()


async def test_a_timeout_around_a_group_whose_task_fails_while_it_ends_is_a_timeout_and_names_the_failure() -> None:
    async def fail_when_cancelled() -> None:
        try:
            await forever()
        finally:
            raise ValueError("the cause")

    async def block() -> None:
        async with within(0.01), TaskGroup() as group:
            group.start(fail_when_cancelled())
            await forever()

    error = await raised_by(block())
    assert isinstance(error, TimeoutError)
    assert error.__cause__ is not None
    assert notes(error.__cause__) == ["after a task failed: ValueError: the cause"]


async def test_cancel_ends_the_tasks_in_the_order_of_their_start_and_is_no_error() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await forever()
        finally:
            ended.append(number)

    async with TaskGroup() as group:
        for number in range(20):
            group.start(work(number))
        await asyncio.sleep(0)
        group.cancel()
    assert ended == list(range(20))


async def test_nothing_can_be_started_in_a_group_that_has_ended() -> None:
    async with TaskGroup() as group:
        pass
    with pytest.raises(RuntimeError, match="its group has ended"):
        group.start(forever())


async def test_a_task_that_is_started_while_the_group_is_being_cancelled_ends_too() -> None:
    late: list[asyncio.Task[None]] = []

    async def start_another(group: TaskGroup) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            late.append(group.start(asyncio.sleep(60)))

    async with within(5), TaskGroup() as group:
        group.start(start_another(group))
        await asyncio.sleep(0)
        group.cancel()
    assert late[0].cancelled()
