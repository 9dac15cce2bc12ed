"""The event loop of a contender: uvloop where it is installed, which is what the extra `all` brings."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def loop_name() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]
