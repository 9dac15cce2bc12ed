"""The work queue: who is handed out when, and what never happens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from quartermaster.engine.metrics import (
    QUEUE_DEPTH,
    QUEUE_ERRORS,
    QUEUE_LATENCY,
    QUEUE_OVERFLOWS,
    QUEUE_RETRIES,
    RECONCILE_DURATION,
    Metrics,
)
from quartermaster.engine.queue import WorkQueue, queue_meters
from quartermaster.engine.rates import TokenBucket
from quartermaster.support.backoff import Backoff
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import simulated


async def take_all(queue: WorkQueue[str]) -> list[str]:
    taken = []
    while len(queue):
        key = await queue.get()
        assert key is not None
        taken.append(key)
        queue.done(key)
    return taken


@simulated()
async def test_keys_are_handed_out_in_the_order_of_their_arrival() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("b", "a", "c"):
        queue.add(key)
    assert await take_all(queue) == ["b", "a", "c"]


@simulated()
async def test_a_key_that_waits_is_not_added_twice() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(5):
        queue.add("a")
    assert await take_all(queue) == ["a"]


@simulated()
async def test_a_key_in_work_is_handed_out_again_only_after_it_is_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await take_all(queue) == ["a"]


@simulated()
async def test_a_noisy_key_cannot_starve_the_others() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("noisy", "quiet-1", "quiet-2"):
        queue.add(key)
    order = []
    for _ in range(6):
        key = await queue.get()
        assert key is not None
        order.append(key)
        queue.add("noisy")
        queue.done(key)
    assert order[:4] == ["noisy", "quiet-1", "quiet-2", "noisy"]


@simulated()
async def test_a_worker_that_waits_gets_the_next_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    async with TaskGroup() as group:
        waiting = group.start(queue.get())
        await asyncio.sleep(1)
        queue.add("a")
        assert await waiting == "a"


@simulated(seeds=range(1, 20))
async def test_a_worker_cancelled_while_it_is_woken_leaves_the_key_to_another() -> None:
    queue: WorkQueue[str] = WorkQueue()
    async with TaskGroup() as group:
        first = group.start(queue.get())
        second = group.start(queue.get())
        await asyncio.sleep(1)
        queue.add("a")
        first.cancel()
        await asyncio.sleep(1)
        taken = [task.result() for task in (first, second) if task.done() and not task.cancelled()]
        assert taken == ["a"]
        queue.close()


@simulated()
async def test_a_delayed_key_comes_when_it_is_due() -> None:
    queue: WorkQueue[str] = WorkQueue()
    loop = asyncio.get_running_loop()
    start = loop.time()
    queue.add_after("late", 60)
    queue.add_after("soon", 5)
    assert (await queue.get(), loop.time() - start) == ("soon", 5)
    assert (await queue.get(), loop.time() - start) == ("late", 60)


@simulated()
async def test_of_several_delays_the_earliest_wins() -> None:
    queue: WorkQueue[str] = WorkQueue()
    start = asyncio.get_running_loop().time()
    queue.add_after("a", 30)
    queue.add_after("a", 10)
    queue.add_after("a", 20)
    await queue.get()
    assert asyncio.get_running_loop().time() - start == 10
    assert queue.delayed == 0


@simulated()
async def test_an_add_without_delay_takes_the_place_of_a_delayed_one() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 30)
    queue.add("a")
    assert (len(queue), queue.delayed) == (1, 0)
    queue.add_after("a", 30)
    assert queue.delayed == 0


@simulated()
async def test_delayed_keys_share_one_timer() -> None:
    queue: WorkQueue[str] = WorkQueue()
    loop = asyncio.get_running_loop()
    set_timers = []
    call_at = loop.call_at
    loop.call_at = lambda when, *rest, **options: (set_timers.append(when), call_at(when, *rest, **options))[1]  # type: ignore[method-assign]
    for number in range(1000):
        queue.add_after(f"key-{number}", 60 + number)
    assert len(set_timers) == 1
    queue.close()


@simulated()
async def test_the_heap_does_not_grow_with_wishes_that_were_overtaken() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for number in range(10_000):
        queue.add_after("a", 100_000 - number)
    assert len(queue._heap) < 200
    queue.close()


@simulated()
async def test_failures_are_answered_with_growing_delays_until_forgotten() -> None:
    queue: WorkQueue[str] = WorkQueue(backoff=Backoff(first_s=1, factor=2, limit_s=10, jitter=0))
    loop = asyncio.get_running_loop()
    waits = []
    for _ in range(6):
        start = loop.time()
        queue.add_failed("a")
        await queue.get()
        queue.done("a")
        waits.append(loop.time() - start)
    assert waits == [1, 2, 4, 8, 10, 10]
    queue.forget("a")
    start = loop.time()
    queue.add_failed("a")
    await queue.get()
    assert loop.time() - start == 1


@simulated()
async def test_a_bucket_bounds_the_retries_of_all_keys_together() -> None:
    queue: WorkQueue[str] = WorkQueue(
        backoff=Backoff(first_s=0.001, jitter=0), bucket=TokenBucket(per_second=1, burst=2)
    )
    start = asyncio.get_running_loop().time()
    for number in range(5):
        queue.add_failed(f"key-{number}")
    for _ in range(5):
        await queue.get()
    assert asyncio.get_running_loop().time() - start == pytest.approx(3)


@simulated()
async def test_beyond_the_bound_keys_are_refused_and_found_again_by_going_through_everything() -> None:
    world = [f"key-{number:04}" for number in range(1000)]
    metrics = Metrics()
    queue: WorkQueue[str] = WorkQueue(bound=100, everything=lambda: world, meters=queue_meters(metrics, "test"))
    for key in world:
        queue.add(key)
    assert len(queue) == 100
    assert metrics.value(QUEUE_OVERFLOWS, "test") == 900
    seen: dict[str, None] = {}
    for _ in range(2000):
        if not len(queue):
            break
        assert len(queue) <= 100
        key = await queue.get()
        assert key is not None
        seen[key] = None
        queue.done(key)
    assert sorted(seen) == world


@simulated()
async def test_a_full_set_of_delayed_keys_does_not_hold_up_the_ready_ones() -> None:
    queue: WorkQueue[str] = WorkQueue(bound=10, everything=lambda: ["refused"])
    for number in range(10):
        queue.add_after(f"delayed-{number}", 3600)
    queue.add_after("refused", 3600)
    queue.add("now")
    assert await queue.get() == "now"
    assert queue.delayed == 10


@simulated()
async def test_a_refused_delay_is_made_up_for_when_half_of_the_delayed_are_through() -> None:
    queue: WorkQueue[str] = WorkQueue(bound=4, everything=lambda: ["refused"])
    for number in range(4):
        queue.add_after(f"delayed-{number}", 10 * (number + 1))
    queue.add_after("refused", 5)
    taken = [await queue.get() for _ in range(3)]
    assert taken == ["delayed-0", "delayed-1", "refused"]
    assert asyncio.get_running_loop().time() == pytest.approx(20)


@simulated()
async def test_an_error_while_everything_is_gone_through_ends_no_worker() -> None:
    def broken() -> Iterator[str]:
        yield "found"
        raise ZeroDivisionError("a bug")

    metrics = Metrics()
    queue = WorkQueue(bound=2, meters=queue_meters(metrics, "test"), everything=broken)
    for key in ("a", "b", "refused"):
        queue.add(key)
    assert await take_all(queue) == ["a", "b", "found"]
    assert metrics.value(QUEUE_ERRORS, "test") == 1
    queue.add("next")
    assert await take_all(queue) == ["next"]


@simulated()
async def test_after_close_what_is_ready_is_handed_out_and_nothing_is_added() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add_after("later", 1)
    queue.close()
    queue.add("b")
    assert await queue.get() == "a"
    queue.done("a")
    assert await queue.get() is None
    assert queue.delayed == 0


@simulated()
async def test_close_with_drop_wakes_the_workers_and_hands_out_nothing() -> None:
    queue: WorkQueue[str] = WorkQueue()
    async with TaskGroup() as group:
        idle = group.start(queue.get())
        await asyncio.sleep(1)
        queue.close(drop=True)
        assert await idle is None


@simulated()
async def test_metrics_tell_depth_latency_duration_and_retries() -> None:
    metrics = Metrics()
    queue: WorkQueue[str] = WorkQueue(meters=queue_meters(metrics, "test"))
    queue.add("a")
    queue.add("b")
    assert metrics.value(QUEUE_DEPTH, "test") == 2
    await queue.get()
    await asyncio.sleep(3)
    queue.add_failed("a")
    queue.done("a")
    assert metrics.value(QUEUE_DEPTH, "test") == 1
    assert metrics.value(QUEUE_LATENCY, "test") == 1
    assert metrics.value(RECONCILE_DURATION, "test") == 1
    assert metrics.value(QUEUE_RETRIES, "test") == 1
    queue.close()
