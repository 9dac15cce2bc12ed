"""What is asked of gluster when there is nothing to do: three commands for a pass, however many volumes there are."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import replace as with_fields
from pathlib import Path

import pytest

from quartermaster.backends.glusterfs.fake import FakeGluster
from quartermaster.backends.glusterfs.looking import KEPT_S, UNCHANGED_S, Looks
from quartermaster.backends.glusterfs.volume_agent import VolumeAgent
from quartermaster.resources.orchestration import SUCCEEDED, Assignment
from quartermaster.testing.simulation import simulated
from tests.backends.conformance.bench import Bench
from tests.backends.conformance.subjects import SUBJECTS

MIB = 1 << 20
VOLUMES = 20


async def with_volumes(directory: Path, volumes: int) -> tuple[Bench, FakeGluster]:
    bench = Bench(next(one for one in SUBJECTS if one.type == "glusterfs"), directory)
    bench.add("h1", "h2", "h3")
    await bench.settle()
    bench.online = True
    for number in range(volumes):
        await bench.make(f"pvc-{number}", 16 * MIB)
    await bench.settle()
    gluster = bench.world
    assert isinstance(gluster, FakeGluster)
    gluster.commands_run.clear()
    return bench, gluster


async def verify(bench: Bench, assignment: Assignment) -> None:
    """As an agent does that has been running for a while."""
    agent = bench._agents[assignment.spec.agent]
    context = with_fields(bench.context(assignment.spec.host, agent), assignment=assignment)
    await agent.configure_local_service(context)


@pytest.mark.slow
async def test_a_pass_over_many_volumes_asks_gluster_three_times_on_each_host(tmp_path: Path) -> None:
    bench, gluster = await with_volumes(tmp_path, VOLUMES)
    before = gluster.volume(bench.address("h1"), "pvc-0").options
    for assignment in bench.assignments.values():
        assert assignment.status.state == SUCCEEDED
        await verify(bench, assignment)
    asked = Counter(address for address, _ in gluster.commands_run)
    assert max(asked.values()) <= 3
    assert {" ".join(argv[3:]) for _, argv in gluster.commands_run} <= {
        "pool list",
        "volume info all",
        "volume status all",
    }
    assert gluster.volume(bench.address("h1"), "pvc-0").options == before


async def test_a_volume_that_gluster_leaves_out_while_it_changes_is_asked_for_by_its_name(tmp_path: Path) -> None:
    """Its bricks would else count as dead: they would be started, and the cluster be offline."""
    bench, gluster = await with_volumes(tmp_path, 2)
    coordinator = next(one for one in bench.assignments.values() if one.spec.agent == "glusterfs-pool")
    before = await bench.run(coordinator)
    gluster.volume(bench.address("h1"), "pvc-0").changing = True
    gluster.commands_run.clear()
    assert await bench.run(coordinator) == before
    asked = [" ".join(argv[3:]) for _, argv in gluster.commands_run]
    assert asked == ["pool list", "volume info all", "volume status all", "volume status pvc-0"]


async def test_who_finds_a_volume_otherwise_than_it_should_be_looks_for_himself_and_mends_it(tmp_path: Path) -> None:
    bench, gluster = await with_volumes(tmp_path, 2)
    kept = [one for one in bench.assignments.values() if one.spec.agent == "glusterfs-volume"]
    gluster.stop(bench.address("h1"), "pvc-0")
    for assignment in kept:
        await verify(bench, assignment)
    assert gluster.volume(bench.address("h1"), "pvc-0").started


@simulated()
async def test_nobody_asks_again_before_the_glusterd_of_the_host_has_written_something(tmp_path: Path) -> None:
    bench, gluster = await with_volumes(tmp_path, 1)
    looks = Looks()
    context = bench.context("h2", VolumeAgent(looks))
    written = context.directory.parent / "glusterd" / "glusterd" / "vols" / "pvc-0"
    written.mkdir(parents=True)

    async def asked_after(seconds: float) -> int:
        await asyncio.sleep(seconds)
        gluster.commands_run.clear()
        assert await looks.volume(context, "pvc-0") is not None
        return len(gluster.commands_run)

    assert await asked_after(0.0) == 1
    assert await asked_after(2 * KEPT_S) == 0
    os.utime(written, ns=(1, 1))  # as when a file in it is replaced
    assert [await asked_after(2 * KEPT_S), await asked_after(2 * KEPT_S)] == [1, 0]
    written.rmdir()
    assert [await asked_after(1.0), await asked_after(UNCHANGED_S + 1)] == [1, 1]


@simulated()
async def test_where_nothing_shows_what_a_glusterd_writes_it_is_asked_now_and_then(tmp_path: Path) -> None:
    bench, gluster = await with_volumes(tmp_path, 1)
    looks = Looks()
    context = bench.context("h2", VolumeAgent(looks))
    for seconds, asked in ((0.0, 1), (KEPT_S / 2, 0), (KEPT_S, 1)):
        await asyncio.sleep(seconds)
        gluster.commands_run.clear()
        await looks.volume(context, "pvc-0")
        assert len(gluster.commands_run) == asked
