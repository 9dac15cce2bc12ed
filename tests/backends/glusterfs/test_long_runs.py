"""A run of the coordinator ends within its time and tells what it saw, however much there is to change and however long
gluster takes; what is left is done by the next.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs import pool_agent
from quartermaster.backends.glusterfs.facts import POOL
from quartermaster.backends.glusterfs.pool_agent import LOCK
from quartermaster.backends.glusterfs.tool import CHANGE_S, Gluster
from quartermaster.host.fake.locks import FakeLocks
from quartermaster.resources.orchestration import Assignment
from quartermaster.support.deadlines import within
from quartermaster.support.errors import HostError
from quartermaster.testing.simulation import run

from .modelled import VOLUME, Cluster

MANY = 40  # each change of which takes 5 s
HOSTS = "10.0.0.1,10.0.0.9"


async def begun(directory: Path, volumes: int = 0) -> Cluster:
    cluster = Cluster(directory)
    await cluster.begin()
    pool = cluster.gluster.pool_of(cluster.bench.address("h1"))
    for number in range(volumes):
        volume = copy.deepcopy(pool.volumes[VOLUME])
        volume.name, volume.id = f"pvc-x{number}", f"id{number}"
        pool.volumes[volume.name] = volume
    return cluster


def slow(monkeypatch: pytest.MonkeyPatch, verb: str, seconds: float) -> None:
    before: Callable[..., Awaitable[None]] = getattr(Gluster, verb)

    async def slowly(gluster: Gluster, *words: Any, **more: Any) -> None:
        await asyncio.sleep(seconds)
        if seconds >= CHANGE_S:
            raise HostError(f"cannot {verb}: gluster does not answer")
        await before(gluster, *words, **more)

    monkeypatch.setattr(Gluster, verb, slowly)


def assignment(cluster: Cluster, **more: Any) -> Assignment:
    found = next(one for one in cluster.bench.assignments.values() if one.spec.agent == POOL)
    return replace(found, spec=replace(found.spec, desired={**(found.spec.desired or {}), **more}))


async def told(cluster: Cluster, one: Assignment) -> Mapping[str, Any]:
    plan = await cluster.bench.plan()
    deadline_s = next(desired.deadline_s for desired in plan.assignments if desired.agent == POOL)
    async with within(deadline_s):
        return await cluster.bench.run(one) or {}


def lacking(cluster: Cluster) -> int:
    volumes = cluster.gluster.pool_of(cluster.bench.address("h1")).volumes.values()
    return sum(one.options.get("auth.allow") != HOSTS for one in volumes)


def test_a_new_host_is_admitted_to_many_volumes_by_several_runs_and_each_tells_what_it_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> list[int]:
        cluster = await begun(tmp_path, MANY)
        slow(monkeypatch, "set_options", 5.0)
        left = []
        while not left or left[-1]:
            found = await told(cluster, assignment(cluster, allow=HOSTS))
            assert len(found["volumes"]) == MANY + 1
            left.append(lacking(cluster))
            assert not left[-1] or found["againSeconds"]
        return left

    left = run(main, seed=1).value
    assert 4 < len(left) < 16
    assert left == sorted(set(left), reverse=True), "each run does some of it"


def test_so_are_many_volumes_that_came_back_deleted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> list[int]:
        cluster = await begun(tmp_path, MANY)
        slow(monkeypatch, "delete", 5.0)
        left = []
        while not left or left[-1] > 1:
            names = [f"pvc-x{number}" for number in range(MANY)]
            found = await told(
                cluster, assignment(cluster, gone=names, ended=[f"id{number}" for number in range(MANY)])
            )
            left.append(len(found["volumes"]))
            assert left[-1] == 1 or found["againSeconds"]
        return left

    left = run(main, seed=1).value
    assert 4 < len(left) < 16
    assert left[-1] == 1, "and what was not deleted is there"


async def test_in_one_run_some_volumes_are_changed_and_the_others_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_agent, "_CHANGED", 2)
    cluster = await begun(tmp_path, 4)
    left = []
    for _ in range(3):
        await told(cluster, assignment(cluster, allow=HOSTS))
        left.append(lacking(cluster))
    assert left == [3, 1, 0]


@pytest.mark.parametrize("verb", ["set_options", "probe"])
def test_changes_that_gluster_does_not_answer_cut_no_run_off_and_leave_time_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    async def main() -> list[bool]:
        cluster = await begun(tmp_path, 4)
        brick = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).bricks[1]
        strangers = [{"address": f"10.0.1.{number}", "uuid": f"u{number}"} for number in range(3)]
        known = assignment(cluster).spec.desired or {}
        more = {
            "set_options": {"allow": HOSTS},
            "probe": {"peers": [*strangers, *known["peers"]]},
        }[verb]
        slow(monkeypatch, verb, CHANGE_S)
        runs = []
        for _ in range(3):
            brick.runs = False
            assert (await told(cluster, assignment(cluster, **more)))["againSeconds"]
            runs.append(brick.runs)
        return runs

    runs = run(main, seed=1).value
    assert any(runs), "a brick that does not run is started"


def test_a_lock_that_somebody_else_keeps_is_told_and_not_in_the_way_of_what_the_run_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> Mapping[str, Any]:
        cluster = await begun(tmp_path)
        locks = FakeLocks()
        context = cluster.bench.context

        def with_locks(*words: Any) -> Any:
            made = context(*words)
            return with_fields(made, machine=replace(made.machine, locks=locks))

        monkeypatch.setattr(cluster.bench, "context", with_locks)
        async with locks.hold(LOCK, timeout_s=1.0):
            return await told(cluster, assignment(cluster, allow=HOSTS))

    found = run(main, seed=1).value
    assert list(found["volumes"]) == [VOLUME]
    assert LOCK in found["failed"][VOLUME]
