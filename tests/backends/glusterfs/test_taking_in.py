"""Hosts come into the pool one after the other: a run that is taking one in hears of those that are named meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from quartermaster.backends.glusterfs.fake import FakeGluster
from quartermaster.resources.orchestration import Assignment
from tests.backends.conformance.bench import Bench
from tests.backends.conformance.subjects import SUBJECTS

PARTS = ("h1", "h2", "h3")


async def with_daemons(directory: Path) -> tuple[Bench, Assignment]:
    """Three hosts on which glusterd runs, and what their coordinator is told first: to take in all of them."""
    bench = Bench(next(one for one in SUBJECTS if one.type == "glusterfs"), directory)
    bench.add(*PARTS)
    for desired in (await bench.plan()).assignments:
        bench.ask(desired)
    await bench.work()
    plan = await bench.plan()
    bench.memory = dict(plan.memory)
    for desired in plan.assignments:
        bench.ask(desired)
    return bench, next(one for one in bench.assignments.values() if one.spec.agent == "glusterfs-pool")


def naming(assignment: Assignment, peers: list[dict[str, Any]]) -> Assignment:
    desired = {**(assignment.spec.desired or {}), "peers": peers}
    return replace(
        assignment, spec=replace(assignment.spec, desired=desired, generation=assignment.spec.generation + 1)
    )


def members(bench: Bench) -> list[str]:
    assert isinstance(bench.world, FakeGluster)
    return sorted(bench.world.pool_of(bench.address("h1")).members)


async def test_who_is_named_while_another_one_is_taken_in_is_taken_in_by_the_same_run(tmp_path: Path) -> None:
    bench, wanted = await with_daemons(tmp_path)
    peers = (wanted.spec.desired or {})["peers"]
    assert len(peers) == 3
    before = await bench._store.create(naming(wanted, peers[:1]))
    await bench._store.update(naming(before, peers))
    result = await bench.run(before)
    assert members(bench) == sorted(bench.address(name) for name in PARTS)
    assert len((result or {})["peers"]) == 3


async def test_who_is_not_wanted_any_more_is_not_taken_in_by_a_run_that_was_told_to(tmp_path: Path) -> None:
    bench, wanted = await with_daemons(tmp_path)
    peers = (wanted.spec.desired or {})["peers"]
    before = await bench._store.create(naming(wanted, peers))
    await bench._store.update(naming(before, peers[:2]))
    await bench.run(before)
    assert members(bench) == sorted(bench.address(name) for name in PARTS[:2])


async def test_without_an_answer_of_the_store_the_run_goes_by_what_it_was_told(tmp_path: Path) -> None:
    bench, wanted = await with_daemons(tmp_path)
    await bench.run(wanted)  # no store has it
    assert members(bench) == sorted(bench.address(name) for name in PARTS)
