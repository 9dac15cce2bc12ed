"""What a network and a store do to a caller, drawn from the seed: late, refused, in doubt, overtaken, cut off.

`SeededFaults` is given to a `MemoryKeyValue`; each call may meet one fault. `counts` shows which of them happened.
"""

from __future__ import annotations

import asyncio

import msgspec

from quartermaster.stores.kv.base import Compare, Put
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.support import entropy
from quartermaster.support.errors import ExpiredError, UnavailableError
from quartermaster.testing.simulation.process import PROCESS

CALL_FAULTS = (
    "delay",
    "conflict",
    "error-before",
    "error-after",
    "delivery-delay",
    "watch-dropped",
    "watch-expired",
    "cut-off",
)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """The chance of each fault per call, and how long what takes time may take at most."""

    delay: float = 0.0  # the call is late
    delay_s: float = 0.5
    conflict: float = 0.0  # another writer comes first: same content, new revision
    error_before: float = 0.0  # UnavailableError, and it did not happen
    error_after: float = 0.0  # UnavailableError, and it did
    delivery_delay: float = 0.0  # a watch is late
    delivery_delay_s: float = 3.0
    watch_dropped: float = 0.0  # UnavailableError: resume
    watch_expired: float = 0.0  # ExpiredError: list again


CALM = Rates()
ROUGH = Rates(
    delay=0.15,
    conflict=0.03,
    error_before=0.03,
    error_after=0.03,
    delivery_delay=0.1,
    watch_dropped=0.03,
    watch_expired=0.01,
)
_ANSWER_TIMEOUT_S = 2.0


class SeededFaults:
    """The `Faults` of a `MemoryKeyValue`."""

    def __init__(self, kv: MemoryKeyValue, rates: Rates = CALM) -> None:
        self.rates = rates
        self.counts = dict.fromkeys(CALL_FAULTS, 0)
        self._kv = kv
        self._cut_off: dict[str, float] = {}  # process → until when
        self.overtaking = False  # a write that happens now is nobody's
        kv.faults = self

    def cut_off(self, process: str, seconds: float) -> None:
        """The process does not reach the store for so long; its calls hang, then fail."""
        self._cut_off[process] = asyncio.get_running_loop().time() + seconds

    def calm(self) -> None:
        """From now on nothing goes wrong."""
        self.rates = CALM
        self._cut_off.clear()

    async def before(self, call: str, key: str) -> None:
        if self.overtaking:
            return
        await self._reach(call, key)
        rates, draw = self.rates, entropy.source().random()
        if draw < rates.delay:
            self.counts["delay"] += 1
            await asyncio.sleep(rates.delay_s * draw / rates.delay)
            await self._reach(call, key)
            return
        draw -= rates.delay
        if draw < rates.error_before:
            self.counts["error-before"] += 1
            raise UnavailableError(f"cannot {call} {key}: the request was lost (simulated)")
        draw -= rates.error_before
        if draw < rates.conflict and call == "transact":
            await self._overtake(key)

    async def after(self, call: str, key: str) -> None:
        if self.overtaking:
            return
        if entropy.source().random() < self.rates.error_after:
            self.counts["error-after"] += 1
            raise UnavailableError(f"cannot {call} {key}: the answer was lost (simulated)")
        await self._reach(call, key)

    async def deliver(self, key: str) -> None:
        await self._reach("watch", key)
        rates, draw = self.rates, entropy.source().random()
        if draw < rates.delivery_delay:
            self.counts["delivery-delay"] += 1
            await asyncio.sleep(rates.delivery_delay_s * draw / rates.delivery_delay)
            await self._reach("watch", key)
            return
        draw -= rates.delivery_delay
        if draw < rates.watch_dropped:
            self.counts["watch-dropped"] += 1
            raise UnavailableError(f"cannot watch {key}: the connection broke (simulated)")
        draw -= rates.watch_dropped
        if draw < rates.watch_expired:
            self.counts["watch-expired"] += 1
            raise ExpiredError(f"cannot watch {key}: the revision was compacted (simulated)")

    async def _reach(self, call: str, key: str) -> None:
        """Wait while the caller's process is cut off, as long as a client would."""
        if not self._cut_off:
            return
        process = PROCESS.get()
        until = self._cut_off.get(process.name, 0.0) if process is not None else 0.0
        missing_s = until - asyncio.get_running_loop().time()
        if missing_s <= 0:
            return
        self.counts["cut-off"] += 1
        await asyncio.sleep(min(missing_s, _ANSWER_TIMEOUT_S))
        if missing_s > _ANSWER_TIMEOUT_S:
            raise UnavailableError(f"cannot {call} {key}: no answer (simulated)")

    async def _overtake(self, key: str) -> None:
        # Nothing in here suspends, so nobody else's call sees the flag.
        self.overtaking = True
        try:
            entry = await self._kv.get(key)
            if entry is not None:
                self.counts["conflict"] += 1
                await self._kv.transact([Compare(key, modified=entry.modified)], [Put(key, entry.value)])
        finally:
            self.overtaking = False
