"""A brick is given up only for a copy that is whole elsewhere: one that runs and lacks something is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from quartermaster.resources.marks import ABANDON
from quartermaster.support.errors import HostError

from .modelled import VOLUME, Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """h1, h2 and h3 have a copy each, h4 has room."""
    made = Cluster(tmp_path)
    await made.begin()
    made.bench.add("h4")
    await made.rounds(4)
    return made


async def let_miss_something(cluster: Cluster, host: str) -> None:
    """It was away while something was written, and is back; nothing is healed yet."""
    cluster.lose(host, for_good=False)
    await cluster.rounds(2, healing=False)
    assert cluster.gluster.write(VOLUME, 5)
    cluster.come_back(host)
    await cluster.rounds(3, healing=False)


@pytest.mark.slow
async def test_a_lost_brick_stays_while_the_only_copy_that_runs_lacks_something(cluster: Cluster) -> None:
    await let_miss_something(cluster, "h2")
    cluster.lose("h3", for_good=False)
    cluster.lose("h1")
    plan = await cluster.rounds(8, healing=False)
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert "h1" in plan.degraded.message
    cluster.come_back("h1")
    cluster.come_back("h3")
    await cluster.rounds(6)
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert not cluster.gluster.is_lost(VOLUME)


@pytest.mark.slow
async def test_it_is_made_anew_when_a_whole_copy_runs_again(cluster: Cluster) -> None:
    await let_miss_something(cluster, "h2")
    cluster.lose("h1", for_good=False)
    await cluster.rounds(2, healing=False)
    cluster.lose("h3", for_good=False)  # nothing can be written without it
    await cluster.rounds(2, healing=False)
    cluster.bench.lost.append("h1")
    await cluster.rounds(4, healing=False)
    assert "h4" not in cluster.bricks()
    cluster.come_back("h3")
    await cluster.rounds(10)
    assert sorted(cluster.bricks()) == ["h2", "h3", "h4"]
    assert not cluster.gluster.is_lost(VOLUME)


@pytest.mark.slow
async def test_who_gives_a_host_up_by_name_gives_up_what_only_it_had(cluster: Cluster) -> None:
    await let_miss_something(cluster, "h2")
    cluster.lose("h3", for_good=False)
    cluster.lose("h1")
    await cluster.rounds(4, healing=False)
    cluster.bench.mark("h1", {ABANDON: "h1"}, deleting=True)
    await cluster.rounds(10)
    bricks = cluster.gluster.volume(cluster.bench.address("h2"), VOLUME).bricks
    assert cluster.bench.address("h1") not in [brick.address for brick in bricks]


@pytest.mark.slow
async def test_a_copy_that_was_counted_whole_is_one_again(cluster: Cluster) -> None:
    await let_miss_something(cluster, "h2")
    plan = await cluster.rounds(4, healing=True)
    assert "behind" not in plan.memory
    cluster.lose("h3", for_good=False)
    cluster.lose("h1")
    await cluster.rounds(8)
    assert sorted(cluster.bricks()) == ["h2", "h3", "h4"]


async def test_a_volume_at_rest_is_remembered_by_nothing(cluster: Cluster) -> None:
    assert not {"behind", "down"} & set((await cluster.rounds(2)).memory)


async def test_an_agent_gives_up_no_brick_when_something_is_to_be_healed_since_it_was_told_to(cluster: Cluster) -> None:
    cluster.bench.mark("h3", deleting=True)
    for _ in range(8):
        plan = await cluster.bench.plan()
        cluster.bench.memory = dict(plan.memory)
        for desired in plan.assignments:
            cluster.bench.ask(desired)
        moves = [one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-move"]
        if moves:
            break
        await cluster.bench.work(again=True)
    volume = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME)
    volume.bricks[0].behind, volume.bricks[0].complete = 3, False
    with pytest.raises(HostError, match="entries are to be healed"):
        await cluster.bench.run(moves[0])
    assert cluster.bricks() == ["h1", "h2", "h3"]


@pytest.mark.slow
async def test_who_names_a_lost_disk_in_wipe_gives_up_what_only_it_had(cluster: Cluster) -> None:
    await let_miss_something(cluster, "h2")
    cluster.lose("h3", for_good=False)
    await cluster.rounds(2, healing=False)
    machine = cluster.bench.machines["h1"]
    device = machine.pull_disk("/dev/vdb")
    machine.mounts[:] = [mount for mount in machine.mounts if mount.number != device.number]
    plan = await cluster.rounds(4, healing=False)
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert "serial-h1 in spec.wipe of StorageNode h1" in plan.details["stuck"]
    cluster.bench.declare("h1", devices=["/dev/vdb"], wipe=["serial-h1"])
    await cluster.rounds(10)
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
    await cluster.rounds(10)
    bricks = cluster.gluster.volume(cluster.bench.address("h2"), VOLUME).bricks
    assert cluster.bench.address("h1") not in [brick.address for brick in bricks]


async def test_nothing_is_said_to_be_complete_while_a_copy_that_was_away_lacks_something(cluster: Cluster) -> None:
    cluster.lose("h3", for_good=False)
    await cluster.rounds(2, healing=False)
    assert cluster.gluster.write(VOLUME, 5)
    cluster.come_back("h3")
    for _ in range(6):
        plan = await cluster.round(healing=False)
        assert plan.degraded.holds, plan.degraded
    plan = await cluster.rounds(6)
    assert not plan.degraded.holds, plan.degraded
