"""Leader and agents may be killed at each step of making and deleting a volume, of adding and removing a node, and of
replacing a brick: real processes and real daemons, by SIGKILL.

`steps.txt` holds the steps, as runs have recorded them, and each run compares: a step that is not in the list fails the
test, and so does one at which nobody died, unless the list says beside it what has to be so for somebody to come there.
`make test` kills at a fixed handful of them, `make test-deep` at each, before its effect and after it. A cycle costs a
minute, so several deaths share one, in each of its phases as many as it takes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cluster.dying import Fatal, Step
from tests.cluster.sites import Site

from .dying import any_host
from .killing import PHASES, Killing, known_steps, steps_by_chance

HANDFUL = (
    Fatal(Step("add", "leader", "write assignments/glusterd.h4"), after=True),
    Fatal(Step("remove", "leader", "write assignments/glusterfs-move-brick-pvc-UUID.HOST"), after=True),
    Fatal(
        Step(
            "remove",
            "agent",
            "run gluster: replace the brick ADDRESS3:STATE/agents/glusterd/mounts/-/UUID/pvc-UUID of pvc-UUID"
            " by ADDRESS4:STATE/agents/glusterd/mounts/-/UUID/pvc-UUID.mN",
        ),
        after=True,
    ),
)
PARTS = 8
HINT = "a new place to die at: put it into steps.txt"


@asynccontextmanager
async def killing(site: Site, directory: Path, phases: Sequence[str] = PHASES) -> AsyncIterator[Killing]:
    made = Killing(site, directory, phases)
    try:
        await made.begin()
        yield made
    finally:
        await made.end()


def alike(steps: Iterable[Step]) -> set[tuple[str, str, str]]:
    """Whoever of several hosts or nodes is told something anew may be another one in the next run."""
    return {(step.phase, step.who, any_host(step.what)) for step in steps}


def asked_of_gluster(steps: Iterable[Step]) -> list[Step]:
    return [step for step in steps if step.what.startswith("run gluster: ")]


def part_of(steps: Sequence[Step], part: int) -> list[Step]:
    """Of every phase every so-manieth step, so that deaths of one phase are far from each other."""
    return [step for phase in PHASES for step in [one for one in steps if one.phase == phase][part::PARTS]]


def missed(fatals: Sequence[Fatal], came: Sequence[Step]) -> list[Step]:
    """Where nobody died, though somebody comes there in every cycle."""
    chance = steps_by_chance()
    return [fatal.step for fatal in fatals if fatal.step not in came and fatal.step not in chance]


def test_the_handful_is_among_the_steps() -> None:
    assert [fatal for fatal in HANDFUL if fatal.step not in known_steps()] == []


def test_every_step_is_a_place_to_die_at() -> None:
    steps = known_steps()
    assert sorted(step for part in range(PARTS) for step in part_of(steps, part)) == sorted(steps)


@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_death_at_a_handful_of_steps_is_survived(site: Site, tmp_path: Path) -> None:
    async with killing(site, tmp_path / "dying", ("add", "remove")) as made:
        recorded = await made.cycle(HANDFUL)
        assert made.journal.deaths == list(range(len(HANDFUL)))
        # Whoever comes back also tells who he is; what gluster is asked for stays the same.
        assert alike(asked_of_gluster(recorded)) - alike(known_steps()) == set(), HINT


@pytest.mark.netns
@pytest.mark.deep
@pytest.mark.timeout(900)
async def test_the_steps_are_those_of_the_list(site: Site, tmp_path: Path) -> None:
    async with killing(site, tmp_path / "dying") as made:
        recorded = await made.cycle(())
        (tmp_path / "recorded").write_text("".join(f"{step}\n" for step in recorded))
        assert {step.phase for step in recorded} == set(PHASES)
        assert alike(recorded) - alike(known_steps()) == set(), HINT


@pytest.mark.netns
@pytest.mark.deep
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_death_at_any_step_is_survived(site: Site, tmp_path: Path, after: bool, part: int) -> None:
    fatals = [Fatal(step, after) for step in part_of(known_steps(), part)]
    async with killing(site, tmp_path / "dying") as made:
        await made.cycle(fatals)
        came = [fatals[number].step for number in made.journal.deaths]
        assert [str(step) for step in missed(fatals, came)] == []
