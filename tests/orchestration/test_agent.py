"""An agent does what it is assigned, however often it dies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import AgentContext
from quartermaster.host.devices.model import Signature
from quartermaster.orchestration.agent import keeper_of
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Assignment, AssignmentSpec, AssignmentStatus
from quartermaster.stores import modify
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import HostError, NotFoundError, UnavailableError
from quartermaster.testing.simulation import simulated

from .samples import NAMESPACE, TIMINGS, Cluster, Echo, cluster, settled


async def states_since(made: Cluster, revision: str, seconds: float = 5.0) -> list[str]:
    """The states that the only assignment goes through."""
    seen: list[str] = []
    async with contextlib.aclosing(made.store.watch(Assignment, NAMESPACE, since=revision)) as events:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for event in events:
                    if event.object is not None and event.object.status.state not in seen:
                        seen.append(event.object.status.state)
    return seen


class Named:
    """An agent that says nothing of its daemons."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def initialize(self, context: AgentContext) -> None:
        raise NotImplementedError

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        raise NotImplementedError

    async def destroy_local_service(self, context: AgentContext) -> None:
        raise NotImplementedError


class OnDisks(Echo):
    """An agent with file systems of its own."""

    def file_systems(self, _desired: Mapping[str, Any]) -> Sequence[str]:
        return ()


def assignment_of(agent: str) -> Assignment:
    meta = ObjectMeta(name=f"{agent}.h1", namespace=NAMESPACE)
    return Assignment(metadata=meta, spec=AssignmentSpec(host="h1", agent=agent, generation=1, desired={"say": "x"}))


@simulated()
async def test_the_disks_are_looked_at_after_a_run_that_may_have_changed_them_and_after_no_other() -> None:
    async with cluster() as made:
        agent = made.host("h1", OnDisks("ondisks"))
        await settled()
        before = agent.inventory.looks
        await made.assign("h1", {"say": "hello"})
        await settled()
        assert (len(made.echoes["h1"].configured), agent.inventory.looks) == (1, before)
        await made.store.create(assignment_of("ondisks"))
        await settled()
        assert agent.inventory.looks == before + 1


@simulated()
async def test_who_has_file_systems_on_disks_looks_again_at_once_when_one_comes_or_goes_and_nobody_else_does() -> None:
    async with cluster(timings=replace(TIMINGS, verify_s=3_600.0)) as made:
        other = OnDisks("ondisks")
        agent = made.host("h1", other)
        path = made.machines["h1"].add_disk("vdb", serial="S1")
        await made.assign("h1", {"say": "hello"})
        await made.store.create(assignment_of(other.name))
        await settled()
        disk = made.machines["h1"].pull_disk(path)
        agent.inventory.look_again()
        await settled(1.0)
        assert (len(made.echoes["h1"].configured), len(other.configured)) == (1, 2)
        made.machines["h1"].put_disk(disk, path)
        agent.inventory.look_again()
        await settled(1.0)
        assert (len(made.echoes["h1"].configured), len(other.configured)) == (1, 3)
        made.machines["h1"].write(path, Signature("ext4", "filesystem", "u1", "photos"))
        agent.inventory.look_again()
        await settled(1.0)
        assert len(other.configured) == 3  # what is on it is no such news


@pytest.mark.slow
@simulated()
async def test_what_failed_is_tried_again_when_file_systems_are_others_than_before() -> None:
    async with cluster() as made:
        disks = OnDisks("ondisks")
        made.host("h1", disks)
        await settled()
        made.echoes["h1"].fails = HostError("cannot reach it: the disk is not mounted")
        await made.store.create(assignment_of(disks.name))
        await made.assign("h1", {"say": "hello"})
        await settled(300.0)
        made.echoes["h1"].fails = None
        await settled(1.0)
        assert (await made.assignment("h1")).status.state == "failed"  # its next try is minutes away
        await modify(
            made.store,
            Assignment,
            f"{disks.name}.h1",
            NAMESPACE,
            lambda one: replace(one, spec=replace(one.spec, generation=2, desired={"say": "another disk"})),
        )
        await settled(1.0)
        assert (await made.assignment("h1")).status.state == "succeeded"


