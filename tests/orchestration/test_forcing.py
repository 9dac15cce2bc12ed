"""Who forces what an agent refuses does not wait for its next try, which may be minutes away."""

from __future__ import annotations

from msgspec.structs import replace

from quartermaster.resources.marks import DELETE_IN_USE
from quartermaster.resources.orchestration import Assignment
from quartermaster.stores import modify
from quartermaster.support.errors import HostError
from quartermaster.testing.simulation import simulated

from .samples import NAMESPACE, cluster, settled


def absent(assignment: Assignment) -> Assignment:
    return replace(assignment, spec=replace(assignment.spec, desired=None, absent=True, generation=2))


def forced(assignment: Assignment) -> Assignment:
    return replace(assignment, metadata=replace(assignment.metadata, annotations={DELETE_IN_USE: "true"}))


@simulated()
async def test_it_is_tried_at_once() -> None:
    async with cluster() as made:
        made.host("h1")
        await made.assign("h1", {"say": "hello"})
        await settled()
        made.echoes["h1"].fails = HostError("cannot be silent: somebody listens")
        await modify(made.store, Assignment, "echo.h1", NAMESPACE, absent)
        await settled(600.0)
        assert (await made.assignment("h1")).status.state == "failed"
        made.echoes["h1"].fails = None
        await modify(made.store, Assignment, "echo.h1", NAMESPACE, forced)
        await settled(0.5)
        assert (await made.assignment("h1")).status.state == "succeeded"
