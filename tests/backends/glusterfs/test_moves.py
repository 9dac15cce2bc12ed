"""Bricks that go elsewhere, on a modelled GlusterFS under the real plan and agents: when, where to, and when not."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Volume
from quartermaster.backends.glusterfs.backend import node_config
from quartermaster.backends.glusterfs.cleaning import bricks_to_remove, leaves_bricks
from quartermaster.backends.glusterfs.facts import BrickPlace, Moved, OpenMove, read_memory, write_memory
from quartermaster.backends.glusterfs.keeping import FORGET, volume_config
from quartermaster.backends.glusterfs.moving import decide_moves
from quartermaster.backends.glusterfs.seeing import see
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.planning.cluster import Desired
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import (
    FAILED,
    SUCCEEDED,
    Assignment,
    AssignmentSpec,
    assignment_name,
)
from quartermaster.support.errors import CommandError, HostError

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


async def test_a_brick_that_runs_stays_although_the_agent_of_its_host_is_lost(cluster: Cluster) -> None:
    cluster.bench.add("h4")
    await cluster.rounds(4)
    cluster.bench.silent.append("h3")
    cluster.bench.lost.append("h3")
    plan = await cluster.rounds()
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert "moves" not in plan.memory
    cluster.bench.machines["h3"].reboot()
    await cluster.rounds()
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]


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


async def test_what_is_left_of_a_brick_stays_when_a_copy_is_away_by_the_time_its_host_hears_that_it_may_go(
    cluster: Cluster,
) -> None:
    machine = cluster.bench.machines["h3"]
    number, brick = next((number, path) for number, path in machine.directories if path.endswith(VOLUME))
    left = f"{brick}.m7"
    machine.directories[number, left] = None
    desired = cluster.bench.assignments[assignment_name("glusterd", "h3")].spec.desired
    cluster.lose("h2", for_good=False)
    cluster.gluster.settle()
    cluster.bench.ask(Desired("h3", "glusterd", {**(desired or {}), "remove": [left]}))
    await cluster.bench.work()
    assert (number, left) in machine.directories
    cluster.come_back("h2")
    await cluster.rounds(6)
    assert (number, left) not in machine.directories


@pytest.mark.parametrize("look", ["online", "heal_counts"])
async def test_what_is_left_of_bricks_waits_where_gluster_does_not_say_whether_the_volume_is_whole_and_the_node_stays(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    machine = cluster.bench.machines["h3"]
    number, brick = next((number, path) for number, path in machine.directories if path.endswith(VOLUME))
    left = [f"{brick}.m{count}" for count in (5, 6, 7)]
    machine.directories.update({(number, path): None for path in left})
    name = assignment_name("glusterd", "h3")
    desired = cluster.bench.assignments[name].spec.desired
    looks: list[str] = []

    async def fails(*_: str) -> None:
        looks.append(look)
        raise CommandError("cannot look: gluster does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Gluster, look, fails)
        cluster.bench.ask(Desired("h3", "glusterd", {**(desired or {}), "remove": left}))
        await cluster.bench.work()
    report = cluster.bench.assignments[name].status
    assert (report.state, looks) == (SUCCEEDED, [look])
    assert all((number, path) in machine.directories for path in left)
    await cluster.rounds(3)
    assert not any((number, path) in machine.directories for path in left)


async def test_which_bricks_run_is_asked_once_for_all_that_is_left_of_others(cluster: Cluster) -> None:
    machine = cluster.bench.machines["h3"]
    number, brick = next((number, path) for number, path in machine.directories if path.endswith(VOLUME))
    left = [f"{brick}.m{count}" for count in (5, 6, 7)]
    machine.directories.update({(number, path): None for path in left})
    desired = cluster.bench.assignments[assignment_name("glusterd", "h3")].spec.desired
    cluster.bench.ask(Desired("h3", "glusterd", {**(desired or {}), "remove": left}))
    cluster.gluster.commands_run.clear()
    await cluster.bench.work()
    assert not any((number, path) in machine.directories for path in left)
    assert sum(argv[-3:] == ("volume", "status", "all") for _, argv in cluster.gluster.commands_run) == 1


async def test_a_host_that_the_pool_has_let_go_removes_what_is_left_of_bricks_by_the_leaders_word(
    cluster: Cluster,
) -> None:
    """It was away then: its glusterd believes to be a member still, whose peers do not answer."""
    machine = cluster.bench.machines["h3"]
    number, brick = next((number, path) for number, path in machine.directories if path.endswith(VOLUME))
    left = f"{brick}.m7"
    machine.directories[number, left] = None
    await cluster.bench.work(again=True)
    seen = see(await cluster.bench.view())
    node = next(one for one in seen.view.nodes if one.host == "h3")
    assert "apart" not in node_config(seen, node)
    uuid = seen.node_facts["h3"].uuid
    members = {one: peer for one, peer in seen.facts.peers.items() if one != uuid}
    apart = replace(seen, facts=replace(seen.facts, peers=members))
    assert "apart" not in node_config(apart, node)  # whoever looked may be the one that has fallen out
    config = node_config(replace(apart, memory=replace(seen.memory, former=(uuid,))), node)
    assert config["remove"] == [left]
    cluster.lose("h2", for_good=False)
    cluster.gluster.settle()
    cluster.bench.ask(Desired("h3", "glusterd", config))
    await cluster.bench.work()
    assert (number, left) not in machine.directories


async def test_a_node_waits_with_what_is_left_of_bricks_until_every_copy_is_whole(cluster: Cluster) -> None:
    """The pool may have let it go before that: then its disks would go with an old brick on them."""
    machine = cluster.bench.machines["h3"]
    number, brick = next((number, path) for number, path in machine.directories if path.endswith(VOLUME))
    machine.directories[number, f"{brick}.m7"] = None
    await cluster.bench.work(again=True)
    cluster.bench.mark("h3", deleting=True)
    seen = see(await cluster.bench.view())
    node = next(one for one in seen.view.nodes if one.host == "h3")
    moving = Moved(open=OpenMove(2, "10.0.0.3:/b/pvc-1", "its node is to go"))
    for memory in (replace(seen.memory, behind={VOLUME: (1,)}), replace(seen.memory, moves={VOLUME: moving})):
        waiting = replace(seen, memory=memory)
        assert bricks_to_remove(waiting, node) == []
        assert leaves_bricks(waiting, node)
    assert bricks_to_remove(seen, node) == [f"{brick}.m7"]
    assert leaves_bricks(seen, node)


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


async def test_nor_does_it_before_its_glusterd_answers(cluster: Cluster) -> None:
    """It was booted a moment ago."""
    cluster.bench.machines["h2"].reboot()
    spec = AssignmentSpec(host="h2", agent="glusterfs-volume", instance=VOLUME, generation=1, absent=True)
    name = assignment_name(spec.agent, "h2", VOLUME)
    with pytest.raises(CommandError):
        await cluster.bench.run(Assignment(metadata=ObjectMeta(name=name, namespace="storage"), spec=spec))


async def test_who_was_to_make_a_volume_and_is_back_when_another_one_has_made_it_forgets_it(cluster: Cluster) -> None:
    maker = (await cluster.bench.view()).volumes[0].hosts[0]
    other = next(host for host in ("h1", "h2", "h3") if host != maker)
    spec = AssignmentSpec(host=other, agent="glusterfs-volume", instance=VOLUME, generation=2, absent=True)
    name = assignment_name(spec.agent, other, VOLUME)
    cluster.bench.assignments[name] = Assignment(metadata=ObjectMeta(name=name, namespace="storage"), spec=spec)
    await cluster.bench.work()
    assert cluster.bench.assignments[name].status.state == FAILED
    await cluster.rounds(4)
    assert name not in cluster.bench.assignments
    assert VOLUME in cluster.gluster.pool_of(cluster.bench.address(maker)).volumes


async def test_a_move_that_was_done_before_it_got_another_target_is_taken_as_it_is(cluster: Cluster) -> None:
    cluster.bench.add("h4", "h5")
    await cluster.rounds(4)
    old = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).bricks[2].name
    cluster.lose("h3")
    await cluster.rounds(4, healing=False)
    memory = read_memory(cluster.bench.memory)
    done = memory.moves[VOLUME]
    assert done.open is not None
    other = ({"h4", "h5"} - {done.bricks["2"].host}).pop()
    base = next(mount.target for mount in cluster.bench.machines[other].mounts if mount.target != "/")
    place = BrickPlace(other, other, cluster.bench.address(other), base, f"{base}/{VOLUME}.m9")
    wanted = replace(done, count=9, bricks={"2": place}, open=replace(done.open, old=old))
    cluster.bench.memory = write_memory(replace(memory, moves={VOLUME: wanted}))
    plan = await cluster.rounds(6)
    assert '"open"' not in plan.memory["moves"]
    assert cluster.bricks() == ["h1", "h2", done.bricks["2"].host]


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


@pytest.mark.parametrize("runs", [True, False], ids=["beside one that runs", "beside one that was cut off"])
async def test_a_brick_is_not_put_beside_another_copy_whatever_was_decided_before(cluster: Cluster, runs: bool) -> None:
    """A move that was taken back was done all the same, and the next one was decided without knowing that."""
    cluster.bench.add("h4")
    await cluster.rounds(4)
    cluster.lose("h3")
    await cluster.round()  # the pool is looked at
    plan = await cluster.bench.plan()
    moved = read_memory(plan.memory).moves[VOLUME]
    assert moved.open is not None
    position = str(moved.open.position)
    assert moved.bricks[position].host == "h4"
    beside = next(place for place in see(await cluster.bench.view()).bricks[VOLUME] if place.host == "h2")
    wrong = replace(beside, path=f"{beside.path}.m9")
    memory = replace(read_memory(plan.memory), moves={VOLUME: replace(moved, bricks={position: wrong})})
    move = next(one for one in plan.assignments if one.agent == "glusterfs-move")
    cluster.bench.ask(replace(move, config={**(move.config or {}), "new": wrong.name}))
    if not runs:
        cluster.gluster.cut.add(cluster.bench.address("h2"))
    await cluster.bench.work()
    cluster.gluster.cut.clear()
    name = assignment_name(move.agent, move.host, move.instance)
    assert "has another copy of the same files" in cluster.bench.assignments[name].status.message
    cluster.bench.memory = write_memory(memory)
    await cluster.rounds()
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]


async def test_what_was_moved_after_all_is_not_moved_for_the_reason_that_the_old_place_had(cluster: Cluster) -> None:
    """A move was taken back, and done before whoever did it heard of that; another coordinator tells of it first."""
    cluster.bench.add("h4")
    await cluster.rounds(4)
    cluster.lose("h3")
    await cluster.rounds(3)
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]
    known = read_memory(cluster.bench.memory)
    first = next(at for at, one in enumerate(cluster.bench.volumes[VOLUME].details["bricks"]) if one["host"] == "h3")
    before = BrickPlace(**cluster.bench.volumes[VOLUME].details["bricks"][first])
    taken_back = replace(known.moves[VOLUME], bricks={str(first): before}, open=None)
    memory = replace(known, moves={VOLUME: taken_back}, coordinator="h2")
    cluster.bench.memory = write_memory(memory)
    seen = see(await cluster.bench.view())
    assert not seen.facts_current
    assert decide_moves(seen).moved[VOLUME].open is None


async def test_a_brick_on_a_host_that_is_no_node_is_replaced_although_it_was_placed_elsewhere(cluster: Cluster) -> None:
    """A host was given up while it made the volume, and who made it after that found it there."""
    cluster.bench.add("h4")
    await cluster.rounds(4)
    placed = cluster.bench.volumes[VOLUME]
    lost, room = placed.hosts[-1], next(base for base in see(await cluster.bench.view()).bases if base.host == "h4")
    place = {"node": "h4", "host": "h4", "address": room.address, "base": room.path, "path": f"{room.path}/{VOLUME}"}
    bricks = [place if one["host"] == lost else one for one in placed.details["bricks"]]
    cluster.bench.volumes[VOLUME] = replace(placed, details={**placed.details, "bricks": bricks})
    cluster.lose(lost)
    del cluster.bench.nodes[lost]
    await cluster.rounds(10)
    kept = sorted({"h1", "h2", "h3"} - {lost})
    names = {cluster.bench.address(name): name for name in cluster.bench.machines}
    volume = cluster.gluster.volume(cluster.bench.address(kept[0]), VOLUME)
    assert sorted(names[brick.address] for brick in volume.bricks) == [*kept, "h4"]
