"""A volume grows where its bricks are now, which need not be where it was made."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Refusal, Volume
from quartermaster.backends.glusterfs.facts import BrickPlace, read_memory
from quartermaster.planning.cluster import ClusterView, VolumeView
from quartermaster.provisioning.claims import Wait
from quartermaster.provisioning.growing import Act, Growth, Report, next_growth
from quartermaster.provisioning.intent import Record
from quartermaster.resources import from_document
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass

from .modelled import GIB, VOLUME, Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """The brick of the third node was moved to a fourth one, and that node is gone."""
    made = Cluster(tmp_path)
    await made.begin()
    made.bench.add("h4")
    await made.rounds(3)
    made.bench.mark("h3", deleting=True)
    for _ in range(20):
        for name in (await made.round()).removable:
            del made.bench.nodes[name]
    assert sorted(made.bench.nodes) == sorted(made.bricks()) == ["h1", "h2", "h4"]
    return made


def decided(cluster: Cluster, view: ClusterView, size: str) -> Act:
    """What is done next for its claim, which asks for so much."""
    placed = cluster.bench.volumes[VOLUME]
    volume = Volume(VOLUME, placed.size, Placement(placed.hosts, dict(placed.details)))
    about = {"metadata": {"name": "data", "namespace": "storage"}, "status": {"phase": "Bound"}}
    spec = {"volumeName": VOLUME, "resources": {"requests": {"storage": size}}}
    growth = Growth(
        claim=from_document(PersistentVolumeClaim, {**about, "spec": spec}),
        volume=from_document(PersistentVolume, {"metadata": {"name": VOLUME}, "spec": {"storageClassName": "fast"}}),
        record=Record(cluster.bench.key, volume),
        storage_class=from_document(
            StorageClass, {"metadata": {"name": "fast"}, "provisioner": "x", "allowVolumeExpansion": True}
        ),
        view=view,
    )
    return next_growth(growth, cluster.bench.backend.volumes())


def moved_to(cluster: Cluster) -> BrickPlace:
    (place,) = read_memory(cluster.bench.memory).moves[VOLUME].bricks.values()
    return place


async def test_a_volume_grows_whose_brick_has_moved_off_a_node_that_is_gone(cluster: Cluster) -> None:
    act = decided(cluster, await cluster.bench.view(), "2Gi")
    assert isinstance(act, Report), act


async def test_it_needs_room_where_its_brick_is_and_not_where_it_was(cluster: Cluster) -> None:
    place = moved_to(cluster)
    assert place.host == "h4"
    cluster.bench.add("h3")  # it is back, and has all the room there is
    await cluster.rounds(4)
    layout = {"replicas": 1}
    other = VolumeView("pvc-2", 9 * GIB, ("h4",), {"layout": layout, "bricks": [msgspec.to_builtins(place)]})
    view = await cluster.bench.view()
    act = decided(cluster, replace(view, volumes=(*view.volumes, other)), "8Gi")
    assert isinstance(act, Wait), act
    assert (act.reason, "on node h4, which has room for" in act.why) == ("NoSpace", True)


async def test_where_its_bricks_are_is_known_also_where_the_volume_is_not_in_the_view(cluster: Cluster) -> None:
    placed = cluster.bench.volumes[VOLUME]
    request = cluster.bench.request(VOLUME, 2 * GIB, current=Placement(placed.hosts, dict(placed.details)))
    found = cluster.bench.backend.volumes().place(request, replace(await cluster.bench.view(), volumes=()))
    assert not isinstance(found, Refusal), found
