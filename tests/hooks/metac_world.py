"""A cluster below metac, as documents: what CSI drivers, the node disk manager and OpenEBS do there, step by step.

Like the client beside it, it is made from the protocol and the public kinds alone and imports nothing of Quartermaster.
"""

from __future__ import annotations

import hashlib
from typing import Any

from .metac_client import Cluster, Document, Metac

CLAIM, VOLUME = "PersistentVolumeClaim.v1", "PersistentVolume.v1"
ATTACHMENT, NODE = "VolumeAttachment.storage.k8s.io/v1", "Node.v1"
DEVICE, DEVICE_CLAIM = "BlockDevice.openebs.io/v1alpha1", "BlockDeviceClaim.openebs.io/v1alpha1"
POOL_CLUSTER, INSTANCE = "CStorPoolCluster.cstor.openebs.io/v1", "CStorPoolInstance.cstor.openebs.io/v1"
REPLICA = "CStorVolumeReplica.cstor.openebs.io/v1"
OPENEBS = "openebs"
HOSTNAME = "kubernetes.io/hostname"
OF_CLUSTER = "openebs.io/cstor-pool-cluster"
OPENEBS_FINALIZER = "cstorpoolcluster.openebs.io/finalizer"
CAPACITY_OF_A_GROUP = 100
ROUNDS = 60


async def settle(cluster: Cluster, controllers: list[Metac], broken: frozenset[str] = frozenset()) -> None:
    """Everybody does what there is to do, until nobody has anything to do. `broken` are volumes whose disk is dead."""
    for _ in range(ROUNDS):
        before = len(cluster.writes)
        for controller in controllers:
            for watch in cluster.all(controller.watch):
                await controller.reconcile(cluster, watch["metadata"]["name"], watch["metadata"].get("namespace", ""))
        outside(cluster, broken)
        if len(cluster.writes) == before:
            return
    raise AssertionError(f"it does not come to rest: {cluster.writes[-10:]}")


def outside(cluster: Cluster, broken: frozenset[str]) -> None:
    for claim in cluster.all(CLAIM):
        if "deletionTimestamp" not in claim["metadata"] and claim.get("status", {}).get("phase") != "Bound":
            bind(cluster, claim)
    for attachment in cluster.all(ATTACHMENT):
        if "deletionTimestamp" in attachment["metadata"]:
            attachment["metadata"].pop("finalizers", None)
            cluster.update(attachment)
        else:
            finalizers = attachment["metadata"].setdefault("finalizers", [])
            if "external-attacher/example" not in finalizers:
                finalizers.append("external-attacher/example")
            cluster.update({**attachment, "status": {"attached": True}})
    for volume in cluster.all(VOLUME):
        show_device(cluster, volume, broken)
    for pool_cluster in cluster.all(POOL_CLUSTER):
        operate(cluster, pool_cluster)


def bind(cluster: Cluster, claim: Document) -> None:
    name = f"pvc-{claim['metadata']['uid']}"
    reference = {key: claim["metadata"][key] for key in ("namespace", "name", "uid")}
    spec = {
        "capacity": claim["spec"]["resources"]["requests"],
        "accessModes": claim["spec"]["accessModes"],
        "volumeMode": "Block",
        "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **reference},
        "csi": {"driver": "disks.example.com", "volumeHandle": f"disk-{claim['metadata']['uid']}"},
    }
    cluster.create(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec, "status": {}}
    )
    claim["spec"]["volumeName"] = name
    cluster.update({**claim, "status": {"phase": "Bound"}})


def device_name(volume: Document) -> str:
    handle = volume["spec"]["csi"]["volumeHandle"]
    return f"blockdevice-{hashlib.md5(handle.encode(), usedforsecurity=False).hexdigest()}"


def show_device(cluster: Cluster, volume: Document, broken: frozenset[str]) -> None:
    """A disk is seen where it is attached; one that broke, or whose node is gone, is known and inactive."""
    name = device_name(volume)
    there = cluster.get(DEVICE, name, OPENEBS)
    reference = volume["spec"]["claimRef"]
    if cluster.get(CLAIM, reference["name"], reference["namespace"]) is None:
        if there is not None and there["status"]["claimState"] == "Unclaimed":
            cluster.delete(DEVICE, name, OPENEBS)
            cluster.delete(VOLUME, volume["metadata"]["name"])
        return
    host = attached_to(cluster, volume["metadata"]["name"])
    if there is None and host:
        handle = volume["spec"]["csi"]["volumeHandle"]
        cluster.create(
            {
                "apiVersion": "openebs.io/v1alpha1",
                "kind": "BlockDevice",
                "metadata": {"name": name, "namespace": OPENEBS, "labels": {HOSTNAME: host}},
                "spec": {
                    "path": "/dev/sdx",
                    "capacity": {"storage": 10 << 30},
                    "details": {"deviceType": "disk", "serial": handle},
                    "devlinks": [{"kind": "by-id", "links": [f"/dev/disk/by-id/scsi-0EXAMPLE_{handle}"]}],
                    "nodeAttributes": {"nodeName": host},
                },
                "status": {"claimState": "Unclaimed", "state": "Active"},
            }
        )
    elif there is not None:
        seen = host and volume["metadata"]["name"] not in broken
        there["status"]["state"] = "Active" if seen else "Inactive"
        if seen:
            there["metadata"]["labels"][HOSTNAME] = host
            there["spec"]["nodeAttributes"] = {"nodeName": host}
        cluster.update(there)


