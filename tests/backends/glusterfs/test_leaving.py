"""A node leaves while a volume is being made on it: neither waits for the other for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Refusal, Volume
from quartermaster.backends.glusterfs.pooling import unreached
from quartermaster.backends.glusterfs.seeing import see
from quartermaster.planning.cluster import VolumeView
from quartermaster.planning.outcomes import FAILED as NODE_FAILED
from quartermaster.planning.outcomes import PENDING, READY
from quartermaster.provisioning.claims import Act, Situation, Undo, Wait, next_act
from quartermaster.provisioning.intent import Intent
from quartermaster.resources.kubernetes.volumes import PersistentVolumeClaim
from quartermaster.resources.marks import ABANDON
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import FAILED, SUCCEEDED, AssignmentStatus, assignment_name

from .modelled import GIB, VOLUME, Cluster

NAME = "pvc-2"


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    made.bench.add("h4")
    await made.rounds(4)
    return made


async def placed(cluster: Cluster) -> Volume:
    """Decided, and nothing of it done."""
    found = cluster.bench.backend.volumes().place(cluster.bench.request(NAME, GIB), await cluster.bench.view())
    assert isinstance(found, Placement)
    return Volume(NAME, GIB, found)


def made_known(cluster: Cluster, volume: Volume) -> None:
    placement = volume.placement
    cluster.bench.volumes[NAME] = VolumeView(NAME, GIB, placement.hosts, dict(placement.details))
    cluster.bench.ask(cluster.bench.backend.volumes().desired(volume))


async def decided(cluster: Cluster, volume: Volume) -> Act:
    driver = cluster.bench.backend.volumes()
    desired = driver.desired(volume)
    claim = PersistentVolumeClaim(metadata=ObjectMeta(name="data", namespace="storage", uid="2"))
    situation = Situation(
        claim=claim,
        intent=Intent(cluster.bench.key, volume, "Delete"),
        assignment=cluster.bench.assignments[assignment_name(desired.agent, desired.host, NAME)],
        view=await cluster.bench.view(),
    )
    return next_act(situation, driver)


async def test_a_node_that_left_in_good_order_takes_its_disk_again(cluster: Cluster) -> None:
    cluster.bench.mark("h4", deleting=True)
    plan = await cluster.rounds(6)
    assert "h4" in plan.removable
    cluster.bench.forget("h4")
    await cluster.rounds(2)
    cluster.bench.add("h4")
    plan = await cluster.rounds(4)
    assert plan.nodes["h4"].state == READY


async def test_a_node_that_one_who_is_away_may_have_taken_in_stays_until_he_is_back(cluster: Cluster) -> None:
    """Its next glusterd, at the same address, would meet the earlier one when he tells the others of it."""
    bench = cluster.bench
    cluster.gluster.detach(bench.address("h1"), bench.address("h4"), force=True)  # the coordinator was never told
    bench.mark("h4", deleting=True)
    cluster.lose("h3", for_good=False)
    plan = await cluster.rounds(6)
    assert "h4" not in plan.removable
    assert bench.address("h3") in plan.nodes["h4"].message
    cluster.come_back("h3")
    plan = await cluster.rounds(6)
    assert "h4" in plan.removable


async def test_a_node_that_a_host_may_have_taken_in_that_is_given_up_waits_for_nobody(cluster: Cluster) -> None:
    bench = cluster.bench
    cluster.gluster.detach(bench.address("h1"), bench.address("h4"), force=True)
    bench.mark("h4", deleting=True)
    cluster.lose("h3")
    bench.mark("h3", {ABANDON: "h3"}, deleting=True)
    plan = await cluster.rounds(6)
    assert "h4" in plan.removable


async def test_what_a_volume_in_nobodys_books_has_left_holds_no_node(cluster: Cluster) -> None:
    """Its policy was Retain, and its object is deleted: nobody will ever know whether it is whole."""
    await cluster.rounds(2)
    base = next(iter(see(await cluster.bench.view()).node_facts["h4"].bricks))
    machine = cluster.bench.machines["h4"]
    number = next(mount.number for mount in machine.mounts if mount.target == base)
    left = (number, f"{base}/{VOLUME}.m1")
    machine.directories[left] = None
    del cluster.bench.volumes[VOLUME]
    cluster.bench.mark("h4", deleting=True)
    plan = await cluster.rounds(8)
    assert "h4" in plan.removable
    assert left in machine.directories


async def test_a_node_with_a_brick_of_a_volume_in_nobodys_books_says_of_which_and_what_to_do(cluster: Cluster) -> None:
    """Its policy was Retain, and its object is deleted: nobody moves it, and nobody deletes it."""
    bench = cluster.bench
    await bench.make(NAME, GIB)
    await cluster.rounds(2)
    pool = cluster.gluster.pool_of(bench.address("h4"))
    assert bench.address("h4") in [brick.address for brick in pool.volumes[NAME].bricks]
    del bench.volumes[NAME]
    for name in [name for name, one in bench.assignments.items() if one.spec.instance == NAME]:
        del bench.assignments[name]
    bench.mark("h4", deleting=True)
    plan = await cluster.rounds(6)
    assert plan.nodes["h4"].message.startswith(f"it has a brick of {NAME}, which no PersistentVolume has: ")
    assert "gluster volume replace-brick" in plan.nodes["h4"].message
    del pool.volumes[NAME]
    plan = await cluster.rounds(6)
    assert "h4" in plan.removable


async def test_a_volume_that_is_being_deleted_is_not_said_to_be_in_nobodys_books(cluster: Cluster) -> None:
    bench = cluster.bench
    await bench.make(NAME, GIB)
    await cluster.rounds(2)
    seen = see(await bench.view())
    bench.memory |= {"ended": f'["{seen.facts.volumes[NAME].id}"]'}
    del bench.volumes[NAME]
    bench.mark("h4", deleting=True)
    plan = await bench.plan()
    assert NAME not in plan.nodes["h4"].message


async def test_a_silent_node_that_the_pool_has_let_go_says_how_to_give_it_up(cluster: Cluster) -> None:
    """Its agent would have to look at its disks, and its host may never be back."""
    cluster.bench.mark("h4", deleting=True)
    cluster.lose("h4")
    plan = await cluster.rounds(6)
    assert cluster.bench.address("h4") not in cluster.gluster.pool_of(cluster.bench.address("h1")).members
    assert "h4" not in plan.removable
    assert "waiting for host h4" in plan.nodes["h4"].message
    assert "`qm node remove h4 --lost`" in plan.nodes["h4"].message


async def test_a_node_whose_own_glusterd_is_down_is_not_said_to_wait_for_itself(cluster: Cluster) -> None:
    bench = cluster.bench
    bench.machines["h4"].processes.clear()
    key, pool = next((key, one) for key, one in bench.assignments.items() if one.spec.agent == "glusterfs-pool")
    bench.assignments[key] = replace(pool, status=replace(pool.status, result=await bench.run(pool)))
    bench.mark("h4", deleting=True)
    assert bench.address("h4") in unreached(see(await bench.view())).values()
    plan = await bench.plan()
    assert plan.nodes["h4"].message == "it is being taken out of the pool"


async def test_a_node_that_is_taken_back_while_a_member_is_away_waits_for_him(cluster: Cluster) -> None:
    """No pool that anybody sees has it. But who is away may have been told of it, and nobody can ask him."""
    bench = cluster.bench
    cluster.lose("h3", for_good=False)
    await cluster.rounds(2)
    bench.add("h5")
    for desired in (await bench.plan()).assignments:
        if desired.host == "h5":
            bench.ask(desired)
    await bench.work()
    bench.mark("h5", deleting=True)
    plan = await cluster.rounds(6)
    assert "h5" not in plan.removable
    assert f"it goes when {bench.address('h3')} can be told" in plan.nodes["h5"].message
    cluster.come_back("h3")
    plan = await cluster.rounds(6)
    assert "h5" in plan.removable


async def left(cluster: Cluster, name: str, rounds: int = 8) -> bool:
    """Whether the node goes when it is removed."""
    cluster.bench.mark(name, deleting=True)
    return name in (await cluster.rounds(rounds)).removable


def give_up_its_disk(cluster: Cluster, name: str) -> None:
    """The disk is dead, and a person who knows has named it."""
    machine = cluster.bench.machines[name]
    device = machine.pull_disk("/dev/vdb")
    machine.mounts[:] = [mount for mount in machine.mounts if mount.number != device.number]
    cluster.bench.declare(name, devices=["/dev/vdb"], wipe=[f"serial-{name}"])


def declare_at(cluster: Cluster, name: str, address: str) -> None:
    cluster.bench.declare(name, **cluster.bench.subject.spec, storageNetwork={"ips": [address]})


def mounted_on(cluster: Cluster, name: str) -> list[str]:
    return [mount.target for mount in cluster.bench.machines[name].mounts if "glusterd" in mount.target]


async def test_a_node_whose_only_disk_has_died_and_was_given_up_can_be_removed(cluster: Cluster) -> None:
    give_up_its_disk(cluster, "h4")
    assert (await cluster.rounds(3)).nodes["h4"].state == PENDING
    assert await left(cluster, "h4")


async def test_a_node_that_lists_no_disk_any_more_can_be_removed(cluster: Cluster) -> None:
    cluster.bench.declare("h4", devices=[])
    await cluster.rounds(2)
    assert await left(cluster, "h4")


async def test_one_that_listed_none_when_it_was_removed_gives_its_brick_away_first(cluster: Cluster) -> None:
    assert "h3" in cluster.bricks()
    cluster.bench.declare("h3", devices=[])
    assert await left(cluster, "h3", rounds=12)
    assert "h3" not in cluster.bricks()


async def test_a_node_that_stays_and_lists_no_disk_any_more_gives_up_the_one_it_had(cluster: Cluster) -> None:
    cluster.bench.declare("h4", devices=[])
    plan = await cluster.rounds(3)
    assert (plan.nodes["h4"].state, plan.nodes["h4"].in_use) == (PENDING, {})
    assert mounted_on(cluster, "h4") == []


async def test_it_takes_the_empty_disk_again_when_that_is_listed_again(cluster: Cluster) -> None:
    cluster.bench.declare("h4", devices=[])
    await cluster.rounds(3)
    assert mounted_on(cluster, "h4") == []
    cluster.bench.declare("h4", devices=["/dev/vdb"])
    plan = await cluster.rounds(4)
    assert plan.nodes["h4"].state == READY


async def test_a_disk_with_something_of_bricks_on_it_is_not_taken_again_unasked(cluster: Cluster) -> None:
    (base,) = mounted_on(cluster, "h4")
    machine = cluster.bench.machines["h4"]
    number = next(mount.number for mount in machine.mounts if mount.target == base)
    machine.directories[number, f"{base}/somebodys"] = None
    await cluster.rounds(2)
    cluster.bench.declare("h4", devices=[])
    await cluster.rounds(3)
    cluster.bench.declare("h4", devices=["/dev/vdb"])
    plan = await cluster.rounds(4)
    assert plan.nodes["h4"].state == PENDING
    assert (number, f"{base}/somebodys") in machine.directories


async def test_it_does_so_when_its_brick_is_elsewhere_and_nothing_is_left_of_it_in_the_pool(cluster: Cluster) -> None:
    cluster.bench.declare("h3", devices=[])
    for _ in range(8):
        pool = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME)
        held = any(brick.address == cluster.bench.address("h3") for brick in pool.bricks)
        await cluster.round()
        assert mounted_on(cluster, "h3") or not held
    assert mounted_on(cluster, "h3") == []
    assert "h3" not in cluster.bricks()


async def test_a_node_that_never_had_a_disk_is_asked_for_nothing(cluster: Cluster) -> None:
    cluster.bench.add("h5", devices=[])
    plan = await cluster.rounds(2)
    assert plan.nodes["h5"].state == PENDING
    assert [one for one in plan.assignments if one.host == "h5"] == []
    assert await left(cluster, "h5", rounds=1)


async def test_a_node_whose_host_has_another_address_than_it_declares_can_be_removed(cluster: Cluster) -> None:
    declare_at(cluster, "h4", "192.0.2.9")
    assert (await cluster.rounds(2)).nodes["h4"].state == NODE_FAILED
    assert await left(cluster, "h4")


async def test_such_a_node_gives_its_brick_away_and_is_told_nothing_of_what_it_declares(cluster: Cluster) -> None:
    declare_at(cluster, "h3", "192.0.2.9")
    await cluster.rounds(2)
    cluster.bench.mark("h3", deleting=True)
    for _ in range(12):
        plan = await cluster.round()
        told = [one.config or {} for one in plan.assignments if (one.agent, one.host) == ("glusterd", "h3")]
        assert all("bind" not in config for config in told)
    assert "h3" not in cluster.bricks()
    assert "h3" in (await cluster.bench.plan()).removable


async def test_a_node_that_declares_the_address_of_another_one_can_be_removed(cluster: Cluster) -> None:
    declare_at(cluster, "h4", cluster.bench.address("h3"))
    await cluster.rounds(2)
    assert await left(cluster, "h4")


@pytest.mark.slow
async def test_a_volume_that_was_decided_before_its_node_began_to_leave_is_made_and_moves(cluster: Cluster) -> None:
    volume = await placed(cluster)
    leaving = volume.placement.hosts[-1]
    cluster.bench.mark(leaving, deleting=True)
    made_known(cluster, volume)
    await cluster.rounds(14)
    desired = cluster.bench.backend.volumes().desired(volume)
    report = cluster.bench.assignments[assignment_name(desired.agent, desired.host, NAME)].status
    assert report.state == SUCCEEDED, report.message
    found = cluster.gluster.volume(cluster.bench.address("h1"), NAME)
    assert cluster.bench.address(leaving) not in [brick.address for brick in found.bricks]
    assert leaving in (await cluster.bench.plan()).removable


@pytest.mark.slow
async def test_a_volume_whose_node_has_left_before_it_was_known_is_taken_back_and_placed_anew(cluster: Cluster) -> None:
    volume = await placed(cluster)
    leaving = volume.placement.hosts[-1]
    cluster.bench.mark(leaving, deleting=True)
    await cluster.rounds(14)  # the pool lets it go while the decision is on its way to the store
    made_known(cluster, volume)
    await cluster.bench.work()
    desired = cluster.bench.backend.volumes().desired(volume)
    name = assignment_name(desired.agent, desired.host, NAME)
    assert cluster.bench.assignments[name].status.state == FAILED
    await cluster.rounds(4)
    act = await decided(cluster, volume)
    assert isinstance(act, Undo), act
    assert leaving in act.why

    cluster.bench.ask(replace(act.desired, config=None))
    await cluster.bench.work()
    assert name not in cluster.bench.assignments
    del cluster.bench.volumes[NAME]
    plan = await cluster.rounds(6)
    assert leaving in plan.removable
    again = cluster.bench.backend.volumes().place(cluster.bench.request(NAME, GIB), await cluster.bench.view())
    assert not isinstance(again, Refusal)
    assert leaving not in again.hosts


async def test_a_volume_waits_for_what_failed_while_all_of_its_nodes_stay(cluster: Cluster) -> None:
    volume = await placed(cluster)
    made_known(cluster, volume)
    away = volume.placement.hosts[-1]
    cluster.lose(away, for_good=False)
    await cluster.bench.work()
    assert isinstance(await decided(cluster, volume), Wait)


async def test_a_volume_whose_disk_dies_before_it_is_made_is_taken_back_and_placed_anew(cluster: Cluster) -> None:
    volume = await placed(cluster)
    host = volume.placement.hosts[-1]
    machine = cluster.bench.machines[host]
    device = machine.pull_disk("/dev/vdb")
    machine.mounts[:] = [mount for mount in machine.mounts if mount.number != device.number]
    made_known(cluster, volume)
    desired = cluster.bench.backend.volumes().desired(volume)
    name = assignment_name(desired.agent, desired.host, NAME)
    status = AssignmentStatus(state=FAILED, observed_generation=1, message="Input/output error")
    cluster.bench.assignments[name] = replace(cluster.bench.assignments[name], status=status)
    act = await decided(cluster, volume)
    assert isinstance(act, Undo), act
    assert f"serial-{host}" in act.why


async def test_a_volume_whose_maker_was_given_up_before_it_began_is_taken_back(cluster: Cluster) -> None:
    volume = await placed(cluster)
    maker = volume.placement.hosts[0]
    made_known(cluster, volume)
    cluster.lose(maker)
    del cluster.bench.nodes[maker]
    act = await decided(cluster, volume)
    assert isinstance(act, Undo), act


async def test_a_host_is_let_go_when_its_agent_asks_gluster_nothing_any_more(cluster: Cluster) -> None:
    """About what its moved bricks have left: out of the pool it could not take its locks away."""
    cluster.bench.mark("h3", deleting=True)
    for _ in range(12):
        left = [path for _, path in cluster.bench.machines["h3"].directories if "pvc-" in path]
        plan = await cluster.round()
        pool = next(one.config for one in plan.assignments if one.agent == "glusterfs-pool" and one.config)
        if pool["detach"]:
            break
    assert pool["detach"]
    assert left == []


async def test_a_node_is_asked_what_is_on_its_disks_before_it_goes(cluster: Cluster) -> None:
    """What it told before may be minutes old, and a brick have come and gone since."""
    cluster.bench.mark("h4", deleting=True)
    plan = await cluster.bench.plan()
    config = next(one.config for one in plan.assignments if (one.agent, one.host) == ("glusterd", "h4"))
    pool = next(one.config for one in plan.assignments if one.agent == "glusterfs-pool" and one.config)
    assert config is not None
    assert config["emptied"]
    assert pool["detach"] == []
    await cluster.round()
    plan = await cluster.bench.plan()
    pool = next(one.config for one in plan.assignments if one.agent == "glusterfs-pool" and one.config)
    assert len(pool["detach"]) == 1
