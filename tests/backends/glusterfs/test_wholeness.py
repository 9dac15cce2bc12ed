"""A brick is given up only for a copy that is whole elsewhere: one that runs and lacks something is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs import parsing, pool_agent, wholeness
from quartermaster.backends.glusterfs.facts import read_memory, write_memory
from quartermaster.backends.glusterfs.layouts import Layout
from quartermaster.backends.glusterfs.model import HealCount, VolumeInfo
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.planning.cluster import Desired
from quartermaster.resources.marks import ABANDON
from quartermaster.resources.orchestration import FAILED, assignment_name
from quartermaster.support.errors import HostError

from .modelled import VOLUME, Cluster, let_miss_something, pull_disk


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """h1, h2 and h3 have a copy each, h4 has room."""
    made = Cluster(tmp_path)
    await made.begin()
    made.bench.add("h4")
    await made.rounds(4)
    return made


async def let_it_be_about_to_leave(cluster: Cluster, host: str) -> None:
    cluster.bench.mark(host, deleting=True)
    await let_it_be_decided(cluster, '"dead":false')


async def let_it_be_decided(cluster: Cluster, what: str) -> None:
    """That a brick moves is written down, and not done."""
    for _ in range(8):
        plan = await cluster.bench.plan()
        cluster.bench.memory = dict(plan.memory)
        for desired in plan.assignments:
            cluster.bench.ask(desired)
        if what in plan.memory.get("moves", ""):
            break
        await cluster.bench.work(again=True)
    assert cluster.bricks() == ["h1", "h2", "h3"]


async def let_two_be_away_in_turn(cluster: Cluster) -> None:
    """h1, then h2: nobody has counted anything in between, so both may lack something."""
    cluster.lose("h1", for_good=False)
    await cluster.round(healing=False)
    cluster.come_back("h1")
    cluster.lose("h2", for_good=False)
    await cluster.round(healing=False)
    cluster.come_back("h2")


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


@pytest.fixture
def listing_no_bricks(monkeypatch: pytest.MonkeyPatch) -> None:
    """gluster says what is to be healed, and leaves out every brick."""
    found = parsing.read_answer(b"<cliOutput><healInfo><bricks/></healInfo><opRet>0</opRet></cliOutput>", "ask")
    counts = parsing.heal_counts
    monkeypatch.setattr(parsing, "heal_counts", lambda _, bricks: counts(found, bricks))


async def test_an_agent_gives_up_no_brick_on_an_answer_that_lists_none(
    cluster: Cluster, listing_no_bricks: None
) -> None:
    desired = {
        "volume": VOLUME,
        "old": cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).bricks[2].name,
        "new": f"{cluster.bench.address('h4')}:/srv/new",
    }
    cluster.bench.ask(Desired("h1", "glusterfs-move", desired, "brick-pvc-1"))
    await cluster.bench.work()
    move = cluster.bench.assignments[assignment_name("glusterfs-move", "h1", "brick-pvc-1")]
    assert "not all of its bricks answer" in move.status.message
    assert cluster.bricks() == ["h1", "h2", "h3"]


async def test_a_volume_is_not_counted_whole_by_an_answer_that_lists_no_bricks(
    cluster: Cluster, listing_no_bricks: None
) -> None:
    pool = next(one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-pool")
    desired = {**(pool.spec.desired or {}), "watch": [VOLUME]}
    told = await cluster.bench.run(replace(pool, spec=replace(pool.spec, desired=desired)))
    assert told is not None
    assert "pending" not in told["volumes"][VOLUME]


async def test_what_is_left_of_a_brick_stays_on_an_answer_that_lists_none(
    cluster: Cluster, listing_no_bricks: None
) -> None:
    machine = cluster.bench.machines["h3"]
    number, brick = next((number, path) for number, path in machine.directories if path.endswith(VOLUME))
    machine.directories[number, f"{brick}.m7"] = None
    await cluster.rounds(3)
    assert (number, f"{brick}.m7") in machine.directories


async def test_a_brick_that_was_to_leave_and_dies_before_it_could_is_made_anew(cluster: Cluster) -> None:
    await let_it_be_about_to_leave(cluster, "h3")
    cluster.lose("h3")
    cluster.bench.mark("h3", {ABANDON: "h3"}, deleting=True)
    await cluster.rounds(8)
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]
    assert not cluster.gluster.is_lost(VOLUME)


@pytest.mark.slow
async def test_a_brick_that_is_to_leave_waits_until_one_that_died_meanwhile_is_made_anew(cluster: Cluster) -> None:
    cluster.bench.add("h5")
    await cluster.rounds(3)
    await let_it_be_about_to_leave(cluster, "h3")
    cluster.lose("h2")
    cluster.bench.mark("h2", {ABANDON: "h2"}, deleting=True)
    await cluster.rounds(16)
    assert sorted(cluster.bricks()) == ["h1", "h4", "h5"]
    assert not cluster.gluster.is_lost(VOLUME)


@pytest.mark.slow
async def test_a_brick_that_was_dead_and_is_back_before_it_was_given_up_stays(cluster: Cluster) -> None:
    machine = cluster.bench.machines["h3"]
    device = machine.disks["/dev/vdb"]
    mounts = [mount for mount in machine.mounts if mount.number == device.number]
    pull_disk(cluster, "h3")
    await let_it_be_decided(cluster, '"dead":true')
    machine.put_disk(device, "/dev/vdb")
    machine.mounts += mounts
    await cluster.rounds(6)
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert '"open"' not in cluster.bench.memory.get("moves", "")


@pytest.mark.slow
async def test_an_agent_gives_up_no_brick_that_was_dead_and_runs_again(cluster: Cluster) -> None:
    machine = cluster.bench.machines["h3"]
    device = machine.disks["/dev/vdb"]
    mounts = [mount for mount in machine.mounts if mount.number == device.number]
    pull_disk(cluster, "h3")
    await let_it_be_decided(cluster, '"dead":true')
    machine.put_disk(device, "/dev/vdb")
    machine.mounts += mounts
    move = next(one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-move")
    with pytest.raises(HostError, match="runs again"):
        await cluster.bench.run(move)
    assert cluster.bricks() == ["h1", "h2", "h3"]


def start_bricks_anew(cluster: Cluster, *hosts: str) -> None:
    """They were away for a moment in which nobody looked."""
    volume = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME)
    for brick in volume.bricks:
        brick.starts += brick.address in [cluster.bench.address(host) for host in hosts]


@pytest.mark.slow
async def test_an_agent_makes_no_brick_anew_from_copies_that_were_started_since_they_were_known_to_be_whole(
    cluster: Cluster,
) -> None:
    pull_disk(cluster, "h3")
    await let_it_be_decided(cluster, '"dead":true')
    move = next(one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-move")
    start_bricks_anew(cluster, "h1", "h2")
    with pytest.raises(HostError, match="0 of the copies that were whole have run since"):
        await cluster.bench.run(move)
    assert cluster.bricks() == ["h1", "h2", "h3"]


@pytest.mark.slow
async def test_a_copy_that_knows_of_less_than_another_one_is_no_source_and_a_person_is_told(cluster: Cluster) -> None:
    """It was cut off for a moment: nobody has seen that, and it is the same process."""
    pull_disk(cluster, "h3")
    await let_it_be_decided(cluster, '"dead":true')
    name, move = next(one for one in cluster.bench.assignments.items() if one[1].spec.agent == "glusterfs-move")
    brick = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).bricks[0]
    brick.behind, brick.complete = 3, False
    told = {**(move.spec.desired or {}), "sources": [brick.name]}
    asked = replace(move, spec=replace(move.spec, desired=told))
    with pytest.raises(HostError, match="they lack something") as refused:
        await cluster.bench.run(asked)
    assert cluster.bricks() == ["h1", "h2", "h3"]
    failed = replace(
        move.status,
        state=FAILED,
        message=str(refused.value),
        reason=refused.value.reason,
        observed_generation=move.spec.generation,
    )
    cluster.bench.assignments[name] = replace(move, status=failed)
    plan = await cluster.bench.plan()
    assert "serial-h3 in spec.wipe of StorageNode h3" in plan.details["stuck"]
    await cluster.rounds(10)  # the other copy is whole, and is asked for as well
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]
    assert not cluster.gluster.is_lost(VOLUME)


async def test_a_copy_that_cannot_be_read_is_no_source_although_its_process_runs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk has died a moment ago, and its node has not told that yet."""
    pull_disk(cluster, "h3")
    await let_it_be_decided(cluster, '"dead":true')
    move = next(one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-move")
    brick = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).bricks[0]
    told = {**(move.spec.desired or {}), "sources": [brick.name]}
    count = Gluster.heal_counts

    async def without_it(gluster: Gluster, volume: VolumeInfo) -> tuple[HealCount, ...]:
        found = await count(gluster, volume)
        return tuple(HealCount(one.brick, connected=False) if one.brick == brick.name else one for one in found)

    monkeypatch.setattr(Gluster, "heal_counts", without_it)
    with pytest.raises(HostError, match="0 of the copies that are whole can be read, and 1 are needed"):
        await cluster.bench.run(replace(move, spec=replace(move.spec, desired=told)))
    assert cluster.bricks() == ["h1", "h2", "h3"]


