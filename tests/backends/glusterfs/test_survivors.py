"""What runs on after the end of a glusterd of ours: a brick is ended when the pool has it no more, and not before."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs import asking
from quartermaster.backends.glusterfs.facts import NODE
from quartermaster.backends.glusterfs.fake import FakeBrick
from quartermaster.backends.glusterfs.model import VolumeInfo
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.host.programs import Program
from quartermaster.planning.cluster import Desired
from quartermaster.resources import ObjectMeta, StorageStatus
from quartermaster.resources.orchestration import SUCCEEDED, assignment_name
from quartermaster.resources.storage import BackendReport, StorageStatusSpec
from tests.backends.conformance.bench import NAMESPACE

from .modelled import VOLUME, Cluster

AWAY = "h3"
SOMEBODYS = "11111111-0000-4000-8000-000000000000"


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """What the glusterd of h3 has started runs there, beside what somebody else did; h4 has room."""
    made = Cluster(tmp_path)
    await made.begin()
    made.bench.add("h4")
    await made.rounds(4)
    uuid = made.gluster.uuid(made.bench.address(AWAY))
    made.bench.machines[AWAY].programs += [
        process_of(made, uuid),
        program("glusterfs", "--xlator-option", f"*replicate*.node-uuid={uuid}", "--process-name", "glustershd"),
        program("glusterfs", "--volfile-id", "gluster/quotad", "--process-name", "quotad"),
        program("glusterfs", "--process-name", "fuse", "--volfile-id=/data", "/mnt/data"),
        process_of(made, SOMEBODYS),
    ]
    return made


def program(*words: str) -> Program:
    return Program(pid=len(" ".join(words)), started=1, arguments=(f"/usr/sbin/{words[0]}", *words[1:]))


def brick_of(cluster: Cluster) -> FakeBrick:
    address = cluster.bench.address(AWAY)
    bricks = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).bricks
    return next(one for one in bricks if one.address == address)


def process_of(cluster: Cluster, uuid: str) -> Program:
    brick = brick_of(cluster)
    named = ("-s", brick.address, "--volfile-id", f"{VOLUME}.{brick.address}.and-its-path", "--brick-name", brick.path)
    return program("glusterfsd", *named, "--xlator-option", f"*-posix.glusterd-uuid={uuid}", "--process-name", "brick")


async def know_the_pool(cluster: Cluster, *servers: str) -> None:
    addresses = ", ".join(map(cluster.bench.address, servers))
    spec = StorageStatusSpec(type="glusterfs", glusterfs=BackendReport(details={"servers": addresses}))
    metadata = ObjectMeta(name=cluster.bench.key.status_name, namespace=NAMESPACE)
    await cluster.bench._store.create(StorageStatus(metadata=metadata, spec=spec))


async def give_up(cluster: Cluster) -> str:
    """Why its agent has not given up everything yet; "" when it has."""
    cluster.bench.ask(Desired(AWAY, NODE, None))
    await cluster.bench.work(only=NODE)
    left = cluster.bench.assignments.get(assignment_name(NODE, AWAY))
    return left.status.message if left is not None else ""


def running(cluster: Cluster) -> list[str]:
    return [one.after("--process-name") for one in cluster.bench.machines[AWAY].programs]


def has_mounted(cluster: Cluster) -> bool:
    return any("glusterd" in mount.target for mount in cluster.bench.machines[AWAY].mounts)


def put_elsewhere(cluster: Cluster) -> None:
    old = brick_of(cluster)
    new = replace(old, address=cluster.bench.address("h4"), path="/elsewhere/pvc-1.m1")
    bricks = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).bricks
    bricks[bricks.index(old)] = new


async def test_a_brick_that_the_pool_has_still_serves_on(cluster: Cluster) -> None:
    await know_the_pool(cluster, "h1", "h2")
    assert "the pool has it still" in await give_up(cluster)
    assert running(cluster) == ["brick", "glustershd", "quotad", "fuse", "brick"]
    assert has_mounted(cluster)


async def test_one_that_is_elsewhere_by_now_ends_with_all_that_its_glusterd_has_started(cluster: Cluster) -> None:
    await know_the_pool(cluster, "h1", "h2")
    await give_up(cluster)
    put_elsewhere(cluster)
    assert await give_up(cluster) == ""
    assert running(cluster) == ["fuse", "brick"]  # a mount, and what another glusterd has started
    assert not has_mounted(cluster)


async def test_one_that_serves_on_keeps_no_other_one_from_ending(cluster: Cluster) -> None:
    await know_the_pool(cluster, "h1", "h2")
    programs = cluster.bench.machines[AWAY].programs
    words = (word.replace(VOLUME, "pvc-2") for word in programs[0].arguments[1:])
    programs.append(program("glusterfsd", *words))  # of a volume that the pool has no more
    assert "the pool has it still" in await give_up(cluster)
    assert running(cluster) == ["brick", "glustershd", "quotad", "fuse", "brick"]


async def test_a_brick_of_a_volume_that_is_deleted_ends(cluster: Cluster) -> None:
    await know_the_pool(cluster, "h1", "h2")
    del cluster.gluster.pool_of(cluster.bench.address("h1")).volumes[VOLUME]
    assert await give_up(cluster) == ""
    assert running(cluster) == ["fuse", "brick"]


async def test_whoever_of_the_pool_answers_is_believed(cluster: Cluster) -> None:
    await know_the_pool(cluster, "h2", "h1")
    cluster.lose("h2")
    put_elsewhere(cluster)
    assert await give_up(cluster) == ""


async def test_while_nobody_of_the_pool_answers_a_brick_serves_on(cluster: Cluster) -> None:
    await know_the_pool(cluster, "h1", "h2")
    cluster.gluster.cut |= {cluster.bench.address(name) for name in ("h1", "h2", "h4")}
    assert "nobody says whether the pool has it still" in await give_up(cluster)
    assert "brick" in running(cluster)


async def test_of_a_cluster_that_is_gone_nothing_is_asked(cluster: Cluster) -> None:
    assert await give_up(cluster) == ""
    assert running(cluster) == ["fuse", "brick"]


async def test_what_a_glusterd_of_somebody_else_has_started_is_left_to_him(cluster: Cluster) -> None:
    record = next(cluster.bench._directory.glob(f"{AWAY}/**/glusterd.json"))
    record.write_text(record.read_text().replace('"own":true', '"own":false'))
    assert await give_up(cluster) == ""
    assert len(running(cluster)) == 5


async def test_a_node_that_is_declared_anew_meanwhile_begins_with_a_glusterd_that_knows_no_pool(
    cluster: Cluster,
) -> None:
    await know_the_pool(cluster, "h1", "h2")
    await give_up(cluster)
    aside = next(cluster.bench._directory.glob(f"{AWAY}/**/removed"))
    assert [one.name for one in aside.iterdir()] == [cluster.gluster.uuid(cluster.bench.address(AWAY))]
    assert not (aside.parent / "glusterd").exists()


async def let_go_while_away(cluster: Cluster) -> tuple[int, str]:
    """Its own glusterd has the brick still; the leader says that it goes. Where that brick is on its disks."""
    gluster, address = cluster.gluster, cluster.bench.address(AWAY)
    machine, brick = cluster.bench.machines[AWAY], brick_of(cluster)
    number = next(number for number, path in machine.directories if path == brick.path)
    known = copy.deepcopy(gluster.volume(cluster.bench.address("h1"), VOLUME))
    put_elsewhere(cluster)
    gluster.detach(cluster.bench.address("h1"), address, force=True)
    gluster.pool_of(address).volumes[VOLUME] = known
    config = cluster.bench.assignments[assignment_name(NODE, AWAY)].spec.desired or {}
    cluster.bench.ask(Desired(AWAY, NODE, {**config, "remove": [brick.path], "apart": True}))
    return number, brick.path


async def test_what_is_left_on_a_host_that_was_let_go_while_it_was_away_is_removed_although_its_glusterd_has_it(
    cluster: Cluster,
) -> None:
    await know_the_pool(cluster, "h1", "h2")
    left = await let_go_while_away(cluster)
    await cluster.bench.work(only=NODE)
    assert left not in cluster.bench.machines[AWAY].directories


@pytest.mark.parametrize("why", ["the pool has it", "nobody answers", "whoever answers is alone", "no cluster"])
async def test_it_stays_unless_a_member_of_the_pool_says_that_it_has_it_no_more(cluster: Cluster, why: str) -> None:
    if why != "no cluster":
        await know_the_pool(cluster, "h1", "h2")
    left = await let_go_while_away(cluster)
    if why == "the pool has it":
        volumes = cluster.gluster.pool_of(cluster.bench.address(AWAY)).volumes
        cluster.gluster.pool_of(cluster.bench.address("h1")).volumes[VOLUME] = volumes[VOLUME]
    if why == "whoever answers is alone":
        for name in ("h2", "h4"):
            cluster.gluster.pool_of(cluster.bench.address("h1")).members.remove(cluster.bench.address(name))
        cluster.gluster.cut.add(cluster.bench.address("h2"))
    if why == "nobody answers":
        cluster.gluster.cut |= {cluster.bench.address(name) for name in ("h1", "h2", "h4")}
    await cluster.bench.work(only=NODE)
    assert left in cluster.bench.machines[AWAY].directories
    assert cluster.bench.assignments[assignment_name(NODE, AWAY)].status.state == SUCCEEDED


async def test_who_does_not_answer_for_long_is_not_in_the_way_of_the_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await know_the_pool(cluster, "h1", "h2", "h4")
    left = await let_go_while_away(cluster)
    asked: list[str] = []
    look = Gluster.volume

    async def slow(gluster: Gluster, name: str) -> VolumeInfo | None:
        where = "".join(gluster._where)
        if not where or where.endswith(cluster.bench.address("h4")):
            return await look(gluster, name)
        asked.append(where)
        return await asyncio.sleep(3_600.0)

    monkeypatch.setattr(Gluster, "volume", slow)
    monkeypatch.setattr(asking, "_ASKED_S", 0.01)
    await cluster.bench.work(only=NODE)
    assert left not in cluster.bench.machines[AWAY].directories
    assert len(set(asked)) == len(asked)
