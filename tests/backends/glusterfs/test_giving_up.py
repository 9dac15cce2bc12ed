"""Somebody gives a host or disk up by name: what only that had is given up, and nothing that another one has."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs.facts import read_memory
from quartermaster.resources.marks import ABANDON

from .modelled import VOLUME, Cluster, let_miss_something, pull_disk


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    made.bench.add("h4")
    await made.rounds(4)
    return made


@pytest.mark.slow
def give_up(cluster: Cluster, host: str) -> None:
    cluster.bench.lost.append(host)
    cluster.bench.mark(host, {ABANDON: host}, deleting=True)


async def until_the_third_copy_is_given_up(cluster: Cluster) -> None:
    """It is only away: a new brick, made from one that lacks what it has, would look whole to it."""
    plan = await cluster.rounds(4, healing=False)
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert "`qm node remove h3 --lost`" in plan.details["stuck"]
    give_up(cluster, "h3")
    await cluster.rounds(10)


async def test_who_gives_a_host_up_by_name_gives_up_what_only_it_had(cluster: Cluster) -> None:
    await let_miss_something(cluster, "h2")
    cluster.lose("h3", for_good=False)
    cluster.lose("h1")
    await cluster.rounds(4, healing=False)
    cluster.bench.mark("h1", {ABANDON: "h1"}, deleting=True)
    await until_the_third_copy_is_given_up(cluster)
    bricks = cluster.gluster.volume(cluster.bench.address("h2"), VOLUME).bricks
    assert cluster.bench.address("h1") not in [brick.address for brick in bricks]


async def test_a_lost_disk_that_nobody_knows_is_given_up_by_its_file_system(cluster: Cluster) -> None:
    """Its node was declared anew, and has other disks since."""
    await let_miss_something(cluster, "h2")
    cluster.lose("h3", for_good=False)
    await cluster.rounds(2, healing=False)
    pull_disk(cluster, "h1")
    await cluster.rounds(2, healing=False)
    name, node = next(one for one in cluster.bench.assignments.items() if one[1].metadata.name == "glusterd.h1")
    (disk,) = (node.spec.desired or {})["devices"]
    stripped = {**(node.spec.desired or {}), "devices": []}
    cluster.bench.assignments[name] = replace(node, spec=replace(node.spec, desired=stripped))
    plan = await cluster.bench.plan()
    named = disk["uuid"]
    assert f"give the disk up by naming {named} in spec.wipe of StorageNode h1" in plan.details["stuck"]
    cluster.bench.declare("h1", devices=["/dev/vdb"], wipe=[named])
    give_up(cluster, "h3")
    plan = await cluster.bench.plan()
    assert read_memory(plan.memory).moves[VOLUME].open.dead


@pytest.mark.slow
async def test_who_names_a_lost_disk_in_wipe_gives_up_what_only_it_had(cluster: Cluster) -> None:
    await let_miss_something(cluster, "h2")
    cluster.lose("h3", for_good=False)
    await cluster.rounds(2, healing=False)
    pull_disk(cluster, "h1")
    plan = await cluster.rounds(4, healing=False)
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert "serial-h1 in spec.wipe of StorageNode h1" in plan.details["stuck"]
    cluster.bench.declare("h1", devices=["/dev/vdb"], wipe=["serial-h1"])
    await until_the_third_copy_is_given_up(cluster)
    bricks = cluster.gluster.volume(cluster.bench.address("h2"), VOLUME).bricks
    assert cluster.bench.address("h1") not in [brick.address for brick in bricks]


async def test_a_move_that_waits_for_copies_that_are_gone_goes_on_when_the_old_brick_is_given_up(
    cluster: Cluster,
) -> None:
    await let_miss_something(cluster, "h2")
    cluster.lose("h3", for_good=False)
    cluster.lose("h1")
    await cluster.rounds(1, healing=False)  # decided before anybody has seen that the third one is silent too
    cluster.bench.mark("h1", {ABANDON: "h1"}, deleting=True)
    await until_the_third_copy_is_given_up(cluster)
    bricks = cluster.gluster.volume(cluster.bench.address("h2"), VOLUME).bricks
    assert cluster.bench.address("h1") not in [brick.address for brick in bricks]


async def test_a_copy_that_was_taken_for_whole_is_none_when_it_was_started_since(cluster: Cluster) -> None:
    """Nobody has looked while its host was away: the process that runs it now is another one than was known."""
    cluster.lose("h3")
    await cluster.round()
    cluster.bench.mark("h3", {ABANDON: "h3"}, deleting=True)
    plan = await cluster.bench.plan()
    move = next(one for one in plan.assignments if one.agent == "glusterfs-move")
    told = move.config or {}
    assert told["sources"]
    assert set(told["processes"]) == set(told["sources"])
    assert not told["returns"]
