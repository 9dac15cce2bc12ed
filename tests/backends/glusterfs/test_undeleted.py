"""Volumes that cannot be deleted yet, because a host of the pool is away: what that is in the way of, and what not."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Volume
from quartermaster.backends.glusterfs.seeing import see
from quartermaster.planning.cluster import ClusterView
from quartermaster.planning.outcomes import READY
from quartermaster.resources.marks import ABANDON
from quartermaster.resources.orchestration import FAILED, Assignment
from quartermaster.resources.storage import Replication

from .modelled import GIB, VOLUME, Cluster, ask_for_its_end


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    return made


async def in_one_copy(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, name: str, size: int) -> Volume:
    view = cluster.bench.view

    async def with_one_copy() -> ClusterView:
        seen = await view()
        return replace(seen, settings=replace(seen.settings, replication=Replication(replicas=1)))

    with monkeypatch.context() as patched:
        patched.setattr(cluster.bench, "view", with_one_copy)
        return await cluster.bench.make(name, size)


async def test_a_volume_of_one_copy_whose_host_is_given_up_is_in_the_way_of_no_deletion(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gluster replaces no brick of a volume that is kept in one copy, and deletes nothing while a peer is away."""
    bench = cluster.bench
    only = await in_one_copy(cluster, monkeypatch, "pvc-only", GIB)
    await cluster.rounds(3)
    lost = only.placement.hosts[0]
    cluster.lose(lost)
    await cluster.rounds(2)
    bench.mark(lost, {ABANDON: lost}, deleting=True)
    for name in ("pvc-only", VOLUME):
        await ask_for_its_end(cluster, name)
        bench.volumes[name] = replace(bench.volumes[name], kept=False)
    for _ in range(12):
        plan = await cluster.round()
        for removable in plan.removable:
            bench.nodes.pop(removable, None)
    assert lost not in bench.nodes
    living = next(host for host in ("h1", "h2", "h3") if host != lost)
    pool = cluster.gluster.pool_of(bench.address(living))
    assert (bench.address(lost) in pool.members, list(pool.volumes)) == (False, [])


async def test_a_host_stays_ready_that_cannot_delete_a_volume_yet_and_says_so(cluster: Cluster) -> None:
    """Else the cluster may lack a node for the very claim whose volume keeps the lost host in the pool (seed 2831)."""
    name = await ask_for_its_end(cluster)
    keeper = cluster.bench.assignments[name].spec.host
    cluster.lose(next(host for host in ("h1", "h2", "h3") if host != keeper), for_good=False)
    plan = await cluster.rounds(2)
    assert cluster.bench.assignments[name].status.state == FAILED
    outcome = next(plan.nodes[node.name] for node in (await cluster.bench.view()).nodes if node.host == keeper)
    assert outcome.state == READY
    assert "does not answer, and gluster deletes only while all do" in outcome.message


async def test_the_brick_of_a_given_up_host_goes_beside_no_other_of_a_volume_that_is_being_deleted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes the volume over to delete it would find two copies on a host, and move one (seeds 47 and 120)."""
    bench = cluster.bench
    bench.add("h4")
    await cluster.rounds(3)
    # There is less room on the only host that has no copy.
    assert (await in_one_copy(cluster, monkeypatch, "pvc-large", 2 * GIB)).placement.hosts == ("h4",)
    await cluster.rounds(1)
    await ask_for_its_end(cluster)
    bench.volumes[VOLUME] = replace(bench.volumes[VOLUME], kept=False)
    cluster.lose("h3")
    bench.mark("h3", {ABANDON: "h3"}, deleting=True)
    places = []
    for _ in range(8):
        await cluster.round()
        pool = cluster.gluster.pool_of(bench.address("h1"))
        places += [[brick.address for brick in one.bricks] for one in pool.volumes.values() if one.name == VOLUME]
    assert [bench.address(host) for host in ("h1", "h2", "h4")] in [sorted(one) for one in places]
    assert all(len(set(one)) == len(one) for one in places)


async def test_a_node_misses_no_disk_for_a_volume_that_cannot_be_deleted_yet(cluster: Cluster) -> None:
    """Else a node that is needed for the volume to go, or for another one, may never be ready (seed 717)."""
    bench = cluster.bench
    bench.add("h4")
    machine = bench.machines["h2"]
    machine.add_disk("vdc", serial="second")
    bench.declare("h2", useAllDevices=True)
    await cluster.rounds(3)
    view = await bench.view()
    place = next(place for place in see(view).bricks[VOLUME] if place.host == "h2")
    name = await ask_for_its_end(cluster)
    cluster.lose(next(host for host in ("h1", "h3") if host != bench.assignments[name].spec.host), for_good=False)
    await bench.work()
    assert bench.assignments[name].status.state == FAILED
    bench.volumes[VOLUME] = replace(bench.volumes[VOLUME], kept=False)
    mount = next(mount for mount in machine.mounts if place.path.startswith(f"{mount.target}/"))
    path = next(path for path, disk in machine.disks.items() if disk.number == mount.number)
    machine.pull_disk(path)
    machine.mounts.remove(mount)
    plan = await cluster.rounds(6)
    assert "give it up by naming serial-h2 in spec.wipe" in plan.nodes["h2"].message
    bench.declare("h2", useAllDevices=True, wipe=["serial-h2"])
    plan = await cluster.rounds(4)
    assert plan.nodes["h2"].state == READY, plan.nodes["h2"]
    assert bench.assignments[name].status.state == FAILED


@pytest.mark.parametrize("how", ["wanted again", "no more there"])
async def test_one_whose_deletion_had_to_wait_for_its_turn_is_not_deleted_when_nobody_asks_for_that_any_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Another change of the pool took minutes, and what its agent was told is from before that."""
    stored, store = cluster.bench._stored, cluster.bench._store

    async def taken_back(assignment: Assignment) -> Assignment:
        found = await stored(assignment)
        if how == "wanted again":
            await store.update(replace(found, spec=replace(found.spec, absent=None, desired={"forget": True})))
        else:
            await store.delete(Assignment, found.metadata.name, found.metadata.namespace)
        return found

    monkeypatch.setattr(cluster.bench, "_stored", taken_back)
    name = await ask_for_its_end(cluster)
    await cluster.bench.work()
    assert "it is not asked for any more" in cluster.bench.assignments[name].status.message
    assert cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).started
