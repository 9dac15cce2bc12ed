"""The core as a process of its own, killed with SIGKILL after its n-th write: the end is that of a calm simulation."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from quartermaster.hooks.conformance.scenarios import SCENARIOS
from quartermaster.stores.opening import open_store

from .final_state import Document, final_state
from .standins import IMMEDIATE, standins
from .test_kills import calm
from .world import prepare, running, site

pytestmark = pytest.mark.slow

PATIENCE_S = 120.0
SHARES = (0.5,)
SIDE_BY_SIDE = 4  # they mostly wait, for starting processes and for each other
ROOT = Path(__file__).resolve().parents[2]


@asynccontextmanager
async def core(url: str, dies_after: int = 0) -> AsyncIterator[asyncio.subprocess.Process]:
    arguments = ("-m", "tests.cstor.dying_controller", "--store", url, "--dies-after", str(dies_after))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def killed(directory: Path, name: str, number: int, wanted: dict[str, Document]) -> bool:
    """A workflow whose core is killed after so many writes, to the wanted end; whether it was: it may need fewer."""
    url = f"sqlite:{directory}/{name}-{number}.db"
    store: Any = await open_store(url)
    refused: list[str] = []
    try:
        await prepare(store)
        async with running(store, services=standins(binds=True, refused=refused)):
            driving = asyncio.ensure_future(SCENARIOS[name].drive(site(store, name, IMMEDIATE, timeout_s=PATIENCE_S)))
            through = asyncio.ensure_future(driven(store, driving, wanted))
            try:
                async with core(url, number) as first:
                    dying = asyncio.ensure_future(first.wait())
                    await asyncio.wait([dying, through], return_when=asyncio.FIRST_COMPLETED)
                    if not dying.done():
                        assert await through == wanted, "without a death"
                        return False
                assert dying.result() == -signal.SIGKILL
                async with core(url):
                    assert await through == wanted, f"killed after write {number}"
                    return True
            finally:
                driving.cancel()
                through.cancel()
    finally:
        await store.close()
        assert refused == []


async def driven(store: Any, driving: asyncio.Future[None], wanted: dict[str, Document]) -> dict[str, Document]:
    await driving
    return await settled(store, wanted)


async def settled(store: Any, wanted: dict[str, Document]) -> dict[str, Document]:
    """As it should be, or as it is when it has had time enough to become so."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while (found := await final_state(store)) != wanted and loop.time() < deadline:
        await asyncio.sleep(0.25)
    return found


@pytest.mark.parametrize("name", SCENARIOS)
async def test_killed_with_sigkill_the_next_one_finishes(tmp_path: Path, name: str) -> None:
    """Early and late, side by side; every write has its turn in the long form below."""
    writes, wanted = await asyncio.to_thread(calm, name)
    numbers = [round(len(writes) * share) for share in SHARES]
    assert all(await asyncio.gather(*(killed(tmp_path, name, number, wanted) for number in numbers)))


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_killed_with_sigkill_after_any_write_the_next_one_finishes(tmp_path: Path, name: str) -> None:
    writes, wanted = await asyncio.to_thread(calm, name)
    number, died = 0, True
    while died:
        numbers = range(number + 1, number + 1 + SIDE_BY_SIDE)
        deaths = await asyncio.gather(*(killed(tmp_path, name, each, wanted) for each in numbers))
        number, died = number + sum(deaths), all(deaths)
    assert number > len(writes) * 0.8
