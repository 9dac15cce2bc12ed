"""A volume grows where its bricks are now, which need not be where it was made. One that is gone does not grow."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Refusal, Volume
from quartermaster.backends.glusterfs.facts import BrickPlace, read_memory
from quartermaster.backends.glusterfs.keeping import FORGET, volume_config
from quartermaster.backends.glusterfs.looking import Looks
from quartermaster.backends.glusterfs.reasons import NOT_THERE
from quartermaster.backends.glusterfs.volume_agent import VolumeAgent
from quartermaster.planning.cluster import ClusterView, Desired, VolumeView
from quartermaster.provisioning.claims import Wait
from quartermaster.provisioning.growing import Act, Begin, Growth, next_growth
from quartermaster.provisioning.intent import Record
from quartermaster.resources import from_document
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from quartermaster.resources.orchestration import SUCCEEDED, AssignmentStatus, assignment_name

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
    assert isinstance(act, Begin), act


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


def directories(cluster: Cluster) -> list[tuple[str, str]]:
    return [(host, path) for host, machine in cluster.bench.machines.items() for _, path in sorted(machine.directories)]


async def grow(cluster: Cluster) -> AssignmentStatus:
    """What whoever keeps it now says of it."""
    bench, placed = cluster.bench, (await cluster.bench.view()).volumes[0]
    larger = Volume(VOLUME, 2 * GIB, Placement(placed.hosts, dict(placed.details)))
    desired = bench.backend.volumes().desired_now(larger, await bench.view())
    bench.ask(desired)
    bench.volumes[VOLUME] = replace(bench.volumes[VOLUME], size=2 * GIB)
    await bench.work()
    return bench.assignments[assignment_name(desired.agent, desired.host, VOLUME)].status


async def test_a_volume_that_was_to_be_taken_over_and_is_gone_is_not_made_anew_when_its_claim_grows(
    cluster: Cluster,
) -> None:
    """An empty one would take its name, and what is left of its bricks would be removed as left over."""
    bench = cluster.bench
    placed = (await bench.view()).volumes[0]
    maker, other = placed.hosts[0], placed.hosts[1]
    bench.ask(Desired(maker, "glusterfs-volume", FORGET, VOLUME))
    await bench.work()
    cluster.gluster.pool_of(bench.address(other)).volumes.pop(VOLUME)
    config = volume_config(VOLUME, placed.size, placed.details, other, existing=True)
    bench.ask(Desired(other, "glusterfs-volume", config, VOLUME))
    await cluster.rounds(2)
    before = directories(cluster)
    assert (await grow(cluster)).reason == NOT_THERE
    await cluster.rounds(6)
    assert cluster.gluster.pool_of(bench.address(other)).volumes == {}
    assert directories(cluster) == before


async def test_one_that_nobody_is_known_to_keep_is_asked_for_as_one_that_was_made(cluster: Cluster) -> None:
    """Somebody has deleted what was asked of the host that made it, and that host was installed anew since."""
    bench = cluster.bench
    placed = (await bench.view()).volumes[0]
    cluster.gluster.pool_of(bench.address("h1")).volumes.pop(VOLUME)
    del bench.assignments[assignment_name("glusterfs-volume", placed.hosts[0], VOLUME)]
    (bench.context(placed.hosts[0], VolumeAgent(Looks())).directory / VOLUME).unlink()
    assert (await grow(cluster)).reason == NOT_THERE
    assert cluster.gluster.pool_of(bench.address("h1")).volumes == {}


async def test_a_volume_that_was_taken_over_grows(cluster: Cluster) -> None:
    bench = cluster.bench
    placed = (await bench.view()).volumes[0]
    cluster.lose(placed.hosts[0])
    await cluster.rounds(4)
    assert (await grow(cluster)).state == SUCCEEDED
    assert cluster.gluster.volume(bench.address(placed.hosts[1]), VOLUME).limit == 2 * GIB
