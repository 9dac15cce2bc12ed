"""Many small writes at once, a few at a time; one that fails does not keep the others from being made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from quartermaster.support.errors import FencedError, QuartermasterError
from quartermaster.support.tasks import TaskGroup

Work = Callable[[], Awaitable[object]]
_AT_ONCE = 16


async def in_parallel(works: Sequence[Work], *, at_once: int = _AT_ONCE) -> None:
    """Raises the first failure when all are done; FencedError at once, for then nothing more may be written."""
    failures: list[QuartermasterError] = []
    waiting = iter(works)

    async def worker() -> None:
        for work in waiting:
            try:
                await work()
            except FencedError:
                raise
            except QuartermasterError as error:
                failures.append(error)

    async with TaskGroup() as group:
        for _ in range(min(at_once, len(works))):
            group.start(worker())
    if failures:
        raise failures[0]
