"""From a declaration to ONLINE and back, as an administrator sees it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from quartermaster.operators.views import ClusterViews
from quartermaster.planning.cluster import ClusterKey
from quartermaster.resources import (
    Assignment,
    ObjectMeta,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageCluster,
    StorageNode,
    StorageStatus,
)
from quartermaster.resources.conditions import find_condition
from quartermaster.testing.simulation import simulated

from .world import NAMESPACE, node_document, settled, world

pytestmark = pytest.mark.slow


@simulated()
async def test_with_a_type_the_status_is_there_from_the_start_and_says_what_it_waits_for() -> None:
    async with world() as made:
        made.lead(types=["local"])
        await settled()
        status = await made.status()
        assert status.spec.status == "OFFLINE"
        assert status.status.message == "no storage nodes registered: waiting for a StorageNode of type local"


@simulated()
async def test_without_a_type_no_status_is_made_before_somebody_names_a_cluster() -> None:
    async with world() as made:
        made.lead()
        await settled()
        assert (await made.store.list(StorageStatus, NAMESPACE)).items == ()


@simulated(range(3))
async def test_a_node_is_deployed_then_the_cluster_is_online_and_has_its_class() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("h1")
        await settled()
        node, status = await made.storage_node("h1"), await made.status()
        assert (node.status.state, node.status.host, node.status.cluster) == ("Ready", "h1", "default")
        assert (status.spec.status, status.status.message) == ("ONLINE", "the one node is ready")
        assert (status.status.node_count, status.status.ready_count) == (1, 1)
        assert status.status.storage_class == "storage-local-default"
        assert status.status.capacity is not None
        assert status.status.capacity.total == "100Gi"
        published = await made.get(StorageClass, "storage-local-default")
        assert published is not None
        assert published.provisioner == "local.quartermaster.coreos.com"
        assert published.volume_binding_mode == "Immediate"
        degraded = find_condition(status.status.conditions, "Degraded")
        assert degraded is not None
        assert degraded.status == "False"


@simulated()
async def test_whoever_places_volumes_knows_that_a_cluster_is_online_before_that_is_said() -> None:
    views = ClusterViews()
    with patch("quartermaster.operators.assembly.ClusterViews", lambda: views):
        async with world() as made:
            known: list[bool] = []

            def look(status: StorageStatus) -> None:
                view = views(ClusterKey(NAMESPACE, "local", "default"))
                if status.spec.status == "ONLINE":
                    known.append(view is not None and view.online)

            made.store.looks = look
            made.lead()
            made.host("h1")
            await made.node("h1")
            await settled()
            assert known
            assert all(known)


@simulated()
async def test_nobody_ever_sees_online_beside_reasons_that_say_otherwise() -> None:
    async with world() as made:
        seen: list[tuple[str, str]] = []

        def look(status: StorageStatus) -> None:
            told = find_condition(status.status.conditions, "Online")
            seen.append((status.spec.status, told.status if told is not None else ""))

        made.store.looks = look
        made.lead()
        made.host("h1")
        await made.node("h1")
        await settled()
        await made.stop("h1")
        await settled(120)
        assert [one for one in seen if one == ("ONLINE", "True")]
        assert seen[-1] == ("OFFLINE", "False")
        assert [one for one in seen if one[0] == "ONLINE" and one[1] != "True"] == []


@simulated()
async def test_with_nothing_to_do_nothing_is_written() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("h1")
        await settled(1.5 * made.timings.sweep_s)
        made.store.writes.clear()
        await settled(3 * made.timings.sweep_s)
        assert made.store.writes == []


@simulated()
async def test_a_claim_of_the_class_is_bound_and_counts_as_used() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("h1")
        await settled()
        await made.claim("data", "10Gi")
        await settled()
        claim, status = await made.get(PersistentVolumeClaim, "data"), await made.status()
        assert claim is not None
        assert claim.status.phase == "Bound"
        assert status.status.capacity is not None
        assert status.status.capacity.used == "10Gi"


@simulated()
async def test_a_silent_host_degrades_the_cluster_and_the_last_one_takes_it_offline() -> None:
    async with world() as made:
        made.lead()
        for host in ("h1", "h2"):
            made.host(host)
            await made.node(host)
        await settled()
        await made.stop("h2")
        await settled(10)
        status = await made.status()
        degraded = find_condition(status.status.conditions, "Degraded")
        assert status.spec.status == "ONLINE"
        assert degraded is not None
        assert (degraded.status, degraded.reason) == ("True", "NodesSilent")
        assert "h2" in degraded.message
        await made.stop("h1")
        await settled(10)
        status = await made.status()
        assert status.spec.status == "OFFLINE"
        assert status.status.message.endswith("h1: host h1 has been silent for too long")
        assert await made.events("Offline") == ["0 of 2 nodes serve, at least 1 must"]
        assert await made.get(StorageClass, "storage-local-default") is not None
        made.host("h1")
        await settled()
        assert (await made.status()).spec.status == "ONLINE"


@simulated()
async def test_the_only_node_goes_on_serving_while_what_it_offers_is_changed() -> None:
    async with world() as made:
        made.lead()
        machine = made.host("h1")
        disks = [machine.add_disk("vdc", serial="C"), machine.add_disk("vdd", serial="D")]
        await made.node("h1", devices=disks[:1])
        await settled()
        await made.node("h1", devices=disks)
        await settled()
        assert (await made.storage_node("h1")).status.state == "Ready"
        assert (await made.status()).spec.status == "ONLINE"
        assert await made.events("Offline") == []


@simulated()
async def test_where_a_second_host_may_get_a_node_volumes_wait_for_their_consumer() -> None:
    """Nodes come one after the other: a claim that came with three of them was served on the first."""
    async with world() as made:
        made.lead()
        made.host("h1")
        made.host("h2")
        await made.node("h1")
        await settled()
        published = await made.get(StorageClass, "storage-local-default")
        assert published is not None
        assert published.volume_binding_mode == "WaitForFirstConsumer"


@simulated()
async def test_with_a_second_node_volumes_wait_for_their_consumer() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("h1")
        await settled()
        made.host("h2")
        await made.node("h2")
        await settled()
        published = await made.get(StorageClass, "storage-local-default")
        assert published is not None
        assert published.volume_binding_mode == "WaitForFirstConsumer"
        await made.claim("data", host="h2")
        await settled()
        claim = await made.get(PersistentVolumeClaim, "data")
        assert claim is not None
        assert claim.status.phase == "Bound"
        volume = await made.store.get(PersistentVolume, claim.spec.volume_name)
        assert volume.spec.node_affinity is not None
        assert volume.spec.node_affinity.required is not None
        expression = volume.spec.node_affinity.required.node_selector_terms[0].match_expressions[0]
        assert (expression.key, expression.values) == ("kubernetes.io/hostname", ("h2",))


@simulated()
async def test_a_class_that_was_deleted_comes_back_and_one_of_somebody_else_is_left_alone() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        other = StorageClass(metadata=ObjectMeta(name="storage-local-default"), provisioner="example.com/other")
        await made.store.create(other)
        await made.node("h1")
        await settled()
        status = await made.status()
        degraded = find_condition(status.status.conditions, "Degraded")
        assert degraded is not None
        assert "not of this cluster" in degraded.message
        assert (await made.store.get(StorageClass, "storage-local-default")).provisioner == "example.com/other"
        await made.store.delete(StorageClass, "storage-local-default")
        await settled(2 * made.timings.sweep_s)
        assert (await made.store.get(StorageClass, "storage-local-default")).provisioner.startswith("local.")
        await made.store.delete(StorageClass, "storage-local-default")
        await settled()
        assert await made.get(StorageClass, "storage-local-default") is not None


@simulated()
async def test_settings_of_a_storage_cluster_count() -> None:
    async with world() as made:
        made.lead()
        await made.cluster(minNodes=2, defaultClass=True, directories=["/srv/shared"])
        for host in ("h1", "h2"):
            made.host(host)
        await made.node("h1", useAllDevices=False)
        await settled()
        status = await made.status()
        assert status.status.message.startswith(
            "0 of 2 nodes that the StorageCluster asks for are ready; h1: it offers"
        )
        await made.store.delete(StorageNode, "h1", NAMESPACE)
        await settled()
        for host in ("h1", "h2"):
            await made.store.apply(without_choice(node_document(host, host)))
        await settled()
        assert (await made.status()).spec.status == "ONLINE"
        published = await made.get(StorageClass, "storage-local-default")
        assert published is not None
        assert published.metadata.annotations["storageclass.kubernetes.io/is-default-class"] == "true"


@simulated()
async def test_of_two_storage_clusters_for_one_cluster_the_second_is_told_that_it_does_not_count() -> None:
    async with world() as made:
        made.lead()
        await made.cluster(minNodes=1)
        second = {
            "apiVersion": "coreos.com/v1",
            "kind": "StorageCluster",
            "metadata": {"name": "z-second", "namespace": NAMESPACE},
            "spec": {"type": "local", "minNodes": 9},
        }
        await settled()
        await made.store.apply(second)
        await settled()
        told = await made.store.get(StorageCluster, "z-second", NAMESPACE)
        accepted = find_condition(told.status.conditions, "Accepted")
        assert accepted is not None
        assert (accepted.status, accepted.reason) == ("False", "Duplicate")


@simulated()
async def test_several_clusters_in_one_namespace_do_not_disturb_each_other() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("fast", "h1", "fast", directories=["/srv/fast"])
        await made.node("slow", "h1", "slow", directories=["/srv/slow"])
        await made.node("none", "nowhere", "broken")
        await settled()
        assert (await made.status("fast")).spec.status == "ONLINE"
        assert (await made.status("slow")).spec.status == "ONLINE"
        broken = await made.status("broken")
        assert broken.spec.status == "OFFLINE"
        assert broken.status.message.endswith("none: no host has the labels kubernetes.io/hostname=nowhere")
        await made.claim("data", cluster="slow")
        await settled()
        claim = await made.get(PersistentVolumeClaim, "data")
        assert claim is not None
        assert claim.status.phase == "Bound"


@simulated()
async def test_a_cluster_that_nobody_names_any_more_is_cleared_away() -> None:
    async with world() as made:
        made.lead()
        made.host("h1")
        await made.node("h1")
        await settled()
        await made.store.delete(StorageNode, "h1", NAMESPACE)
        await settled()
        assert await made.get(StorageNode, "h1") is None
        assert await made.get(StorageStatus, "local-default") is None
        assert await made.get(StorageClass, "storage-local-default") is None
        assert (await made.store.list(Assignment, NAMESPACE)).items == ()


@simulated()
async def test_a_node_of_a_type_without_a_backend_is_told_so() -> None:
    async with world() as made:
        made.lead()
        document = node_document("t1", "h1")
        document["spec"]["type"] = "torus"
        await made.store.apply(document)
        await settled()
        node = await made.storage_node("t1")
        accepted = find_condition(node.status.conditions, "Accepted")
        assert accepted is not None
        assert (accepted.status, accepted.reason) == ("False", "NoBackend")


def without_choice(document: dict[str, Any]) -> dict[str, Any]:
    """A node that says nothing of devices or directories: its cluster's settings count."""
    del document["spec"]["directories"]
    return document
