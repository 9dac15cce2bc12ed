"""A fault at any call of the fakes, before or after its effect.

Every call of every fake passes one `Faults`, which counts and names it. A test runs once without a fault to learn how
many calls there are, then once for each of them and each moment: `for faults in one_fault_each(len(trace))`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from enum import StrEnum

from quartermaster.support.errors import HostError


class Moment(StrEnum):
    BEFORE = "before"  # nothing was done
    AFTER = "after"  # it was done, and the caller does not learn of it


Plan = Callable[[int, str], Moment | None]
"""Given the number of a call, from 0, and its name: when it fails, if it does."""


class Faults:
    def __init__(self, plan: Plan | None = None, *, latency_s: float = 0.0) -> None:
        self._plan = plan
        self._latency_s = latency_s
        self.trace: list[str] = []

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Around the effect of one call."""
        number = len(self.trace)
        self.trace.append(name)
        moment = self._plan(number, name) if self._plan is not None else None
        # Always a point at which another task may run, or this one be cancelled, as on a real host.
        await asyncio.sleep(self._latency_s)
        if moment is Moment.BEFORE:
            raise HostError(f"cannot {name}: injected fault before call {number}")
        yield
        if moment is Moment.AFTER:
            raise HostError(f"cannot {name}: injected fault after call {number}")


def one_fault_each(calls: int) -> Iterator[Faults]:
    for number in range(calls):
        for moment in Moment:
            yield Faults(_at(number, moment))


def _at(number: int, moment: Moment) -> Plan:
    return lambda call, _name: moment if call == number else None
