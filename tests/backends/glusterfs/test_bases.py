"""Directories for bricks: whose they are is known before anything is written, and what is removed is so in the end."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from quartermaster.backends.glusterfs import node_agent
from quartermaster.backends.glusterfs.belonging import IDENTITY_FILE
from quartermaster.backends.glusterfs.seeing import is_on_device, rooms_of, see
from quartermaster.host.fake.directories import FakeDirectories
from quartermaster.host.fake.faults import Faults, Moment
from quartermaster.host.fake.machine import ROOT
from quartermaster.planning.cluster import Desired
from quartermaster.resources.orchestration import SUCCEEDED, assignment_name
from quartermaster.support.errors import HostError

from .modelled import GIB, VOLUME, Cluster

THEIRS = "/srv/theirs"


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """h1, h2 and h3 have a copy each."""
    made = Cluster(tmp_path)
    await made.begin()
    await made.rounds(2)
    return made


def bricks_on(cluster: Cluster, host: str) -> list[tuple[str, str]]:
    """Also those whose removal has begun."""
    return [(number, path) for number, path in cluster.bench.machines[host].directories if "pvc-" in path]


async def test_nothing_is_written_to_a_directory_of_somebody_else(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.bench.add("h1", directories=[THEIRS])
    machine = cluster.bench.machines["h1"]
    machine.directories |= {(ROOT.number, THEIRS): None, (ROOT.number, f"{THEIRS}/photos"): None}
    await cluster.rounds(3)
    report = cluster.bench.assignments[assignment_name("glusterd", "h1")].status
    assert "holds photos" in (report.result or {})["failed"][THEIRS]
    assert [path for _, path in machine.directories if path.startswith("/srv")] == [THEIRS, f"{THEIRS}/photos"]


async def test_nothing_is_removed_from_a_directory_of_another_cluster(cluster: Cluster) -> None:
    machine, name = cluster.bench.machines["h3"], assignment_name("glusterd", "h3")
    ((number, brick),) = bricks_on(cluster, "h3")
    left, begun = f"{brick}.m7", f"{Path(brick).parent}/.pvc-9.removing"
    machine.directories |= {(number, left): None, (number, begun): None}
    desired = cluster.bench.assignments[name].spec.desired or {}
    cluster.bench.ask(Desired("h3", "glusterd", {**desired, "owner": "storage/other", "remove": [left]}))
    await cluster.bench.work()
    assert {(number, left), (number, begun)} <= set(machine.directories)


@pytest.mark.parametrize("left", [[], ["pvc-9"]], ids=["empty", "with a brick"])
async def test_a_disk_of_the_time_before_is_taken_again_when_nothing_is_on_it(
    cluster: Cluster, left: list[str]
) -> None:
    """Its node left the cluster and is back, with a glusterd that is another one by now."""
    cluster.bench.add("h4")
    await cluster.rounds(2)
    machine, name = cluster.bench.machines["h4"], assignment_name("glusterd", "h4")
    ((place, now),) = [(place, text) for place, text in machine.files.items() if place[1].endswith(IDENTITY_FILE)]
    before = msgspec.json.encode({**msgspec.json.decode(now), "uuid": "of-before"})
    machine.files[place] = before
    machine.directories |= {(place[0], f"{Path(place[1]).parent}/{brick}"): None for brick in left}
    failed = ((await cluster.bench.run(cluster.bench.assignments[name])) or {})["failed"]
    assert machine.files[place] == (before if left else now)
    assert ["of another glusterd (of-befor); it holds pvc-9" in why for why in failed.values()] == [True] * len(left)


@pytest.mark.parametrize("moment", Moment)
async def test_the_removal_of_a_brick_that_was_cut_off_is_finished_by_its_node(
    cluster: Cluster, moment: Moment
) -> None:
    ((_, brick),) = bricks_on(cluster, "h1")
    cluster.bench.volumes.clear()
    cluster.bench.ask(Desired("h1", "glusterfs-volume", None, VOLUME))
    ending = cluster.bench.assignments[assignment_name("glusterfs-volume", "h1", VOLUME)]
    with pytest.raises(HostError):
        await cluster.bench.run(ending, Faults(lambda _, name: moment if name == f"begin to remove {brick}" else None))
    del cluster.bench.assignments[ending.metadata.name]  # nobody asks for it again
    await cluster.rounds(4)
    assert [bricks_on(cluster, host) for host in ("h1", "h2", "h3")] == [[], [], []]


async def test_whoever_deletes_a_volume_finishes_what_he_has_begun_to_remove(cluster: Cluster) -> None:
    ((_, brick),) = bricks_on(cluster, "h1")
    cluster.bench.ask(Desired("h1", "glusterfs-volume", None, VOLUME))
    ending = cluster.bench.assignments[assignment_name("glusterfs-volume", "h1", VOLUME)]
    killed = Faults(lambda _, name: Moment.AFTER if name == f"begin to remove {brick}" else None)
    with pytest.raises(HostError):
        await cluster.bench.run(ending, killed)
    assert [Path(path).name for _, path in bricks_on(cluster, "h1")] == [".pvc-1.removing"]
    await cluster.bench.run(ending)
    assert bricks_on(cluster, "h1") == []


async def test_a_node_serves_while_a_large_brick_is_being_removed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, name = cluster.bench.machines["h3"], assignment_name("glusterd", "h3")
    ((number, brick),) = bricks_on(cluster, "h3")
    begun = (number, f"{Path(brick).parent}/.pvc-9.removing")
    machine.directories[begun] = None

    async def takes_long(*_: str) -> bool:
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr(FakeDirectories, "_remove", takes_long)
        await cluster.bench.work(again=True)
    report = cluster.bench.assignments[name].status
    assert (report.state, (report.result or {})["againSeconds"]) == (SUCCEEDED, node_agent.AGAIN_S)
    await cluster.bench.work(again=True)
    assert begun not in machine.directories
    assert "againSeconds" not in (cluster.bench.assignments[name].status.result or {})


async def on_directories(tmp_path: Path, *, used: int = 0, base: str = "/srv/a") -> Cluster:
    """Four nodes with a directory on a file system of 100 GiB, and a /srv/b that nobody has declared."""
    cluster = Cluster(tmp_path)
    cluster.bench.add("h1", "h2", "h3", "h4", directories=[base])
    for machine in cluster.bench.machines.values():
        machine.directories |= {(ROOT.number, base): None, (ROOT.number, "/srv/b"): None}
        machine.used[ROOT.number] = used
    await cluster.bench.settle()
    cluster.bench.online = True
    return cluster


@pytest.mark.parametrize(
    ("spec", "base"),
    [
        ({"directories": ["/srv/b"]}, "/srv/a"),
        ({"devices": ["/dev/vdb"]}, "/srv/a"),
        ({"devices": ["/dev/vdb"]}, "/srv/mounts/bricks"),  # not the place where an agent mounts disks
    ],
)
async def test_a_directory_that_is_no_longer_declared_is_emptied_and_then_given_up(
    tmp_path: Path, spec: dict[str, list[str]], base: str
) -> None:
    cluster = await on_directories(tmp_path, base=base)
    await cluster.bench.make(VOLUME, GIB)
    host = cluster.bench.volumes[VOLUME].hosts[0]
    cluster.bench.declare(host, **spec)
    assert base not in [room.base for room in rooms_of(see(await cluster.bench.view())) if room.host == host]
    plan = await cluster.rounds(12)
    volume = cluster.gluster.volume(cluster.bench.address(host), VOLUME)
    assert f"{cluster.bench.address(host)}:{base}/{VOLUME}" not in [brick.name for brick in volume.bricks]
    assert plan.degraded.reason == "Complete"
    assert [path for _, path in bricks_on(cluster, host) if path.startswith(f"{base}/")] == []
    assert base not in (cluster.bench.assignments[assignment_name("glusterd", host)].spec.desired or {})["directories"]
    assert not cluster.gluster.is_lost(VOLUME)


@pytest.mark.parametrize(
    ("base", "on_device"),
    [
        ("/var/lib/quartermaster/agents/glusterd/mounts/-/0b1f", True),
        ("/srv/mounts/bricks", False),
        ("/srv/glusterd/mounts/bricks", False),
        ("/var/lib/quartermaster/agents/local/mounts/-/0b1f", False),
        ("/var/lib/quartermaster/agents/glusterd/mounts/-/0b1f/deeper", False),
    ],
)
def test_a_directory_is_a_disk_of_ours_only_where_the_agent_mounts_them(base: str, on_device: bool) -> None:
    assert is_on_device(base) is on_device


async def test_where_a_disk_is_mounted_is_known_again_by_its_path(cluster: Cluster) -> None:
    bases = [base.path for base in see(await cluster.bench.view()).bases]
    assert len(bases) == 3
    assert all(map(is_on_device, bases))


async def test_what_others_have_written_beside_a_directory_is_no_room_for_bricks(tmp_path: Path) -> None:
    cluster = await on_directories(tmp_path, used=70 * GIB)
    rooms = rooms_of(see(await cluster.bench.view()))
    assert len(rooms) == 4
    assert all(27 * GIB < room.free <= 30 * GIB for room in rooms)
    assert all(one.total < 31 * GIB for one in (await cluster.bench.plan()).nodes.values())
    await cluster.bench.make(VOLUME, 10 * GIB)
    for machine in cluster.bench.machines.values():
        machine.used[ROOT.number] = 97 * GIB
    await cluster.rounds(2)
    assert all(room.free < 3 * GIB for room in rooms_of(see(await cluster.bench.view())))
