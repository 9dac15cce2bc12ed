"""A glusterd that does not start with what it has written of a volume: its host died in the middle of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from quartermaster.backends.glusterfs.torn import torn_records
from quartermaster.host.fake.daemons import FakeDaemons
from quartermaster.host.programs import Program
from quartermaster.resources.orchestration import FAILED, SUCCEEDED, assignment_name

from .modelled import VOLUME, Cluster

BRICKS = ("10.0.0.1:-srv-b", "10.0.0.2:-srv-b", "10.0.0.3:-srv-b")


def write(state: Path, volume: str = VOLUME, *, without: str = "", peers: bool = True) -> Path:
    """As glusterd does, but for one of its files."""
    record = state / "vols" / volume
    (record / "bricks").mkdir(parents=True)
    lines = ["type=2", f"count={len(BRICKS)}", *(f"brick-{at}={brick}" for at, brick in enumerate(BRICKS))]
    for name, text in [("info", "\n".join(lines)), *((f"bricks/{brick}", "path=/srv/b") for brick in BRICKS)]:
        if name != without:
            (record / name).write_text(text)
    (state / "peers").mkdir(exist_ok=True)
    if peers:
        (state / "peers" / "somebody").write_text("state=3")
    return record


@pytest.mark.parametrize(("without", "torn"), [("", []), ("info", [VOLUME]), (f"bricks/{BRICKS[1]}", [VOLUME])])
def test_a_record_is_torn_when_something_that_it_names_is_missing(
    tmp_path: Path, without: str, torn: list[str]
) -> None:
    write(tmp_path, without=without)
    assert torn_records(tmp_path) == torn


def test_where_nobody_has_another_one_it_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, without="info", peers=False)
    assert torn_records(tmp_path) == []


async def test_it_is_set_aside_and_glusterd_starts_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    state = next(tmp_path.glob("h2/**/glusterd.json")).parent / "glusterd"
    whole, record = write(state, "pvc-2"), write(state, without="info")
    machine, uuid = cluster.bench.machines["h2"], cluster.gluster.uuid(cluster.bench.address("h2"))

    def brick(volume: str, of: str) -> Program:
        words = ("glusterfsd", "--volfile-id", f"{volume}.10.0.0.2.srv-b", "--process-name", "brick")
        return Program(len(volume + of), 1, (*words, "--xlator-option", f"*-posix.glusterd-uuid={of}"))

    ours, others = brick(VOLUME, uuid), (brick("pvc-2", uuid), brick(VOLUME, "of somebody else"))
    machine.programs += [ours, *others]
    ensure = FakeDaemons.ensure

    async def starts(daemons: FakeDaemons, daemon: object) -> object:
        found = await ensure(daemons, daemon)
        if record.exists():
            machine.processes.pop("glusterd")
        return found

    monkeypatch.setattr(FakeDaemons, "ensure", starts)
    machine.processes.pop("glusterd")
    name = assignment_name("glusterd", "h2")
    await cluster.bench.work(again=True, only="glusterd")
    status = cluster.bench.assignments[name].status
    assert status.state == FAILED
    assert f"what it has written of {VOLUME} is not complete" in status.message
    assert not record.exists()
    assert whole.exists()
    assert machine.programs == list(others)
    await cluster.bench.work(again=True, only="glusterd")
    assert cluster.bench.assignments[name].status.state == SUCCEEDED
