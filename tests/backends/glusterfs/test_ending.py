"""Which volumes were deleted: one that comes back is deleted again, and one that was only to be deleted never is."""

from __future__ import annotations

from pathlib import Path

import pytest

from quartermaster.backends.base import Placement, Volume
from quartermaster.backends.glusterfs.facts import Memory, read_memory, write_memory

from .modelled import VOLUME, Cluster, ask_for_its_end


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    await made.rounds(2)
    return made


def remembered(cluster: Cluster) -> Memory:
    return read_memory(cluster.bench.memory)


def is_there(cluster: Cluster) -> bool:
    return VOLUME in cluster.gluster.pool_of(cluster.bench.address("h1")).volumes


async def begin_to_delete(cluster: Cluster) -> None:
    """It waits for h3."""
    cluster.lose("h3", for_good=False)
    await cluster.round()
    await ask_for_its_end(cluster)
    await cluster.rounds(2)


async def keep_after_all(cluster: Cluster) -> None:
    """As the deleter does when the PersistentVolume is set to Retain: then its object can go at once."""
    view = await cluster.bench.view()
    placed = view.volumes[0]
    volume = Volume(VOLUME, placed.size, Placement(placed.hosts, dict(placed.details)))
    cluster.bench.ask(cluster.bench.backend.volumes().desired_now(volume, view))
    del cluster.bench.volumes[VOLUME]


@pytest.mark.parametrize("looks", [0, 2], ids=["while the host is away", "when it is back"])
async def test_a_volume_that_was_retained_while_its_deletion_waited_is_never_deleted_although_no_plan_saw_that(
    cluster: Cluster, looks: int
) -> None:
    """The cluster may have been paused meanwhile, and the object be gone in the same second."""
    await begin_to_delete(cluster)
    await keep_after_all(cluster)
    await cluster.rounds(looks)
    cluster.come_back("h3")
    await cluster.rounds(4)
    assert is_there(cluster)
    assert cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).started
    assert (remembered(cluster).ending, remembered(cluster).ended) == ({}, ())


async def test_such_a_volume_is_named_as_one_that_keeps_its_node(cluster: Cluster) -> None:
    await begin_to_delete(cluster)
    await keep_after_all(cluster)
    cluster.come_back("h3")
    await cluster.rounds(4)
    cluster.bench.mark("h2", deleting=True)
    plan = await cluster.rounds(2)
    assert f"it has a brick of {VOLUME}, which no PersistentVolume has" in plan.nodes["h2"].message


async def test_a_volume_that_was_deleted_and_is_brought_back_by_a_host_that_was_away_is_deleted_again(
    cluster: Cluster,
) -> None:
    pool = cluster.gluster.pool_of(cluster.bench.address("h1"))
    volume = pool.volumes[VOLUME]
    await ask_for_its_end(cluster)
    await cluster.round()
    assert not is_there(cluster)
    await cluster.round()
    del cluster.bench.volumes[VOLUME]
    await cluster.round()
    pool.volumes[VOLUME] = volume
    await cluster.rounds(3)
    assert not is_there(cluster)


async def test_nothing_counts_as_deleted_for_a_look_from_before_it_was_to_be_deleted(cluster: Cluster) -> None:
    """A cache may be behind, and the look be older than the volume."""
    identity = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).id
    del cluster.gluster.pool_of(cluster.bench.address("h1")).volumes[VOLUME]
    await cluster.bench.work(again=True)
    cluster.bench.memory |= write_memory(Memory(ending={VOLUME: identity}))
    plan = await cluster.bench.plan()
    assert read_memory(plan.memory).ending == {VOLUME: identity}
    assert read_memory(plan.memory).ended == ()
    await cluster.rounds(2)
    assert remembered(cluster).ended == (identity,)


async def test_nothing_is_decided_of_it_while_nobody_looks(cluster: Cluster) -> None:
    await begin_to_delete(cluster)
    await keep_after_all(cluster)
    cluster.bench.silent += ["h1", "h2"]
    await cluster.rounds(3)
    assert list(remembered(cluster).ending) == [VOLUME]
    assert remembered(cluster).ended == ()


async def test_the_next_coordinator_goes_on_with_what_is_being_deleted(cluster: Cluster) -> None:
    await begin_to_delete(cluster)
    cluster.come_back("h3")
    pool = cluster.gluster.pool_of(cluster.bench.address("h1"))
    volume = pool.volumes.pop(VOLUME)
    cluster.lose("h1", for_good=False)
    del cluster.bench.volumes[VOLUME]
    await cluster.rounds(4)
    assert remembered(cluster).coordinator == "h2"
    assert remembered(cluster).ended == (volume.id,)
