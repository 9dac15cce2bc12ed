"""The modelled GlusterFS and the real one: the same command lines, and after each of them the same is so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from quartermaster.testing.lab import Lab
from quartermaster.testing.simulation import run

from .grounds import ModelGround, RealGround
from .walks import HOSTS, WALKS, Outcome, Walk

SEED = 1


def on_the_model(walk: Callable[[Walk], Awaitable[None]], directory: Path) -> list[Outcome]:
    async def walked() -> list[Outcome]:
        ground = ModelGround(directory, HOSTS)
        await ground.open()
        taken = Walk(ground)
        await walk(taken)
        ground.close()
        return taken.outcomes

    return run(walked, seed=SEED).value


@pytest.mark.slow
@pytest.mark.parametrize("walk", WALKS)
def test_the_model_comes_to_rest_after_every_step(walk: Callable[[Walk], Awaitable[None]], tmp_path: Path) -> None:
    outcomes = on_the_model(walk, tmp_path)
    assert outcomes[-1].state.peers
    assert outcomes == on_the_model(walk, tmp_path / "again")


@pytest.fixture
def expected(walk: Callable[[Walk], Awaitable[None]], tmp_path: Path) -> list[Outcome]:
    return on_the_model(walk, tmp_path / "model")


@pytest.mark.netns
@pytest.mark.deep
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("walk", WALKS)
async def test_real_daemons_are_as_the_model_says(
    walk: Callable[[Walk], Awaitable[None]], expected: list[Outcome], tmp_path: Path
) -> None:
    lab = await Lab.create(tmp_path / "lab", hosts=HOSTS, disks=1, disk_size="1Gi", name="model")
    async with lab:
        ground = RealGround(lab)
        await ground.open()
        taken = Walk(ground, expected)
        await walk(taken)
    assert taken.outcomes == expected
