"""A volume that was made at the second attempt has bricks with longer names than were planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from quartermaster.backends.glusterfs.fake import FakeBrick, RefusedByGlusterError

from .modelled import GIB, VOLUME, Cluster


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Three nodes with a copy each; h2 has another disk. The first attempt left the directory of a brick behind."""
    made = Cluster(tmp_path)
    made.bench.add("h1", "h2", "h3")
    made.bench.machines["h2"].add_disk("vdc", serial="second")
    made.bench.declare("h2", devices=["/dev/vdb", "/dev/vdc"])
    await made.bench.settle()
    made.bench.online = True
    refuse_used = made.gluster._refuse_used
    refused: list[str] = []

    def refuse_once(brick: str) -> None:
        if not refused:
            refused.append(brick)
            raise RefusedByGlusterError(f"{brick.partition(':')[2]} is already part of a volume")
        refuse_used(brick)

    monkeypatch.setattr(made.gluster, "_refuse_used", refuse_once)
    await made.bench.make(VOLUME, GIB)
    await made.bench.work(again=True)
    assert all(brick.path.rpartition("/")[2].startswith(f"{VOLUME}.") for brick in bricks(made))
    assert made.gluster.write(VOLUME, 7)
    await made.rounds(2)
    return made


def bricks(cluster: Cluster) -> list[FakeBrick]:
    return cluster.gluster.volume(cluster.bench.address("h3"), VOLUME).bricks


def lose_the_disk_of_its_brick(cluster: Cluster, host: str) -> None:
    machine = cluster.bench.machines[host]
    brick = next(one for one in bricks(cluster) if one.address == cluster.bench.address(host))
    number = next(mount.number for mount in machine.mounts if brick.path.startswith(f"{mount.target}/"))
    machine.pull_disk(next(path for path, disk in machine.disks.items() if disk.number == number))


async def test_a_copy_is_made_anew_beside_one_that_is_dead_where_there_is_no_other_place(cluster: Cluster) -> None:
    lose_the_disk_of_its_brick(cluster, "h2")
    cluster.lose("h1")
    await cluster.rounds(10)
    assert sum(brick.runs for brick in bricks(cluster)) == 2


async def test_a_brick_that_runs_is_not_dead_although_the_agent_of_its_host_is_silent_for_long(
    cluster: Cluster,
) -> None:
    cluster.bench.add("h4")
    await cluster.rounds(3)
    cluster.bench.silent.append("h3")  # another one than the coordinator
    cluster.bench.lost.append("h3")
    for _ in range(4):
        plan = await cluster.round()
        assert not any(one.agent == "glusterfs-move" for one in plan.assignments)
