"""A volume that is being deleted while a host is away, and what nobody wants any more: neither waits for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Volume
from quartermaster.backends.glusterfs.facts import BrickPlace, Moved, read_memory, write_memory
from quartermaster.backends.glusterfs.keeping import volume_config
from quartermaster.backends.glusterfs.seeing import see
from quartermaster.planning.cluster import Desired
from quartermaster.resources.marks import ABANDON
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Assignment, AssignmentSpec, assignment_name

from .modelled import VOLUME, Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    return made


async def ask_for_its_end(cluster: Cluster) -> str:
    """Returns the name of the assignment by which it is deleted."""
    view = await cluster.bench.view()
    placed = view.volumes[0]
    volume = Volume(VOLUME, placed.size, Placement(placed.hosts, dict(placed.details)))
    desired = cluster.bench.backend.volumes().desired_now(volume, view)
    cluster.bench.ask(replace(desired, config=None))
    return assignment_name(desired.agent, desired.host, VOLUME)


def moves(cluster: Cluster) -> list[Assignment]:
    return [one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-move"]


async def test_a_volume_is_not_stopped_while_a_host_is_away(cluster: Cluster) -> None:
    cluster.lose("h3", for_good=False)
    name = await ask_for_its_end(cluster)
    await cluster.rounds(2)
    assert cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).started
    assert "does not answer, and gluster deletes only while all do" in cluster.bench.assignments[name].status.message
    cluster.come_back("h3")
    await cluster.rounds(4)
    assert VOLUME not in cluster.gluster.pool_of(cluster.bench.address("h1")).volumes


async def test_with_a_host_that_is_given_up_its_brick_of_a_volume_that_goes_is_dropped(cluster: Cluster) -> None:
    """The volume was stopped already, and there is no fourth node: no copy of it is made, the brick goes anywhere."""
    cluster.lose("h3")
    await cluster.round()
    cluster.gluster.stop(cluster.bench.address("h1"), VOLUME)
    await ask_for_its_end(cluster)
    await cluster.rounds(4)
    assert VOLUME in cluster.gluster.pool_of(cluster.bench.address("h1")).volumes
    cluster.bench.mark("h3", {ABANDON: "h3"}, deleting=True)
    await cluster.rounds(10)
    pool = cluster.gluster.pool_of(cluster.bench.address("h1"))
    assert VOLUME not in pool.volumes
    assert cluster.bench.address("h3") not in pool.members


async def test_a_silent_host_keeps_its_brick_of_a_volume_that_goes(cluster: Cluster) -> None:
    cluster.bench.add("h4")
    await cluster.rounds(2)
    await ask_for_its_end(cluster)
    cluster.lose("h3")
    await cluster.rounds(4)
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert moves(cluster) == []


async def test_a_copy_that_is_wanted_again_is_given_up_for_whole_ones_only(cluster: Cluster) -> None:
    """Decided while the volume was to go; whoever was to delete it keeps it now."""
    await ask_for_its_end(cluster)
    cluster.lose("h3")
    cluster.bench.mark("h3", {ABANDON: "h3"}, deleting=True)
    plan = await cluster.bench.plan()
    assert '"needed":0' in plan.memory["moves"]
    cluster.bench.memory = dict(plan.memory)
    view = await cluster.bench.view()
    placed = view.volumes[0]
    cluster.bench.ask(
        cluster.bench.backend.volumes().desired(Volume(VOLUME, placed.size, Placement(placed.hosts, placed.details)))
    )
    plan = await cluster.bench.plan()
    assert '"needed":1' in plan.memory["moves"]


async def test_a_volume_whose_keeper_was_given_up_is_taken_over_by_whoever_is_to_delete_it(cluster: Cluster) -> None:
    cluster.bench.add("h4")
    await cluster.rounds(3)
    maker = (await cluster.bench.view()).volumes[0].hosts[0]
    cluster.lose(maker)
    for name in [one for one, found in cluster.bench.assignments.items() if found.spec.host == maker]:
        del cluster.bench.assignments[name]
    del cluster.bench.nodes[maker]
    view = await cluster.bench.view()
    placed = view.volumes[0]
    volume = Volume(VOLUME, placed.size, Placement(placed.hosts, dict(placed.details)))
    driver = cluster.bench.backend.volumes()
    for _ in range(12):
        desired = driver.desired_now(volume, await cluster.bench.view())
        name = assignment_name(desired.agent, desired.host, VOLUME)
        spec = AssignmentSpec(host=desired.host, agent=desired.agent, instance=VOLUME, generation=1, absent=True)
        metadata = ObjectMeta(name=name, namespace="storage")
        cluster.bench.assignments.setdefault(name, Assignment(metadata=metadata, spec=spec))
        cluster.bench.ask(replace(desired, config=None))
        await cluster.round()
        if VOLUME not in cluster.gluster.pool_of(cluster.bench.address("h4")).volumes:
            break
    assert VOLUME not in cluster.gluster.pool_of(cluster.bench.address("h4")).volumes


async def test_who_was_given_up_while_it_made_a_volume_and_is_back_leaves_it_to_whoever_made_it_anew(
    cluster: Cluster,
) -> None:
    placed = (await cluster.bench.view()).volumes[0]
    other = next(host for host in ("h1", "h2", "h3") if host != placed.hosts[0])
    config = volume_config(VOLUME, placed.size, placed.details, other, existing=True)
    cluster.bench.ask(Desired(other, "glusterfs-volume", config, VOLUME))
    await cluster.bench.work()
    name = assignment_name("glusterfs-volume", placed.hosts[0], VOLUME)
    cluster.bench.ask(Desired(placed.hosts[0], "glusterfs-volume", None, VOLUME))
    await cluster.bench.work()
    assert name not in cluster.bench.assignments
    assert cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).started


async def test_a_volume_that_was_deleted_and_is_brought_back_by_a_host_that_was_away_is_deleted_again(
    cluster: Cluster,
) -> None:
    pool = cluster.gluster.pool_of(cluster.bench.address("h1"))
    volume = pool.volumes[VOLUME]
    await ask_for_its_end(cluster)
    await cluster.round()
    del cluster.bench.volumes[VOLUME]
    assert VOLUME not in pool.volumes
    pool.volumes[VOLUME] = volume
    await cluster.rounds(3)
    assert VOLUME not in pool.volumes


async def test_a_volume_that_nobody_has_in_his_books_and_nobody_deleted_is_left_alone(cluster: Cluster) -> None:
    del cluster.bench.volumes[VOLUME]
    await cluster.rounds(3)
    assert VOLUME in cluster.gluster.pool_of(cluster.bench.address("h1")).volumes


async def test_what_was_decided_of_a_volume_is_forgotten_when_it_was_made_anew(cluster: Cluster) -> None:
    known = (await cluster.rounds(3)).memory
    place = BrickPlace("h2", "h2", cluster.bench.address("h2"), "/bricks", f"/bricks/{VOLUME}.m4")
    moves = {VOLUME: Moved(of="another", count=4, bricks={"1": place})}
    view = replace(await cluster.bench.view(), memory=write_memory(replace(read_memory(known), moves=moves)))
    assert see(view).memory.moves == {VOLUME: Moved(count=4)}


async def test_what_an_attempt_that_was_refused_left_behind_is_removed(cluster: Cluster) -> None:
    machine, address = cluster.bench.machines["h3"], cluster.bench.address("h3")
    volume = cluster.gluster.volume(address, VOLUME)
    brick = next(one for one in volume.bricks if one.address == address)
    old = brick.path
    brick.path = f"{old}.abcdef"
    for number in [number for number, path in machine.directories if path == old]:
        machine.directories[number, brick.path] = None
        machine.files[number, f"{brick.path}/.glusterfs/volume-id"] = volume.id.encode()
    await cluster.rounds(4)
    assert [path for _, path in machine.directories if VOLUME in path] == [brick.path]


@pytest.mark.slow
async def test_a_disk_that_is_not_found_is_missed_until_somebody_gives_it_up(cluster: Cluster) -> None:
    machine = cluster.bench.machines["h3"]
    machine.add_disk("vdc", serial="second")
    cluster.bench.declare("h3", useAllDevices=True)
    await cluster.rounds(3)
    device = machine.pull_disk("/dev/vdc")
    machine.mounts[:] = [mount for mount in machine.mounts if mount.number != device.number]
    plan = await cluster.rounds(3)
    assert "give it up by naming second in spec.wipe" in plan.nodes["h3"].message
    cluster.bench.declare("h3", useAllDevices=True, wipe=["second"])
    plan = await cluster.rounds(3)
    assert (plan.nodes["h3"].state, plan.nodes["h3"].message) == ("Ready", "")
