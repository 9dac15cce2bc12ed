"""What the coordinator tells of trouble, and what it does about it, is bounded however much of it there is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs import pool_agent
from quartermaster.backends.glusterfs.daemon import DAEMON
from quartermaster.backends.glusterfs.facts import NODE, read_memory
from quartermaster.backends.glusterfs.fake import FakeBrick
from quartermaster.backends.glusterfs.model import HealCount, VolumeInfo
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.resources.orchestration import Assignment
from quartermaster.support import clock
from quartermaster.support.errors import HostError

from .modelled import GIB, VOLUME, Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """h1, h2 and h3 have a copy each."""
    made = Cluster(tmp_path)
    await made.begin()
    await made.rounds(2)
    return made


def glusterd_of(cluster: Cluster, host: str) -> int:
    """Its process."""
    return cluster.bench.machines[host].processes[DAEMON].pid


def brick_on(cluster: Cluster, host: str, name: str = VOLUME) -> FakeBrick:
    volume = cluster.gluster.volume(cluster.bench.address("h1"), name)
    return next(one for one in volume.bricks if one.address == cluster.bench.address(host))


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many starts are enough, however soon they come."""
    monkeypatch.setattr(pool_agent, "_STUCK_S", 0.0)


@pytest.mark.usefixtures("hurried")
async def test_a_brick_that_its_glusterd_takes_for_one_that_is_being_started_is_started_by_the_next_glusterd(
    cluster: Cluster,
) -> None:
    """Seen of gluster: a start by force ends well, and nothing is started."""
    brick = brick_on(cluster, "h2")
    before = {host: glusterd_of(cluster, host) for host in ("h1", "h2", "h3")}
    brick.stuck, brick.runs = before["h2"], False
    await cluster.rounds(2)
    assert glusterd_of(cluster, "h2") == before["h2"]
    await cluster.rounds(4)
    assert brick.runs
    assert [host for host, one in before.items() if glusterd_of(cluster, host) != one] == ["h2"]
    assert "stuck" not in volume_facts(cluster)


