"""Who leaves the pool when: the last node too, nobody whom somebody may be taking in, and so that everybody hears."""

from __future__ import annotations

from pathlib import Path

import pytest

from quartermaster.resources.marks import ABANDON
from tests.backends.conformance.bench import Bench
from tests.backends.conformance.subjects import SUBJECTS

from .modelled import Cluster


async def test_the_last_node_goes_as_well_and_leaves_nothing(tmp_path: Path) -> None:
    bench = Bench(next(one for one in SUBJECTS if one.type == "glusterfs"), tmp_path)
    bench.add("h1", "h2", "h3")
    await bench.settle()
    for name in list(bench.nodes):
        bench.mark(name, deleting=True)
    ended: set[str] = set()  # hosts without a glusterd
    for _ in range(20):
        plan = await bench.plan()
        bench.memory = dict(plan.memory)
        for desired in plan.assignments:
            bench.ask(desired)
        speaking = {one.host for one in plan.assignments if one.agent == "glusterfs-pool" and one.config}
        assert not ended & speaking
        await bench.work(again=True)
        ended = {name for name, machine in bench.machines.items() if not machine.processes}
        for name in plan.removable:
            del bench.nodes[name]
    assert bench.nodes == {}
    assert [one.metadata.name for one in bench.assignments.values() if not one.spec.absent] == []
    assert [name for name, machine in bench.machines.items() if machine.processes] == []


async def test_a_node_whom_somebody_may_be_taking_into_the_pool_does_not_go_yet(tmp_path: Path) -> None:
    bench = Bench(next(one for one in SUBJECTS if one.type == "glusterfs"), tmp_path)
    bench.add("h1", "h2", "h3")
    await bench.settle()
    bench.add("h4")
    for _ in range(6):
        plan = await bench.plan()
        bench.memory = dict(plan.memory)
        for desired in plan.assignments:
            bench.ask(desired)
        pools = [one for one in bench.assignments.values() if one.spec.agent == "glusterfs-pool"]
        if any(len((one.spec.desired or {})["peers"]) == 4 for one in pools):
            break
        await bench.work(again=True)
    bench.mark("h4", deleting=True)
    plan = await bench.plan()
    assert [one.config is None for one in plan.assignments if (one.host, one.agent) == ("h4", "glusterd")] == [False]


@pytest.mark.slow
async def test_a_lost_host_is_taken_out_of_the_pool_when_everybody_who_stays_hears_of_it(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    cluster.bench.add("h4")
    await cluster.rounds(4)
    pool = cluster.gluster.pool_of(cluster.bench.address("h1"))
    cluster.lose("h4")
    cluster.lose("h3", for_good=False)
    cluster.bench.mark("h4", {ABANDON: "h4"}, deleting=True)
    await cluster.rounds(6)
    assert cluster.bench.address("h4") in pool.members
    cluster.come_back("h3")
    await cluster.rounds(6)
    assert cluster.bench.address("h4") not in pool.members


@pytest.mark.slow
async def test_one_that_was_let_go_and_is_taken_in_again_by_whoever_was_late_is_let_go_again(tmp_path: Path) -> None:
    """Else it would be a stranger who does not answer, and nobody else could ever leave."""
    cluster = Cluster(tmp_path)
    await cluster.begin()
    cluster.bench.add("h4", "h5")
    await cluster.rounds(4)
    pool, address = cluster.gluster.pool_of(cluster.bench.address("h1")), cluster.bench.address("h5")
    cluster.bench.mark("h5", deleting=True)
    await cluster.rounds(6)
    assert address not in pool.members
    del cluster.bench.nodes["h5"]
    cluster.lose("h5")
    pool.members.append(address)
    cluster.bench.mark("h4", deleting=True)
    await cluster.rounds(8)
    assert address not in pool.members
    assert "h4" in (await cluster.bench.plan()).removable


@pytest.mark.slow
async def test_a_host_that_was_given_up_and_has_a_brick_still_keeps_nobody_else_in_the_pool(tmp_path: Path) -> None:
    """Nobody could take the brick while those who leave are there and may not be used: neither would ever end."""
    cluster = Cluster(tmp_path)
    await cluster.begin()
    cluster.bench.add("h4", "h5")
    await cluster.rounds(4)
    cluster.lose("h3")
    cluster.bench.mark("h3", {ABANDON: "h3"}, deleting=True)
    cluster.bench.mark("h4", deleting=True)
    cluster.bench.mark("h5", deleting=True)
    plan = await cluster.rounds(8)
    pool = cluster.gluster.pool_of(cluster.bench.address("h1"))
    assert sorted(pool.members) == sorted(cluster.bench.address(host) for host in ("h1", "h2", "h3"))
    assert {"h4", "h5"} <= set(plan.removable)
