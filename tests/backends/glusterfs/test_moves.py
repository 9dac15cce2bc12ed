"""Bricks that go elsewhere, on a modelled GlusterFS under the real plan and agents: when, where to, and when not."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Volume
from quartermaster.backends.glusterfs.keeping import FORGET, volume_config
from quartermaster.planning.cluster import Desired
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import FAILED, SUCCEEDED, Assignment, AssignmentSpec, assignment_name
from quartermaster.support.errors import HostError

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


@pytest.mark.slow
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


@pytest.mark.slow
async def test_what_a_replaced_brick_leaves_behind_is_removed_when_the_volume_is_whole(cluster: Cluster) -> None:
    cluster.bench.add("h4")
    await cluster.rounds(4)
    machine = cluster.bench.machines["h3"]
    assert [path for _, path in machine.directories if VOLUME in path]
    cluster.bench.mark("h3", deleting=True)
    await cluster.rounds(12)
    assert not [path for _, path in machine.directories if VOLUME in path]


@pytest.mark.slow
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


@pytest.mark.slow
async def test_the_brick_on_a_lost_disk_of_a_node_that_leaves_is_made_anew_elsewhere(cluster: Cluster) -> None:
    cluster.bench.add("h4")
    await cluster.rounds(4)
    machine = cluster.bench.machines["h3"]
    device = machine.pull_disk("/dev/vdb")
    machine.mounts[:] = [mount for mount in machine.mounts if mount.number != device.number]
    cluster.bench.mark("h3", deleting=True)
    plan = await cluster.rounds(14)
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]
    assert "h3" in plan.removable


async def test_bricks_of_a_deleted_volume_go_as_soon_as_it_is_deleted(cluster: Cluster) -> None:
    """Nobody waits for the time at which the coordinator would look by itself."""
    volume = await cluster.bench.make("pvc-2", 1 << 30)
    await cluster.rounds(2)
    desired = cluster.bench.backend.volumes().desired(volume)
    cluster.bench.ask(replace(desired, config=None))
    await cluster.bench.work()
    del cluster.bench.volumes["pvc-2"]
    for _ in range(3):
        plan = await cluster.bench.plan()
        cluster.bench.memory = dict(plan.memory)
        for one in plan.assignments:
            cluster.bench.ask(one)
        await cluster.bench.work()  # only what is asked for anew
    left = [path for machine in cluster.bench.machines.values() for _, path in machine.directories if "pvc-2" in path]
    assert left == []


@pytest.mark.slow
async def test_a_volume_is_deleted_by_the_host_that_keeps_it_although_another_one_made_it(cluster: Cluster) -> None:
    cluster.bench.add("h4")
    await cluster.rounds(4)
    view = await cluster.bench.view()
    driver, placed = cluster.bench.backend.volumes(), view.volumes[0]
    volume = Volume(VOLUME, placed.size, Placement(placed.hosts, dict(placed.details)))
    maker = placed.hosts[0]
    cluster.lose(maker)
    await cluster.rounds(10)
    keeper = driver.desired_now(volume, await cluster.bench.view()).host
    assert keeper != maker
    cluster.come_back(maker)
    await cluster.rounds(6)
    cluster.bench.ask(replace(driver.desired_now(volume, await cluster.bench.view()), config=None))
    assert driver.desired_now(volume, await cluster.bench.view()).host == keeper


async def test_who_kept_a_volume_and_has_left_the_pool_is_told_to_forget_it(cluster: Cluster) -> None:
    placed = (await cluster.bench.view()).volumes[0]
    maker, other = placed.hosts[0], placed.hosts[1]
    config = volume_config(VOLUME, placed.size, placed.details, other, existing=True)
    cluster.bench.ask(Desired(other, "glusterfs-volume", config, VOLUME))
    await cluster.bench.work()
    name = assignment_name("glusterfs-volume", maker, VOLUME)
    known = cluster.bench.assignments[name]
    gone = replace(known.status, state=FAILED, message="the pool does not know it any more")
    cluster.bench.assignments[name] = replace(known, status=gone)
    cluster.bench.mark(maker, deleting=True)
    plan = await cluster.bench.plan()
    assert [one.config for one in plan.assignments if (one.host, one.instance) == (maker, VOLUME)] == [FORGET]


async def test_who_does_not_keep_a_volume_does_not_say_that_it_is_gone(cluster: Cluster) -> None:
    spec = AssignmentSpec(host="h2", agent="glusterfs-volume", instance=VOLUME, generation=1, absent=True)
    name = assignment_name(spec.agent, "h2", VOLUME)
    with pytest.raises(HostError, match="it is not kept by this host"):
        await cluster.bench.run(Assignment(metadata=ObjectMeta(name=name, namespace="storage"), spec=spec))


@pytest.mark.slow
async def test_a_second_brick_that_dies_before_the_copy_of_the_first_is_whole_is_made_anew_too(
    cluster: Cluster,
) -> None:
    cluster.bench.add("h4", "h5")
    await cluster.rounds(4)
    cluster.lose("h3")
    await cluster.rounds(6, healing=False)
    new = (set(cluster.bricks()) - {"h1", "h2"}).pop()
    cluster.lose("h2")
    await cluster.rounds(8, healing=False)
    assert sorted(cluster.bricks()) == ["h1", "h4", "h5"]
    assert new in cluster.bricks()
    await cluster.rounds(6)
    assert not cluster.gluster.is_lost(VOLUME)


@pytest.mark.slow
async def test_a_brick_that_went_beside_a_dead_one_which_is_back_moves_on_when_there_is_another_node(
    cluster: Cluster,
) -> None:
    machine = cluster.bench.machines["h2"]
    machine.add_disk("vdc", serial="second")
    cluster.bench.declare("h2", useAllDevices=True)
    await cluster.rounds(3)
    dead = next(
        mount.number
        for number, path in machine.directories
        for mount in machine.mounts
        if mount.number == number and path == f"{mount.target}/{VOLUME}"
    )
    path = next(path for path, disk in machine.disks.items() if disk.number == dead)
    device = machine.pull_disk(path)
    mounts = [mount for mount in machine.mounts if mount.number == dead]
    machine.mounts[:] = [mount for mount in machine.mounts if mount.number != dead]
    cluster.lose("h3")
    await cluster.rounds(6, healing=False)
    assert cluster.bricks().count("h2") >= 1
    machine.put_disk(device, path)
    machine.mounts += mounts
    cluster.bench.add("h4")
    await cluster.rounds(12)
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]
    assert not cluster.gluster.is_lost(VOLUME)
