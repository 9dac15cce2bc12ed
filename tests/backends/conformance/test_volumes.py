"""What the volumes of every backend keep to."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Refusal, Volume
from quartermaster.host.fake import Faults, fake_host, one_fault_each
from quartermaster.planning.outcomes import READY
from quartermaster.resources import PersistentVolume, from_document
from quartermaster.resources.orchestration import Assignment, AssignmentStatus, assignment_name
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import HostError, MountConflictError

from .bench import Bench
from .subjects import SUBJECTS, Subject

NAMES = ("h1", "h2", "h3", "h4", "h5")
GIB = 1 << 30


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.type)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    subject: Subject = request.param
    made = Bench(subject, tmp_path)
    made.add(*NAMES[: subject.nodes])
    await made.settle()
    return made


def assignment_of(bench: Bench, volume: Volume) -> Assignment:
    desired = bench.backend.volumes().desired(volume)
    return bench.assignments[assignment_name(desired.agent, desired.host, desired.instance)]


def persistent(bench: Bench, volume: Volume) -> PersistentVolume:
    source = bench.backend.volumes().source(volume, bench.result_of(volume))
    spec = {"capacity": {"storage": str(volume.size)}, "accessModes": ["ReadWriteOnce"], **source}
    return from_document(PersistentVolume, {"metadata": {"name": volume.name}, "spec": spec})


async def test_a_placement_is_a_pure_function(bench: Bench) -> None:
    view = await bench.view()
    driver = bench.backend.volumes()
    first = driver.place(bench.request("pvc-1", GIB), view)
    assert first == driver.place(bench.request("pvc-1", GIB), view)
    assert not isinstance(first, Refusal)
    assert set(first.hosts) <= set(bench.machines)
    assert first.why


async def test_a_volume_that_is_made_again_is_the_same_volume(bench: Bench) -> None:
    volume = await bench.make("pvc-1", GIB)
    result, state = bench.result_of(volume), bench.state(volume.placement.hosts[0])
    assert await bench.run(assignment_of(bench, volume)) == result
    assert bench.state(volume.placement.hosts[0]) == state


async def test_a_volume_that_was_handed_out_is_placed_where_it_is(bench: Bench) -> None:
    volume = await bench.make("pvc-1", GIB)
    placed = bench.backend.volumes().place(
        bench.request("pvc-1", 2 * GIB, current=volume.placement), await bench.view()
    )
    assert not isinstance(placed, Refusal)
    assert (placed.hosts, placed.details) == (volume.placement.hosts, volume.placement.details)
    larger = replace(volume, size=2 * GIB, placement=placed)
    bench.ask(bench.backend.volumes().desired(larger))
    await bench.work()
    assert bench.result_of(larger)


async def test_a_refusal_says_how_much_was_asked_for_and_how_much_there_is(bench: Bench) -> None:
    refused = bench.backend.volumes().place(bench.request("pvc-1", 10_000 * GIB), await bench.view())
    assert isinstance(refused, Refusal)
    assert refused.reason
    amounts = re.findall(r"[\d.]+ [KMGT]?i?B", refused.message)
    assert "9.77 TiB" in amounts
    assert len(set(amounts)) >= 2


async def test_what_was_promised_is_not_promised_again(bench: Bench) -> None:
    await bench.make("pvc-1", 6 * GIB)
    refused = bench.backend.volumes().place(bench.request("pvc-2", 6 * GIB), await bench.view())
    assert isinstance(refused, Refusal)


async def test_the_source_is_one_that_a_store_admits(bench: Bench) -> None:
    published = persistent(bench, await bench.make("pvc-1", GIB))
    admitted = await ObjectStore(MemoryKeyValue()).create(published)
    assert admitted.metadata.name == "pvc-1"


async def test_a_volume_is_gone_after_its_end_and_other_volumes_are_not(bench: Bench) -> None:
    kept = await bench.make("pvc-1", GIB)
    doomed = await bench.make("pvc-2", GIB)
    before = bench.state(kept.placement.hosts[0])
    bench.ask(replace(bench.backend.volumes().desired(doomed), config=None))
    await bench.work()
    del bench.volumes["pvc-2"]
    assert bench.state(kept.placement.hosts[0]) != before
    assert await bench.run(assignment_of(bench, kept)) == bench.result_of(kept)
    view = await bench.view()
    assert not isinstance(bench.backend.volumes().place(bench.request("pvc-3", 8 * GIB), view), Refusal)


@pytest.mark.slow
async def test_an_end_of_a_volume_cut_off_at_any_call_is_finished_by_a_second_run(bench: Bench) -> None:
    volume = await bench.make("pvc-1", GIB)
    whole = assignment_of(bench, volume)
    spec = replace(whole.spec, desired=None, absent=True, generation=whole.spec.generation + 1)
    ending, learning = replace(whole, spec=spec), Faults()
    await bench.run(ending, learning)
    wanted = bench.state(volume.placement.hosts[0])
    assert learning.trace
    fresh = replace(whole, status=AssignmentStatus())
    for faults in one_fault_each(len(learning.trace)):
        await bench.run(fresh)
        with pytest.raises(HostError):
            await bench.run(ending, faults)
        await bench.run(ending)
        assert bench.state(volume.placement.hosts[0]) == wanted, faults.trace[-1]


@pytest.mark.parametrize("records", ["kept", "lost"])
async def test_a_finished_volume_that_has_vanished_is_not_made_again_but_told(
    bench: Bench, tmp_path: Path, records: str
) -> None:
    volume = await bench.make("pvc-1", GIB)
    host = volume.placement.hosts[0]
    bench.machines[host].directories.clear()
    if records == "lost":  # another machine under the name of the host
        shutil.rmtree(tmp_path / host / assignment_of(bench, volume).spec.agent)
    empty = bench.state(host)
    for _ in range(2):
        with pytest.raises(HostError, match="pvc-1"):
            await bench.run(assignment_of(bench, volume))
        await bench.work(again=True)
        assert bench.state(host) == empty
    outcome = (await bench.plan()).nodes[host]
    assert outcome.state != READY
    assert "pvc-1" in outcome.message


@pytest.mark.slow
async def test_a_volume_that_was_not_finished_is_made_by_the_next_run(bench: Bench) -> None:
    volume = await bench.make("pvc-1", GIB)
    unfinished = replace(assignment_of(bench, volume), status=AssignmentStatus())
    result = bench.result_of(volume)
    bench.ask(replace(bench.backend.volumes().desired(volume), config=None))
    await bench.work()
    learning = Faults()
    await bench.run(unfinished, learning)
    for faults in one_fault_each(len(learning.trace)):
        await bench.run(replace(unfinished, spec=replace(unfinished.spec, desired=None, absent=True)))
        with pytest.raises(HostError):
            await bench.run(unfinished, faults)
        assert await bench.run(unfinished) == result, faults.trace[-1]


async def test_a_mount_is_as_good_as_two_and_so_is_an_unmount(bench: Bench, tmp_path: Path) -> None:
    volume = await bench.make("pvc-1", GIB)
    driver, target = bench.backend.volumes(), tmp_path / "target"
    machine = fake_host(bench.machines[volume.placement.hosts[0]])
    published = persistent(bench, volume)
    path = await driver.mount(machine, published, target)
    state = bench.state(volume.placement.hosts[0])
    assert await driver.mount(machine, published, target) == path
    assert bench.state(volume.placement.hosts[0]) == state
    await driver.unmount(machine, published, target)
    released = bench.state(volume.placement.hosts[0])
    assert str(target) not in [mount for _, _, mount in released["mounts"]]
    await driver.unmount(machine, published, target)
    assert bench.state(volume.placement.hosts[0]) == released


async def test_what_somebody_else_has_mounted_is_never_unmounted(bench: Bench, tmp_path: Path) -> None:
    volume = await bench.make("pvc-1", GIB)
    driver, target = bench.backend.volumes(), tmp_path / "target"
    host = volume.placement.hosts[0]
    machine, published = fake_host(bench.machines[host]), persistent(bench, volume)
    await machine.mounts.mount("foreign", str(target), type="tmpfs")
    state = bench.state(host)
    assert not driver.is_mounted(machine, published, target)
    assert await driver.unmount(machine, published, target) is False
    assert bench.state(host) == state


async def test_a_volume_beneath_somebody_elses_mount_is_not_unmounted(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # on a modelled machine anybody may mount
    volume = await bench.make("pvc-1", GIB)
    driver, target = bench.backend.volumes(), tmp_path / "target"
    host = volume.placement.hosts[0]
    machine, published = fake_host(bench.machines[host]), persistent(bench, volume)
    assert await driver.mount(machine, published, target) == target
    (ours,) = [mount for mount in bench.machines[host].mounts if mount.target == str(target)]
    other = replace(ours, id=99_999, parent=ours.id, source="foreign", number="0:999", root="/")
    bench.machines[host].mounts.append(other)
    state = bench.state(host)
    assert driver.is_mounted(machine, published, target)
    with pytest.raises(MountConflictError, match=r"cannot unmount pvc-1 from .*: foreign .* is mounted on top of it"):
        await driver.unmount(machine, published, target)
    assert bench.state(host) == state


async def test_a_node_that_holds_a_volume_is_not_removable(bench: Bench) -> None:
    volume = await bench.make("pvc-1", GIB)
    host = volume.placement.hosts[0]
    bench.mark(host, deleting=True)
    plan = await bench.plan()
    assert host not in plan.removable
    assert plan.nodes[host].message
