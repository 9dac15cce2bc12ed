"""Two leaders, ten clients and random faults: the invariants hold for every seed, and every seed replays exactly."""

from __future__ import annotations

import pytest

from quartermaster.testing.simulation.chaos import PROCESS_FAULTS
from quartermaster.testing.simulation.faults import CALL_FAULTS

from .batch import Batch, Outcome

SEEDS = 200
DEEP_SEEDS = 10_000
LEAST_STEPS = 1_250


def check(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        assert outcome.passed, outcome.explain()
        assert min(int(line.split()[1]) for line in outcome.digests) >= LEAST_STEPS
        totals = outcome.last["totals"]
        assert [kind for kind in (*CALL_FAULTS, *PROCESS_FAULTS, "lost answers") if totals[kind] == 0] == []
        assert totals["terms"] > 3 * len(outcome.digests)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_invariants_hold_and_each_seed_replays_exactly_under_another_hash_seed() -> None:
    batches = [Batch(0, SEEDS, hash_seed=hash_seed) for hash_seed in (1, 2)]
    once, again = [batch.wait(timeout_s=550) for batch in batches]
    check([once, again])
    assert len(once.digests) == SEEDS
    assert once.digests == again.digests
    assert once.last == again.last


@pytest.mark.deep
@pytest.mark.timeout(3_600)
def test_the_invariants_hold_for_ten_thousand_seeds() -> None:
    half = DEEP_SEEDS // 2
    batches = [Batch(first, half, hash_seed=first) for first in (0, half)]
    outcomes = [batch.wait(timeout_s=3_500) for batch in batches]
    check(outcomes)
    assert sum(len(outcome.digests) for outcome in outcomes) == DEEP_SEEDS
