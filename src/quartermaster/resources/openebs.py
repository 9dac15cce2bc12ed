"""The kinds of OpenEBS that cStor pools are made of, as far as we read or write them.

They belong to OpenEBS: its CRDs define them, its operators and its node disk manager act on them. Fields without a
name here are kept when an object is written back, and every struct is open to them. None of the kinds has a status
subresource: whoever writes one writes all of it, so we only ever apply the fields that are ours.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import field

from quartermaster.resources.declare import ATOMIC, NumberOrQuantity, declare
from quartermaster.resources.kind import Column, kind
from quartermaster.resources.kubernetes.core import AGE, CoreConditions, ObjectReference
from quartermaster.resources.kubernetes.workloads import ResourceRequirements, Toleration
from quartermaster.resources.model import Object, Struct

CSTOR_GROUP = "cstor.openebs.io"
CSTOR_VERSION = "v1"
DEVICE_GROUP = "openebs.io"
DEVICE_VERSION = "v1alpha1"

# Where OpenEBS keeps its devices and pools unless it was installed elsewhere.
OPENEBS_NAMESPACE = "openebs"

POOL_CLUSTER_LABEL = "openebs.io/cstor-pool-cluster"  # on instances and claims: the CStorPoolCluster
POOL_INSTANCE_LABEL = "cstorpoolinstance.openebs.io/name"  # on a CStorVolumeReplica: the instance that holds it
VOLUME_LABEL = "cstorvolume.openebs.io/name"  # on a CStorVolumeReplica: the volume of which it is a copy
DEVICE_TAG_LABEL = "openebs.io/block-device-tag"
ALLOWED_TAGS_ANNOTATION = "openebs.io/allowed-bd-tags"
PREDECESSOR_ANNOTATION = "openebs.io/bd-predecessor"

STRIPE, MIRROR, RAIDZ, RAIDZ2 = "stripe", "mirror", "raidz", "raidz2"

ACTIVE, INACTIVE = "Active", "Inactive"
CLAIMED, UNCLAIMED, RELEASED = "Claimed", "Unclaimed", "Released"
ONLINE = "ONLINE"
HEALTHY = "Healthy"  # of a CStorVolumeReplica: it has all of the volume's data
ZFS_MEMBER = "zfs_member"
READ_ONLY_LIMIT_PERCENT = 85  # beyond it OpenEBS makes a pool read-only, unless told otherwise

# Conditions of a CStorPoolInstance.
POOL_EXPANSION = "PoolExpansion"
DISK_REPLACEMENT = "DiskReplacement"
DISK_UNAVAILABLE = "DiskUnavailable"
POOL_LOST = "PoolLost"

_DEVICES = "The disks of the group, in order."


class PoolBlockDevice(Struct):
    partial: ClassVar[bool] = True

    block_device_name: Annotated[str, declare("The name of the BlockDevice.")]
    capacity: Annotated[int | None, declare("Its size in bytes; filled in by OpenEBS.")] = None
    dev_link: Annotated[str, declare("Its path; filled in by OpenEBS.")] = ""


class RaidGroup(Struct):
    partial: ClassVar[bool] = True

    block_devices: Annotated[tuple[PoolBlockDevice, ...], declare(_DEVICES, list_type="atomic")] = ()


class CStorPoolSettings(Struct):
    """`poolConfig` of a pool."""

    partial: ClassVar[bool] = True

    data_raid_group_type: Annotated[str, declare("stripe, mirror, raidz or raidz2.")] = ""
    write_cache_group_type: Annotated[str, declare("The same for the write cache.")] = ""
    thick_provision: Annotated[bool | None, declare("Whether a volume takes its space at once.")] = None
    compression: Annotated[str, declare("How data are compressed.")] = ""
    resources: Annotated[ResourceRequirements | None, declare("Memory and processors of the pool.")] = None
    aux_resources: Annotated[ResourceRequirements | None, declare("The same for its side cars.")] = None
    tolerations: Annotated[tuple[Toleration, ...], declare("Taints that the pool tolerates.", list_type="atomic")] = ()
    priority_class_name: Annotated[str | None, declare("The priority of the pool's Pod.")] = None
    ro_threshold_limit: Annotated[int | None, declare("Per cent of use at which it becomes read-only.")] = None


class PoolSpec(Struct):
    """One pool, which is on one node."""

    partial: ClassVar[bool] = True

    node_selector: Annotated[dict[str, str], declare("Labels of the one node.")] = field(default_factory=dict)
    data_raid_groups: Annotated[tuple[RaidGroup, ...], declare("The groups that hold data.", list_type="atomic")] = ()
    write_cache_raid_groups: Annotated[
        tuple[RaidGroup, ...], declare("The groups that hold the write cache.", list_type="atomic")
    ] = ()
    pool_config: Annotated[CStorPoolSettings, declare("What the pool is like.")] = CStorPoolSettings()


class CStorPoolClusterSpec(Struct):
    partial: ClassVar[bool] = True

    pools: Annotated[tuple[PoolSpec, ...], declare("The pools.", list_type="atomic")] = ()
    resources: Annotated[ResourceRequirements | None, declare("For pools that say nothing of their own.")] = None
    aux_resources: Annotated[ResourceRequirements | None, declare("The same for side cars.")] = None
    tolerations: Annotated[tuple[Toleration, ...], declare("For pools without their own.", list_type="atomic")] = ()
    priority_class_name: Annotated[str, declare("For pools without their own.")] = ""


class CStorPoolClusterStatus(Struct):
    partial: ClassVar[bool] = True

    provisioned_instances: int | None = None
    desired_instances: int | None = None
    healthy_instances: int | None = None
    conditions: CoreConditions = ()


@kind(
    group=CSTOR_GROUP,
    version=CSTOR_VERSION,
    plural="cstorpoolclusters",
    short_names=("cspc",),
    columns=(
        Column("HealthyInstances", ".status.healthyInstances", "integer"),
        Column("ProvisionedInstances", ".status.provisionedInstances", "integer"),
        Column("DesiredInstances", ".status.desiredInstances", "integer"),
        AGE,
    ),
    generation=True,
)
class CStorPoolCluster(Object):
    """The pools of one cStor cluster, as OpenEBS is told to make them."""

    spec: Annotated[CStorPoolClusterSpec, declare("The pools.")] = CStorPoolClusterSpec()
    status: Annotated[CStorPoolClusterStatus, declare("Written by OpenEBS.")] = CStorPoolClusterStatus()
    version_details: Annotated[dict[str, Any] | None, declare("Written by OpenEBS.", atomic_map=True)] = None


class CStorPoolInstanceSpec(Struct):
    partial: ClassVar[bool] = True

    host_name: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    pool_config: CStorPoolSettings = CStorPoolSettings()
    data_raid_groups: Annotated[tuple[RaidGroup, ...], ATOMIC] = ()
    write_cache_raid_groups: Annotated[tuple[RaidGroup, ...], ATOMIC] = ()


class PoolCapacity(Struct):
    partial: ClassVar[bool] = True

    used: NumberOrQuantity | None = None
    free: NumberOrQuantity | None = None
    total: NumberOrQuantity | None = None


class CStorPoolInstanceStatus(Struct):
    partial: ClassVar[bool] = True

    conditions: CoreConditions = ()
    phase: str = ""
    capacity: PoolCapacity = PoolCapacity()
    read_only: bool = False
    provisioned_replicas: int = 0
    healthy_replicas: int = 0


@kind(
    group=CSTOR_GROUP,
    version=CSTOR_VERSION,
    plural="cstorpoolinstances",
    short_names=("cspi",),
    columns=(
        Column("HostName", ".spec.hostName"),
        Column("Free", ".status.capacity.free"),
        Column("Capacity", ".status.capacity.total"),
        Column("ReadOnly", ".status.readOnly", "boolean"),
        Column("ProvisionedReplicas", ".status.provisionedReplicas", "integer"),
        Column("HealthyReplicas", ".status.healthyReplicas", "integer"),
        Column("Status", ".status.phase"),
        AGE,
    ),
    generation=True,
)
class CStorPoolInstance(Object):
    """One pool on one node, made by OpenEBS from its CStorPoolCluster."""

    spec: CStorPoolInstanceSpec = CStorPoolInstanceSpec()
    status: CStorPoolInstanceStatus = CStorPoolInstanceStatus()
    version_details: Annotated[dict[str, Any] | None, declare(atomic_map=True)] = None


class CStorVolumeReplicaSpec(Struct):
    partial: ClassVar[bool] = True

    target_ip: str = field(default="", name="targetIP")
    capacity: str = ""
    replica_id: str = field(default="", name="replicaid")


class CStorVolumeReplicaStatus(Struct):
    partial: ClassVar[bool] = True

    phase: str = ""


@kind(
    group=CSTOR_GROUP,
    version=CSTOR_VERSION,
    plural="cstorvolumereplicas",
    short_names=("cvr",),
    columns=(Column("Status", ".status.phase"), AGE),
    generation=True,
)
class CStorVolumeReplica(Object):
    """One copy of a volume in one pool. While it exists its pool must not go."""

    spec: CStorVolumeReplicaSpec = CStorVolumeReplicaSpec()
    status: CStorVolumeReplicaStatus = CStorVolumeReplicaStatus()
    version_details: Annotated[dict[str, Any] | None, declare(atomic_map=True)] = None


class DeviceCapacity(Struct):
    partial: ClassVar[bool] = True

    storage: int = 0
    physical_sector_size: int | None = None
    logical_sector_size: int | None = None


class DeviceDetails(Struct):
    partial: ClassVar[bool] = True

    device_type: str = ""  # disk, partition, lvm, …
    drive_type: str = ""  # HDD, SSD
    model: str = ""
    serial: str = ""
    vendor: str = ""
    compliance: str = ""
    firmware_revision: str = ""


class DeviceLinks(Struct):
    partial: ClassVar[bool] = True

    kind: str = ""  # by-id, by-path
    links: Annotated[tuple[str, ...], ATOMIC] = ()


class FileSystem(Struct):
    partial: ClassVar[bool] = True

    fs_type: str = ""
    mount_point: str = ""


class NodeAttributes(Struct):
    partial: ClassVar[bool] = True

    node_name: str = ""


class BlockDeviceSpec(Struct):
    partial: ClassVar[bool] = True

    path: str = ""
    capacity: DeviceCapacity = DeviceCapacity()
    details: DeviceDetails = DeviceDetails()
    devlinks: Annotated[tuple[DeviceLinks, ...], ATOMIC] = ()
    filesystem: FileSystem = FileSystem()
    node_attributes: NodeAttributes = NodeAttributes()
    claim_ref: ObjectReference | None = None
    partitioned: str = ""


class BlockDeviceStatus(Struct):
    partial: ClassVar[bool] = True

    claim_state: str = ""
    state: str = ""


@kind(
    group=DEVICE_GROUP,
    version=DEVICE_VERSION,
    plural="blockdevices",
    short_names=("bd",),
    columns=(
        Column("NodeName", ".spec.nodeAttributes.nodeName"),
        Column("Path", ".spec.path", wide=True),
        Column("FSType", ".spec.filesystem.fsType", wide=True),
        Column("Size", ".spec.capacity.storage"),
        Column("ClaimState", ".status.claimState"),
        Column("Status", ".status.state"),
        AGE,
    ),
    generation=True,
)
class BlockDevice(Object):
    """A disk that the node disk manager found on a node."""

    spec: BlockDeviceSpec = BlockDeviceSpec()
    status: BlockDeviceStatus = BlockDeviceStatus()


class DeviceRequirements(Struct):
    partial: ClassVar[bool] = True

    requests: dict[str, NumberOrQuantity] = field(default_factory=dict)


class BlockDeviceClaimSpec(Struct):
    partial: ClassVar[bool] = True

    block_device_name: str = ""
    host_name: str = ""
    device_type: str = ""
    resources: DeviceRequirements = DeviceRequirements()
    selector: Annotated[dict[str, Any] | None, declare(atomic_map=True)] = None


class BlockDeviceClaimStatus(Struct):
    partial: ClassVar[bool] = True

    phase: str = ""


@kind(
    group=DEVICE_GROUP,
    version=DEVICE_VERSION,
    plural="blockdeviceclaims",
    short_names=("bdc",),
    columns=(
        Column("BlockDeviceName", ".spec.blockDeviceName"),
        Column("Phase", ".status.phase"),
        AGE,
    ),
    generation=True,
)
class BlockDeviceClaim(Object):
    """Who has a BlockDevice."""

    spec: BlockDeviceClaimSpec = BlockDeviceClaimSpec()
    status: BlockDeviceClaimStatus = BlockDeviceClaimStatus()
