"""Events that a test announces itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from quartermaster.host.events import Changes, PendingChanges


class FakeEvents:
    def __init__(self, *, poll_s: float = 60.0) -> None:
        self._poll_s = poll_s
        self._watching: list[PendingChanges] = []

    def announce(self, *names: str) -> None:
        for pending in self._watching:
            pending.add(*names or ("",))

    @asynccontextmanager
    async def watch(self, *, directories: Sequence[Path] = ()) -> AsyncIterator[Changes]:  # noqa: ARG002
        pending = PendingChanges(self._poll_s)
        self._watching.append(pending)
        try:
            yield pending
        finally:
            self._watching.remove(pending)
