"""What was just written and has not come back through the caches yet.

A hook that is called before the caches show what the last call made would decide by yesterday's picture. Nothing breaks
by that, for names are deterministic and every write states what it is based on; but it costs writes that are refused
and statuses that go back and forth. So the next call for the same watched object waits a moment for them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from quartermaster.engine import Cache, Request
from quartermaster.resources.model import Key, Object
from quartermaster.support.errors import DeadlineError
from quartermaster.support.log import logger

PATIENCE_S = 5.0

_log = logger("hooks.expectations")


class _Expected(msgspec.Struct, frozen=True):
    cache: Cache[Any]
    key: Key
    before: Object | None  # what the cache showed; None: nothing

    def seen(self) -> bool:
        found: Object | None = self.cache.get(self.key)
        if self.before is None or found is None:
            return (self.before is None) != (found is None)
        old, new = self.before.metadata, found.metadata
        return old.uid != new.uid or old.resource_version != new.resource_version

    async def wait(self, timeout_s: float) -> None:
        await self.cache.wait_until(lambda _: self.seen(), timeout_s=timeout_s)


class Expectations:
    """By watched object. Kept in memory only: whoever starts anew begins with caches that were just listed."""

    def __init__(self, *, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._expected: dict[Request, list[_Expected]] = {}

    def expect(self, request: Request, cache: Cache[Any], key: Key, before: Object | None) -> None:
        """The object was written, and `before` is what the cache showed of it when that was decided."""
        self._expected.setdefault(request, []).append(_Expected(cache, key, before))

    async def settle(self, request: Request) -> None:
        """Wait until the caches show what was written for the watched object, but not for ever."""
        for expected in self._expected.pop(request, ()):
            if expected.seen():
                continue
            try:
                await expected.wait(self._patience_s)
            except DeadlineError:
                _log.info("a write has not come back", cache=str(expected.cache.key), object=str(expected.key))
