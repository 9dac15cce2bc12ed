"""Leader and agents may be killed at each step of making and deleting a volume, of adding and removing a node, and of
replacing a brick: real processes and real daemons, by SIGKILL.

The steps are those that a cycle without a kill has recorded. In one cycle there is one death in each phase, so there
are as many cycles as there are steps in the longest phase, with deaths before their effect and after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.cluster.dying import Fatal, Step
from tests.cluster.sites import Standalone

from .killing import PHASES, Killing

pytestmark = [pytest.mark.netns, pytest.mark.deep]

HANDFUL = (
    Fatal(Step("create", "agent", "run gluster: make the volume pvc-UUID"), after=True),
    Fatal(Step("add", "agent", "run gluster: take ADDRESS4 into the pool"), after=True),
    Fatal(Step("replace", "leader", "write configmaps/quartermaster-glusterfs-default"), after=True),
    Fatal(Step("delete", "agent", "run gluster: stop the volume pvc-UUID"), after=True),
    Fatal(Step("remove", "agent", "run gluster: take ADDRESS4 out of the pool"), after=False),
)


@asynccontextmanager
async def killing(site: Standalone, directory: Path) -> AsyncIterator[Killing]:
    made = Killing(site, directory)
    try:
        await made.begin()
        yield made
    finally:
        await made.end()


def first_ones(steps: Sequence[Step], phase: str) -> list[Step]:
    return [step for step in steps if step.phase == phase and step.number == 1]


@pytest.mark.timeout(1_800)
async def test_a_death_in_every_phase_is_survived(site: Standalone, tmp_path: Path) -> None:
    async with killing(site, tmp_path / "dying") as made:
        await made.cycle(HANDFUL)
        assert made.journal.deaths == list(range(len(HANDFUL)))


@pytest.mark.timeout(21_600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_death_at_any_step_is_survived(site: Standalone, tmp_path: Path, after: bool) -> None:
    async with killing(site, tmp_path / "dying") as made:
        recorded = await made.cycle(())
        assert {step.phase for step in recorded} == set(PHASES)
        for steps in zip_longest(*(first_ones(recorded, phase) for phase in PHASES)):
            fatals = [Fatal(step, after) for step in steps if step is not None]
            await made.cycle(fatals)
            # Which host is asked for what differs from cycle to cycle; that somebody comes to one of them does not.
            assert made.journal.deaths, f"nobody came to {[str(fatal.step) for fatal in fatals]}"
