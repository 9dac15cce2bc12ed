"""One cStor cluster as a user of metac has it: the controllers that he declares, his config, and what he can see.

Like the client beside it, it is made from the protocol and the public kinds alone and imports nothing of Quartermaster.
"""

from __future__ import annotations

from typing import Any

from .metac_client import Cluster, Document, Metac, post
from .metac_world import HOSTNAME, INSTANCE, OPENEBS, POOL_CLUSTER, devices_of

GROUP = "dao.mayadata.io/v1alpha1"
CONFIG, PLAN = f"CStorClusterConfig.{GROUP}", f"CStorClusterPlan.{GROUP}"
SET, STORAGE = f"CStorClusterStorageSet.{GROUP}", f"Storage.{GROUP}"
NAMESPACE, NAME = "agility", "pools"
PROVISIONER = {"csiAttacherName": "disks.example.com", "storageClassName": "fast-disks"}


async def declared(url: str) -> list[Metac]:
    """A GenericController for each hook, as a person declares them from the service's own description."""
    paths = (await post(f"{url}/openapi.json", b"", method="GET")).json()["paths"]
    controllers = []
    for path, operations in paths.items():
        _, action, name = path.split("/")
        if action != "sync":
            continue
        asked = operations["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        kind, version, group = asked["watch"]["$ref"].rpartition("/")[2].split(".", 2)
        kinds = tuple(asked["attachments"]["required"])
        finalizes = f"/finalize/{name}" in paths
        controllers.append(Metac(url, name, f"{kind}.{group}/{version}", kinds, finalizes))
    return controllers


def node(name: str, **labels: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, **labels}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def storage_class() -> Document:
    metadata = {"name": "fast-disks"}
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    return {**kind, "metadata": metadata, "provisioner": "disks.example.com"}


def config(*, disks: Document | None = None, **spec: Any) -> Document:
    """Three mirrors of two disks each on nodes with the label, and a lost disk is given up at once."""
    wanted: Document = {
        "minPoolCount": 3,
        "maxPoolCount": 3,
        "allowedNodes": selector({"storage": "yes"}),
        "diskConfig": {"minCount": 2, "minCapacity": "10Gi", "lostAfterSeconds": 0}
        | (disks or {"externalProvisioner": PROVISIONER}),
        "poolConfig": {"raidType": "mirror"},
    }
    metadata = {"name": NAME, "namespace": NAMESPACE}
    return {"apiVersion": GROUP, "kind": "CStorClusterConfig", "metadata": metadata, "spec": wanted | spec}


def selector(*labels: dict[str, str]) -> Document:
    return {"nodeSelectorTerms": [{"matchLabels": wanted} for wanted in labels]}


def change(cluster: Cluster, **spec: Any) -> None:
    """The user edits fields of his config; of a field that is an object only what he names."""
    found = cluster.get(CONFIG, NAME, NAMESPACE)
    assert found is not None
    for field, value in spec.items():
        merged = {**found["spec"].get(field, {}), **value} if isinstance(value, dict) else value
        found["spec"][field] = merged
    cluster.update(found)


def status(cluster: Cluster) -> Document:
    found = cluster.get(CONFIG, NAME, NAMESPACE)
    assert found is not None
    result: Document = found["status"]
    return result


def condition(cluster: Cluster, kind: str) -> tuple[str, str, str]:
    (found,) = [one for one in status(cluster)["conditions"] if one["type"] == kind]
    return found["status"], found["reason"], found["message"]


def pool_cluster(cluster: Cluster) -> Document:
    found = cluster.get(POOL_CLUSTER, NAME, OPENEBS)
    assert found is not None
    return found


def pools(cluster: Cluster) -> dict[str, list[str]]:
    """The devices of each pool, by host."""
    return {pool["nodeSelector"][HOSTNAME]: devices_of(pool) for pool in pool_cluster(cluster)["spec"]["pools"]}


def volume_of(cluster: Cluster, device: str) -> str:
    (storage,) = [found for found in cluster.all(STORAGE) if found["status"]["blockDevice"] == device]
    return str(storage["status"]["persistentVolume"])


def fill(cluster: Cluster, host: str, used: int) -> None:
    """So many percent of what the pool on this host had at first."""
    (instance,) = [found for found in cluster.all(INSTANCE) if found["spec"]["hostName"] == host]
    instance["status"]["capacity"]["used"] = used
    cluster.update(instance)
