"""By whom a volume is mounted: the hosts that it was made on may all have been replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Volume, served_now
from quartermaster.backends.glusterfs.volumes import GlusterVolumes
from quartermaster.backends.local.volumes import LocalVolumes
from quartermaster.cli.mounting import status_of
from quartermaster.host.fake import FakeMachine, fake_host
from quartermaster.planning.cluster import ClusterKey, ClusterPlan
from quartermaster.provisioning.intent import Record, with_record
from quartermaster.resources import StorageStatus, from_document
from quartermaster.resources.kubernetes.volumes import PersistentVolume
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import ForbiddenError

from .modelled import VOLUME, Cluster

KEY = ClusterKey("storage", "glusterfs", "default")
DRIVER = GlusterVolumes()


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    return made


def volume(servers: str = "10.0.0.1,10.0.0.2") -> PersistentVolume:
    attributes = {"type": "glusterfs", "volume": VOLUME, "servers": servers}
    csi = {"driver": "glusterfs", "volumeHandle": VOLUME, "volumeAttributes": attributes}
    made = from_document(PersistentVolume, {"metadata": {"name": VOLUME}, "spec": {"csi": csi}})
    return with_record(made, Record(KEY, Volume(VOLUME, 1, Placement(("h1",)))))


def status(**details: str) -> StorageStatus:
    section = {"cluster": KEY.name, "details": details}
    metadata = {"name": KEY.status_name, "namespace": KEY.namespace}
    return from_document(StorageStatus, {"metadata": metadata, "spec": {"type": "glusterfs", "glusterfs": section}})


def servers_of(found: PersistentVolume) -> list[str]:
    assert found.spec.csi is not None
    return found.spec.csi.volume_attributes["servers"].split(",")


async def replaced(cluster: Cluster, old: str, new: str) -> ClusterPlan:
    """Another node takes the place of one."""
    cluster.bench.add(new)
    await cluster.rounds(3)
    cluster.bench.mark(old, deleting=True)
    for _ in range(20):
        plan = await cluster.round()
        for name in plan.removable:
            del cluster.bench.nodes[name]
    assert old not in cluster.bench.nodes
    return await cluster.rounds(1)


@pytest.mark.slow
async def test_when_every_host_of_its_making_was_replaced_a_volume_is_mounted_by_those_that_are_there(
    cluster: Cluster,
) -> None:
    for old, new in (("h1", "h4"), ("h2", "h5"), ("h3", "h6")):
        plan = await replaced(cluster, old, new)
    now = [cluster.bench.address(host) for host in ("h4", "h5", "h6")]
    assert plan.details["servers"].split(", ") == now

    machine, target = FakeMachine(), Path("/mnt/data")
    made = volume("10.0.0.1,10.0.0.2,10.0.0.3")
    await DRIVER.mount(fake_host(machine), served_now(DRIVER, made, status(**plan.details)), target)
    assert [one.source for one in machine.mounts if one.target == str(target)] == [f"{now[0]}:/{VOLUME}"]
    assert DRIVER.is_mounted(fake_host(machine), made, target)


async def test_the_addresses_of_the_pool_are_told_and_who_leaves_comes_last(cluster: Cluster) -> None:
    assert (await cluster.bench.plan()).details["servers"] == "10.0.0.1, 10.0.0.2, 10.0.0.3"
    cluster.bench.mark("h1", deleting=True)
    assert (await cluster.bench.plan()).details["servers"] == "10.0.0.2, 10.0.0.3, 10.0.0.1"


async def test_a_host_that_does_not_answer_is_no_server(cluster: Cluster) -> None:
    cluster.lose("h2", for_good=False)
    assert (await cluster.rounds(2)).details["servers"] == "10.0.0.1, 10.0.0.3"


def test_those_of_the_pool_come_first_and_those_of_the_making_after_them() -> None:
    found = served_now(DRIVER, volume(), status(servers="10.0.0.2, 10.0.0.7"))
    assert servers_of(found) == ["10.0.0.2", "10.0.0.7", "10.0.0.1"]


@pytest.mark.parametrize("known", [None, status(), status(peers="h1, h2")], ids=["no status", "nothing", "no servers"])
def test_where_nobody_says_more_it_is_mounted_as_it_was_made(known: StorageStatus | None) -> None:
    assert served_now(DRIVER, volume(), known) == volume()


def test_a_driver_whose_volumes_have_no_servers_is_not_asked() -> None:
    assert served_now(LocalVolumes(), volume(), status(servers="10.0.0.7")) == volume()


async def test_what_the_cluster_says_of_itself_is_read_from_the_store_where_it_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody has to lead for that, and nobody who may not read it is kept from mounting."""
    store = ObjectStore(MemoryKeyValue())
    assert await status_of(store, volume()) is None
    written = await store.create(status(servers="10.0.0.7"))
    assert await status_of(store, volume()) == written
    assert await status_of(store, replace(volume(), metadata=replace(volume().metadata, annotations={}))) is None

    async def forbidden(*_: object) -> StorageStatus:
        raise ForbiddenError("cannot read it: it is not yours")

    monkeypatch.setattr(store, "get", forbidden)
    assert await status_of(store, volume()) is None
