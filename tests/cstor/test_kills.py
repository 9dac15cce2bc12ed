"""The controller dies after any of its writes, is started again, and the end is what it would have been.

Dead means dead: nothing of it runs any more, no clean-up either. `n` counts the writes of the calm run, so every write
of every workflow is the last one once; that the list has grown makes more cases, by itself.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from quartermaster.backends.cstor import HOOKS
from quartermaster.hooks import hook_controllers
from quartermaster.hooks.conformance.scenarios import SCENARIOS
from quartermaster.stores.base import Store
from quartermaster.testing.simulation import run, simulation_loop
from tests.hooks.toy import memory_store

from .final_state import Document, final_state
from .standins import IMMEDIATE, Guarded, standins
from .world import WRITES, prepare, running, site

PAUSE_S = 2.0  # between the end of one process and the start of the next
SETTLES_S = 30.0
SPREAD = 7  # deaths per workflow in the short form


class Mortal:
    """A store as the core sees it: counts its writes; after the one that is to be the last nothing comes back."""

    def __init__(self, store: Any, dies_after: int = 0) -> None:
        self._store = store
        self._dies_after = dies_after
        self.dies = asyncio.Event()
        self.writes: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in WRITES:
            return found

        async def write(*arguments: Any, **options: Any) -> Any:
            if self.dies.is_set():
                await asyncio.Event().wait()
            result = await found(*arguments, **options)
            if type(result).__name__ != "Event":
                self.writes.append(f"{name} {type(result).__name__} {result.metadata.name}")
                if len(self.writes) == self._dies_after:
                    self.dies.set()
                    await asyncio.Event().wait()
            return result

        return write


async def core(store: Any) -> None:
    async with running(store, services=hook_controllers(HOOKS)):
        await asyncio.Event().wait()


async def lived(name: str, dies_after: int) -> tuple[list[str], dict[str, Document]]:
    """One workflow with at most one death in it; the writes of the core, and what there is in the end."""
    store: Store = memory_store()
    await prepare(store)
    refused: list[str] = []
    loop = simulation_loop()
    guarded = Guarded(store, refused)
    mortal = Mortal(guarded, dies_after)
    async with running(store, services=standins(binds=True, refused=refused)):
        first = loop.start_process("core", core(mortal))
        driving = loop.start_process("driver", SCENARIOS[name].drive(site(store, name, IMMEDIATE, timeout_s=120.0)))
        dying = loop.start_process("end", mortal.dies.wait())
        await asyncio.wait([driving.task, dying.task], return_when=asyncio.FIRST_COMPLETED)
        second = None
        if mortal.dies.is_set():
            first.kill()
            await asyncio.sleep(PAUSE_S)
            second = loop.start_process("core again", core(guarded))
        await driving.task
        await asyncio.sleep(SETTLES_S)
        found = await final_state(store)
        dying.task.cancel()
        for process in (first, second):
            if process is not None and not process.killed:
                process.task.cancel()
                await asyncio.wait([process.task])
    assert refused == []
    return mortal.writes, found


@functools.cache
def calm(name: str) -> tuple[list[str], dict[str, Document]]:
    return run(functools.partial(lived, name, 0), seed=1, shuffle=False).value


def check_death(name: str, number: int) -> None:
    writes, wanted = calm(name)
    _, found = run(functools.partial(lived, name, number), seed=1, shuffle=False).value
    assert found == wanted, f"killed after write {number} of {len(writes)}: {writes[number - 1]}"


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_after_a_write_the_end_is_the_same(name: str) -> None:
    total = len(calm(name)[0])
    assert total >= 10
    for number in sorted({1 + round(step * (total - 1) / (SPREAD - 1)) for step in range(SPREAD)}):
        check_death(name, number)


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_after_any_write_the_end_is_the_same(name: str) -> None:
    for number in range(1, len(calm(name)[0]) + 1):
        check_death(name, number)