async def test_a_copy_that_was_started_anew_between_two_looks_may_lack_something_until_it_was_counted(
    cluster: Cluster,
) -> None:
    start_bricks_anew(cluster, "h2")
    await cluster.bench.work(again=True)
    plan = await cluster.bench.plan()
    assert read_memory(plan.memory).behind == {VOLUME: (1,)}
    plan = await cluster.rounds(3)
    assert read_memory(plan.memory).behind == {}


@pytest.mark.slow
async def test_a_move_is_held_back_when_the_copies_that_it_was_to_be_made_from_may_lack_something(
    cluster: Cluster,
) -> None:
    pull_disk(cluster, "h3")
    await let_it_be_decided(cluster, '"dead":true')
    memory = read_memory(cluster.bench.memory)
    assert memory.moves[VOLUME].open.sources
    cluster.bench.memory = write_memory(replace(memory, behind={VOLUME: (0, 1, 2)}))
    held = await cluster.bench.plan()
    assert read_memory(held.memory).moves[VOLUME].open.sources == ()
    assert "bring it back" in held.details["stuck"]


@pytest.mark.slow
async def test_copies_that_are_in_doubt_only_since_a_move_was_decided_are_compared_too(cluster: Cluster) -> None:
    pull_disk(cluster, "h3")
    await let_it_be_decided(cluster, '"dead":true')
    memory = read_memory(cluster.bench.memory)
    cluster.bench.memory = write_memory(replace(memory, behind={VOLUME: (0, 1, 2)}))
    await cluster.rounds(10)
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]
    assert not cluster.gluster.is_lost(VOLUME)


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


