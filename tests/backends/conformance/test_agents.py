"""What the agents of every backend keep to: they may be cut off at any call, and saying it again makes it whole."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.host.devices.model import Signature
from quartermaster.host.fake import Faults, one_fault_each
from quartermaster.host.fake.machine import ROOT
from quartermaster.host.mounts import MountHealth, MountState
from quartermaster.planning.outcomes import READY
from quartermaster.resources.orchestration import SUCCEEDED, Assignment
from quartermaster.support.errors import HostError

from .bench import Bench
from .subjects import SUBJECTS, Subject

NAMES = ("h1", "h2", "h3", "h4", "h5")
GIB = 1 << 30
FOREIGN = Signature("ext4", "filesystem", "11111111-2222-3333-4444-555555555555", "photos")


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.type)
def subject(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.param
    return found


def new_bench(subject: Subject, directory: Path) -> Bench:
    made = Bench(subject, directory)
    made.add(*NAMES[: subject.nodes])
    return made


async def asked(subject: Subject, directory: Path) -> tuple[Bench, Assignment]:
    """A bench on which nothing was done yet, and the first thing that is asked of h1."""
    bench = new_bench(subject, directory)
    for desired in (await bench.plan()).assignments:
        bench.ask(desired)
    return bench, next(one for _, one in sorted(bench.assignments.items()) if one.spec.host == "h1")


async def test_a_second_run_changes_nothing(subject: Subject, tmp_path: Path) -> None:
    bench = new_bench(subject, tmp_path)
    await bench.settle()
    assert bench.changes("h1")
    state, results = bench.state("h1"), dict(bench.assignments)
    bench.faults["h1"].trace.clear()
    await bench.work(again=True)
    assert bench.changes("h1") == []
    assert bench.state("h1") == state
    assert bench.assignments == results


@pytest.mark.slow
async def test_an_agent_cut_off_at_any_call_is_made_whole_by_a_second_run(subject: Subject, tmp_path: Path) -> None:
    learning = Faults()
    bench, assignment = await asked(subject, tmp_path)
    result = await bench.run(assignment, learning)
    wanted = bench.state("h1")
    assert learning.trace
    for faults in one_fault_each(len(learning.trace)):
        bench, assignment = await asked(subject, tmp_path)
        try:
            broken = await bench.run(assignment, faults)
            assert broken != result, f"nobody noticed: {faults.trace[-1]}"
        except HostError:
            pass
        assert await bench.run(assignment) == result, faults.trace[-1]
        assert bench.state("h1") == wanted, faults.trace[-1]


async def consenting(subject: Subject, directory: Path) -> tuple[Bench, Assignment]:
    """A disk with somebody's data, and his consent by its serial number."""
    bench = new_bench(subject, directory)
    bench.machines["h1"].write("/dev/vdb", FOREIGN)
    bench.declare("h1", **subject.spec, wipe=["serial-h1"])
    plan = await bench.plan()
    assert [desired.host for desired in plan.assignments if desired.destroys] == ["h1"]
    for desired in plan.assignments:
        bench.ask(desired)
    return bench, next(one for _, one in sorted(bench.assignments.items()) if one.spec.host == "h1")


@pytest.mark.slow
async def test_a_wipe_by_consent_that_is_cut_off_at_any_call_is_finished_and_told_by_a_second_run(
    subject: Subject, tmp_path: Path
) -> None:
    learning = Faults()
    bench, assignment = await consenting(subject, tmp_path / "faultless")
    assert (await bench.run(assignment, learning) or {})["wiped"] == ["serial-h1"]
    wanted = bench.state("h1")["disks"]
    for number, faults in enumerate(one_fault_each(len(learning.trace))):
        bench, assignment = await consenting(subject, tmp_path / str(number))
        with suppress(HostError):
            await bench.run(assignment, faults)
        assert (await bench.run(assignment) or {})["wiped"] == ["serial-h1"], faults.trace[-1]
        assert bench.state("h1")["disks"] == wanted, faults.trace[-1]


async def test_a_consent_is_used_once(subject: Subject, tmp_path: Path) -> None:
    bench, assignment = await consenting(subject, tmp_path)
    await bench.run(assignment)
    await bench.run(ending(assignment))
    bench.machines["h1"].write("/dev/vdb", FOREIGN)
    with pytest.raises(HostError):
        await bench.run(assignment)
    assert bench.machines["h1"].disks["/dev/vdb"].signatures == (FOREIGN,)


async def test_the_end_of_a_service_releases_everything_and_wipes_nothing(subject: Subject, tmp_path: Path) -> None:
    bench, assignment = await asked(subject, tmp_path)
    await bench.run(assignment)
    before = bench.state("h1")
    gone = ending(assignment)
    await bench.run(gone)
    after = bench.state("h1")
    assert after["mounts"] == [(ROOT.source, ROOT.root, ROOT.target)]
    assert after["daemons"] == []
    assert after["disks"] == before["disks"]
    await bench.run(gone)
    assert bench.state("h1") == after


async def test_an_end_that_is_cut_off_at_any_call_is_finished_by_a_second_run(subject: Subject, tmp_path: Path) -> None:
    learning = Faults()
    bench, assignment = await asked(subject, tmp_path)
    await bench.run(assignment)
    await bench.run(ending(assignment), learning)
    wanted = bench.state("h1")
    for faults in one_fault_each(len(learning.trace)):
        bench, assignment = await asked(subject, tmp_path)
        await bench.run(assignment)
        with pytest.raises(HostError):
            await bench.run(ending(assignment), faults)
        await bench.run(ending(assignment))
        assert bench.state("h1") == wanted, faults.trace[-1]


async def test_the_end_of_what_never_was_is_no_error(subject: Subject, tmp_path: Path) -> None:
    bench, assignment = await asked(subject, tmp_path)
    before = bench.state("h1")
    await bench.run(ending(assignment))
    assert bench.state("h1") == before


async def test_after_a_reboot_everything_comes_back(subject: Subject, tmp_path: Path) -> None:
    bench = new_bench(subject, tmp_path)
    await bench.settle()
    await bench.make("pvc-1", GIB)
    state = bench.state("h1")
    bench.machines["h1"].reboot()
    await bench.work(again=True)
    assert bench.state("h1") == state
    assert all(one.status.state == SUCCEEDED for one in bench.assignments.values())


async def test_a_node_whose_disk_does_not_answer_any_more_is_not_ready(subject: Subject, tmp_path: Path) -> None:
    bench = new_bench(subject, tmp_path)
    assert (await bench.settle()).nodes["h1"].state == READY
    machine = bench.machines["h1"]
    for mount in machine.mounts[1:]:
        machine.health[mount.target] = MountHealth(MountState.CORRUPTED, "EIO")
    before = bench.state("h1")
    await bench.work(again=True)
    outcome = (await bench.plan()).nodes["h1"]
    assert outcome.state != READY
    assert "EIO" in outcome.message
    assert bench.state("h1") == before


def ending(assignment: Assignment) -> Assignment:
    spec = replace(assignment.spec, desired=None, absent=True, generation=assignment.spec.generation + 1)
    return replace(assignment, spec=spec)
