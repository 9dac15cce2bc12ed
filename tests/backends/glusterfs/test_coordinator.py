"""Who speaks for the pool: one of its members, for whoever is not would begin a second pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from quartermaster.resources.marks import ABANDON

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


async def test_a_host_that_is_given_up_goes_when_another_one_has_told_of_the_pool(cluster: Cluster) -> None:
    """With it goes what it told: nobody would know that the new nodes are not in the pool."""
    cluster.lose("h1")
    cluster.bench.silent += ["h2", "h3"]
    cluster.bench.mark("h1", {ABANDON: "h1"}, deleting=True)
    plan = await cluster.rounds(4)
    assert plan.removable == ()
    assert plan.nodes["h1"].message == "it is given up, and goes when host h2 has looked at the pool"
    assert pool_of(cluster, "h4") == ["h4"]
    cluster.come_back("h2")
    plan = await cluster.rounds(2)
    assert plan.removable == ("h1",)


async def test_where_all_members_are_given_up_a_new_node_begins_anew(cluster: Cluster) -> None:
    for host in ("h1", "h2", "h3"):
        cluster.lose(host)
        cluster.bench.mark(host, {ABANDON: host}, deleting=True)
    plan = await cluster.rounds(2)
    assert plan.removable == ("h1", "h2", "h3")
    assert plan.memory["coordinator"] == "h4"


async def test_where_nobody_knows_who_is_in_the_pool_one_that_has_bricks_speaks_for_it(cluster: Cluster) -> None:
    """Somebody has taken the node of whoever told of it out of the store by hand."""
    cluster.bench.silent += ["h2", "h3"]
    del cluster.bench.nodes["h1"]
    for name in [one for one, told in cluster.bench.assignments.items() if told.spec.host == "h1"]:
        del cluster.bench.assignments[name]
    plan = await cluster.rounds(4)
    assert plan.memory["coordinator"] == "h2"
    assert pool_of(cluster, "h4") == ["h4"]