@pytest.mark.usefixtures("hurried")
async def test_a_brick_that_never_runs_for_long_costs_a_glusterd_less_and_less_often(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    brick = brick_on(cluster, "h2")
    began, minutes = clock.wall_time(), 0
    monkeypatch.setattr(clock, "wall_time", lambda: began + 60.0 * minutes)
    processes, ended = {glusterd_of(cluster, "h2")}, []
    for minutes in range(0, 300, 5):
        for _ in range(4):
            brick.stuck, brick.runs = glusterd_of(cluster, "h2"), False
            plan = await cluster.round()
        if glusterd_of(cluster, "h2") not in processes:
            processes.add(glusterd_of(cluster, "h2"))
            ended.append(minutes)
    assert ended == [0, 10, 30, 70, 130, 190, 250]
    assert brick.name in plan.details["bricksDown"]


@pytest.mark.usefixtures("hurried")
async def test_many_bricks_that_do_not_run_cost_a_host_one_glusterd(cluster: Cluster) -> None:
    names = [f"pvc-{number}" for number in range(pool_agent._RESTARTED + 4)]
    for name in names:
        await cluster.bench.make(name, 16 << 20)
    await cluster.rounds(2)
    processes = set()
    for _ in range(16):
        for brick in [brick_on(cluster, "h2", name) for name in names]:
            brick.stuck, brick.runs = glusterd_of(cluster, "h2"), False
        processes.add(glusterd_of(cluster, "h2"))
        await cluster.round()
    assert len(processes) == 2


@pytest.mark.usefixtures("hurried")
async def test_a_brick_whose_start_is_refused_was_not_started(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise HostError("cannot start the volume: Quorum not met")

    monkeypatch.setattr(Gluster, "start", refused)
    before = glusterd_of(cluster, "h2")
    for _ in range(8):
        brick_on(cluster, "h2").runs = False
        await cluster.round()
    assert "stuck" not in volume_facts(cluster)
    assert glusterd_of(cluster, "h2") == before


async def test_a_brick_that_does_not_run_since_a_moment_ago_is_not_stuck(cluster: Cluster) -> None:
    """Its disk may be dying, and its node tells of that soon."""
    before = glusterd_of(cluster, "h2")
    for _ in range(8):
        brick_on(cluster, "h2").stuck, brick_on(cluster, "h2").runs = before, False
        await cluster.round()
    assert "stuck" not in volume_facts(cluster)


@pytest.mark.usefixtures("hurried")
async def test_a_glusterd_is_ended_in_the_middle_of_no_change(cluster: Cluster) -> None:
    brick_on(cluster, "h2").stuck, brick_on(cluster, "h2").runs = glusterd_of(cluster, "h2"), False
    await cluster.rounds(6)
    done = cluster.bench.faults["h2"].trace
    assert done[done.index("stop glusterd") - 1] == "lock glusterfs-change"


@pytest.mark.usefixtures("hurried")
async def test_a_node_with_a_wrong_declaration_is_not_told_of_a_brick_that_was_stuck_once(cluster: Cluster) -> None:
    brick_on(cluster, "h2").stuck, brick_on(cluster, "h2").runs = glusterd_of(cluster, "h2"), False
    for _ in range(8):
        if "stuck" not in node_told(cluster, "h2"):
            await cluster.round()
    assert "stuck" in node_told(cluster, "h2")
    cluster.bench.declare("h2", **cluster.bench.subject.spec, storageNetwork={"ips": ["192.0.2.9"]})
    cluster.bench.mark("h2", deleting=True)
    await cluster.round()
    assert "devices" in node_told(cluster, "h2")
    assert "stuck" not in node_told(cluster, "h2")


def node_told(cluster: Cluster, host: str) -> dict[str, object]:
    """What the node there is told."""
    asked = [one for one in cluster.bench.assignments.values() if (one.spec.agent, one.spec.host) == (NODE, host)]
    return asked[0].spec.desired or {}


def volume_facts(cluster: Cluster) -> dict[str, object]:
    pool = next(one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-pool")
    found = (pool.status.result or {})["volumes"][VOLUME]
    assert isinstance(found, dict)
    return found


def started_by_force(cluster: Cluster) -> list[str]:
    """The volumes, and what was done is forgotten."""
    found = [argv[-2] for _, argv in cluster.gluster.commands_run if argv[-3:-2] == ("start",) and argv[-1] == "force"]
    cluster.gluster.commands_run.clear()
    return found


async def split(cluster: Cluster, count: int) -> None:
    volume = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME)
    volume.split = [f"/file-{number:03}" for number in range(count)]
    cluster.lose("h3", for_good=False)
    await cluster.rounds(2)
    cluster.come_back("h3")  # it was away, so what is to be healed is counted
    await cluster.rounds(3)


async def test_files_whose_copies_contradict_each_other_are_told_until_somebody_has_decided(cluster: Cluster) -> None:
    await split(cluster, 2)
    plan = await cluster.rounds(1)
    assert (plan.degraded.holds, plan.degraded.reason) == (True, "SplitBrain")
    assert "2 files have copies that contradict each other, in pvc-1: /file-000, /file-001; " in plan.degraded.message
    assert "gluster volume heal pvc-1 split-brain source-brick BRICK FILE" in plan.degraded.message
    assert plan.details["splitBrain"] == "pvc-1: /file-000, /file-001"
    cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).split = []
    plan = await cluster.rounds(4)
    assert (plan.degraded.reason, "splitBrain" in plan.details) == ("Complete", False)


async def test_of_many_split_files_the_first_are_named_and_all_are_counted(cluster: Cluster) -> None:
    await split(cluster, 500)
    plan = await cluster.rounds(1)
    found = volume_facts(cluster)
    assert (len(found["split"]), found["splits"]) == (16, 500)  # type: ignore[arg-type]
    assert "500 files" in plan.degraded.message
    assert plan.details["splitBrain"] == "pvc-1: /file-000, /file-001, /file-002 and 497 more"


async def test_in_one_run_bricks_of_some_volumes_are_started_and_those_of_the_others_in_the_next(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_agent, "_RESTARTED", 2)
    names = [VOLUME, "pvc-2", "pvc-3", "pvc-4", "pvc-5"]
    for name in names[1:]:
        await cluster.bench.make(name, GIB)
    machine = cluster.bench.machines["h3"]
    for key in [key for key in machine.files if key[1].endswith(".glusterfs/volume-id")]:
        del machine.files[key]  # they end at once, whenever they are started
    pool = next(one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-pool")
    started_by_force(cluster)
    turns = []
    for _ in range(3):
        await cluster.bench.run(pool)
        turns.append(started_by_force(cluster))
    assert turns == [names[:2], names[2:4], [names[4], names[0]]]


async def test_no_brick_is_started_on_a_disk_that_is_dead(cluster: Cluster) -> None:
    machine = cluster.bench.machines["h3"]
    machine.pull_disk("/dev/vdb")  # what is mounted of it answers with errors
    await cluster.rounds(3)
    started_by_force(cluster)
    await cluster.rounds(3)
    assert started_by_force(cluster) == []


def asked_to_count(cluster: Cluster) -> list[str]:
    """The volumes, and what was done is forgotten."""
    found = [argv[-3] for _, argv in cluster.gluster.commands_run if argv[-2:] == ("info", "summary")]
    cluster.gluster.commands_run.clear()
    return found


async def with_five_volumes(cluster: Cluster) -> tuple[Assignment, list[str]]:
    """The coordinator's assignment, and the volumes, whose copies contradict each other in a file."""
    names = [VOLUME, "pvc-2", "pvc-3", "pvc-4", "pvc-5"]
    for name in names[1:]:
        await cluster.bench.make(name, GIB)
    for name in names:
        cluster.gluster.volume(cluster.bench.address("h1"), name).split = ["/file"]
    pool = next(one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-pool")
    return pool, names


def told(pool: Assignment, **more: list[str]) -> Assignment:
    return replace(pool, spec=replace(pool.spec, desired={**(pool.spec.desired or {}), **more}))


async def test_in_one_run_some_volumes_are_counted_and_the_others_in_the_next(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_agent, "_COUNTED", 2)
    pool, names = await with_five_volumes(cluster)
    asked_to_count(cluster)
    turns = []
    for _ in range(3):
        await cluster.bench.run(told(pool, watch=names))
        turns.append(asked_to_count(cluster))
    assert turns == [names[:2], names[2:4], [names[4], names[0]]]


async def test_in_one_run_some_volumes_with_a_dead_brick_are_compared_and_the_others_in_the_next(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_agent, "_COMPARED", 2)
    pool, names = await with_five_volumes(cluster)
    cluster.lose("h3", for_good=False)
    asked_to_count(cluster)
    turns = []
    for _ in range(3):
        await cluster.bench.run(told(pool, compare=names))
        turns.append(asked_to_count(cluster))
    assert turns == [names[:2], names[2:4], [names[4], names[0]]]


async def test_a_volume_whose_entries_take_too_long_to_count_is_in_the_way_of_no_other(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_agent, "_LOOKS_S", 1.0)
    pool, names = await with_five_volumes(cluster)
    asked: list[str] = []
    count = Gluster.heal_counts

    async def slow(gluster: Gluster, volume: VolumeInfo) -> tuple[HealCount, ...]:
        asked.append(volume.name)
        if volume.name == names[1]:
            await asyncio.sleep(3600)
        return await count(gluster, volume)

    monkeypatch.setattr(Gluster, "heal_counts", slow)
    await cluster.bench.run(told(pool, watch=names))
    assert asked == names[:2]
    await cluster.bench.run(told(pool, watch=names))
    assert asked[: len(names)] == names


async def test_two_glusterds_that_refuse_each_other_are_named_also_where_none_of_them_speaks_for_the_pool(
    cluster: Cluster, tmp_path: Path
) -> None:
    """As a glusterd writes it down; the coordinator's own says of both that they are in the cluster."""
    plan = await cluster.rounds(2)
    assert not plan.degraded.holds
    known = read_memory(plan.memory)
    uuids = {host: uuid for uuid, host in known.members.items()}
    one, other = (host for host in ("h1", "h2", "h3") if host != known.coordinator)
    peers = tmp_path / one / NODE / "glusterd" / "peers"
    peers.mkdir(parents=True)
    for host, state in ((known.coordinator, 3), (other, 6)):
        (peers / uuids[host]).write_text(f"uuid={uuids[host]}\nstate={state}\nhostname1={host}\n")
    plan = await cluster.rounds(2)
    assert (plan.degraded.holds, plan.degraded.reason) == (True, "PeersRefused")
    assert plan.degraded.message.endswith(f"refuse these: {one} and {other}")
    assert plan.ready.holds
    (peers / uuids[other]).write_text(f"uuid={uuids[other]}\nstate=3\nhostname1={other}\n")
    assert not (await cluster.rounds(2)).degraded.holds