@simulated(range(3))
async def test_an_assignment_is_reported_triggered_running_and_succeeded_with_its_generation_and_epoch() -> None:
    async with cluster() as made:
        made.host("h1")
        await settled()
        revision = (await made.store.list(Assignment, NAMESPACE)).revision
        await made.assign("h1", {"say": "hello"}, epoch=4)
        assert await states_since(made, revision) == ["", "triggered", "running", "succeeded"]
        status = (await made.assignment("h1")).status
        assert (status.observed_generation, status.epoch) == (1, 4)
        assert status.result == {"echo": "hello", "list": [1, 2]}


@simulated()
async def test_what_was_running_when_the_agent_died_is_run_again() -> None:
    async with cluster() as made:
        made.echoes["h1"] = Echo()
        made.echoes["h1"].takes_s = 60.0
        made.host("h1")
        await made.assign("h1", {"say": "hello"})
        await settled()
        assert (await made.assignment("h1")).status.state == "running"
        await made.stop("h1")
        made.echoes["h1"].takes_s = 0.0
        made.host("h1")
        await settled()
        assert (await made.assignment("h1")).status.state == "succeeded"
        assert made.echoes["h1"].configured == [{"say": "hello"}]


@simulated()
async def test_a_second_configuration_run_is_quiet() -> None:
    async with cluster() as made:
        made.host("h1")
        await made.assign("h1", {"say": "hello"})
        await settled()
        before = (await made.assignment("h1")).metadata.resource_version
        await settled(3 * TIMINGS.verify_s)
        assert len(made.echoes["h1"].configured) >= 3
        assert (await made.assignment("h1")).metadata.resource_version == before


@simulated()
async def test_a_dead_daemon_is_started_again_long_before_its_configuration_is_verified() -> None:
    async with cluster(timings=replace(TIMINGS, verify_s=3_600.0)) as made:
        made.host("h1")
        await made.assign("h1", {"say": "hello"})
        await settled()
        made.machines["h1"].kill("echod")
        await settled(3 * TIMINGS.daemons_s)
        assert made.machines["h1"].processes["echod"].lives


@simulated()
async def test_a_dead_daemon_concerns_its_own_agent_only() -> None:
    async with cluster(timings=replace(TIMINGS, verify_s=3_600.0)) as made:
        other = Echo("echo-volume")
        made.host("h1", other)
        await made.assign("h1", {"say": "hello"})
        await made.store.create(assignment_of(other.name))
        await settled()
        made.machines["h1"].kill("echod")
        await settled(3 * TIMINGS.daemons_s)
        assert (len(made.echoes["h1"].configured), len(other.configured)) == (2, 1)
        made.machines["h1"].kill("echo-volumed")
        await settled(3 * TIMINGS.daemons_s)
        assert (len(made.echoes["h1"].configured), len(other.configured)) == (2, 2)


def test_a_daemon_is_of_the_agent_that_says_so_or_after_which_it_is_named() -> None:
    agents = (Named("local"), Named("local-volume"), Echo("etcd"))
    assert keeper_of("local", agents) == "local"
    assert keeper_of("local-brick", agents) == "local"
    assert keeper_of("local-volume-pvc-1", agents) == "local-volume"
    assert keeper_of("locality", agents) == ""
    assert keeper_of("etcdd", agents) == "etcd"
    assert keeper_of("etcdctl", agents) == ""


@pytest.mark.slow
@simulated()
async def test_of_assignments_that_are_long_gone_nothing_is_remembered() -> None:
    async with cluster() as made:
        agent = made.host("h1")
        for number in range(30):
            await made.assign("h1", {"say": "hello"}, instance=f"i{number}")
            await settled(60)
            await made.store.delete(Assignment, f"echo-i{number}.h1", NAMESPACE)
        await settled()
        assert len(agent.assignments._epochs) < 15


@pytest.mark.slow
@simulated()
async def test_a_daemon_that_dies_again_and_again_is_started_with_growing_pauses() -> None:
    async with cluster(timings=replace(TIMINGS, verify_s=36_000.0)) as made:
        made.host("h1")
        await made.assign("h1", {"say": "hello"})
        await settled()
        starts = 0
        for _ in range(600):
            process = made.machines["h1"].processes["echod"]
            if process.lives:
                starts += 1
                made.machines["h1"].kill("echod")
            await asyncio.sleep(1.0)
        assert 4 <= starts <= 14


