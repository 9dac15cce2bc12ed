"""Time, through one door, so that a simulation can replace it.

Waiting goes through the event loop (`asyncio.sleep`, `support.deadlines`). Wall-clock readings come from here: a loop
that has a `wall_time()` of its own (the simulation loop) is asked first. They end up in timestamps, and as a lower
bound in epochs of leaders; nothing that must be right depends on them.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime


def wall_time() -> float:
    """Seconds since 1970, for timestamps that people read."""
    loop = _loop()
    own = getattr(loop, "wall_time", None)
    return float(own()) if own is not None else time.time()


def monotonic() -> float:
    """Seconds on a clock that only goes forward; the loop's own where there is one."""
    loop = _loop()
    return loop.time() if loop is not None else time.monotonic()


def timestamp() -> str:
    """Now, as Kubernetes writes `Time`: seconds, UTC."""
    return datetime.fromtimestamp(wall_time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp() -> str:
    """Now, as Kubernetes writes `MicroTime`."""
    return datetime.fromtimestamp(wall_time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_timestamp(text: str) -> float:
    """Seconds since 1970 of a `Time` or `MicroTime`."""
    return datetime.fromisoformat(text).timestamp()


def _loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
