"""Bricks that go elsewhere, on a modelled GlusterFS under the real plan and agents: when, where to, and when not."""

from __future__ import annotations

from pathlib import Path

import pytest

from quartermaster.resources.orchestration import SUCCEEDED

from .modelled import VOLUME, Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    return made


async def test_a_silent_host_keeps_its_bricks_until_it_counts_as_lost(cluster: Cluster) -> None:
    cluster.bench.add("h4")
    cluster.lose("h3", for_good=False)
    plan = await cluster.rounds()
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert plan.degraded.holds
    assert plan.usable.holds


async def test_the_brick_of_a_lost_host_is_made_anew_on_another_node(cluster: Cluster) -> None:
    cluster.bench.add("h4")
    cluster.lose("h3")
    await cluster.rounds()
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]
    assert not cluster.gluster.is_lost(VOLUME)


async def test_without_another_node_it_stays_and_says_why(cluster: Cluster) -> None:
    cluster.lose("h3")
    plan = await cluster.rounds()
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert "no other node" in (await cluster.bench.plan()).degraded.message or "h3" in plan.degraded.message


async def test_a_node_that_leaves_keeps_its_brick_until_every_copy_is_whole(cluster: Cluster) -> None:
    cluster.bench.add("h4")
    await cluster.rounds(4)
    volume = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME)
    volume.bricks[0].behind, volume.bricks[0].complete = 3, False
    cluster.bench.mark("h3", deleting=True)
    await cluster.rounds(5, healing=False)
    assert cluster.bricks() == ["h1", "h2", "h3"]
    plan = await cluster.rounds()
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]
    assert "h3" in plan.removable
    assert not cluster.gluster.is_lost(VOLUME)


@pytest.mark.slow
async def test_the_second_brick_waits_until_the_first_is_whole(cluster: Cluster) -> None:
    cluster.bench.add("h4", "h5")
    await cluster.rounds(4)
    cluster.bench.mark("h2", deleting=True)
    cluster.bench.mark("h3", deleting=True)
    await cluster.rounds(6, healing=False)
    assert sum(host in ("h4", "h5") for host in cluster.bricks()) == 1
    await cluster.rounds(14)
    assert sorted(cluster.bricks()) == ["h1", "h4", "h5"]
    assert not cluster.gluster.is_lost(VOLUME)


async def test_what_a_replaced_brick_leaves_behind_is_removed_when_the_volume_is_whole(cluster: Cluster) -> None:
    cluster.bench.add("h4")
    await cluster.rounds(4)
    machine = cluster.bench.machines["h3"]
    assert [path for _, path in machine.directories if VOLUME in path]
    cluster.bench.mark("h3", deleting=True)
    await cluster.rounds(12)
    assert not [path for _, path in machine.directories if VOLUME in path]


async def test_when_the_host_that_keeps_a_volume_goes_another_one_takes_it_over_and_nothing_is_deleted(
    cluster: Cluster,
) -> None:
    cluster.bench.add("h4")
    await cluster.rounds(4)
    cluster.bench.mark("h1", deleting=True)
    await cluster.rounds(14)
    kept = [one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-volume"]
    assert [one.spec.host for one in kept] != ["h1"]
    assert [one.status.state for one in kept] == [SUCCEEDED]
    assert VOLUME in cluster.gluster.pool_of(cluster.bench.address("h2")).volumes
