"""Workers on work that never waits for anything."""

from __future__ import annotations

import asyncio

import pytest

from quartermaster.engine import workers
from quartermaster.engine.metrics import SILENT
from quartermaster.engine.queue import WorkQueue
from quartermaster.engine.workers import DONE, Result, Workers


async def test_work_that_never_waits_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_TURN_S", -1.0)  # every key takes longer than a turn
    queue: WorkQueue[int] = WorkQueue()
    for key in range(100):
        queue.add(key)
    stopping = asyncio.Event()
    left: list[int] = []

    async def work(key: int) -> Result:
        if key == 99:
            stopping.set()
        return DONE

    async def watch() -> None:
        while not stopping.is_set():
            left.append(len(queue))
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    async with asyncio.timeout(5):
        await Workers("test", queue, work, count=2, timeout_s=1.0, metrics=SILENT).run(stopping, drain_s=1.0)
    await watching
    assert len(set(left)) > 40
