"""A volume that no PersistentVolume has any more: it was retained, its object is deleted, and what it is on stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from quartermaster.planning.outcomes import READY

from .modelled import VOLUME, Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    await made.rounds(2)
    return made


def forget_volume(cluster: Cluster) -> None:
    del cluster.bench.volumes[VOLUME]
    for name in [name for name, one in cluster.bench.assignments.items() if one.spec.instance == VOLUME]:
        del cluster.bench.assignments[name]


def holds_its_brick(cluster: Cluster, host: str) -> bool:
    """Whether the disk that it is on is mounted there."""
    volume, address = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME), cluster.bench.address(host)
    path = next(brick.path for brick in volume.bricks if brick.address == address)
    return any(path.startswith(f"{mount.target}/") for mount in cluster.bench.machines[host].mounts)


async def test_a_disk_with_its_brick_stays_when_it_is_declared_no_more_and_the_node_says_why(cluster: Cluster) -> None:
    cluster.bench.machines["h2"].add_disk("vdc", serial="second")
    cluster.bench.declare("h2", devices=["/dev/vdb", "/dev/vdc"])
    await cluster.rounds(3)
    forget_volume(cluster)
    cluster.bench.declare("h2", devices=["/dev/vdc"])
    plan = await cluster.rounds(4)
    assert holds_its_brick(cluster, "h2")
    assert plan.nodes["h2"].state == READY
    assert f"stays: it has a brick of {VOLUME}, which no PersistentVolume has" in plan.nodes["h2"].message
    del cluster.gluster.pool_of(cluster.bench.address("h1")).volumes[VOLUME]
    plan = await cluster.rounds(4)
    assert [mount.source for mount in cluster.bench.machines["h2"].mounts if "glusterd" in mount.target] == ["/dev/vdc"]
    assert plan.nodes["h2"].message == ""


async def test_so_does_the_only_disk_of_a_node(cluster: Cluster) -> None:
    forget_volume(cluster)
    cluster.bench.declare("h2", devices=[])
    plan = await cluster.rounds(4)
    assert holds_its_brick(cluster, "h2")
    assert plan.nodes["h2"].state == READY
