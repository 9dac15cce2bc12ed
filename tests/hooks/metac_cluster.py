"""A Kubernetes cluster with OpenEBS as plain documents, for `metac_client`: nodes, a CSI driver, the node disk manager
and the cStor operators, as far as hooks can tell. It imports nothing of Quartermaster either: what the hooks offer is
read from the service's own description.
"""

from __future__ import annotations

from typing import Any

from .metac_client import Cluster, Document, Metac, post

DRIVER, CLASS, NAMESPACE, OPENEBS = "disks.example.com", "fast", "agility", "openebs"
HOSTNAME = "kubernetes.io/hostname"
CONFIG = "CStorClusterConfig.dao.mayadata.io/v1alpha1"
PLAN = "CStorClusterPlan.dao.mayadata.io/v1alpha1"
SET = "CStorClusterStorageSet.dao.mayadata.io/v1alpha1"
STORAGE = "Storage.dao.mayadata.io/v1alpha1"
NODE, CLAIM, VOLUME = "Node.v1", "PersistentVolumeClaim.v1", "PersistentVolume.v1"
ATTACHMENT = "VolumeAttachment.storage.k8s.io/v1"
DEVICE, DEVICE_CLAIM = "BlockDevice.openebs.io/v1alpha1", "BlockDeviceClaim.openebs.io/v1alpha1"
POOLS, POOL = "CStorPoolCluster.cstor.openebs.io/v1", "CStorPoolInstance.cstor.openebs.io/v1"
REPLICA = "CStorVolumeReplica.cstor.openebs.io/v1"
POOL_CLUSTER_LABEL = "openebs.io/cstor-pool-cluster"
POOL_INSTANCE_LABEL = "cstorpoolinstance.openebs.io/name"

WATCHED = {"cstorclusterconfig": CONFIG, "cstorclusterplan": PLAN, "cstorclusterstorageset": SET, "storage": STORAGE}


def new(
    group: str, name: str, namespace: str = "", /, *, labels: dict[str, str] | None = None, **parts: Any
) -> Document:
    kind, _, api_version = group.partition(".")
    metadata: Document = {"name": name, **({"namespace": namespace} if namespace else {})}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


