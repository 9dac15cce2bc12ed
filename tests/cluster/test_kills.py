"""The leader may be killed at each step of adding and of removing a node, the agent at each of configuring one.

Real processes on virtual hosts, by SIGKILL. `steps.txt` holds the steps, as a run without a kill has recorded them, and
each run compares: a step that is not in the list fails the test. `make test` kills at a fixed handful of them,
`make test-deep` at each, before its effect and after it. In simulation all of them are in every run
(tests/simulation/orchestration/test_kills.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.simulation.orchestration.test_kills import STEPS as SIMULATED

from .conftest import MakeSite
from .dying import Fatal, Step
from .killing import Killing, known_steps

HANDFUL = (
    Fatal(Step("add", "leader", "write assignments/local-default.h2"), after=True),
    Fatal(Step("add", "agent", "run mkfs.ext4: format /dev/vdb"), after=True),
    Fatal(Step("remove", "agent", "run umount: unmount STATE/agents/local/mounts/default/UUID"), after=False),
    Fatal(Step("remove", "leader", "write assignments/local-default.h2", 2), after=False),
)
LOOKS = tuple(f"run {program}" for program in ("blkid", "cmp", "dd", "ip", "stat", "wipefs"))
TRIES = 8
HINT = "a new place to die at: put it into steps.txt"

on_every_store = pytest.mark.parametrize(
    "make_site", ["etcd", pytest.param("kubernetes", marks=pytest.mark.deep)], indirect=True
)


@asynccontextmanager
async def killing(make_site: MakeSite, directory: Path) -> AsyncIterator[Killing]:
    made = Killing(await make_site(2), directory)
    try:
        await made.begin()
        yield made
    finally:
        await made.end()


def new_places(recorded: list[Step]) -> set[tuple[str, str, str]]:
    """Steps that are not in the list. An agent looks at its disks whenever something happened to them, in any phase."""
    known = {(step.phase, step.who, step.what) for step in known_steps()}
    looks = {what for _, _, what in known if what.partition(":")[0] in LOOKS}
    found = {(step.phase, step.who, step.what) for step in recorded}
    return {one for one in found - known if one[2] not in looks}


def written_kinds(lines: list[str]) -> set[tuple[str, str, str]]:
    found = [Step.of(line) for line in lines]
    return {(one.phase, one.who, one.what.partition("/")[0]) for one in found if one.what.startswith("write ")}


def test_real_processes_have_the_steps_that_simulated_ones_have() -> None:
    simulated = written_kinds(SIMULATED.read_text().splitlines())
    assert simulated - written_kinds([str(step) for step in known_steps()]) == set()


def test_the_handful_is_among_the_steps() -> None:
    assert [fatal for fatal in HANDFUL if fatal.step not in known_steps()] == []


@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.timeout(300)
@on_every_store
async def test_a_death_at_a_handful_of_steps_is_survived(make_site: MakeSite, tmp_path: Path) -> None:
    async with killing(make_site, tmp_path / "dying") as made:
        recorded = await made.cycle(None)
        assert new_places(recorded) == set(), HINT
        for fatal in HANDFUL:
            await made.cycle(fatal)
            assert made.journal.died, f"nobody came to {fatal}"


@pytest.mark.netns
@pytest.mark.deep
@pytest.mark.timeout(3_600)
@on_every_store
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_death_at_any_step_is_survived(make_site: MakeSite, tmp_path: Path, after: bool) -> None:
    async with killing(make_site, tmp_path / "dying") as made:
        for step in known_steps():
            # How often the same is written, and what comes last before the end, depends on who is quicker.
            for _ in range(TRIES):
                await made.cycle(Fatal(step, after))
                if made.journal.died:
                    break
            assert made.journal.died, f"nobody came to {step}: take it out of steps.txt if that is not a step any more"
