"""Hosts of the pool that no StorageNode declares: what runs there is not given up, and a stranger is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs.facts import read_memory, write_memory
from quartermaster.host.fake.machine import ROOT
from quartermaster.planning.cluster import ClusterPlan

from .modelled import VOLUME, Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """h1, h2 and h3 have a copy each, h4 has room."""
    made = Cluster(tmp_path)
    await made.begin()
    made.bench.add("h4")
    await made.rounds(4)
    return made


def take_out_of_the_store(cluster: Cluster, host: str) -> None:
    """By hand, with its finalizer: nobody gave it up, and its glusterd runs."""
    del cluster.bench.nodes[host]
    for name in [name for name, one in cluster.bench.assignments.items() if one.spec.host == host]:
        del cluster.bench.assignments[name]


def let_others_lack_something(cluster: Cluster) -> None:
    """h3 alone has all of it."""
    for brick in cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).bricks[:2]:
        brick.behind, brick.complete = 3, False


async def taken_in_by_hand(cluster: Cluster, host: str) -> None:
    cluster.bench.add(host)
    await cluster.rounds(4)
    take_out_of_the_store(cluster, host)
    memory = read_memory(cluster.bench.memory)
    members = {uuid: one for uuid, one in memory.members.items() if one != host}
    cluster.bench.memory = write_memory(replace(memory, members=members))


async def moved_by_hand(cluster: Cluster, position: int, host: str) -> None:
    address = cluster.bench.address(host)
    volume = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME)
    old = volume.bricks[position].name
    cluster.gluster.replace_brick(cluster.bench.address("h1"), VOLUME, old, f"{address}:/srv/by-hand")
    cluster.gluster.settle(healing=True)


async def planned(cluster: Cluster) -> ClusterPlan:
    plan = await cluster.bench.plan()
    cluster.bench.memory = dict(plan.memory)
    for desired in plan.assignments:
        cluster.bench.ask(desired)
    return plan


async def test_a_brick_that_runs_on_a_host_that_is_no_node_any_more_waits_until_the_others_are_whole(
    cluster: Cluster,
) -> None:
    take_out_of_the_store(cluster, "h3")
    let_others_lack_something(cluster)
    plan = await cluster.rounds(6, healing=False)
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert "h3 is no node of this cluster any more, and its brick runs" in plan.details["stuck"]
    assert plan.usable.holds
    await cluster.rounds(6)
    assert cluster.bricks() == ["h1", "h2", "h4"]
    assert not cluster.gluster.is_lost(VOLUME)


async def test_nothing_is_given_up_on_a_host_that_is_no_node_while_nobody_has_looked_again(cluster: Cluster) -> None:
    take_out_of_the_store(cluster, "h3")
    pool = next(name for name, one in cluster.bench.assignments.items() if one.spec.agent == "glusterfs-pool")
    asked = cluster.bench.assignments[pool]
    spec = replace(asked.spec, generation=asked.spec.generation + 1)
    cluster.bench.assignments[pool] = replace(asked, spec=spec)
    assert "moves" not in (await planned(cluster)).memory


async def test_an_agent_gives_up_no_brick_that_runs_again_on_a_host_that_is_no_node(cluster: Cluster) -> None:
    take_out_of_the_store(cluster, "h3")
    cluster.gluster.cut.add(cluster.bench.address("h3"))
    await cluster.bench.work(again=True)
    assert '"dead":true' in (await planned(cluster)).memory["moves"]
    cluster.gluster.cut.clear()
    let_others_lack_something(cluster)
    await cluster.rounds(5, healing=False)
    assert cluster.bricks() == ["h1", "h2", "h3"]
    await cluster.rounds(6)
    assert cluster.bricks() == ["h1", "h2", "h4"]
    assert not cluster.gluster.is_lost(VOLUME)


async def test_a_brick_that_somebody_put_on_an_unknown_peer_stays_there(cluster: Cluster) -> None:
    await taken_in_by_hand(cluster, "h5")
    await moved_by_hand(cluster, 2, "h5")
    let_others_lack_something(cluster)
    await cluster.rounds(4, healing=False)
    plan = await cluster.rounds(6)
    assert cluster.bricks() == ["h1", "h2", "h5"]
    assert plan.usable.holds
    assert plan.details["unknownPeers"] == f"{cluster.bench.address('h5')} (bricks of pvc-1)"
    assert cluster.bench.address("h5") in cluster.gluster.pool_of(cluster.bench.address("h1")).members
    assert not cluster.gluster.is_lost(VOLUME)


async def test_an_unknown_peer_is_told_and_nothing_of_it_is_touched(cluster: Cluster) -> None:
    await taken_in_by_hand(cluster, "h5")
    address, machine = cluster.bench.address("h5"), cluster.bench.machines["h5"]
    machine.directories[ROOT.number, "/srv/theirs"] = None
    before, since = cluster.bench.state("h5"), len(cluster.gluster.commands_run)
    plan = await cluster.rounds(6)
    assert (plan.degraded.holds, plan.degraded.reason) == (True, "UnknownPeers")
    assert address in plan.degraded.message
    assert plan.details["unknownPeers"] == address
    assert address in cluster.gluster.pool_of(cluster.bench.address("h1")).members
    assert cluster.bench.state("h5") == before
    commands = [argv for _, argv in cluster.gluster.commands_run[since:]]
    assert not [argv for argv in commands if any(address in word for word in argv)]


async def test_an_unknown_peer_is_told_also_while_something_else_is_more_urgent(cluster: Cluster) -> None:
    await taken_in_by_hand(cluster, "h5")
    cluster.lose("h3", for_good=False)
    plan = await cluster.rounds(3)
    assert plan.degraded.reason != "UnknownPeers"
    assert plan.details["unknownPeers"] == cluster.bench.address("h5")


async def test_a_node_that_an_unknown_peer_holds_says_by_whom_and_how_to_take_that_out(cluster: Cluster) -> None:
    """The peer was told of it as any member was. Nobody can give up a host that no StorageNode declares."""
    bench = cluster.bench
    await taken_in_by_hand(cluster, "h5")
    cluster.gluster.detach(bench.address("h1"), bench.address("h4"), force=True)
    bench.mark("h4", deleting=True)
    bench.machines["h5"].reboot()
    plan = await cluster.rounds(6)
    stranger = bench.address("h5")
    assert "h4" not in plan.removable
    assert f"no StorageNode declares {stranger}" in plan.nodes["h4"].message
    assert f"take it out with `gluster peer detach {stranger}`" in plan.nodes["h4"].message
    cluster.gluster.detach(bench.address("h1"), stranger, force=True)
    plan = await cluster.rounds(6)
    assert "h4" in plan.removable


async def test_who_is_declared_after_all_is_no_stranger(cluster: Cluster) -> None:
    await taken_in_by_hand(cluster, "h5")
    assert "unknownPeers" in (await cluster.rounds(2)).details
    cluster.bench.machines["h5"].directories[ROOT.number, "/srv/new"] = None
    cluster.bench.declare("h5", directories=["/srv/new"])
    plan = await cluster.rounds(4)
    assert (plan.degraded.reason, "unknownPeers" in plan.details) == ("Complete", False)
