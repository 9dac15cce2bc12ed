"""Who speaks for the pool: one of its members, for whoever is not would begin a second pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from .modelled import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """h1 speaks for a pool of three, and h4 and h5 are new."""
    made = Cluster(tmp_path)
    await made.begin()
    assert made.bench.memory["coordinator"] == "h1"
    made.bench.add("h4", "h5")
    return made


def pool_of(cluster: Cluster, host: str) -> list[str]:
    names = {cluster.bench.address(name): name for name in cluster.bench.machines}
    return sorted(names[one] for one in cluster.gluster.pool_of(cluster.bench.address(host)).members)


async def test_one_that_leaves_goes_on_where_nobody_who_stays_in_the_pool_can_be_asked(cluster: Cluster) -> None:
    cluster.bench.silent += ["h2", "h3"]
    cluster.bench.mark("h1", deleting=True)
    await cluster.rounds(6)
    assert pool_of(cluster, "h4") == ["h2", "h3", "h4", "h5"]  # and h1 can go by now


async def test_a_new_node_does_not_take_over_where_nobody_of_the_pool_can_be_asked(cluster: Cluster) -> None:
    cluster.bench.silent += ["h1", "h2", "h3"]
    plan = await cluster.rounds(4)
    assert plan.memory["coordinator"] == "h1"
    assert pool_of(cluster, "h4") == ["h4"]
    cluster.bench.silent.clear()
    await cluster.rounds(4)
    assert pool_of(cluster, "h4") == ["h1", "h2", "h3", "h4", "h5"]


async def test_one_of_the_pool_takes_over_from_one_that_is_silent(cluster: Cluster) -> None:
    cluster.bench.silent.append("h1")
    plan = await cluster.rounds(4)
    assert plan.memory["coordinator"] == "h2"
