"""A volume that is being deleted while a host is away, and what nobody wants any more: neither waits for ever."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Volume
from quartermaster.backends.glusterfs.facts import BrickPlace, Moved, read_memory, write_memory
from quartermaster.backends.glusterfs.keeping import FORGET, keeper_of, keeping_assignments, volume_config
from quartermaster.backends.glusterfs.model import Peer, VolumeInfo
from quartermaster.backends.glusterfs.reasons import AWAITED
from quartermaster.backends.glusterfs.seeing import see
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.backends.glusterfs.volume_agent import Kept
from quartermaster.planning.cluster import Desired, Verdict
from quartermaster.resources.marks import ABANDON
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import (
    FAILED,
    SUCCEEDED,
    Assignment,
    AssignmentSpec,
    AssignmentStatus,
    assignment_name,
)

from .modelled import VOLUME, Cluster, ask_for_its_end


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    return made


async def taken_over(cluster: Cluster) -> tuple[str, str]:
    """Who made the volume, and has not heard yet that another one keeps it; and who does."""
    placed = (await cluster.bench.view()).volumes[0]
    other = next(host for host in ("h1", "h2", "h3") if host != placed.hosts[0])
    config = volume_config(VOLUME, placed.size, placed.details, other, existing=True)
    cluster.bench.ask(Desired(other, "glusterfs-volume", config, VOLUME))
    await cluster.bench.work()
    return placed.hosts[0], other


async def delete_by_and_by(cluster: Cluster, seen_by: str) -> None:
    """As the deleter does: whoever keeps it by what is known is asked, until one says that it is gone."""
    placed = (await cluster.bench.view()).volumes[0]
    volume = Volume(VOLUME, placed.size, Placement(placed.hosts, dict(placed.details)))
    for _ in range(12):
        desired = cluster.bench.backend.volumes().desired_now(volume, await cluster.bench.view())
        name = assignment_name(desired.agent, desired.host, VOLUME)
        spec = AssignmentSpec(host=desired.host, agent=desired.agent, instance=VOLUME, generation=1, absent=True)
        metadata = ObjectMeta(name=name, namespace="storage")
        cluster.bench.assignments.setdefault(name, Assignment(metadata=metadata, spec=spec))
        cluster.bench.ask(replace(desired, config=None))
        await cluster.bench.work()
        if name not in cluster.bench.assignments:
            break
        await cluster.round()
    assert VOLUME not in cluster.gluster.pool_of(cluster.bench.address(seen_by)).volumes


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


async def test_one_that_is_stopped_between_two_looks_of_the_coordinator_is_not_started_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, address = Gluster.online, cluster.bench.address("h1")

    async def stopped_meanwhile(gluster: Gluster, volumes: Iterable[VolumeInfo]) -> dict[str, dict[str, str]]:
        if cluster.gluster.volume(address, VOLUME).started:
            cluster.gluster.stop(address, VOLUME)
        return await look(gluster, volumes)

    monkeypatch.setattr(Gluster, "online", stopped_meanwhile)
    cluster.gluster.commands_run.clear()
    await cluster.round()
    assert [argv for _, argv in cluster.gluster.commands_run if argv[-3:] == ("start", VOLUME, "force")] == []


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
    await cluster.bench.work()
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


@pytest.mark.parametrize(("marked", "bricks"), [(True, 3), (False, 3), (False, 2)], ids=["made", "begun", "fewer"])
async def test_a_volume_whose_keeper_was_given_up_is_taken_over_by_whoever_is_to_delete_it(
    cluster: Cluster, marked: bool, bricks: int
) -> None:
    """Also one that was begun with another number of bricks than was decided since."""
    cluster.bench.add("h4")
    await cluster.rounds(3)
    maker = (await cluster.bench.view()).volumes[0].hosts[0]
    left = cluster.gluster.volume(cluster.bench.address(maker), VOLUME)
    if not marked:
        left.started, left.options = False, {}
        left.bricks, left.width = left.bricks[:bricks], bricks
    cluster.lose(maker)
    for name in [one for one, found in cluster.bench.assignments.items() if found.spec.host == maker]:
        del cluster.bench.assignments[name]
    del cluster.bench.nodes[maker]
    await delete_by_and_by(cluster, "h4")


@pytest.mark.parametrize("noticed", [False, True], ids=["just back", "verified"])
async def test_who_made_a_volume_that_another_host_keeps_now_does_not_say_that_it_is_gone(
    cluster: Cluster, noticed: bool
) -> None:
    await taken_over(cluster)
    if noticed:
        await cluster.bench.work(again=True)
    await delete_by_and_by(cluster, "h1")
    del cluster.bench.volumes[VOLUME]
    await cluster.rounds(4)
    assert [one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-volume"] == []


async def test_who_made_a_volume_takes_it_back_to_delete_it_when_the_host_that_kept_it_since_was_given_up(
    cluster: Cluster,
) -> None:
    cluster.bench.add("h4")
    await cluster.rounds(3)
    maker, other = await taken_over(cluster)
    cluster.lose(other)
    for name in [one for one, found in cluster.bench.assignments.items() if found.spec.host == other]:
        del cluster.bench.assignments[name]
    del cluster.bench.nodes[other]
    await delete_by_and_by(cluster, maker)


async def test_who_was_away_when_a_volume_changed_hands_forgets_it_when_it_is_gone(cluster: Cluster) -> None:
    """Its own glusterd, which the pool has let go, may know the volume for ever."""
    maker, _ = await taken_over(cluster)
    name = assignment_name("glusterfs-volume", maker, VOLUME)
    await cluster.bench.work(again=True)
    assert "another host was told to keep it since" in cluster.bench.assignments[name].status.message
    del cluster.bench.volumes[VOLUME]
    await cluster.rounds(4)
    assert name not in cluster.bench.assignments
    assert cluster.gluster.volume(cluster.bench.address(maker), VOLUME).started


async def test_who_was_asked_to_delete_what_is_not_his_forgets_it_when_it_is_gone(cluster: Cluster) -> None:
    maker, _ = await taken_over(cluster)
    cluster.bench.ask(Desired(maker, "glusterfs-volume", None, VOLUME))
    await cluster.bench.work()
    name = assignment_name("glusterfs-volume", maker, VOLUME)
    assert "it is not kept by this host" in cluster.bench.assignments[name].status.message
    del cluster.bench.volumes[VOLUME]
    await cluster.rounds(4)
    assert name not in cluster.bench.assignments
    assert cluster.gluster.volume(cluster.bench.address(maker), VOLUME).started


async def test_who_was_let_go_while_it_was_to_delete_a_volume_forgets_it_when_it_is_gone(cluster: Cluster) -> None:
    """Its own glusterd knows the volume for ever, and peers that do not answer: it never deletes it. A member does."""
    cluster.lose("h3", for_good=False)
    name = await ask_for_its_end(cluster)
    await cluster.round()
    status = cluster.bench.assignments[name].status
    assert (status.state, status.reason) == (FAILED, AWAITED)
    del cluster.bench.volumes[VOLUME]
    assert keeping_assignments(await cluster.bench.view()) == []
    host = cluster.bench.assignments[name].spec.host
    uuid = cluster.gluster.uuid(cluster.bench.address(host))
    cluster.bench.memory |= write_memory(replace(read_memory(cluster.bench.memory), former=(uuid,)))
    (wanted,) = keeping_assignments(await cluster.bench.view())
    assert (wanted.host, wanted.instance, wanted.config) == (host, VOLUME, FORGET)


async def test_who_was_given_up_while_it_made_a_volume_and_is_back_leaves_it_to_whoever_made_it_anew(
    cluster: Cluster, tmp_path: Path
) -> None:
    placed = (await cluster.bench.view()).volumes[0]
    maker, _ = await taken_over(cluster)
    begun = Kept(placed.details["owner"], bricks=tuple(BrickPlace(**one).name for one in placed.details["bricks"]))
    (tmp_path / maker / "glusterfs-volume" / VOLUME).write_bytes(msgspec.json.encode(begun))
    name = assignment_name("glusterfs-volume", placed.hosts[0], VOLUME)
    cluster.bench.ask(Desired(placed.hosts[0], "glusterfs-volume", None, VOLUME))
    await cluster.bench.work()
    assert name not in cluster.bench.assignments
    assert cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).started


async def test_a_host_that_is_a_node_anew_and_no_member_of_the_pool_yet_is_not_asked_about_a_volume(
    cluster: Cluster,
) -> None:
    """It made the volume in an earlier life. Now it knows none, and would say that it is gone."""
    view = await cluster.bench.view()
    placed = view.volumes[0]
    maker = placed.hosts[0]
    nodes = tuple(replace(node, reports=()) if node.host == maker else node for node in view.nodes)
    others = tuple(node for node in nodes if node.host != maker)
    assert keeper_of(VOLUME, placed.hosts, replace(view, nodes=nodes)) in {node.host for node in others}


async def drained_without_its_keeper(cluster: Cluster) -> tuple[str, list[str]]:
    """Who made the volume, and is lost; and all others, which are to go."""
    maker = (await cluster.bench.view()).volumes[0].hosts[0]
    others = [host for host in ("h1", "h2", "h3") if host != maker]
    for host in others:
        cluster.bench.mark(host, deleting=True)
    cluster.lose(maker)
    await cluster.rounds(4)
    return maker, others


@pytest.mark.parametrize("given_up", [False, True], ids=["back", "given up"])
async def test_a_volume_whose_keeper_is_lost_while_all_others_leave_is_deleted_by_one_that_leaves(
    cluster: Cluster, given_up: bool
) -> None:
    """Nobody answers for a lost host: its claim would be let go, and the volume keep the other nodes for ever."""
    maker, others = await drained_without_its_keeper(cluster)
    view = await cluster.bench.view()
    assert keeper_of(VOLUME, view.volumes[0].hosts, view) in others
    if given_up:
        cluster.bench.mark(maker, {ABANDON: maker}, deleting=True)
    else:
        cluster.come_back(maker)
    await delete_by_and_by(cluster, others[0])
    del cluster.bench.volumes[VOLUME]
    for _ in range(12):
        for name in (await cluster.round()).removable:
            del cluster.bench.nodes[name]
    assert sorted(cluster.bench.nodes) == ([] if given_up else [maker])


async def test_who_is_a_node_anew_is_not_asked_about_a_volume_that_members_have_which_leave(cluster: Cluster) -> None:
    _, others = await drained_without_its_keeper(cluster)
    view = await cluster.bench.view()
    hosts = view.volumes[0].hosts
    nodes = tuple(node if node.leaving else replace(node, lost=False, reports=()) for node in view.nodes)
    assert keeper_of(VOLUME, hosts, replace(view, nodes=nodes)) in others


async def test_of_those_that_leave_the_one_that_keeps_a_volume_goes_on_and_the_lost_one_is_told_to_forget_it(
    cluster: Cluster,
) -> None:
    maker, other = await taken_over(cluster)
    third = next(host for host in ("h1", "h2", "h3") if host not in (maker, other))
    for host in (other, third):
        cluster.bench.mark(host, deleting=True)
    cluster.lose(maker)
    view = await cluster.bench.view()
    # Also where the other one would come first.
    for hosts in ((maker, other, third), (maker, third, other)):
        assert keeper_of(VOLUME, hosts, view) == other
    await cluster.rounds(3)
    told = cluster.bench.assignments[assignment_name("glusterfs-volume", maker, VOLUME)]
    assert told.spec.desired == {"forget": True}


@pytest.mark.parametrize("trouble", ["silent", "configured anew", "wrongly declared"])
async def test_a_member_of_the_pool_that_cannot_be_asked_now_is_asked_rather_than_a_lost_one(
    cluster: Cluster, trouble: str
) -> None:
    view = await cluster.bench.view()
    placed, member = view.volumes[0], view.nodes[-1]
    report = member.report("glusterd")
    assert report is not None
    assert report.done
    assert member.host not in placed.hosts[:1]
    if trouble == "silent":
        member = replace(member, healthy=False)
    elif trouble == "configured anew":
        member = replace(member, reports=(replace(report, generation=report.generation + 1),))
    else:
        member = replace(member, wrong=Verdict(False, "Ambiguous", "it is declared twice"))
    nodes = tuple(member if node.host == member.host else replace(node, lost=True) for node in view.nodes)
    assert keeper_of(VOLUME, placed.hosts, replace(view, nodes=nodes)) == member.host
    stranger = replace(member, reports=())
    nodes = tuple(stranger if node.host == member.host else replace(node, lost=True) for node in view.nodes)
    assert keeper_of(VOLUME, placed.hosts, replace(view, nodes=nodes)) == placed.hosts[0], "a stranger knows no volume"


async def test_who_was_told_earlier_to_keep_a_volume_does_not_take_it_from_who_was_told_later_and_forgets_it(
    cluster: Cluster,
) -> None:
    _, other = await taken_over(cluster)
    volume = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME)
    for _ in range(3):  # also when it has failed once
        await cluster.bench.work(again=True)
        assert volume.options["user.quartermaster.keeper"] == other
    await cluster.rounds(4)
    kept = [one.spec.host for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-volume"]
    assert kept == [other]
    assert volume.started


async def test_who_is_not_the_keeper_any_more_and_is_the_only_one_left_takes_the_volume_over_a_second_time(
    cluster: Cluster,
) -> None:
    maker, other = await taken_over(cluster)
    placed = (await cluster.bench.view()).volumes[0]
    config = volume_config(VOLUME, placed.size, placed.details, maker, existing=True)
    cluster.bench.ask(Desired(maker, "glusterfs-volume", config, VOLUME))
    await cluster.bench.work()
    await cluster.bench.work(again=True)
    name = assignment_name("glusterfs-volume", other, VOLUME)
    assert "another host was told to keep it since" in cluster.bench.assignments[name].status.message
    for host in {"h1", "h2", "h3"} - {other}:
        cluster.bench.mark(host, deleting=True)
    await cluster.rounds(3)
    volume = cluster.gluster.volume(cluster.bench.address(other), VOLUME)
    assert volume.options["user.quartermaster.keeper"] == other
    assert cluster.bench.assignments[name].status.state == SUCCEEDED


async def test_who_made_a_volume_that_another_host_has_deleted_is_told_to_forget_it(cluster: Cluster) -> None:
    maker = (await cluster.bench.view()).volumes[0].hosts[0]
    name = assignment_name("glusterfs-volume", maker, VOLUME)
    assert name in cluster.bench.assignments
    del cluster.gluster.pool_of(cluster.bench.address("h1")).volumes[VOLUME]
    await cluster.rounds(2)
    assert "does not know it any more" in cluster.bench.assignments[name].status.message
    del cluster.bench.volumes[VOLUME]
    await cluster.rounds(4)
    assert name not in cluster.bench.assignments


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


async def test_what_somebody_wants_is_not_doomed_by_what_an_agent_was_asked_once(cluster: Cluster) -> None:
    """An order that was never finished is left on one host, and the host that keeps the volume is lost."""
    keeper = cluster.bench.volumes[VOLUME].hosts[0]
    other = next(host for host in ("h1", "h2", "h3") if host != keeper)
    name = assignment_name("glusterfs-volume", other, VOLUME)
    spec = AssignmentSpec(host=other, agent="glusterfs-volume", instance=VOLUME, generation=2, absent=True)
    status = AssignmentStatus(state=FAILED, observed_generation=2, message="cannot look at the volume")
    cluster.bench.assignments[name] = Assignment(metadata=ObjectMeta(name=name), spec=spec, status=status)
    cluster.lose(keeper)
    doomed = await cluster.bench.plan()
    assert VOLUME in read_memory(doomed.memory).ending
    cluster.bench.memory = doomed.memory
    cluster.bench.volumes[VOLUME] = replace(cluster.bench.volumes[VOLUME], kept=True)
    plan = await cluster.bench.plan()
    assert VOLUME not in read_memory(plan.memory).ending, "nor is it deleted again when it comes back"


async def test_a_peer_that_the_others_refuse_is_named_and_no_volume_is_deleted_meanwhile(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep the volume, with a brick that runs."""
    look = Gluster.pool

    async def refusing(gluster: Gluster) -> tuple[Peer, ...]:
        return tuple(
            replace(peer, state=6, state_text="Peer Rejected") if peer.name == cluster.bench.address("h3") else peer
            for peer in await look(gluster)
        )

    monkeypatch.setattr(Gluster, "pool", refusing)
    name = await ask_for_its_end(cluster)
    plan = await cluster.rounds(2)
    assert cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).started
    assert "is not of the pool (Peer Rejected)" in cluster.bench.assignments[name].status.message
    assert "the glusterds of the pool refuse it" in plan.nodes["h3"].message
    monkeypatch.undo()
    await cluster.rounds(4)
    assert VOLUME not in cluster.gluster.pool_of(cluster.bench.address("h1")).volumes


async def test_a_cluster_whose_nodes_are_all_being_configured_anew_has_its_majority(cluster: Cluster) -> None:
    await cluster.rounds(2)
    for name, one in list(cluster.bench.assignments.items()):
        if one.spec.agent == "glusterd":
            asked = replace(one.spec, generation=one.spec.generation + 1)
            cluster.bench.assignments[name] = replace(one, spec=asked)
    plan = await cluster.bench.plan()
    assert plan.usable.holds, plan.usable.message