class World:
    """The cluster, metac with one controller per hook, and everybody else who acts in it."""

    def __init__(self, controllers: list[Metac]) -> None:
        self.cluster = Cluster()
        self.controllers = controllers
        storage_class = new("StorageClass.storage.k8s.io/v1", CLASS, provisioner=DRIVER, volumeBindingMode="Immediate")
        self.cluster.create(storage_class)

    @classmethod
    async def served_by(cls, url: str) -> World:
        """One GenericController per hook, with the kinds that the service says it wants."""
        described = (await post(f"{url}/openapi.json", b"", method="GET")).json()
        controllers = []
        for name, watch in WATCHED.items():
            body = described["paths"][f"/sync/{name}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
            kinds = tuple(body["properties"]["attachments"]["required"])
            controllers.append(Metac(url, name, watch, kinds))
        return cls(controllers)

    def add_node(self, name: str, **labels: str) -> None:
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        self.cluster.create(new(NODE, name, labels={HOSTNAME: name, **labels}, status=ready))

    def declare(self, name: str, **spec: Any) -> None:
        provisioner = {"csiAttacherName": DRIVER, "storageClassName": CLASS}
        disks = {"minCount": 2, "externalProvisioner": provisioner}
        self.cluster.create(new(CONFIG, name, NAMESPACE, spec={"diskConfig": disks, **spec}))

    def change(self, group: str, name: str, namespace: str = "", /, **parts: Any) -> None:
        document = self.cluster.get(group, name, namespace)
        assert document is not None
        self.cluster.update(_deep(document, parts))

    def config(self, name: str) -> Document:
        found = self.cluster.get(CONFIG, name, NAMESPACE)
        assert found is not None
        return found

    def pools(self, name: str) -> dict[str, list[list[str]]]:
        """By host: the names of the disks of each group."""
        found = self.cluster.get(POOLS, name, OPENEBS) or self.cluster.get(POOLS, name, NAMESPACE)
        assert found is not None
        return {
            pool["nodeSelector"][HOSTNAME]: [
                [device["blockDeviceName"] for device in group["blockDevices"]] for group in pool["dataRaidGroups"]
            ]
            for pool in found["spec"]["pools"]
        }

    async def settle(self, rounds: int = 80) -> None:
        for _ in range(rounds):
            before = len(self.cluster.writes)
            for controller in self.controllers:
                for watch in self.cluster.all(controller.watch):
                    metadata = watch["metadata"]
                    await controller.reconcile(self.cluster, metadata["name"], metadata.get("namespace", ""))
            self._bind()
            self._attach()
            self._discover()
            self._run_pools()
            if len(self.cluster.writes) == before:
                return
        raise AssertionError(f"nothing comes to rest: {self.cluster.writes[-20:]}")

    def _bind(self) -> None:
        claims = {claim["metadata"]["uid"]: claim for claim in self.cluster.all(CLAIM)}
        for claim in claims.values():
            metadata = claim["metadata"]
            if claim["spec"].get("volumeName"):
                continue
            name = f"pvc-{metadata['uid']}"
            reference = {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
            source = {"driver": DRIVER, "volumeHandle": f"disk-{metadata['uid']}"}
            capacity = {"storage": claim["spec"]["resources"]["requests"]["storage"]}
            self.cluster.create(new(VOLUME, name, spec={"csi": source, "claimRef": reference, "capacity": capacity}))
            self.cluster.update(_deep(claim, {"spec": {"volumeName": name}, "status": {"phase": "Bound"}}))
        for volume in self.cluster.all(VOLUME):
            if volume["spec"]["claimRef"]["uid"] not in claims:
                self.cluster.delete(VOLUME, volume["metadata"]["name"])

    def _attach(self) -> None:
        for attachment in self.cluster.all(ATTACHMENT):
            self.cluster.update(_deep(attachment, {"status": {"attached": True}}))

    def _discover(self) -> None:
        """What is attached shows up; what is not any more is inactive, and gone with its volume."""
        nodes = {node["metadata"]["name"]: node for node in self.cluster.all(NODE)}
        volumes = {volume["metadata"]["name"]: volume for volume in self.cluster.all(VOLUME)}
        where = {
            attachment["spec"]["source"]["persistentVolumeName"]: attachment["spec"]["nodeName"]
            for attachment in self.cluster.all(ATTACHMENT)
            if attachment.get("status", {}).get("attached")
        }
        for name, volume in volumes.items():
            node = nodes.get(where.get(name, ""))
            device_name = f"blockdevice-{name.removeprefix('pvc-')}"
            there = self.cluster.get(DEVICE, device_name, OPENEBS)
            if node is None:
                if there is not None:
                    self.cluster.update(_deep(there, {"status": {"state": "Inactive"}}))
                continue
            seen = _device(device_name, volume, node)
            if there is None:
                self.cluster.create(seen)
            elif not there["metadata"].get("annotations", {}).get("broken"):
                placed = {"metadata": {"labels": seen["metadata"]["labels"]}, "spec": seen["spec"]}
                self.cluster.update(_deep(there, {**placed, "status": {"state": "Active"}}))
        for device in self.cluster.all(DEVICE):
            volume_name = f"pvc-{device['metadata']['name'].removeprefix('blockdevice-')}"
            if volume_name not in volumes and device["status"]["claimState"] == "Unclaimed":
                self.cluster.delete(DEVICE, device["metadata"]["name"], OPENEBS)

    def _run_pools(self) -> None:
        wanted: dict[str, tuple[str, str]] = {}  # device → pool cluster
        instances: dict[str, Document] = {}
        for cluster in self.cluster.all(POOLS):
            name, namespace = cluster["metadata"]["name"], cluster["metadata"]["namespace"]
            for pool in cluster["spec"]["pools"]:
                host = pool["nodeSelector"][HOSTNAME]
                instances[f"{name}-{host}"] = _instance(cluster, pool, host)
                for group in pool["dataRaidGroups"]:
                    wanted.update({device["blockDeviceName"]: (name, namespace) for device in group["blockDevices"]})
        for instance in self.cluster.all(POOL):
            metadata = instance["metadata"]
            if metadata["name"] not in instances:
                assert not any(
                    replica["metadata"]["labels"][POOL_INSTANCE_LABEL] == metadata["name"]
                    for replica in self.cluster.all(REPLICA)
                ), f"{metadata['name']} went with volumes in it"
                self.cluster.delete(POOL, metadata["name"], metadata["namespace"])
        for name, instance in instances.items():
            there = self.cluster.get(POOL, name, instance["metadata"]["namespace"])
            if there is None:
                self.cluster.create(instance)
            else:
                self.cluster.update(
                    _deep(there, {"spec": instance["spec"], "metadata": {"labels": instance["metadata"]["labels"]}})
                )
        self._claim(wanted)

    def _claim(self, wanted: dict[str, tuple[str, str]]) -> None:
        for claim in self.cluster.all(DEVICE_CLAIM):
            metadata, device = claim["metadata"], claim["spec"]["blockDeviceName"]
            if device not in wanted:
                self.cluster.delete(DEVICE_CLAIM, metadata["name"], metadata["namespace"])
                there = self.cluster.get(DEVICE, device, OPENEBS)
                if there is not None:
                    there["spec"].pop("claimRef", None)
                    self.cluster.update(_deep(there, {"status": {"claimState": "Unclaimed"}}))
        for device, (cluster, namespace) in wanted.items():
            name = f"bdc-{device}"
            if self.cluster.get(DEVICE_CLAIM, name, namespace) is None:
                labels = {POOL_CLUSTER_LABEL: cluster}
                spec = {"blockDeviceName": device}
                self.cluster.create(new(DEVICE_CLAIM, name, namespace, labels=labels, spec=spec))
            there = self.cluster.get(DEVICE, device, OPENEBS)
            assert there is not None, f"{device} of {cluster} is not there"
            reference = {"kind": "BlockDeviceClaim", "name": name, "namespace": namespace}
            self.cluster.update(_deep(there, {"spec": {"claimRef": reference}, "status": {"claimState": "Claimed"}}))


def _device(name: str, volume: Document, node: Document) -> Document:
    handle = volume["spec"]["csi"]["volumeHandle"]
    spec = {
        "path": f"/dev/{name}",
        "capacity": {"storage": 100 << 30},
        "details": {"deviceType": "disk", "driveType": "HDD", "serial": handle},
        "devlinks": [{"kind": "by-id", "links": [f"/dev/disk/by-id/scsi-0EXAMPLE_{handle}"]}],
        "nodeAttributes": {"nodeName": node["metadata"]["name"]},
    }
    labels = {HOSTNAME: node["metadata"]["labels"][HOSTNAME]}
    status = {"claimState": "Unclaimed", "state": "Active"}
    return new(DEVICE, name, OPENEBS, labels=labels, spec=spec, status=status)


def _instance(cluster: Document, pool: Document, host: str) -> Document:
    name, namespace = cluster["metadata"]["name"], cluster["metadata"]["namespace"]
    spec = {"hostName": host, "nodeSelector": pool["nodeSelector"], "dataRaidGroups": pool["dataRaidGroups"]}
    capacity = {"used": "1Gi", "free": "199Gi", "total": "200Gi"}
    status = {"phase": "ONLINE", "capacity": capacity}
    labels = {POOL_CLUSTER_LABEL: name, HOSTNAME: host}
    return new(POOL, f"{name}-{host}", namespace, labels=labels, spec=spec, status=status)


def _deep(document: Document, parts: Document) -> Document:
    result = dict(document)
    for name, value in parts.items():
        known = result.get(name)
        result[name] = _deep(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return result
