"""Known mistakes of leaders and agents, each a patch to the product: the scenario notices every one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.batch import ROOT, Batch
from tests.simulation.test_mutants import apply, patched_source

from .invariants import CHOSEN, CONSENT, CONVERGES, FENCED, INTENT_FIRST, KEPT, NO_LEAK
from .test_scenario import MODULE, SEEDS

MUTANTS = Path(__file__).parent / "mutants"
CAUGHT_BY = {
    "fence-dropped": [FENCED],
    "device-identity-ignored": [CHOSEN],
    "intent-not-persisted": [INTENT_FIRST, NO_LEAK],
    "foreign-data-overwritten": [CONSENT],
    "volume-made-anew": [KEPT, NO_LEAK],
    "nobody-served": [CONVERGES],
    "release-forgotten": [CONVERGES],
}
# Some mistakes need a rare coincidence; more seeds are cheap, since the first that notices ends the run.
MOST_SEEDS = 10 * SEEDS


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_the_patch_of_a_mutant_applies(name: str) -> None:
    apply(MUTANTS / f"{name}.patch", ROOT, "--check")


def test_every_mutant_has_its_patch() -> None:
    assert sorted(patch.stem for patch in MUTANTS.glob("*.patch")) == sorted(CAUGHT_BY)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_mutant_is_caught(name: str, tmp_path: Path) -> None:
    patched_source(MUTANTS / f"{name}.patch", tmp_path)
    batch = Batch(0, MOST_SEEDS, hash_seed=1, source=tmp_path / "src", module=MODULE)
    outcome = batch.wait(timeout_s=550)
    assert not outcome.passed, f"{name} was not noticed in {MOST_SEEDS} seeds"
    assert outcome.last["violated"] in CAUGHT_BY[name], outcome.explain()
