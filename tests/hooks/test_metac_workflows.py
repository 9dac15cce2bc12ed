"""A client that speaks exactly metac's protocol drives the hooks of cStor clusters through whole workflows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from quartermaster.backends.cstor import HOOKS
from quartermaster.hooks import group_of
from quartermaster.hooks.protocol import declared_kinds
from quartermaster.hooks.service import HookService, ServiceOptions

from .metac_client import CREATED_FOR, Cluster, Document, Metac
from .metac_world import (
    ATTACHMENT,
    CLAIM,
    DEVICE,
    DEVICE_CLAIM,
    HOSTNAME,
    INSTANCE,
    NODE,
    OPENEBS,
    POOL_CLUSTER,
    REPLICA,
    VOLUME,
    devices_of,
    settle,
)

GROUP = "dao.mayadata.io/v1alpha1"
CONFIG, PLAN = f"CStorClusterConfig.{GROUP}", f"CStorClusterPlan.{GROUP}"
SET, STORAGE = f"CStorClusterStorageSet.{GROUP}", f"Storage.{GROUP}"
MADE = (PLAN, SET, STORAGE, CLAIM, VOLUME, ATTACHMENT, DEVICE, DEVICE_CLAIM, POOL_CLUSTER, INSTANCE)


@pytest.fixture
async def controllers() -> AsyncIterator[list[Metac]]:
    """A GenericController for each hook, as a person would declare them from the service's own description."""
    async with HookService(HOOKS, ServiceOptions(port=0)).serving() as port:
        yield [
            Metac(
                f"http://127.0.0.1:{port}",
                hook.name,
                group_of(hook.watch),
                tuple(group_of(kind) for kind in declared_kinds(hook)),
            )
            for hook in HOOKS
        ]


def node(name: str) -> Document:
    labels = {HOSTNAME: name, "storage": "yes"}
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def config() -> Document:
    provisioner = {"csiAttacherName": "disks.example.com", "storageClassName": "fast-disks"}
    spec = {
        "minPoolCount": 3,
        "maxPoolCount": 3,
        "allowedNodes": {"nodeSelectorTerms": [{"matchLabels": {"storage": "yes"}}]},
        "diskConfig": {
            "minCount": 2,
            "minCapacity": "10Gi",
            "externalProvisioner": provisioner,
            "lostAfterSeconds": 0,
        },
        "poolConfig": {"raidType": "mirror"},
    }
    metadata = {"name": "pools", "namespace": "agility"}
    return {"apiVersion": GROUP, "kind": "CStorClusterConfig", "metadata": metadata, "spec": spec}


def pools(cluster: Cluster) -> dict[str, list[str]]:
    """The devices of each pool, by host."""
    found = cluster.get(POOL_CLUSTER, "pools", OPENEBS)
    assert found is not None
    return {pool["nodeSelector"][HOSTNAME]: devices_of(pool) for pool in found["spec"]["pools"]}


def status(cluster: Cluster) -> Document:
    found = cluster.get(CONFIG, "pools", "agility")
    assert found is not None
    result: Document = found["status"]
    return result


@pytest.fixture
async def cluster(controllers: list[Metac]) -> Cluster:
    """Four nodes, and a config that has come to its three pools."""
    made = Cluster()
    for name in ("a", "b", "c", "d"):
        made.create(node(name))
    made.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "fast-disks"},
            "provisioner": "disks.example.com",
        }
    )
    made.create(config())
    await settle(made, controllers)
    return made


async def test_creation(cluster: Cluster, controllers: list[Metac]) -> None:
    assert status(cluster)["phase"] == "Ready"
    assert set(pools(cluster)) == {"a", "b", "c"}
    counts = {group.partition(".")[0]: len(cluster.all(group)) for group in (PLAN, SET, STORAGE, CLAIM, ATTACHMENT)}
    assert list(counts.values()) == [1, 3, 6, 6, 6]
    for group in (PLAN, SET, STORAGE, CLAIM, ATTACHMENT, POOL_CLUSTER):
        assert all(CREATED_FOR in made["metadata"]["annotations"] for made in cluster.all(group))
    writes = len(cluster.writes)
    await settle(cluster, controllers)
    assert len(cluster.writes) == writes


async def test_a_node_is_removed_and_its_disks_go_to_another(cluster: Cluster, controllers: list[Metac]) -> None:
    before = pools(cluster)
    cluster.delete(NODE, "b")
    await settle(cluster, controllers)
    assert pools(cluster) == {"a": before["a"], "d": before["b"], "c": before["c"]}
    assert status(cluster)["phase"] == "Ready"
    assert len(cluster.all(CLAIM)) == 6


async def test_a_disk_is_lost_and_another_takes_its_place(cluster: Cluster, controllers: list[Metac]) -> None:
    before = pools(cluster)
    dead, well = before["a"]
    (storage,) = [found for found in cluster.all(STORAGE) if found["status"]["blockDevice"] == dead]
    volume = storage["status"]["persistentVolume"]
    await settle(cluster, controllers, frozenset({volume}))
    after = pools(cluster)
    assert after["a"][1] == well
    assert after["a"][0] not in (dead, well)
    assert (after["b"], after["c"]) == (before["b"], before["c"])
    assert cluster.get(STORAGE, storage["metadata"]["name"], "agility") is None
    assert cluster.get(VOLUME, volume) is None


async def test_deletion_waits_for_volumes_and_then_takes_everything(cluster: Cluster, controllers: list[Metac]) -> None:
    holder = cluster.all(INSTANCE)[0]["metadata"]["name"]
    labels: dict[str, Any] = {"cstorpoolinstance.openebs.io/name": holder}
    replica = {"name": "volume-1", "namespace": OPENEBS, "labels": labels}
    cluster.create({"apiVersion": "cstor.openebs.io/v1", "kind": "CStorVolumeReplica", "metadata": replica})
    cluster.delete(CONFIG, "pools", "agility")
    await settle(cluster, controllers)
    assert len(pools(cluster)) == 3
    assert "volume-1" in status(cluster)["message"]
    cluster.delete(REPLICA, "volume-1", OPENEBS)
    await settle(cluster, controllers)
    assert cluster.all(CONFIG) == []
    assert {group: len(cluster.all(group)) for group in MADE} == dict.fromkeys(MADE, 0)
    gone = [write.split()[1] for write in cluster.writes if write.startswith(("gone", "delete"))]
    first = [gone.index(kind) for kind in ("CStorPoolCluster", "VolumeAttachment", "PersistentVolumeClaim")]
    assert first == sorted(first)
