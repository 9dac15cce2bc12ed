"""Known mistakes in how a GlusterFS cluster is kept, each a patch to the product: the scenario notices every one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.simulation.batch import ROOT, Batch
from tests.simulation.test_mutants import apply, patched_source

from .invariants import FOREIGN, HEALED, KEPT, NO_LOSS, RIGHT_BRICK
from .test_scenario import MODULE, RETAINING

MUTANTS = Path(__file__).parent / "mutants"
MOST_SEEDS = 40  # about one in seven shows a mistake, and of an empty brick one in thirty


class Caught(NamedTuple):
    by: tuple[str, ...]
    first: int = 0  # a seed that shows it, or the next one does: which ones do changes with every change of the product
    module: str = MODULE


CAUGHT = {
    "heal-not-awaited": Caught((HEALED, NO_LOSS)),
    "wrong-brick-replaced": Caught((RIGHT_BRICK, HEALED, NO_LOSS)),
    "owner-ignored": Caught((FOREIGN,)),
    "left-over-removed-early": Caught((HEALED, KEPT)),
    "use-not-asked": Caught((KEPT, NO_LOSS)),
    "kept-not-told": Caught((KEPT,), module=RETAINING),
    "empty-brick-taken-for-whole": Caught((HEALED, NO_LOSS), first=6),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_the_patch_of_a_mutant_applies(name: str) -> None:
    apply(MUTANTS / f"{name}.patch", ROOT, "--check")


def test_every_patch_is_tried() -> None:
    assert sorted(patch.stem for patch in MUTANTS.glob("*.patch")) == sorted(CAUGHT)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CAUGHT)
def test_a_mutant_is_caught(name: str, tmp_path: Path) -> None:
    patched_source(MUTANTS / f"{name}.patch", tmp_path)
    batch = Batch(CAUGHT[name].first, MOST_SEEDS, hash_seed=1, source=tmp_path / "src", module=CAUGHT[name].module)
    outcome = batch.wait(timeout_s=550)
    assert not outcome.passed, f"{name} was not noticed in {MOST_SEEDS} seeds"
    assert outcome.last["violated"] in CAUGHT[name].by, outcome.explain()
