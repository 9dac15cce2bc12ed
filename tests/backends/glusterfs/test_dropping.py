"""What is given up of a volume that cannot be deleted yet: what can never come back, and while nobody uses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs.facts import MOVE
from quartermaster.resources.marks import ABANDON, DELETE_IN_USE

from .modelled import VOLUME, Cluster, ask_for_its_end

HOSTS = ("h1", "h2", "h3")


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """h1, h2 and h3 have a copy each, and a second disk; h5 is silent, and so nothing can be deleted."""
    made = Cluster(tmp_path)
    await made.begin()
    made.bench.add("h4", "h5")
    for host in HOSTS:
        made.bench.machines[host].add_disk("vdc", serial=f"second-{host}")
        made.bench.declare(host, devices=["/dev/vdb", "/dev/vdc"])
    await made.rounds(4)
    made.lose("h5", for_good=False)
    return made


def names(cluster: Cluster) -> list[str]:
    return [brick.name for brick in cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).bricks]


async def doomed(cluster: Cluster) -> str:
    """Nobody used it when that was looked at."""
    name = await ask_for_its_end(cluster)
    await cluster.bench.work()
    assert "does not answer, and gluster deletes only while all do" in cluster.bench.assignments[name].status.message
    return name


async def test_disks_that_are_not_found_for_a_while_keep_their_copies_for_it_may_be_kept_after_all(
    cluster: Cluster,
) -> None:
    await doomed(cluster)
    before, pulled = names(cluster), {}
    for host in HOSTS:
        machine = cluster.bench.machines[host]
        path = next(path for path, disk in machine.disks.items() if is_on(cluster, host, disk.number))
        pulled[host] = path, machine.pull_disk(path)
        machine.mounts[:] = [one for one in machine.mounts if one.number != pulled[host][1].number]
    await cluster.rounds(3)
    for host, (path, disk) in pulled.items():
        cluster.bench.machines[host].disks[path] = disk
    cluster.bench.volumes[VOLUME] = replace(cluster.bench.volumes[VOLUME], kept=True)
    plan = await cluster.rounds(6)
    assert names(cluster) == before
    assert not cluster.gluster.is_lost(VOLUME)
    assert plan.usable.holds, plan.usable.message


async def test_a_disk_that_somebody_has_given_up_is_left(cluster: Cluster) -> None:
    await doomed(cluster)
    machine = cluster.bench.machines["h2"]
    path = next(path for path, disk in machine.disks.items() if is_on(cluster, "h2", disk.number))
    disk = machine.pull_disk(path)
    machine.mounts[:] = [one for one in machine.mounts if one.number != disk.number]
    await cluster.rounds(2)
    cluster.bench.declare("h2", devices=["/dev/vdb", "/dev/vdc"], wipe=[disk.serial])
    before = names(cluster)
    await cluster.rounds(3)
    assert len(set(before) - set(names(cluster))) == 1


async def test_a_lost_hosts_copy_is_not_given_up_for_an_empty_one_while_somebody_uses_it_since(
    cluster: Cluster,
) -> None:
    name = await doomed(cluster)
    before = names(cluster)
    cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).mounts = 1
    cluster.lose("h3")
    cluster.bench.mark("h3", {ABANDON: "h3"}, deleting=True)
    await told_to_move(cluster)
    assert names(cluster) == before
    (move,) = [one for one in cluster.bench.assignments.values() if one.spec.agent == MOVE]
    assert "it is in use" in move.status.message
    asked = cluster.bench.assignments[name]
    forced = replace(asked.metadata, annotations={DELETE_IN_USE: "true"})
    cluster.bench.assignments[name] = replace(asked, metadata=forced)
    await told_to_move(cluster)
    assert names(cluster) != before


async def told_to_move(cluster: Cluster) -> None:
    """Whoever is to delete the volume does not look again meanwhile."""
    plan = await cluster.bench.plan()
    cluster.bench.memory = dict(plan.memory)
    for desired in plan.assignments:
        cluster.bench.ask(desired)
    await cluster.bench.work(only=MOVE)


def is_on(cluster: Cluster, host: str, number: int) -> bool:
    """Whether the brick of that host is on that disk."""
    path = next(one for one in names(cluster) if one.startswith(f"{cluster.bench.address(host)}:")).partition(":")[2]
    mounts = [one for one in cluster.bench.machines[host].mounts if path.startswith(f"{one.target}/")]
    return number in [one.number for one in mounts]
