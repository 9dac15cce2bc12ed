"""What a volume that is not started means for its cluster: it is being made, or deleted, or somebody has stopped it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quartermaster.planning.cluster import ClusterPlan

from .modelled import VOLUME, Cluster, ask_for_its_end


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    return made


async def test_a_volume_that_is_stopped_to_be_deleted_does_not_make_its_cluster_unusable(cluster: Cluster) -> None:
    await cluster.round()
    cluster.gluster.stop(cluster.bench.address("h1"), VOLUME)
    cluster.lose("h3", for_good=False)
    await cluster.bench.work(again=True)
    assert not (await cluster.bench.plan()).usable.holds
    await ask_for_its_end(cluster)
    await cluster.bench.work()
    assert (await cluster.bench.plan()).usable.holds


async def look(cluster: Cluster) -> ClusterPlan:
    """The coordinator alone, as it is asked to."""
    await cluster.bench.work(again=True, only="glusterfs-pool")
    plan = await cluster.bench.plan()
    cluster.bench.memory = dict(plan.memory)
    cluster.bench.ask(next(one for one in plan.assignments if one.agent == "glusterfs-pool"))
    return plan


def told_of_pool(cluster: Cluster) -> dict[str, Any]:
    return (
        next(one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-pool").status.result
        or {}
    )


async def test_a_volume_that_was_looked_at_while_it_was_made_is_looked_at_again_and_its_cluster_stays_usable(
    cluster: Cluster,
) -> None:
    """The look was a moment before it was started, and the next one by itself is a minute away."""
    cluster.gluster.stop(cluster.bench.address("h1"), VOLUME)
    assert (await look(cluster)).usable.holds
    cluster.gluster.start(cluster.bench.address("h1"), VOLUME, force=False)
    pool = next(one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-pool")
    assert (pool.spec.desired or {})["watch"] == [VOLUME]
    assert pool.status.observed_generation != pool.spec.generation
    plan = await look(cluster)
    assert plan.usable.holds
    assert told_of_pool(cluster)["volumes"][VOLUME].get("started", True)


async def test_one_that_somebody_has_stopped_makes_it_unusable_and_is_looked_at_until_it_is_started(
    cluster: Cluster,
) -> None:
    cluster.gluster.stop(cluster.bench.address("h1"), VOLUME)
    await look(cluster)
    assert not (await look(cluster)).usable.holds
    assert "againSeconds" in told_of_pool(cluster)
    cluster.gluster.start(cluster.bench.address("h1"), VOLUME, force=False)
    assert (await look(cluster)).usable.holds
