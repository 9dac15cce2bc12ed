"""The world outside of the store: it takes time, loses answers, and remembers what was done to it."""

from __future__ import annotations

import asyncio

from quartermaster.support import entropy
from quartermaster.support.errors import FencedError, UnavailableError
from quartermaster.testing.simulation import record

from .invariants import ONE_EFFECT, Witness


class SimulatedWorld:
    """Allocations by id: the same id again is the same allocation, another id is another one."""

    def __init__(self, witness: Witness) -> None:
        self.allocations: dict[str, str] = {}  # id → owner
        self.lost_answers = 0
        self.trouble = 0.1  # the chance that an answer is lost
        self._witness = witness
        self._epoch = 0

    async def allocate(self, intent: str, owner: str, epoch: int) -> None:
        await self._reach(epoch)
        others = [known for known, its_owner in self.allocations.items() if its_owner == owner and known != intent]
        if others:
            self._witness.violated(ONE_EFFECT, f"{owner} has {others} and now {intent}")
        self.allocations[intent] = owner
        record("allocate", intent, epoch)
        await self._answer()

    async def release(self, intent: str, epoch: int) -> None:
        await self._reach(epoch)
        self.allocations.pop(intent, None)
        record("release", intent, epoch)
        await self._answer()

    async def _reach(self, epoch: int) -> None:
        await asyncio.sleep(entropy.source().random() * 0.2)
        if epoch < self._epoch:
            raise FencedError(f"cannot act in epoch {epoch}: the world has seen {self._epoch}")
        self._epoch = epoch

    async def _answer(self) -> None:
        if entropy.source().random() < self.trouble:
            self.lost_answers += 1
            raise UnavailableError("cannot hear the world's answer (simulated)")
        await asyncio.sleep(entropy.source().random() * 0.2)
