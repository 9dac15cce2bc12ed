"""The leader may die at each step of adding and of removing a node, an agent at each command of configuring one.

The steps come from a run that records them. `steps.txt` is what was recorded when the kills of real processes
(tests/cluster) were last made to follow: a step that is new here needs a place there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from quartermaster.host.fake import Moment
from quartermaster.support import log

from .kills import Step, killed_at, recorded_steps

STEPS = Path(__file__).parent / "steps.txt"


@pytest.fixture(autouse=True)
def _quiet() -> None:
    log.configure(verbosity=-1)


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    log.configure(verbosity=-1)
    return recorded_steps()


def test_the_steps_are_those_that_are_known(steps: list[Step]) -> None:
    hint = "look at tests/cluster, and write the new list with: python -m tests.simulation.orchestration.test_kills"
    assert STEPS.read_text().splitlines() == [str(step) for step in steps], hint


def test_leader_and_agent_both_have_steps_in_both_phases(steps: list[Step]) -> None:
    assert {(step.phase, step.who) for step in steps} == {
        (phase, who) for phase in ("add", "remove") for who in ("leader", "agent")
    }


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("moment", list(Moment))
def test_a_death_at_any_step_is_survived(steps: list[Step], moment: Moment) -> None:
    survived = [step for step in steps if killed_at(step, moment) == 1]
    assert survived == steps


if __name__ == "__main__":
    STEPS.write_text("".join(f"{step}\n" for step in recorded_steps()))
