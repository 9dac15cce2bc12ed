"""The event loop of a program that stays: uvloop where it is installed (the extra `all` brings it), else asyncio's own.

A controller that writes for thousands of objects has less to do on it; the benchmarks run on the same. A short command
starts faster without, and a program that shares its descriptors with others is safer without: uvloop makes every
descriptor that it watches non-blocking, for all who have it. A simulation brings a loop of its own.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# Objects are trees that counting references frees, so cycles are rare; Python would look for them after every 700.
_NEW_BEFORE_COLLECTION = 20_000


def run(work: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run: Ctrl-C cancels the work and lets it clean up."""
    gc.set_threshold(_NEW_BEFORE_COLLECTION, *gc.get_threshold()[1:])
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(work)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def loop_name() -> str:
    """Of the loop that is running: asyncio or uvloop."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]
