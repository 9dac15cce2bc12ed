"""Workflows while everything goes wrong: calls are late, lost or in doubt, and the core is killed, paused and cut off.

However rough it is, in the end the workflow is through, and on the way nobody was asked to give up a pool or a volume
that somebody uses. (That OpenEBS refuses something else in between is no mistake then: what the core knew was old.)
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from quartermaster.hooks.conformance.scenarios import SCENARIOS, clean_up
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.testing.simulation import ROUGH, Chaos, SeededFaults, run, simulation_loop
from quartermaster.testing.simulation.process import PROCESS

from .standins import IMMEDIATE, Guarded, standins
from .test_kills import core
from .world import prepare, running, site

FAULTS = 25
MEAN_GAP_S = 2.0
PATIENCE_S = 7200.0
TORMENTED = ("core", "stand-ins")
FORBIDDEN = ("replicas", "while a pool has it", "is deleted while")


class Aimed(SeededFaults):
    """Faults for the core and the stand-ins. Who drives the workflow and judges its end sees things as they are."""

    async def before(self, call: str, key: str) -> None:
        if self._is_target():
            await super().before(call, key)

    async def after(self, call: str, key: str) -> None:
        if self._is_target():
            await super().after(call, key)

    async def deliver(self, key: str) -> None:
        if self._is_target():
            await super().deliver(key)

    @staticmethod
    def _is_target() -> bool:
        process = PROCESS.get()
        return process is not None and process.name in TORMENTED


async def played(store: Any, refused: list[str]) -> None:
    async with running(store, services=standins(binds=True, refused=refused)):
        await asyncio.Event().wait()


async def lived(name: str) -> dict[str, int]:
    kv = MemoryKeyValue()
    store = ObjectStore(kv)
    await prepare(store)
    faults = Aimed(kv, ROUGH)
    chaos = Chaos(kv, faults, longest_s=10.0)
    refused: list[str] = []
    chaos.start("core", lambda: core(Guarded(store, refused)))
    others = simulation_loop().start_process("stand-ins", played(store, refused))
    place = site(store, name, IMMEDIATE, timeout_s=PATIENCE_S)
    driving = asyncio.ensure_future(SCENARIOS[name].drive(place))
    await chaos.torment(faults=FAULTS, mean_gap_s=MEAN_GAP_S)
    chaos.calm()
    await driving
    await clean_up(place)
    await chaos.stop()
    others.task.cancel()
    await asyncio.wait([others.task])
    assert [reason for reason in refused if any(words in reason for words in FORBIDDEN)] == []
    return {**faults.counts, **chaos.counts}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_workflow_comes_to_its_end_through_faults(name: str) -> None:
    counts = run(functools.partial(lived, name), seed=1, max_steps=5_000_000).value
    assert counts["delay"] > 0
    assert counts["error-before"] + counts["error-after"] > 0


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_workflow_comes_to_its_end_through_many_faults(name: str) -> None:
    total: dict[str, int] = {}
    for seed in range(2, 42):
        for fault, count in run(functools.partial(lived, name), seed=seed, max_steps=5_000_000).value.items():
            total[fault] = total.get(fault, 0) + count
    assert all(total.values()), f"a fault that never happened proves nothing: {total}"
