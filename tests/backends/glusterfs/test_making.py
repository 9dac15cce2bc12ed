"""A volume is made at once where nobody here ever began one; what somebody else has under its name is left alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs.fake import FakeGluster
from quartermaster.backends.glusterfs.volume_agent import Kept
from quartermaster.resources.orchestration import FAILED, SUCCEEDED, Assignment
from tests.backends.conformance.bench import Bench
from tests.backends.conformance.subjects import SUBJECTS

VOLUME = "pvc-1"
SIZE = 1 << 30
STRANGE = "10.0.0.1:/srv/strange"


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    made = Bench(next(one for one in SUBJECTS if one.type == "glusterfs"), tmp_path)
    made.add("h1", "h2", "h3")
    await made.settle()
    made.online = True
    return made


def gluster_of(bench: Bench) -> FakeGluster:
    assert isinstance(bench.world, FakeGluster)
    return bench.world


def keeping(bench: Bench) -> Assignment:
    return next(one for one in bench.assignments.values() if one.spec.agent == "glusterfs-volume")


def kept_file(bench: Bench, tmp_path: Path) -> Path:
    return tmp_path / keeping(bench).spec.host / "glusterfs-volume" / VOLUME


def let_it_be_begun(bench: Bench, tmp_path: Path) -> None:
    """As the agent leaves it that dies before it knows what gluster answers."""
    begun = Kept("storage/default", bricks=tuple((keeping(bench).spec.desired or {})["bricks"]))
    kept_file(bench, tmp_path).write_bytes(msgspec.json.encode(begun))


def end(bench: Bench) -> None:
    """Its claim is deleted."""
    assignment = keeping(bench)
    spec = replace(assignment.spec, desired=None, absent=True, generation=assignment.spec.generation + 1)
    bench.assignments[assignment.metadata.name] = replace(assignment, spec=spec)


def is_over(bench: Bench) -> bool:
    return not any(one.spec.agent == "glusterfs-volume" for one in bench.assignments.values())


async def test_a_volume_that_was_never_begun_is_made_without_a_look(bench: Bench) -> None:
    gluster_of(bench).commands_run.clear()
    await bench.make(VOLUME, SIZE)
    asked = [" ".join(argv[3:5]) for _, argv in gluster_of(bench).commands_run]
    assert asked == ["volume create", "volume set", "volume start", "volume quota", "volume quota", "volume set"]


async def test_a_volume_of_somebody_else_by_the_same_name_is_refused_and_outlives_the_claim(
    bench: Bench, tmp_path: Path
) -> None:
    gluster_of(bench).create("10.0.0.1", VOLUME, (1, 1, False), [STRANGE])
    await bench.make(VOLUME, SIZE)
    assert keeping(bench).status.state == FAILED
    assert "it belongs to somebody else" in keeping(bench).status.message
    assert not kept_file(bench, tmp_path).exists()
    end(bench)
    await bench.work()
    assert [brick.name for brick in gluster_of(bench).volume("10.0.0.1", VOLUME).bricks] == [STRANGE]


async def test_it_outlives_the_claim_also_where_the_agent_died_right_after_gluster_had_refused_the_name(
    bench: Bench, tmp_path: Path
) -> None:
    gluster_of(bench).create("10.0.0.1", VOLUME, (1, 1, False), [STRANGE])
    await bench.make(VOLUME, SIZE)
    let_it_be_begun(bench, tmp_path)
    end(bench)
    await bench.work()
    assert is_over(bench)
    assert [brick.name for brick in gluster_of(bench).volume("10.0.0.1", VOLUME).bricks] == [STRANGE]


async def test_one_that_was_begun_and_not_marked_yet_is_deleted_with_its_claim(bench: Bench, tmp_path: Path) -> None:
    await bench.make(VOLUME, SIZE)
    let_it_be_begun(bench, tmp_path)
    volume = gluster_of(bench).volume("10.0.0.1", VOLUME)
    for name in [name for name in volume.options if name.startswith("user.")]:
        del volume.options[name]
    end(bench)
    await bench.work()
    assert is_over(bench)
    assert VOLUME not in gluster_of(bench).pool_of("10.0.0.1").volumes


async def test_one_that_a_host_had_begun_elsewhere_and_not_marked_when_it_was_given_up_is_finished(
    bench: Bench,
) -> None:
    bricks = [f"10.0.0.{number}:/srv/{VOLUME}" for number in (1, 2, 3)]
    gluster_of(bench).create("10.0.0.1", VOLUME, (3, 0, False), bricks)
    await bench.make(VOLUME, SIZE)
    assert keeping(bench).status.state == SUCCEEDED
    volume = gluster_of(bench).volume("10.0.0.1", VOLUME)
    assert volume.started
    assert volume.options["user.quartermaster.owner"] == "storage/default"
    assert [brick.name for brick in volume.bricks] == bricks