@simulated()
async def test_a_restart_of_the_agent_does_not_restart_a_daemon() -> None:
    async with cluster() as made:
        made.host("h1")
        await made.assign("h1", {"say": "hello"})
        await settled()
        before = made.machines["h1"].processes["echod"].pid
        await made.stop("h1")
        made.host("h1")
        await settled(2 * TIMINGS.verify_s)
        assert made.machines["h1"].processes["echod"].pid == before


@simulated()
async def test_a_failure_is_reported_with_its_sentence_and_tried_again_until_it_works() -> None:
    async with cluster() as made:
        made.host("h1")
        await settled()
        made.echoes["h1"].fails = HostError("cannot echo: the wall is missing", hint="build one", reason="NoWall")
        await made.assign("h1", {"say": "hello"})
        await settled(0.5)
        status = (await made.assignment("h1")).status
        assert (status.state, status.message) == ("failed", "cannot echo: the wall is missing; build one")
        assert status.reason == "NoWall"
        version = (await made.assignment("h1")).metadata.resource_version
        await settled(10.0)
        assert (await made.assignment("h1")).metadata.resource_version == version
        made.echoes["h1"].fails = None
        await settled(30.0)
        status = (await made.assignment("h1")).status
        assert (status.state, status.reason) == ("succeeded", "")


@simulated()
async def test_another_reason_is_reported_although_the_words_are_the_same() -> None:
    """Whoever decides goes by the reason; an agent of an earlier version has told the words alone."""
    async with cluster() as made:
        made.host("h1")
        await settled()
        made.echoes["h1"].fails = HostError("cannot echo")
        await made.assign("h1", {"say": "hello"})
        await settled(0.5)
        assert (await made.assignment("h1")).status.reason == "Host"
        made.echoes["h1"].fails = HostError("cannot echo", reason="NoWall")
        await settled(2 * TIMINGS.verify_s)
        status = (await made.assignment("h1")).status
        assert (status.message, status.reason) == ("cannot echo", "NoWall")


