"""A volume that is being made is in the pool before it is started: nobody uses it, and nobody misses it yet. One that
is deleted is stopped before it goes, and is missed no more. Every other one that does not run is.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs.keeping import FORGET, volume_config
from quartermaster.planning.cluster import ClusterPlan, Desired
from quartermaster.planning.outcomes import DEGRADED, READY
from quartermaster.resources.orchestration import FAILED, RUNNING, assignment_name

from .modelled import GIB, VOLUME, Cluster, ask_for_its_end

NAME = "pvc-2"


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    made.bench.add("h4")
    await made.rounds(3)
    return made


async def seen_while_stopped(cluster: Cluster, name: str) -> ClusterPlan:
    """What is planned when the coordinator finds the volume there and not started."""
    cluster.gluster.volume(cluster.bench.address("h1"), name).started = False
    key, pool = next((key, one) for key, one in cluster.bench.assignments.items() if one.spec.agent == "glusterfs-pool")
    found = await cluster.bench.run(pool)
    cluster.bench.assignments[key] = replace(pool, status=replace(pool.status, result=found))
    return await cluster.bench.plan()


async def test_a_volume_that_is_made_and_not_started_yet_takes_nothing_from_the_cluster(cluster: Cluster) -> None:
    made = await cluster.bench.make(NAME, GIB)
    desired = cluster.bench.backend.volumes().desired(made)
    key = assignment_name(desired.agent, desired.host, NAME)
    known = cluster.bench.assignments[key]
    cluster.bench.assignments[key] = replace(known, status=replace(known.status, state=RUNNING, result=None))
    plan = await seen_while_stopped(cluster, NAME)
    assert plan.usable.holds, plan.usable
    assert not plan.degraded.holds, plan.degraded


async def test_one_that_was_made_and_is_stopped_is_missed(cluster: Cluster) -> None:
    plan = await seen_while_stopped(cluster, VOLUME)
    assert (plan.usable.holds, plan.usable.reason) == (False, "VolumesUnusable")


def unfinished(cluster: Cluster, name: str) -> str:
    """As the agent leaves it that was cut off; returns the host."""
    key = next(key for key, one in cluster.bench.assignments.items() if one.spec.instance == name)
    known = cluster.bench.assignments[key]
    cluster.bench.assignments[key] = replace(known, status=replace(known.status, state=FAILED, result=None))
    return known.spec.host


async def test_one_that_was_handed_out_is_missed_whatever_is_known_of_those_who_keep_it(cluster: Cluster) -> None:
    """What was asked of its keeper was deleted by somebody, and is asked anew."""
    unfinished(cluster, VOLUME)
    cluster.bench.volumes[VOLUME] = replace(cluster.bench.volumes[VOLUME], kept=True)
    plan = await seen_while_stopped(cluster, VOLUME)
    assert (plan.usable.holds, plan.usable.reason) == (False, "VolumesUnusable")


async def test_a_volume_that_is_stopped_to_be_deleted_takes_nothing_from_the_cluster(cluster: Cluster) -> None:
    key = await ask_for_its_end(cluster)
    known = cluster.bench.assignments[key]
    running = replace(known.status, state=RUNNING, observed_generation=known.spec.generation)
    cluster.bench.assignments[key] = replace(known, status=running)
    plan = await seen_while_stopped(cluster, VOLUME)
    assert plan.usable.holds, plan.usable
    assert not plan.degraded.holds, plan.degraded


async def test_nor_does_one_that_is_taken_back_while_it_is_made(cluster: Cluster) -> None:
    made = await cluster.bench.make(NAME, GIB)
    unfinished(cluster, NAME)
    cluster.bench.ask(replace(cluster.bench.backend.volumes().desired(made), config=None))
    plan = await seen_while_stopped(cluster, NAME)
    assert plan.usable.holds, plan.usable


async def test_one_that_is_stopped_and_kept_after_all_is_missed(cluster: Cluster) -> None:
    await ask_for_its_end(cluster)
    cluster.bench.volumes[VOLUME] = replace(cluster.bench.volumes[VOLUME], kept=True)
    plan = await seen_while_stopped(cluster, VOLUME)
    assert (plan.usable.holds, plan.usable.reason) == (False, "VolumesUnusable")


async def test_a_host_that_finds_a_volume_gone_that_it_is_to_take_over_is_degraded_and_says_so(
    cluster: Cluster,
) -> None:
    bench = cluster.bench
    placed = (await bench.view()).volumes[0]
    maker, other = placed.hosts[0], placed.hosts[1]
    bench.ask(Desired(maker, "glusterfs-volume", FORGET, VOLUME))
    await bench.work()
    cluster.gluster.pool_of(bench.address(other)).volumes.pop(VOLUME)
    config = volume_config(VOLUME, placed.size, placed.details, other, existing=True)
    bench.ask(Desired(other, "glusterfs-volume", config, VOLUME))
    plan = await cluster.rounds(2)
    assert plan.nodes[other].state == DEGRADED
    assert "the pool does not know it any more" in plan.nodes[other].message
    assert "the pool does not know it any more" in plan.degraded.message


async def test_bricks_that_do_not_run_are_named_also_while_a_node_is_missing(cluster: Cluster) -> None:
    first, second = [host for host in ("h1", "h2", "h3", "h4") if host in cluster.bricks()][:2]
    volume = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME)
    brick = next(one for one in volume.bricks if one.address == cluster.bench.address(second))
    cluster.lose(first, for_good=False)
    plan = await cluster.rounds(1)
    assert plan.degraded.reason == "NodesSilent"
    down = plan.details["bricksDown"]
    assert cluster.bench.address(first) in down
    assert brick.name not in down


async def test_a_volume_that_cannot_be_made_yet_is_told_by_its_host_and_no_lack_of_it(cluster: Cluster) -> None:
    """Many are made, and each waits for the one before it."""
    made = await cluster.bench.make(NAME, GIB)
    desired = cluster.bench.backend.volumes().desired(made)
    key = assignment_name(desired.agent, desired.host, NAME)
    known = cluster.bench.assignments[key]
    waits = replace(known.status, state=FAILED, result=None, message="cannot lock glusterfs-change")
    cluster.bench.assignments[key] = replace(known, status=waits)
    node = (await cluster.bench.plan()).nodes[desired.host]
    assert (node.state, node.message) == (READY, "cannot lock glusterfs-change")
    cluster.bench.assignments[key] = replace(known, status=replace(known.status, state=FAILED, message="it is gone"))
    assert (await cluster.bench.plan()).nodes[desired.host].state == DEGRADED
