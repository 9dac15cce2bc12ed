"""Leaders, agents and a GlusterFS in which everything fails: the invariants hold for every seed, and each replays."""

from __future__ import annotations

import pytest

from quartermaster.testing.simulation.chaos import PROCESS_FAULTS
from quartermaster.testing.simulation.faults import CALL_FAULTS
from tests.simulation.batch import Batch, in_halves, once_and_again, passed_with

MODULE = "tests.simulation.glusterfs"
RETAINING = "tests.simulation.glusterfs.retaining"
FIRST, SEEDS = 0, 4
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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_invariants_hold_and_a_seed_replays_exactly_under_another_hash_seed() -> None:
    outcome = once_and_again(MODULE, FIRST, SEEDS, REPLAYED, timeout_s=550)
    passed_with([outcome], (*CALL_FAULTS, *COMMON))
    assert len(outcome.digests) == SEEDS


@pytest.mark.deep
@pytest.mark.timeout(21_600)
def test_the_invariants_hold_for_five_thousand_seeds() -> None:
    outcomes = in_halves(MODULE, DEEP_SEEDS, timeout_s=21_000)
    passed_with(outcomes, (*CALL_FAULTS, *PROCESS_FAULTS, *HAPPENINGS))
    assert sum(len(outcome.digests) for outcome in outcomes) == DEEP_SEEDS


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_somebody_keeps_while_its_deletion_waits_stays() -> None:
    outcome = Batch(0, 3, hash_seed=1, module=RETAINING).wait(timeout_s=550)
    passed_with([outcome], ("retain",))


@pytest.mark.deep
@pytest.mark.timeout(7_200)
def test_it_stays_in_a_thousand_seeds() -> None:
    passed_with(in_halves(RETAINING, 1_000, timeout_s=7_000), ("retain",))