@simulated()
async def test_a_report_of_which_nobody_knows_whether_it_arrived_is_corrected_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A quiet run that fails is told, and the answer is lost; the one after it finds all as it was told before that."""
    async with cluster() as made:
        made.host("h1")
        await settled()
        await made.assign("h1", {"say": "hello"})
        await settled(5.0)
        assert (await made.assignment("h1")).status.state == "succeeded"
        whole = type(made.store).update_status

        async def unheard(self: ObjectStore, obj: Any, **options: Any) -> Any:
            told = await whole(self, obj, **options)
            if isinstance(obj, Assignment) and obj.status.state == "failed":
                made.echoes["h1"].fails = None
                raise UnavailableError("cannot update assignment: no answer; the write may have happened")
            return told

        monkeypatch.setattr(type(made.store), "update_status", unheard)
        made.echoes["h1"].fails = HostError("cannot echo: the wall is missing")
        await settled(TIMINGS.verify_s * 3)
        assert made.echoes["h1"].fails is None
        assert (await made.assignment("h1")).status.state == "succeeded"


@simulated()
async def test_what_could_not_be_told_for_long_is_told_soon_after_the_store_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as made:
        made.host("h1")
        await settled()
        await made.assign("h1", {"say": "hello"})
        await settled(5.0)
        is_away, whole = True, type(made.store).update_status

        async def cut_off(self: ObjectStore, obj: Any, **options: Any) -> Any:
            if is_away and isinstance(obj, Assignment):
                raise UnavailableError("cannot update assignment: no answer")
            return await whole(self, obj, **options)

        monkeypatch.setattr(type(made.store), "update_status", cut_off)
        made.echoes["h1"].fails = HostError("cannot echo: the wall is missing")
        await settled(TIMINGS.verify_s * 20)
        is_away = False
        await settled(TIMINGS.verify_s * 1.2)
        assert (await made.assignment("h1")).status.state == "failed"


@simulated()
async def test_a_run_past_its_deadline_is_cancelled_and_the_others_do_not_wait() -> None:
    async with cluster() as made:
        slow, quick = made.echoes.setdefault("h1", Echo()), Echo("quick")
        made.host("h1", quick)
        slow.takes_s = 1_000.0
        await made.assign("h1", {"say": "hello"}, deadline_seconds=5.0)
        meta = ObjectMeta(name="quick.h1", namespace=NAMESPACE)
        await made.store.create(
            Assignment(metadata=meta, spec=AssignmentSpec(host="h1", agent="quick", generation=1, desired={}))
        )
        await settled(2.0)
        assert (await made.store.get(Assignment, "quick.h1", NAMESPACE)).status.state == "succeeded"
        await settled(4.0)
        status = (await made.assignment("h1")).status
        assert (status.state, status.message) == ("failed", "cannot configure echo.h1 within 5 s")
        assert status.reason == "Deadline"


@simulated()
async def test_instances_of_one_agent_run_at_the_same_time_and_no_more_than_the_host_can_bear() -> None:
    async with cluster() as made:
        made.host("h1")
        made.echoes["h1"].takes_s = 1.0
        for number in range(40):
            await made.assign("h1", {"say": str(number)}, instance=f"v{number}")
        await settled(10.0)
        assert 8 < made.echoes["h1"].most_at_once <= 16
        assert len(made.echoes["h1"].configured) == 40


@simulated()
async def test_an_assignment_of_a_lower_epoch_is_refused() -> None:
    async with cluster() as made:
        made.host("h1")
        await made.assign("h1", {"say": "new"}, epoch=7)
        await settled()

        def rewritten(assignment: Assignment) -> Assignment:
            return replace(assignment, spec=replace(assignment.spec, desired={"say": "old"}, generation=2, epoch=6))

        await modify(made.store, Assignment, "echo.h1", NAMESPACE, rewritten)
        await settled()
        assert {"say": "old"} not in made.echoes["h1"].configured
        assert (await made.assignment("h1")).status.observed_generation == 1
        await made.store.delete(Assignment, "echo.h1", NAMESPACE)
        await made.assign("h1", {"say": "older"}, epoch=5)
        await settled()
        assert {"say": "older"} not in made.echoes["h1"].configured


@simulated()
async def test_a_service_that_is_to_be_gone_is_destroyed_once() -> None:
    async with cluster() as made:
        made.host("h1")
        await made.assign("h1", {"say": "hello"})
        await settled()

        def absent(assignment: Assignment) -> Assignment:
            return replace(assignment, spec=replace(assignment.spec, desired=None, absent=True, generation=2))

        await modify(made.store, Assignment, "echo.h1", NAMESPACE, absent)
        await settled(TIMINGS.verify_s)
        assert made.echoes["h1"].destroyed == [""]
        assert made.machines["h1"].processes == {}
        assert (await made.assignment("h1")).status.observed_generation == 2
        await made.stop("h1")
        made.host("h1")
        await settled(TIMINGS.verify_s)
        assert made.echoes["h1"].destroyed == [""]


@simulated()
async def test_an_agent_that_nobody_knows_is_said_so() -> None:
    async with cluster() as made:
        made.host("h1")
        meta = ObjectMeta(name="torus.h1", namespace=NAMESPACE)
        await made.store.create(
            Assignment(metadata=meta, spec=AssignmentSpec(host="h1", agent="torus", generation=1, desired={}))
        )
        await settled()
        status = (await made.store.get(Assignment, "torus.h1", NAMESPACE)).status
        assert (status.state, status.reason) == ("failed", "NoSuchAgent")
        assert 'no agent named "torus"' in status.message


@simulated()
async def test_an_assignment_waits_until_its_agent_is_initialized() -> None:
    async with cluster() as made:
        echo = made.echoes.setdefault("h1", Echo())
        echo.fails = HostError("cannot initialize: not now")
        made.host("h1")
        await made.assign("h1", {"say": "hello"})
        await settled()
        assert (await made.assignment("h1")).status == AssignmentStatus()
        echo.fails = None
        await settled(10.0)
        assert (await made.assignment("h1")).status.state == "succeeded"


@simulated()
async def test_an_agent_acts_on_its_own_assignments_only() -> None:
    async with cluster() as made:
        made.host("h1")
        made.host("h10")
        await made.assign("h10", {"say": "for ten"})
        await settled()
        assert made.echoes["h1"].configured == []
        assert made.echoes["h10"].configured == [{"say": "for ten"}]


@simulated()
async def test_a_report_on_an_assignment_that_was_deleted_meanwhile_is_nobodys_trouble() -> None:
    async with cluster() as made:
        made.host("h1")
        made.echoes["h1"].takes_s = 3.0
        await made.assign("h1", {"say": "hello"})
        await settled(1.0)
        await made.store.delete(Assignment, "echo.h1", NAMESPACE)
        await settled(10.0)
        with pytest.raises(NotFoundError):
            await made.assignment("h1")
