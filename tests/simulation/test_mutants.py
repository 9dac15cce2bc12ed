"""Known mistakes, each a patch to the source: the scenario notices every one of them, and by the invariant it should.

A patch that no longer applies fails its test: make it anew, so that it breaks the same rule in the new code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .batch import ROOT, Batch
from .invariants import CONVERGES, FENCED, MIRROR, NO_LEAK, NO_LOST_UPDATE, ONE_EFFECT, ONE_LEADER, ORDER
from .test_scenario import SEEDS

MUTANTS = Path(__file__).parent / "mutants"
CAUGHT_BY = {
    "no-fence": [FENCED],
    "no-compare-and-swap": [NO_LOST_UPDATE, ONE_LEADER],
    "dropped-event": [ORDER, MIRROR, CONVERGES],
    "renewal-error-ignored": [ONE_LEADER],
    "intent-not-persisted": [ONE_EFFECT, NO_LEAK],
}


def patched_source(patch: Path, directory: Path) -> None:
    """A copy of the source in `directory`/src, with the mistake in it."""
    shutil.copytree(ROOT / "src", directory / "src", ignore=shutil.ignore_patterns("__pycache__"))
    apply(patch, directory)


def apply(patch: Path, directory: Path, *options: str) -> None:
    applied = subprocess.run(
        ["git", "apply", *options, str(patch)],
        cwd=directory,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(directory.parent)},
        capture_output=True,
        text=True,
    )
    assert applied.returncode == 0, f"the patch no longer applies: {applied.stderr}"


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_the_patch_of_a_mutant_applies(name: str) -> None:
    apply(MUTANTS / f"{name}.patch", ROOT, "--check")


def test_every_patch_is_tried() -> None:
    assert sorted(patch.stem for patch in MUTANTS.glob("*.patch")) == sorted(CAUGHT_BY)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_mutant_is_caught(name: str, tmp_path: Path) -> None:
    patched_source(MUTANTS / f"{name}.patch", tmp_path)
    outcome = Batch(0, SEEDS, hash_seed=1, source=tmp_path / "src").wait(timeout_s=550)
    assert not outcome.passed, f"{name} was not noticed in {SEEDS} seeds"
    assert outcome.last["violated"] in CAUGHT_BY[name], outcome.explain()
