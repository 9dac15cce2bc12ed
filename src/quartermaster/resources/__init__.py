"""Typed objects: their fields, what they may hold, their CRDs, and how they are read and written.

Importing this registers every kind. What works on documents rather than on types (admission, manifests, CRDs) is
imported from its own module by those who need it.
"""

from quartermaster.resources.agility import CStorClusterConfig, CStorClusterPlan, CStorClusterStorageSet, Storage
from quartermaster.resources.codec import (
    Document,
    decode,
    decode_document,
    encode,
    encode_document,
    from_document,
    to_document,
)
from quartermaster.resources.conformance import ConformanceReport
from quartermaster.resources.kind import Column, Kind, all_kinds, find, find_version, kind_of
from quartermaster.resources.kubernetes.core import (
    ConfigMap,
    Event,
    Lease,
    Namespace,
    Node,
    ObjectReference,
    Secret,
    ServiceAccount,
)
from quartermaster.resources.kubernetes.volumes import (
    CSIDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from quartermaster.resources.kubernetes.workloads import DaemonSet, Deployment, Pod
from quartermaster.resources.model import Condition, Key, Object, ObjectMeta, OwnerReference
from quartermaster.resources.mounts import Mount
from quartermaster.resources.openebs import (
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorVolumeReplica,
)
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.resources.selectors import FieldSelector, LabelSelector
from quartermaster.resources.storage import StorageCluster, StorageNode, StorageStatus

__all__ = [
    "Assignment",
    "BlockDevice",
    "BlockDeviceClaim",
    "CSIDriver",
    "CStorClusterConfig",
    "CStorClusterPlan",
    "CStorClusterStorageSet",
    "CStorPoolCluster",
    "CStorPoolInstance",
    "CStorVolumeReplica",
    "Column",
    "Condition",
    "ConfigMap",
    "ConformanceReport",
    "DaemonSet",
    "Deployment",
    "Document",
    "Event",
    "FieldSelector",
    "Host",
    "Key",
    "Kind",
    "LabelSelector",
    "Lease",
    "Mount",
    "Namespace",
    "Node",
    "Object",
    "ObjectMeta",
    "ObjectReference",
    "OwnerReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "Secret",
    "ServiceAccount",
    "Storage",
    "StorageClass",
    "StorageCluster",
    "StorageNode",
    "StorageStatus",
    "VolumeAttachment",
    "all_kinds",
    "decode",
    "decode_document",
    "encode",
    "encode_document",
    "find",
    "find_version",
    "from_document",
    "kind_of",
    "to_document",
]
