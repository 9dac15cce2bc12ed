"""The kinds of OpenEBS as far as we touch them: real objects survive being read and written."""

from pathlib import Path
from typing import Any

import pytest

from quartermaster.resources import from_document, kind_of, to_document
from quartermaster.resources.admission import validate
from quartermaster.resources.openebs import (
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorVolumeReplica,
)
from quartermaster.testing.servers import KubernetesAccess
from tests.cstor.crds import OPENEBS_KINDS, manifests

# As the node disk manager and the operators of OpenEBS 3 write them, with fields that we have no names for.
DEVICE: dict[str, Any] = {
    "apiVersion": "openebs.io/v1alpha1",
    "kind": "BlockDevice",
    "metadata": {
        "name": "blockdevice-022674b5f97f06195fe962a7a61fcb64",
        "namespace": "openebs",
        "labels": {
            "kubernetes.io/hostname": "worker-1",
            "ndm.io/blockdevice-type": "blockdevice",
            "ndm.io/managed": "true",
        },
    },
    "spec": {
        "capacity": {"logicalSectorSize": 512, "physicalSectorSize": 4096, "storage": 21474836480},
        "claimRef": {"kind": "BlockDeviceClaim", "name": "bdc-cstor-1", "namespace": "openebs"},
        "details": {
            "compliance": "SPC-4",
            "deviceType": "disk",
            "driveType": "SSD",
            "firmwareRevision": "1",
            "hardwareSectorSize": 512,
            "model": "PersistentDisk",
            "serial": "pvc-1",
            "vendor": "Google",
        },
        "devlinks": [
            {"kind": "by-id", "links": ["/dev/disk/by-id/google-pvc-1"]},
            {"kind": "by-path", "links": ["/dev/disk/by-path/pci-0000:00:03.0-scsi-0:0:2:0"]},
        ],
        "filesystem": {"fsType": "zfs_member"},
        "nodeAttributes": {"nodeName": "worker-1"},
        "partitioned": "No",
        "path": "/dev/sdb",
    },
    "status": {"claimState": "Claimed", "state": "Active"},
}
CLUSTER: dict[str, Any] = {
    "apiVersion": "cstor.openebs.io/v1",
    "kind": "CStorPoolCluster",
    "metadata": {"name": "cspc", "namespace": "openebs"},
    "spec": {
        "pools": [
            {
                "nodeSelector": {"kubernetes.io/hostname": "worker-1"},
                "dataRaidGroups": [{"blockDevices": [{"blockDeviceName": "a", "future": 1}, {"blockDeviceName": "b"}]}],
                "writeCacheRaidGroups": [{"blockDevices": [{"blockDeviceName": "c"}]}],
                "poolConfig": {
                    "dataRaidGroupType": "mirror",
                    "writeCacheGroupType": "stripe",
                    "thickProvision": True,
                    "compression": "lz4",
                    "roThresholdLimit": 80,
                    "resources": {"limits": {"memory": "1Gi"}},
                    "tolerations": [{"key": "storage", "operator": "Exists"}],
                    "priorityClassName": "high",
                },
            }
        ],
        "auxResources": {"requests": {"cpu": "100m"}},
    },
    "status": {"desiredInstances": 1, "healthyInstances": 1, "provisionedInstances": 1},
    "versionDetails": {"desired": "3.5.0", "status": {"current": "3.5.0"}},
}


@pytest.mark.parametrize(("kind", "document"), [(BlockDevice, DEVICE), (CStorPoolCluster, CLUSTER)])
def test_a_real_object_is_the_same_after_it_was_read_and_written(kind: type[Any], document: dict[str, Any]) -> None:
    assert to_document(from_document(kind, document)) == document
    assert validate(document) == []


def test_the_kinds_belong_to_openebs() -> None:
    assert [kind_of(kind).own for kind in OPENEBS_KINDS] == [False] * 5
    assert [kind_of(kind).short_names for kind in OPENEBS_KINDS] == [("bd",), ("bdc",), ("cspc",), ("cspi",), ("cvr",)]


def test_a_pool_instance_and_a_replica_say_what_we_need() -> None:
    instance = from_document(
        CStorPoolInstance,
        {
            "metadata": {"name": "cspc-x7fg"},
            "spec": {"hostName": "worker-1"},
            "status": {"phase": "ONLINE", "capacity": {"used": "1G", "free": "9G", "total": "10G"}, "readOnly": False},
        },
    )
    assert (instance.status.phase, instance.status.capacity.total) == ("ONLINE", "10G")
    replica = from_document(CStorVolumeReplica, {"metadata": {"name": "v"}, "status": {"phase": "Healthy"}})
    assert replica.status.phase == "Healthy"
    claim = from_document(BlockDeviceClaim, {"metadata": {"name": "c"}, "spec": {"blockDeviceName": "a"}})
    assert claim.spec.block_device_name == "a"


@pytest.mark.kubernetes
async def test_an_api_server_takes_definitions_made_from_them(
    kubernetes_server: KubernetesAccess, tmp_path: Path
) -> None:
    openebs = manifests(tmp_path)[0]
    # Dry: the server is shared, and installing kinds is the business of those who need them.
    said = await kubernetes_server.kubectl("apply", "--server-side", "--dry-run=server", "-f", str(openebs))
    assert said.count("serverside-applied") == len(OPENEBS_KINDS)