@pytest.mark.slow
async def test_copies_that_were_away_and_lack_nothing_are_compared_and_a_dead_one_is_made_from_them(
    cluster: Cluster,
) -> None:
    await let_two_be_away_in_turn(cluster)
    pull_disk(cluster, "h3")
    plan = await cluster.round(healing=False)
    assert '"pvc-1":[0,1' in plan.memory["behind"]
    await cluster.rounds(10)
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]
    assert not cluster.gluster.is_lost(VOLUME)


@pytest.mark.slow
async def test_a_dead_brick_stays_while_of_two_copies_that_were_away_one_lacks_something(cluster: Cluster) -> None:
    await let_two_be_away_in_turn(cluster)
    pull_disk(cluster, "h3")
    cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).bricks[0].behind = 3
    plan = await cluster.rounds(6, healing=False)
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert "serial-h3 in spec.wipe of StorageNode h3" in plan.details["stuck"]


async def test_what_is_to_be_healed_and_does_not_get_less_is_asked_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await let_miss_something(cluster, "h2")
    assert asked_to_heal(cluster) == 0  # it has ten seconds to begin by itself
    monkeypatch.setattr(pool_agent, "_HEAL_AGAIN_S", 0.0)
    await cluster.rounds(2, healing=False)
    assert asked_to_heal(cluster) == 2
    await cluster.rounds(3)
    assert asked_to_heal(cluster) <= 3