def attached_to(cluster: Cluster, volume: str) -> str:
    for attachment in cluster.all(ATTACHMENT):
        spec = attachment["spec"]
        if spec["source"].get("persistentVolumeName") == volume and attachment.get("status", {}).get("attached"):
            node = cluster.get(NODE, spec["nodeName"])
            return str(node["metadata"]["labels"][HOSTNAME]) if node is not None else ""
    return ""


def operate(cluster: Cluster, pool_cluster: Document) -> None:
    """OpenEBS: claims the devices, makes an instance per pool, and takes all of it down again."""
    name = pool_cluster["metadata"]["name"]
    pools = [] if "deletionTimestamp" in pool_cluster["metadata"] else pool_cluster["spec"]["pools"]
    used = {device for pool in pools for device in devices_of(pool)}
    if pools:
        finalizers = pool_cluster["metadata"].setdefault("finalizers", [])
        if OPENEBS_FINALIZER not in finalizers:
            finalizers.append(OPENEBS_FINALIZER)
        cluster.update(pool_cluster)
    for device in sorted(used):
        claim(cluster, device, name)
    kept = [instance_of(cluster, name, pool) for pool in pools]
    for instance in instances_of(cluster, name):
        if instance["metadata"]["name"] not in kept:
            cluster.delete(INSTANCE, instance["metadata"]["name"], OPENEBS)
    for found in cluster.all(DEVICE_CLAIM):
        if found["metadata"]["labels"][OF_CLUSTER] == name and found["spec"]["blockDeviceName"] not in used:
            release(cluster, found)
    if not pools:
        pool_cluster["metadata"]["finalizers"] = [
            finalizer for finalizer in pool_cluster["metadata"].get("finalizers", ()) if finalizer != OPENEBS_FINALIZER
        ]
        cluster.update(pool_cluster)


def devices_of(pool: Document) -> list[str]:
    return [device["blockDeviceName"] for group in pool["dataRaidGroups"] for device in group["blockDevices"]]


def instances_of(cluster: Cluster, name: str) -> list[Document]:
    return [found for found in cluster.all(INSTANCE) if found["metadata"]["labels"][OF_CLUSTER] == name]


def instance_of(cluster: Cluster, name: str, pool: Document) -> str:
    """The instance with most of the pool's devices, brought up to date, or a new one."""
    host = pool["nodeSelector"][HOSTNAME]
    spec = {key: pool[key] for key in ("nodeSelector", "dataRaidGroups", "poolConfig")} | {"hostName": host}
    labels = {OF_CLUSTER: name, HOSTNAME: host}
    total = CAPACITY_OF_A_GROUP * len(pool["dataRaidGroups"])
    for found in instances_of(cluster, name):
        if set(devices_of(found["spec"])) & set(devices_of(pool)):
            found["metadata"]["labels"] = labels
            found["status"]["capacity"]["total"] = total
            cluster.update({**found, "spec": spec})
            return str(found["metadata"]["name"])
    made = f"{name}-{host}-{devices_of(pool)[0][-4:]}"
    status: dict[str, Any] = {"phase": "ONLINE", "capacity": {"total": total, "used": 1}}
    cluster.create(
        {
            "apiVersion": "cstor.openebs.io/v1",
            "kind": "CStorPoolInstance",
            "metadata": {"name": made, "namespace": OPENEBS, "labels": labels},
            "spec": spec,
            "status": status,
        }
    )
    return made


def claim(cluster: Cluster, name: str, pool_cluster: str) -> None:
    device = cluster.get(DEVICE, name, OPENEBS)
    assert device is not None, f"OpenEBS is told of a device that is not there: {name}"
    if device["spec"].get("claimRef"):
        return
    made = {"name": f"bdc-{name}", "namespace": OPENEBS, "labels": {OF_CLUSTER: pool_cluster}}
    kind = {"apiVersion": "openebs.io/v1alpha1", "kind": "BlockDeviceClaim"}
    cluster.create({**kind, "metadata": made, "spec": {"blockDeviceName": name}, "status": {"phase": "Bound"}})
    device["spec"]["claimRef"] = {"kind": "BlockDeviceClaim", "name": f"bdc-{name}", "namespace": OPENEBS}
    device["status"]["claimState"] = "Claimed"
    cluster.update(device)


def release(cluster: Cluster, found: Document) -> None:
    device = cluster.get(DEVICE, found["spec"]["blockDeviceName"], OPENEBS)
    if device is not None:
        del device["spec"]["claimRef"]
        device["status"]["claimState"] = "Unclaimed"
        cluster.update(device)
    cluster.delete(DEVICE_CLAIM, found["metadata"]["name"], OPENEBS)
