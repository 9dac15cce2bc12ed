"""Known mistakes in how a GlusterFS cluster is kept, each a patch to the product: the scenario notices every one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.batch import Batch
from tests.simulation.test_mutants import patched_source

from .invariants import CONVERGES, FOREIGN, HEALED, KEPT, NO_LOSS, RIGHT_BRICK
from .test_scenario import MODULE

MUTANTS = Path(__file__).parent / "mutants"
CAUGHT_BY = {
    "heal-not-awaited": [HEALED, NO_LOSS, CONVERGES],
    "wrong-brick-replaced": [RIGHT_BRICK, HEALED, NO_LOSS],
    "owner-ignored": [FOREIGN],
    "left-over-removed-early": [HEALED, KEPT],
}
MOST_SEEDS = 100


def test_every_mutant_has_its_patch() -> None:
    assert sorted(patch.stem for patch in MUTANTS.glob("*.patch")) == sorted(CAUGHT_BY)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["heal-not-awaited", "wrong-brick-replaced"])
def test_a_mutant_is_caught(name: str, tmp_path: Path) -> None:
    check_caught(name, tmp_path)


@pytest.mark.deep
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", ["owner-ignored", "left-over-removed-early"])
def test_one_of_the_others_is_caught(name: str, tmp_path: Path) -> None:
    check_caught(name, tmp_path)


def check_caught(name: str, directory: Path) -> None:
    patched_source(MUTANTS / f"{name}.patch", directory)
    batch = Batch(0, MOST_SEEDS, hash_seed=1, source=directory / "src", module=MODULE)
    outcome = batch.wait(timeout_s=550)
    assert not outcome.passed, f"{name} was not noticed in {MOST_SEEDS} seeds"
    assert outcome.last["violated"] in CAUGHT_BY[name], outcome.explain()
