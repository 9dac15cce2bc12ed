"""The modelled GlusterFS and the real one: the same command lines, and after each of them the same is so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from quartermaster.support.deadlines import within
from quartermaster.testing.lab import Lab
from quartermaster.testing.simulation import run

from .grounds import ModelGround, RealGround
from .walks import HOSTS, THREE_COPIES, VOLUME, WALKS, Outcome, Walk, brick

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


@pytest.mark.parametrize("seed", range(4))
def test_who_is_detached_while_a_volume_is_changed_takes_no_part_in_it(seed: int, tmp_path: Path) -> None:
    async def changed() -> tuple[list[str], str]:
        ground = ModelGround(tmp_path, HOSTS)
        await ground.open()
        await Walk(ground).begin(hosts=HOSTS)
        change = asyncio.ensure_future(ground.gluster(1, ("volume", "set", VOLUME, "user.mark", "1")))
        await ground.gluster(0, ("peer", "detach", "@3"))
        await change
        left = ground.model.running("10.0.0.4")
        assert left is not None
        refused = await ground.gluster(1, ("volume", "set", VOLUME, "user.mark", "2"))
        ground.close()
        return list(left.volumes), refused

    assert run(changed, seed=seed).value == ([], "")


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


@pytest.mark.netns
@pytest.mark.deep
async def test_real_daemons_give_up_a_host_that_is_cut_off_while_it_is_asked(tmp_path: Path) -> None:
    lab = await Lab.create(tmp_path / "lab", hosts=3, disks=1, disk_size="1Gi", name="cut")
    async with lab:
        ground = RealGround(lab)
        await ground.open()
        bricks = [brick(host) for host in range(3)]
        steps = [("peer", "probe", "@1"), ("peer", "probe", "@2"), ("volume", "create", VOLUME, *THREE_COPIES, *bricks)]
        for words in (*steps, ("volume", "start", VOLUME)):
            async with within(60.0):
                while refused := await ground.gluster(0, words):
                    assert "not in 'Peer in Cluster' state" in refused
                    await asyncio.sleep(0.5)
        await ground.cut(2)
        async with within(60.0):  # gluster itself ends it after ten minutes
            while await ground.gluster(0, ("volume", "status", VOLUME)):
                await asyncio.sleep(0.5)
