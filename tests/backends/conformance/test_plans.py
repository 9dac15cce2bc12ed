"""What the plan of every backend keeps to."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from quartermaster.backends.assigning import as_plain
from quartermaster.host.devices.model import Signature
from quartermaster.planning.outcomes import DRAINED, READY
from quartermaster.resources.marks import ABANDON

from .bench import Bench, frozen
from .subjects import SUBJECTS, Subject

FOREIGN = Signature("ext4", "filesystem", "11111111-2222-3333-4444-555555555555", "photos")
NAMES = ("h1", "h2", "h3", "h4", "h5")


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.type)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    subject: Subject = request.param
    made = Bench(subject, tmp_path)
    made.add(*NAMES[: subject.nodes])
    return made


async def test_a_plan_is_a_pure_function_of_the_view(bench: Bench) -> None:
    view = await bench.view()
    before = frozen(view)
    first, second = bench.backend.plan(view), bench.backend.plan(view)
    assert frozen(view) == before
    assert frozen(first) == frozen(second)
    assert first == second


async def test_every_node_has_an_outcome_and_every_assignment_a_node_and_an_agent(bench: Bench) -> None:
    bench.declare("ghost", **bench.subject.spec)
    plan = await bench.plan()
    assert sorted(plan.nodes) == sorted(bench.nodes)
    agents = [agent.name for agent in bench.backend.agents()]
    for desired in plan.assignments:
        assert desired.host in bench.machines
        assert desired.agent in agents
        assert desired.config == (None if desired.config is None else as_plain(desired.config))
    assert plan.nodes["ghost"].message


async def test_nothing_is_ready_before_the_agents_have_said_so(bench: Bench) -> None:
    plan = await bench.plan()
    assert not plan.ready.holds
    assert plan.ready.reason
    assert plan.ready.message
    plan = await bench.settle()
    assert plan.ready.holds
    assert plan.usable.holds
    assert not plan.degraded.holds
    assert {outcome.state for outcome in plan.nodes.values()} == {READY}
    assert all(outcome.total > 0 for outcome in plan.nodes.values())


async def test_at_rest_a_plan_asks_for_what_is_there(bench: Bench) -> None:
    plan = await bench.settle()
    asked = dict(bench.assignments)
    for desired in plan.assignments:
        bench.ask(desired)
    assert bench.assignments == asked


async def test_one_more_node_takes_no_device_from_the_others(bench: Bench) -> None:
    await bench.settle()
    before = _devices(bench)
    bench.add(NAMES[bench.subject.nodes])
    await bench.settle()
    after = _devices(bench)
    assert {name: after[name] for name in before} == before
    assert len(bench.nodes) == bench.subject.nodes + 1


async def test_no_host_at_all_is_a_plan_too(bench: Bench) -> None:
    bench.nodes.clear()
    plan = await bench.plan()
    assert (plan.assignments, plan.nodes) == ((), {})
    assert not plan.ready.holds


async def test_a_disk_with_foreign_data_is_never_part_of_a_plan(bench: Bench) -> None:
    machine = bench.machines["h1"]
    disk = machine.add_disk("vdc", serial="foreign")
    machine.write(disk, FOREIGN)
    bench.declare("h1", devices=["/dev/vdb", disk])
    await bench.settle()
    assert machine.disks[disk].signatures == (FOREIGN,)
    assert b"foreign" not in msgspec.json.encode([one.spec.desired for one in bench.assignments.values()])


async def test_a_silent_host_shows(bench: Bench) -> None:
    plan = await bench.settle()
    bench.online = True
    bench.silent.append("h1")
    plan = await bench.plan()
    assert plan.nodes["h1"].state != READY
    assert "h1" in plan.nodes["h1"].message
    assert plan.degraded.holds or not plan.usable.holds


async def test_a_node_that_leaves_is_removable_when_its_host_has_nothing_of_it(bench: Bench) -> None:
    spare = NAMES[bench.subject.nodes]
    bench.add(spare)
    await bench.settle()
    bench.mark(spare, deleting=True)
    assert spare not in (await bench.plan()).removable
    plan = await bench.settle()
    assert spare in plan.removable
    assert plan.nodes[spare].state == DRAINED
    assert not [one for one in bench.assignments.values() if one.spec.host == spare]


async def test_a_node_that_was_given_up_with_its_host_is_removable_at_once(bench: Bench) -> None:
    spare = NAMES[bench.subject.nodes]
    bench.add(spare)
    await bench.settle()
    bench.silent.append(spare)
    bench.lost.append(spare)
    bench.mark(spare, deleting=True)
    assert spare not in (await bench.plan()).removable
    bench.mark(spare, {ABANDON: spare}, deleting=True)
    assert spare in (await bench.plan()).removable


def _devices(bench: Bench) -> dict[str, object]:
    return {
        name: (assignment.spec.desired or {}).get("devices")
        for name, assignment in bench.assignments.items()
        if "devices" in (assignment.spec.desired or {})
    }
