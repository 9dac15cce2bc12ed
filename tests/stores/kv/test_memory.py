"""What is peculiar to the store in memory: it forgets by count, and knows who has seen what."""

from __future__ import annotations

import asyncio

import pytest

from quartermaster.stores.kv.base import Put
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.support.errors import ExpiredError


async def put(kv: MemoryKeyValue, prefix: str, count: int) -> None:
    for number in range(count):
        await kv.transact([], [Put(f"{prefix}/{number}", b"value")])


async def test_a_watch_on_which_nothing_happened_is_not_lost_by_what_happens_elsewhere() -> None:
    kv = MemoryKeyValue(history_limit=20)
    watch = kv.watch("quiet/", "quiet0", after=await kv.revision())
    told = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    await put(kv, "busy", 100)
    await put(kv, "quiet", 2)
    batch = await asyncio.wait_for(told, 5)
    assert [change.key for change in batch.changes] == ["quiet/0", "quiet/1"]
    await watch.aclose()


async def test_a_watch_that_has_missed_what_is_forgotten_says_so() -> None:
    kv = MemoryKeyValue(history_limit=20)
    watch = kv.watch("busy/", "busy0", after=await kv.revision())
    told = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    await put(kv, "busy", 100)
    with pytest.raises(ExpiredError):
        await asyncio.wait_for(told, 5)


async def test_of_more_changes_than_fit_into_a_batch_none_is_left_out() -> None:
    kv = MemoryKeyValue()
    watch = kv.watch("busy/", "busy0", after=await kv.revision())
    seen: list[str] = []
    told = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    await put(kv, "busy", 1_000)
    seen += [change.key for change in (await asyncio.wait_for(told, 5)).changes]
    await put(kv, "busy", 10)  # while most of the others are still to come
    while len(seen) < 1_010:
        seen += [change.key for change in (await asyncio.wait_for(anext(watch), 5)).changes]
    assert seen == [f"busy/{number}" for number in (*range(1_000), *range(10))]
    await watch.aclose()
