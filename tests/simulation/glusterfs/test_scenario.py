"""Leaders, agents and a GlusterFS in which everything fails: the invariants hold for every seed, and each replays."""

from __future__ import annotations

import pytest

from quartermaster.testing.simulation.chaos import PROCESS_FAULTS
from quartermaster.testing.simulation.faults import CALL_FAULTS
from tests.simulation.batch import Batch, Outcome

MODULE = "tests.simulation.glusterfs"
FIRST, SEEDS = 2, 4
REPLAYED = 2
DEEP_SEEDS = 5_000
# What is done to hosts, disks, daemons and cables, and what people do.
HAPPENINGS = (
    "host crash",
    "host destroyed",
    "link cut",
    "pair cut",
    "glusterd killed",
    "brick killed",
    "disk died",
    "disk pulled",
    "disk plugged",
    "node added",
    "node removed",
    "give up node",
    "claim",
    "unclaim",
    "probe by hand",
    "host faults",
    "files written",
    "files healed",
    "bricks replaced",
)
# Those of them that happen in a handful of seeds.
COMMON = ("host crash", "node added", "claim", "files written", "bricks replaced")


def check(outcomes: list[Outcome], kinds: tuple[str, ...] = (*CALL_FAULTS, *PROCESS_FAULTS, *HAPPENINGS)) -> None:
    totals: dict[str, int] = {}
    for outcome in outcomes:
        assert outcome.passed, outcome.explain()
        for name, number in outcome.last["totals"].items():
            totals[name] = totals.get(name, 0) + number
    assert [kind for kind in kinds if not totals.get(kind)] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_invariants_hold_and_a_seed_replays_exactly_under_another_hash_seed() -> None:
    batches = [Batch(FIRST, count, hash_seed=count, module=MODULE) for count in (SEEDS, REPLAYED)]
    once, again = [batch.wait(timeout_s=550) for batch in batches]
    check([once], (*CALL_FAULTS, *COMMON))
    assert again.passed, again.explain()
    assert len(once.digests) == SEEDS
    assert once.digests[:REPLAYED] == again.digests


@pytest.mark.deep
@pytest.mark.timeout(21_600)
def test_the_invariants_hold_for_five_thousand_seeds() -> None:
    half = DEEP_SEEDS // 2
    batches = [Batch(first, half, hash_seed=first, module=MODULE) for first in (0, half)]
    outcomes = [batch.wait(timeout_s=21_000) for batch in batches]
    check(outcomes)
    assert sum(len(outcome.digests) for outcome in outcomes) == DEEP_SEEDS
