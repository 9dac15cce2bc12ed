"""A volume that is deleted takes with it the bricks of the host that keeps it, and nothing that another volume has."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs.adopting import find
from quartermaster.backends.glusterfs.dwelling import bricks_by_address, bricks_here, paths_to_remove
from quartermaster.backends.glusterfs.fake import FOREIGN
from quartermaster.backends.glusterfs.model import Brick, VolumeInfo
from quartermaster.backends.glusterfs.volume_agent import Kept
from quartermaster.host import Daemon
from quartermaster.host.fake.faults import Faults, Moment
from quartermaster.host.fake.machine import ROOT, FakeProcess
from quartermaster.planning.cluster import Desired
from quartermaster.resources.orchestration import assignment_name
from quartermaster.support.errors import HostError
from tests.backends.conformance.bench import NAMESPACE

from .modelled import Cluster
from .test_adopting import BRICKS, surveys_of, write

FIRST, SECOND = "gv0", "gv1"


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """An adopted pool in which a path is a brick of one volume on one host, and of another one on the next."""
    cluster = Cluster(tmp_path)
    gluster, bench = cluster.gluster, cluster.bench
    bench.add("h1", "h2", "h3")
    await surveys_of(cluster)
    for machine in bench.machines.values():
        machine.directories[ROOT.number, BRICKS] = None
        machine.processes[FOREIGN] = FakeProcess(Daemon(FOREIGN, argv=("glusterd",)), pid=1)
    first, *others = (bench.address(host) for host in bench.machines)
    for address in others:
        gluster.probe(first, address)
    for name, paths in ((FIRST, "abc"), (SECOND, "bca")):
        places = zip((first, *others), paths, strict=True)
        gluster.create(first, name, (3, 0, False), [f"{address}:{BRICKS}/{path}" for address, path in places])
        gluster.start(first, name, force=False)
    bench.nodes.clear()
    found = find(await surveys_of(cluster), NAMESPACE, cluster="old")
    bench.key = found.key
    write(cluster, found)
    await cluster.rounds(6)
    assert inside(cluster) == {"h1": ["a", "b"], "h2": ["b", "c"], "h3": ["a", "c"]}
    return cluster


def inside(cluster: Cluster) -> dict[str, list[str]]:
    """Host → the bricks in its directory."""
    return {
        host: sorted(
            path.rpartition("/")[2]
            for _, path in machine.directories
            if path.rpartition("/")[0] == BRICKS and not path.rpartition("/")[2].startswith(".")
        )
        for host, machine in cluster.bench.machines.items()
    }


def record_of(cluster: Cluster, tmp_path: Path) -> Path:
    keeper = next(one.spec.host for one in cluster.bench.assignments.values() if one.spec.instance == FIRST)
    assert keeper == "h1"
    return tmp_path / keeper / "glusterfs-volume" / FIRST


def as_written_before(record: Path) -> None:
    """By a version that did not say which bricks are here."""
    known = msgspec.json.decode(record.read_bytes())
    assert known.pop("here")
    record.write_bytes(msgspec.json.encode(known))
    assert msgspec.json.decode(record.read_bytes(), type=Kept).here is None


def end(cluster: Cluster) -> str:
    del cluster.bench.volumes[FIRST]
    cluster.bench.ask(Desired("h1", "glusterfs-volume", None, FIRST))
    return assignment_name("glusterfs-volume", "h1", FIRST)


@pytest.mark.parametrize("is_old", [False, True])
async def test_only_the_brick_of_the_host_itself_is_removed_with_the_volume(
    cluster: Cluster, tmp_path: Path, is_old: bool
) -> None:
    record = record_of(cluster, tmp_path)
    if is_old:
        as_written_before(record)
    name = end(cluster)
    await cluster.bench.work()
    assert name not in cluster.bench.assignments
    assert inside(cluster) == {"h1": ["b"], "h2": ["b", "c"], "h3": ["a", "c"]}
    assert all(brick.runs for brick in cluster.gluster.volume(cluster.bench.address("h1"), SECOND).bricks)
    assert not record.exists()


@pytest.mark.parametrize("is_old", [False, True])
async def test_whoever_was_cut_off_after_the_volume_was_deleted_still_knows_which_brick_was_its_own(
    cluster: Cluster, tmp_path: Path, is_old: bool
) -> None:
    record = record_of(cluster, tmp_path)
    if is_old:
        as_written_before(record)
    ending = cluster.bench.assignments[end(cluster)]
    with pytest.raises(HostError):
        await cluster.bench.run(ending, Faults(lambda _, name: Moment.BEFORE if "begin to remove" in name else None))
    assert FIRST not in cluster.gluster.pool_of(cluster.bench.address("h1")).volumes
    assert inside(cluster)["h1"] == ["a", "b"]
    await cluster.bench.run(ending)
    assert inside(cluster) == {"h1": ["b"], "h2": ["b", "c"], "h3": ["a", "c"]}


async def test_an_old_record_of_a_volume_that_is_gone_is_read_by_the_addresses_of_bricks_that_are_here(
    cluster: Cluster, tmp_path: Path
) -> None:
    as_written_before(record_of(cluster, tmp_path))
    first = cluster.bench.address("h1")
    cluster.gluster.stop(first, FIRST)
    cluster.gluster.delete(first, FIRST)
    end(cluster)
    await cluster.bench.work()
    assert inside(cluster) == {"h1": ["b"], "h2": ["b", "c"], "h3": ["a", "c"]}


async def test_a_brick_that_another_volume_has_by_now_stays(cluster: Cluster, tmp_path: Path) -> None:
    record = record_of(cluster, tmp_path)
    first = cluster.bench.address("h1")
    cluster.gluster.stop(first, FIRST)
    cluster.gluster.delete(first, FIRST)
    known = msgspec.json.decode(record.read_bytes(), type=Kept)
    record.write_bytes(msgspec.json.encode(replace(known, here=(f"{first}:{BRICKS}/a", f"{first}:{BRICKS}/b"))))
    end(cluster)
    await cluster.bench.work()
    assert inside(cluster)["h1"] == ["b"]


async def test_the_brick_of_a_host_that_the_pool_knows_by_another_name_is_its_own_all_the_same() -> None:
    bricks = (Brick("one.example:/srv/a", "u1"), Brick("10.0.0.2:/srv/a", "u2"), Brick("10.0.0.1:/srv/b", ""))
    assert bricks_here(bricks, "u1") == ("one.example:/srv/a",)
    assert bricks_here(bricks, "u1", placed=["10.0.0.1:/srv/b"]) == ("one.example:/srv/a", "10.0.0.1:/srv/b")
    made = [Brick(f"{name}.bcdfgh", "") for name in ("10.0.0.1:/srv/pvc-1", "10.0.0.2:/srv/pvc-1")]
    assert bricks_here(made, "u1", placed=["10.0.0.1:/srv/pvc-1"]) == ("10.0.0.1:/srv/pvc-1.bcdfgh",)


def test_an_address_that_bricks_of_two_hosts_have_says_nothing() -> None:
    other = VolumeInfo(
        "other", "id", True, (Brick("shared:/x", "u1"), Brick("shared:/y", "u2"), Brick("fd::1:/z", "u1"))
    )
    assert bricks_by_address(["shared:/srv/a", "fd::1:/srv/a", "gone:/srv/a"], [other], "u1") == ("fd::1:/srv/a",)


def test_what_another_volume_has_here_or_nobody_knows_where_is_not_removed() -> None:
    other = VolumeInfo("other", "id", True, (Brick("h1:/srv/a", "u1"), Brick("h2:/srv/b", "u2"), Brick("x:/srv/c", "")))
    below = VolumeInfo("below", "id", True, (Brick("h1:/srv/d/deep", "u1"),))
    here = [f"h1:/srv/{name}" for name in "abcd"]
    assert paths_to_remove(here, [other, below], "u1") == ["/srv/b"]
