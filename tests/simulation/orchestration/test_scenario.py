"""Leaders, agents, an administrator and failing hardware: the invariants hold for every seed, and each replays."""

from __future__ import annotations

import pytest

from quartermaster.testing.simulation.chaos import PROCESS_FAULTS
from quartermaster.testing.simulation.faults import CALL_FAULTS
from tests.simulation.batch import in_halves, once_and_again, passed_with

MODULE = "tests.simulation.orchestration"
SEEDS = 40
REPLAYED = 12
DEEP_SEEDS = 5_000
# What an administrator and hardware do beside what is done to processes and to the store.
HAPPENINGS = (
    "declare",
    "redeclare",
    "undeclare",
    "consent",
    "claim",
    "unclaim",
    "plug",
    "pull",
    "swap",
    "scribble",
    "unmount",
    "volumes",
    "host faults",
)


KINDS = (*CALL_FAULTS, *PROCESS_FAULTS, *HAPPENINGS)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_invariants_hold_and_a_seed_replays_exactly_under_another_hash_seed() -> None:
    outcome = once_and_again(MODULE, 0, SEEDS, REPLAYED, timeout_s=550)
    passed_with([outcome], KINDS)
    assert len(outcome.digests) == SEEDS


@pytest.mark.deep
@pytest.mark.timeout(7_200)
def test_the_invariants_hold_for_five_thousand_seeds() -> None:
    outcomes = in_halves(MODULE, DEEP_SEEDS, timeout_s=7_000)
    passed_with(outcomes, KINDS)
    assert sum(len(outcome.digests) for outcome in outcomes) == DEEP_SEEDS
