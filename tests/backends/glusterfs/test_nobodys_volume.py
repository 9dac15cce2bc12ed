"""A volume that no PersistentVolume has any more: it was retained, its object is deleted, and what it is on stays."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from quartermaster.backends.base import Placement
from quartermaster.backends.glusterfs.facts import SIZE_OPTION
from quartermaster.backends.glusterfs.model import Brick, VolumeInfo
from quartermaster.backends.glusterfs.promises import promised_by
from quartermaster.backends.glusterfs.seeing import rooms_of, see
from quartermaster.planning.outcomes import READY
from quartermaster.resources import ObjectMeta, StorageStatus
from quartermaster.resources.storage import BackendReport, StorageStatusSpec
from quartermaster.support.errors import NotFoundError
from tests.backends.conformance.bench import NAMESPACE

from .modelled import GIB, VOLUME, Cluster

BIG = "pvc-big"


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    await made.rounds(2)
    return made


def forget_volume(cluster: Cluster, volume: str = VOLUME) -> None:
    del cluster.bench.volumes[volume]
    for name in [name for name, one in cluster.bench.assignments.items() if one.spec.instance == volume]:
        del cluster.bench.assignments[name]


async def free(cluster: Cluster) -> list[int]:
    return [room.free for room in rooms_of(see(await cluster.bench.view()))]


async def is_placed(cluster: Cluster, name: str, size: int) -> bool:
    placed = cluster.bench.backend.volumes().place(cluster.bench.request(name, size), await cluster.bench.view())
    return isinstance(placed, Placement)


def holds_its_brick(cluster: Cluster, host: str) -> bool:
    """Whether the disk that it is on is mounted there."""
    volume, address = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME), cluster.bench.address(host)
    path = next(brick.path for brick in volume.bricks if brick.address == address)
    return any(path.startswith(f"{mount.target}/") for mount in cluster.bench.machines[host].mounts)


async def test_a_disk_with_its_brick_stays_when_it_is_declared_no_more_and_the_node_says_why(cluster: Cluster) -> None:
    cluster.bench.machines["h2"].add_disk("vdc", serial="second")
    cluster.bench.declare("h2", devices=["/dev/vdb", "/dev/vdc"])
    await cluster.rounds(3)
    forget_volume(cluster)
    cluster.bench.declare("h2", devices=["/dev/vdc"])
    plan = await cluster.rounds(4)
    assert holds_its_brick(cluster, "h2")
    assert plan.nodes["h2"].state == READY
    assert f"stays: it has a brick of {VOLUME}, which no PersistentVolume has" in plan.nodes["h2"].message
    del cluster.gluster.pool_of(cluster.bench.address("h1")).volumes[VOLUME]
    plan = await cluster.rounds(4)
    assert [mount.source for mount in cluster.bench.machines["h2"].mounts if "glusterd" in mount.target] == ["/dev/vdc"]
    assert plan.nodes["h2"].message == ""


async def test_so_does_the_only_disk_of_a_node(cluster: Cluster) -> None:
    forget_volume(cluster)
    cluster.bench.declare("h2", devices=[])
    plan = await cluster.rounds(4)
    assert holds_its_brick(cluster, "h2")
    assert plan.nodes["h2"].state == READY


async def test_its_room_is_not_promised_again_at_any_moment_until_it_is_deleted(cluster: Cluster) -> None:
    await cluster.bench.make(BIG, 8 * GIB)
    plan = await cluster.rounds(2)
    before, used = await free(cluster), plan.nodes["h1"].used
    forget_volume(cluster, BIG)
    for _ in range(3):
        assert await free(cluster) == before
        assert not await is_placed(cluster, "pvc-new", 8 * GIB)
        plan = await cluster.round()
        assert plan.nodes["h1"].used == used
    del cluster.gluster.pool_of(cluster.bench.address("h1")).volumes[BIG]
    await cluster.rounds(2)
    assert await is_placed(cluster, "pvc-new", 8 * GIB)


async def test_of_one_that_was_deleted_the_room_is_free_at_once(cluster: Cluster) -> None:
    """Before the pool was looked at again: a claim that comes now need not wait."""
    before = await free(cluster)
    await cluster.bench.make(BIG, 8 * GIB)
    await cluster.rounds(2)
    fact = see(await cluster.bench.view()).facts.volumes[BIG]
    forget_volume(cluster, BIG)
    cluster.bench.memory["ended"] = f'["{fact.id}"]'
    assert await free(cluster) == before


@pytest.mark.parametrize("leaves", [False, True], ids=["on nodes that stay", "on a node that leaves"])
async def test_its_copies_stay_when_whoever_speaks_for_the_pool_has_fallen_out_of_it(
    cluster: Cluster, leaves: bool
) -> None:
    """What he sees is a pool of his own, with no volume and no other member."""
    cluster.bench.add("h4")
    await cluster.rounds(2)
    cluster.bench.memory["coordinator"] = "h4"
    forget_volume(cluster)
    await cluster.rounds(2)
    assert cluster.bench.memory["coordinator"] == "h4"
    cluster.gluster.detach(cluster.bench.address("h1"), cluster.bench.address("h4"), force=True)
    if leaves:
        cluster.bench.mark("h2", deleting=True)
    metadata = ObjectMeta(name=cluster.bench.key.status_name, namespace=NAMESPACE)
    for _ in range(4):
        plan = await cluster.bench.plan()
        section = BackendReport(details={"servers": plan.details["servers"]})
        spec = StorageStatusSpec(type="glusterfs", glusterfs=section)
        status = StorageStatus(metadata=metadata, spec=spec)
        with suppress(NotFoundError):
            await cluster.bench._store.delete(StorageStatus, metadata.name, NAMESPACE)
        await cluster.bench._store.create(status)
        await cluster.round()
    copies = [path for host in ("h1", "h2", "h3") for _, path in cluster.bench.machines[host].directories]
    assert sum(path.endswith(f"/{VOLUME}") for path in copies) == 3


async def test_an_attempt_to_make_a_volume_is_no_reason_against_making_it_again(cluster: Cluster) -> None:
    await cluster.bench.make(BIG, 8 * GIB)
    await cluster.rounds(2)
    forget_volume(cluster, BIG)
    assert await is_placed(cluster, BIG, 8 * GIB)


@pytest.mark.parametrize(
    ("layout", "bricks", "promised"),
    [
        ({"replica": 3}, 3, (8 * GIB,)),
        ({"replica": 3}, 6, (4 * GIB,)),
        ({"replica": 1}, 2, (4 * GIB,)),
        ({"replica": 3, "arbiter": 1}, 3, (8 * GIB, 8 * GIB, GIB >> 3)),
        ({"disperse": 6, "redundancy": 2}, 6, (2 * GIB,)),
    ],
)
def test_a_volume_says_what_each_of_its_bricks_may_come_to_hold(
    layout: dict[str, int], bricks: int, promised: tuple[int, ...]
) -> None:
    made = tuple(Brick(f"10.0.0.{one}:/b/{BIG}", str(one)) for one in range(bricks))
    volume = VolumeInfo(BIG, "1", True, made, **layout, options={SIZE_OPTION: str(8 * GIB)})
    assert promised_by(volume) == promised


def test_one_that_does_not_say_its_size_promises_nothing() -> None:
    assert promised_by(VolumeInfo(BIG, "1", True, (Brick("10.0.0.1:/b/x", "1"),))) == ()