def asked_to_heal(cluster: Cluster) -> int:
    return sum(argv[-2:] == ("heal", VOLUME) for _, argv in cluster.gluster.commands_run)


@pytest.mark.parametrize("earlier", [False, True], ids=["", "by an agent of an earlier version"])
async def test_a_cluster_with_a_volume_that_cannot_be_written_to_is_not_ready_either(
    cluster: Cluster, earlier: bool
) -> None:
    """Else it would be ONLINE because its nodes are ready, OFFLINE because of the volume, and so on for ever."""
    await cluster.rounds(2)
    asked = cluster.bench.assignments
    name, told = next((one, two) for one, two in asked.items() if two.spec.agent == "glusterfs-pool")
    result = told.status.result or {}
    fact = result["volumes"][VOLUME]
    volumes = {VOLUME: {**fact, "offline": fact["bricks"][:2] if earlier else [0, 1]}}
    status = replace(told.status, result={**result, "volumes": volumes})
    cluster.bench.assignments[name] = replace(told, status=status)
    plan = await cluster.bench.plan()
    assert (plan.usable.holds, plan.ready.holds) == (False, False)
    assert plan.ready.reason == "VolumesUnusable"


@pytest.mark.parametrize(
    ("told", "known"),
    [
        pytest.param({"started": False, "processes": ["", "", ""]}, False, id="before-it-was-started"),
        pytest.param({"processes": ["", "", ""]}, False, id="without-the-processes-of-its-bricks"),
        pytest.param({}, True, id="while-it-ran"),
    ],
)
async def test_copies_are_known_to_be_whole_by_a_look_at_a_volume_that_ran(
    cluster: Cluster, told: dict[str, object], known: bool
) -> None:
    """Seed 3302 lost data: the last look was from before the volume was started, and its coordinator away since then;
    when that was back its own brick lacked something, and served as the copy that was taken for whole.
    """
    name, pool = next(
        (one, two) for one, two in cluster.bench.assignments.items() if two.spec.agent == "glusterfs-pool"
    )
    result = pool.status.result or {}
    seen = {VOLUME: {**result["volumes"][VOLUME], **told}}
    status = replace(pool.status, result={**result, "volumes": seen})
    cluster.bench.assignments[name] = replace(pool, status=status)
    if not known:
        cluster.bench.memory = {key: text for key, text in cluster.bench.memory.items() if key != "processes"}
    cluster.lose(pool.spec.host, for_good=False)
    pull_disk(cluster, "h2" if pool.spec.host != "h2" else "h3")
    plan = await cluster.bench.plan()
    assert (read_memory(plan.memory).moves.get(VOLUME) is not None) is known


@pytest.mark.parametrize(
    ("alike", "new", "believed"),
    [
        pytest.param((0, 1), set(), [0, 1], id="one-of-two-has-whatever-two-have-taken"),
        pytest.param((1, 2), {2}, [], id="a-new-brick-has-nothing-of-what-was-written-before"),
        pytest.param((0, 1, 2), {2}, [0, 1], id="two-beside-a-new-one"),
        pytest.param((1, 4, 5), set(), [4, 5], id="each-set-by-itself"),
    ],
)
def test_a_copy_is_believed_where_enough_others_that_could_know_say_nothing_of_it(
    alike: tuple[int, ...], new: set[int], believed: list[int]
) -> None:
    """Seed 54 lost data: a copy that had been away was taken for whole because a brick that was new knew of nothing."""
    assert wholeness._believed(Layout(replicas=3), alike, new) == believed
