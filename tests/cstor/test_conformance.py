"""Conformance reports: what is run, what is told of it, and what becomes of runs that are cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from quartermaster.backends.cstor import HOOKS
from quartermaster.hooks import hook_controllers
from quartermaster.hooks.conformance.reporting import junit
from quartermaster.hooks.conformance.scenarios import SCENARIOS
from quartermaster.hooks.conformance.serving import Runs
from quartermaster.resources import CStorClusterConfig, Event, Node, ObjectMeta
from quartermaster.resources.conformance import (
    ConformanceReport,
    ConformanceReportSpec,
    ConformanceReportStatus,
    ScenarioResult,
)
from quartermaster.stores.base import Store
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import simulated
from tests.hooks.toy import memory_store

from .standins import ATTACHER, IMMEDIATE, standins
from .world import NAMESPACE, prepare, running

pytestmark = pytest.mark.slow


def report(*scenarios: str, **spec: Any) -> ConformanceReport:
    wanted = ConformanceReportSpec(
        scenarios=scenarios,
        csi_attacher_name=ATTACHER,
        storage_class_name=IMMEDIATE,
        **{"rehearsal": True, "timeout_seconds": 60, **spec},
    )
    return ConformanceReport(metadata=ObjectMeta(name="nightly", namespace=NAMESPACE), spec=wanted)


@asynccontextmanager
async def conformance(store: Store) -> AsyncIterator[None]:
    async with TaskGroup() as group:
        async with running(store, services=hook_controllers([Runs(store, group).hook()])):
            yield
        group.cancel()


@asynccontextmanager
async def installation(*, with_core: bool = True) -> AsyncIterator[Store]:
    store: Store = memory_store()
    await prepare(store)
    core = hook_controllers(HOOKS) if with_core else ()
    async with running(store, services=(*standins(binds=True, refused=[]), *core)):
        yield store


async def ended(store: Store) -> ConformanceReport:
    async with asyncio.timeout(600):
        while True:
            found = await store.get(ConformanceReport, "nightly", NAMESPACE)
            if found.status.phase in ("Passed", "Failed") and found.status.finished:
                return found
            await asyncio.sleep(1)


@simulated()
async def test_a_report_is_run_and_tells_what_came_of_each_scenario() -> None:
    async with installation() as store, conformance(store):
        await store.create(report("creation", "capacity-changed"))
        found = await ended(store)
        await asyncio.sleep(5)
        events = [(event.type, event.reason) for event in (await store.list(Event, NAMESPACE)).items]
        left = (await store.list(Node)).items, (await store.list(CStorClusterConfig)).items
    status = found.status
    assert (status.phase, status.total, status.passed, status.failed) == ("Passed", 2, 2, 0)
    assert [(result.name, result.outcome) for result in status.results] == [
        ("creation", "Passed"),
        ("capacity-changed", "Passed"),
    ]
    assert ("Normal", "ConformancePassed") in events
    assert left == ((), ())


@simulated()
async def test_without_the_core_a_scenario_fails_with_what_it_waited_for() -> None:
    async with installation(with_core=False) as store, conformance(store):
        await store.create(report("creation", timeout_seconds=5))
        found = await ended(store)
    (result,) = found.status.results
    assert found.status.phase == "Failed"
    assert found.status.message == "0 of 1 passed; failed: creation"
    assert "no phase Ready within 5 s; the phase is not set" in result.message


@simulated()
async def test_on_real_nodes_nothing_is_broken_and_only_nodes_that_may_be_used_are() -> None:
    async with installation() as store, conformance(store):
        for name in ("a", "b", "c"):
            await store.create(Node(metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name})))
        await store.create(report("deletion", "creation", rehearsal=None))
        found = await ended(store)
        nodes = (await store.list(Node)).items
    assert found.status.phase == "Failed"
    assert found.status.message.startswith("0 of 2 passed, 2 left out; what was not looked at has not passed")
    assert [result.outcome for result in found.status.results] == ["Skipped", "Skipped"]
    assert "rehearsal" in found.status.results[0].message
    assert "it needs 4 free nodes with the label" in found.status.results[1].message
    assert all(len(node.metadata.labels) == 1 for node in nodes)


@simulated()
async def test_real_nodes_are_borrowed_and_given_back() -> None:
    async with installation() as store, conformance(store):
        for name in ("a", "b", "c", "d"):
            labels = {"kubernetes.io/hostname": name, "conformance.dao.mayadata.io/use": "true"}
            made = await store.create(Node(metadata=ObjectMeta(name=name, labels=labels)))
            ready: Any = {"type": "Ready", "status": "True"}
            await store.apply(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"conditions": [ready]}},
                status=True,
            )
            assert made.metadata.labels == labels
        await store.create(report("creation", "node-labels-changed", "selector-changed", rehearsal=None))
        found = await ended(store)
        nodes = (await store.list(Node)).items
    assert found.status.message == "3 of 3 passed"
    assert [sorted(node.metadata.labels) for node in nodes] == [
        ["conformance.dao.mayadata.io/use", "kubernetes.io/hostname"]
    ] * 4


@simulated()
async def test_a_scenario_that_is_not_there_is_told_with_those_that_are() -> None:
    async with installation() as store, conformance(store):
        await store.create(report("creatoin"))
        found = await ended(store)
    assert found.status.phase == "Failed"
    assert "cannot run creatoin: there is no such scenario; there are creation, deletion" in found.status.message


@simulated()
async def test_a_run_that_was_lost_with_its_process_is_begun_anew() -> None:
    async with installation() as store:
        async with conformance(store):
            await store.create(report("creation"))
            await asyncio.sleep(0.5)
        assert (await store.get(ConformanceReport, "nightly", NAMESPACE)).status.phase == "Running"
        async with conformance(store):
            found = await ended(store)
    assert found.status.message == "1 of 1 passed"


@simulated()
async def test_what_a_report_asks_for_may_change_while_it_runs() -> None:
    async with installation() as store, conformance(store):
        made = await store.create(report())
        await asyncio.sleep(0.5)
        made = await store.get(ConformanceReport, "nightly", NAMESPACE)
        await store.update(replace(made, spec=replace(made.spec, scenarios=("creation",))))
        await asyncio.sleep(10)
        found = await ended(store)
    assert found.status.observed_generation == 2
    assert found.status.message == "1 of 1 passed"


@simulated()
async def test_who_deletes_a_report_ends_its_run() -> None:
    async with installation() as store, conformance(store):
        await store.create(report("creation", "creation", "creation"))
        await asyncio.sleep(1)
        await store.delete(ConformanceReport, "nightly", NAMESPACE)
        await asyncio.sleep(60)
        assert (await store.list(Node)).items == ()
        assert (await store.list(CStorClusterConfig)).items == ()


@simulated()
async def test_a_mistake_in_a_scenario_fails_that_scenario_only() -> None:
    async def mistaken(_: Any) -> None:
        raise KeyError("a")

    SCENARIOS["mistaken"] = replace(SCENARIOS["creation"], name="mistaken", drive=mistaken)
    try:
        async with installation() as store, conformance(store):
            await store.create(report("mistaken", "creation"))
            found = await ended(store)
    finally:
        del SCENARIOS["mistaken"]
    assert [result.outcome for result in found.status.results] == ["Failed", "Passed"]
    assert found.status.results[0].message == "KeyError: 'a'"


def test_a_report_as_junit_xml() -> None:
    results = (
        ScenarioResult(name="creation", outcome="Passed", seconds=2.5),
        ScenarioResult(name="deletion", outcome="Failed", seconds=1.0, message='no <end> of "it"'),
        ScenarioResult(name="adoption", outcome="Skipped", message="in a rehearsal only"),
    )
    status = ConformanceReportStatus(phase="Failed", started="2020-01-01T00:00:00Z", results=results)
    suite = ElementTree.fromstring(junit(replace(report(), status=status)))
    assert suite.attrib == {
        "name": "nightly",
        **{"tests": "3", "failures": "1", "errors": "0", "skipped": "1"},
        **{"time": "3.500", "timestamp": "2020-01-01T00:00:00Z"},
    }
    assert [case.get("name") for case in suite] == ["creation", "deletion", "adoption"]
    failure, skipped = suite[1][0], suite[2][0]
    assert (failure.tag, failure.get("message")) == ("failure", 'no <end> of "it"')
    assert (skipped.tag, skipped.get("message")) == ("skipped", "in a rehearsal only")


def test_a_run_that_failed_as_a_whole_is_an_error_in_the_xml() -> None:
    status = ConformanceReportStatus(phase="Failed", message="cannot run creatoin: there is no such scenario")
    suite = ElementTree.fromstring(junit(replace(report(), status=status)))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "1")
    assert (suite[0].get("name"), suite[0][0].tag) == ("run", "error")
    assert suite[0][0].get("message") == status.message
