"""cStor pools from one declaration: CStorClusterConfig → CStorClusterPlan → CStorClusterStorageSet → Storage.

The fields are those of the design that introduced these kinds. What a user leaves out is worked out by the operator
and shown in `status.effective`; nothing is filled into the spec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import field

from quartermaster.resources.declare import Quantity, declare
from quartermaster.resources.kind import Column, kind
from quartermaster.resources.model import Conditions, Object, Struct, Time
from quartermaster.resources.quantity import Amount
from quartermaster.resources.rules import Expression, rule
from quartermaster.resources.selectors import LabelSelector, LabelSelectorRequirement
from quartermaster.support.errors import Problem

GROUP = "dao.mayadata.io"
VERSION = "v1alpha1"
CATEGORIES = ("quartermaster", "cstor")

CONFIG_UID_ANNOTATION = f"{GROUP}/cstorclusterconfig-uid"
PLAN_UID_ANNOTATION = f"{GROUP}/cstorclusterplan-uid"
STORAGE_SET_UID_ANNOTATION = f"{GROUP}/cstorclusterstorageset-uid"
STORAGE_UID_ANNOTATION = f"{GROUP}/storage-uid"

# On a Storage: who attaches its disk, and from which class it comes.
ATTACHER_ANNOTATION = f"storageprovisioner.{GROUP}/csi-attacher-name"
CLASS_ANNOTATION = f"storageprovisioner.{GROUP}/storageclass-name"

# In a term about nodes: not a label, but the name of the node.
NODE_NAME_FIELD = "metadata.name"

RAID_TYPES = ("stripe", "mirror", "raidz", "raidz2")
ROLES = ("data", "writeCache", "readCache", "spare")
COMPRESSIONS = ("on", "off", "lzjb", "gzip", "zle", "lz4")

_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_ATTACHER = "The CSI driver that attaches the disks."
_CACHES = ("writeCache", "readCache")
_CLASS = "The StorageClass from which the disks come."


class NodeRequirement(Struct):
    """As in the node affinity of a volume."""

    key: Annotated[str, declare("The label to look at.")]
    operator: Annotated[str, declare("How to compare it.", enum=("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))]
    values: Annotated[tuple[str, ...], declare("What to compare it with.", list_type="atomic")] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return LabelSelectorRequirement(key=self.key, operator=self.operator, values=self.values).matches(labels)


class NodeSelectorTerm(Struct):
    """All of it must hold."""

    match_labels: Annotated[dict[str, str], declare("Labels that the node must have.")] = field(default_factory=dict)
    match_annotations: Annotated[dict[str, str], declare("Annotations that the node must have.")] = field(
        default_factory=dict
    )
    match_expressions: Annotated[
        tuple[NodeRequirement, ...],
        declare("Comparisons of labels that must all hold.", list_type="atomic"),
    ] = ()


class AllowedNodes(Struct):
    node_selector_terms: Annotated[
        tuple[NodeSelectorTerm, ...],
        declare("Which nodes may hold a pool: those that fit any one of the terms.", list_type="atomic"),
    ] = ()
    selector_terms: Annotated[
        tuple[NodeSelectorTerm, ...],
        declare("The old spelling of nodeSelectorTerms; accepted, and pointed out in the status.", list_type="atomic"),
    ] = ()


class ExternalProvisioner(Struct):
    csi_attacher_name: Annotated[str, declare(_ATTACHER, min_length=1)]
    storage_class_name: Annotated[str, declare(_CLASS, min_length=1)]


class LocalDisks(Struct):
    block_device_selector: Annotated[
        LabelSelector | None, declare("Which of the BlockDevices that exist already may be used.")
    ] = None


class DiskConfig(Struct):
    min_count: Annotated[int | None, declare("How many disks a pool has at least.", minimum=1)] = None
    min_capacity: Annotated[Quantity | None, declare("The least capacity of each disk; 100Gi if unset.")] = None
    external_provisioner: Annotated[
        ExternalProvisioner | None, declare("Who provisions the disks, where they are to be made.")
    ] = None
    local: Annotated[LocalDisks | None, declare("Which disks to use, where they exist already.")] = None
    external: Annotated[
        ExternalProvisioner | None,
        declare("The old spelling of externalProvisioner; accepted, and pointed out in the status."),
    ] = None
    lost_after_seconds: Annotated[
        int | None,
        declare(
            "How long a disk may be missing on a node that is well before it is replaced; 300 if unset.", minimum=0
        ),
    ] = None


class CacheConfig(Struct):
    csi_attacher_name: Annotated[str, declare(_ATTACHER, min_length=1)]
    storage_class_name: Annotated[str, declare(_CLASS, min_length=1)]
    count: Annotated[int | None, declare("How many disks each pool gets for it; 1 if unset.", minimum=1)] = None
    capacity: Annotated[Quantity | None, declare("The capacity of each; diskConfig.minCapacity if unset.")] = None


class ExpansionThreshold(Struct):
    used_capacity: Annotated[
        float | None,
        declare("The used part of a pool, 0.80 if unset, beyond which it is expanded.", minimum=0, maximum=1),
    ] = field(default=None, name="used-capacity")


class PoolToleration(Struct):
    key: Annotated[str, declare("The key of the taint; any if unset.")] = ""
    operator: Annotated[str, declare("Equal, or Exists to take any value; Equal if unset.")] = ""
    value: Annotated[str, declare("The value of the taint.")] = ""
    effect: Annotated[str, declare("NoSchedule, PreferNoSchedule or NoExecute; any if unset.")] = ""
    toleration_seconds: Annotated[int | None, declare("How long a NoExecute taint is tolerated.")] = None


class PoolExpansion(Struct):
    disable: Annotated[bool | None, declare("Whether pools are left as they are.")] = None
    threshold: Annotated[ExpansionThreshold | None, declare("When a pool is expanded.")] = None
    capacity_threshold: Annotated[
        ExpansionThreshold | None, declare("The old spelling of threshold; accepted, and pointed out in the status.")
    ] = None
    max_groups: Annotated[int | None, declare("How many RAID groups a pool may grow to.", minimum=1)] = None


class ComputeResources(Struct):
    requests: Annotated[dict[str, Quantity], declare("What a pool's Pod is promised: memory and cpu.")] = field(
        default_factory=dict
    )
    limits: Annotated[dict[str, Quantity], declare("What a pool's Pod may not exceed: memory and cpu.")] = field(
        default_factory=dict
    )


class PoolConfig(Struct):
    write_cache: Annotated[CacheConfig | None, declare("The write cache of every pool; found out if unset.")] = None
    read_cache: Annotated[CacheConfig | None, declare("The read cache of every pool; none if unset.")] = None
    spare: Annotated[bool | None, declare("Whether every pool has a spare disk.")] = None
    raid_type: Annotated[
        str, declare("How a pool survives the loss of disks.", enum=RAID_TYPES, immutable="once set")
    ] = ""
    group_size: Annotated[
        int | None, declare("How many disks one RAID group has.", minimum=1, immutable="once set")
    ] = None
    pool_expansion: Annotated[PoolExpansion | None, declare("How pools grow when they fill up.")] = None
    compute_resources: Annotated[ComputeResources | None, declare("Memory and processors of a pool's Pod.")] = None
    detect_caches: Annotated[
        bool | None,
        declare("Whether a free disk that is faster than the data disks becomes a write cache; true if unset."),
    ] = None
    compression: Annotated[str, declare("How data are compressed; OpenEBS decides if unset.", enum=COMPRESSIONS)] = ""
    thick_provision: Annotated[bool | None, declare("Whether a volume takes all of its space at once.")] = None
    read_only_percent: Annotated[
        int | None,
        declare("Per cent of use at which a pool becomes read-only; 85 if unset.", minimum=1, maximum=100),
    ] = None
    tolerations: Annotated[
        tuple[PoolToleration, ...], declare("Taints of nodes that pools tolerate.", list_type="atomic")
    ] = ()
    priority_class_name: Annotated[str, declare("The priority of a pool's Pod.")] = ""


class CStorClusterConfigSpec(Struct):
    min_pool_count: Annotated[
        int | None,
        declare("The least number of pools; if unset the least of 3, the allowed and the existing nodes.", minimum=0),
    ] = None
    max_pool_count: Annotated[
        int | None, declare("The greatest number of pools; if unset two more than the least.", minimum=0)
    ] = None
    allowed_nodes: Annotated[AllowedNodes | None, declare("Which nodes may hold a pool; all if unset.")] = None
    disk_config: Annotated[DiskConfig | None, declare("The disks of which pools are made.")] = None
    pool_config: Annotated[PoolConfig | None, declare("What the pools are like.")] = None
    max_node_changes: Annotated[
        int | None,
        declare("How many nodes of the cluster may be added, dropped or moved at once; 1 if unset.", minimum=1),
    ] = None


class PoolCounts(Struct):
    wanted: Annotated[int | None, declare("How many pools there should be.")] = None
    ready: Annotated[int | None, declare("How many of them are online.")] = None


class MissingDevice(Struct):
    name: Annotated[str, declare("The BlockDevice.")]
    since: Annotated[Time, declare("When it was first seen to be missing.")]


class CStorClusterConfigStatus(Struct):
    phase: Annotated[str, declare("Where the cluster is on its way, in one word.")] = ""
    message: Annotated[str, declare("What matters most at the moment, as a sentence.")] = ""
    pools: Annotated[PoolCounts | None, declare("The pools in numbers.")] = None
    capacity: Annotated[Quantity | None, declare("What all pools can hold together.")] = None
    used_capacity: Annotated[Quantity | None, declare("What they hold.")] = None
    conditions: Conditions = ()
    observed_generation: Annotated[int | None, declare("The metadata.generation that this status is about.")] = None
    effective: Annotated[
        CStorClusterConfigSpec | None, declare("The configuration that holds, with all that was worked out.")
    ] = None
    missing_devices: Annotated[
        tuple[MissingDevice, ...],
        declare("Disks of pools that do not answer although their node is well.", keys=("name",)),
    ] = ()


@kind(
    group=GROUP,
    version=VERSION,
    plural="cstorclusterconfigs",
    short_names=("cscconfig",),
    columns=(
        Column("Wanted", ".status.pools.wanted", "integer", description="How many pools are planned"),
        Column("Ready", ".status.pools.ready", "integer", description="How many of them are online"),
        Column("Capacity", ".status.capacity", description="What they can hold together"),
        Column("Phase", ".status.phase", description="Where the cluster is on its way"),
        Column("Message", ".status.message", description="What matters most at the moment"),
        _AGE,
        Column("Min", ".status.effective.minPoolCount", "integer", True, "The least number of pools"),
        Column("Max", ".status.effective.maxPoolCount", "integer", True, "The greatest number of pools"),
        Column("RAID", ".status.effective.poolConfig.raidType", wide=True, description="How a pool survives losses"),
        Column("Used", ".status.usedCapacity", wide=True, description="What they hold"),
    ),
    categories=CATEGORIES,
    own=True,
    status_subresource=True,
    generation=True,
)
class CStorClusterConfig(Object):
    """A cStor cluster as it is wished for; everything else follows from it."""

    spec: Annotated[CStorClusterConfigSpec, declare("The wish.")]
    status: Annotated[CStorClusterConfigStatus, declare("What became of it; written by the operator.")] = (
        CStorClusterConfigStatus()
    )


class PlannedNode(Struct):
    name: Annotated[str, declare("The name of the node.")]
    uid: Annotated[str, declare("The UID of the node: one made anew under the old name is another.")]


class PlanNode(Struct):
    name: Annotated[str, declare("The name of the node.")]
    uid: Annotated[str, declare("The UID of the node: one made anew under the old name is another.")]
    slot: Annotated[int | None, declare("Which pool it is; it stays when the pool moves to another node.")] = None
    disks: Annotated[int | None, declare("How many data disks the pool has.")] = None
    replaced: Annotated[tuple[str, ...], declare("Storages that were given up.", list_type="set")] = ()
    lost_devices: Annotated[
        tuple[str, ...], declare("Disks that were given up and are to be replaced.", list_type="set")
    ] = ()
    expanded_from: Annotated[
        Quantity | None, declare("What the pool could hold when it was last decided to expand it.")
    ] = None
    block_devices: Annotated[
        tuple[str, ...], declare("The disks that were chosen, where they exist already.", list_type="atomic")
    ] = ()
    write_cache: Annotated[
        tuple[str, ...], declare("Fast disks that were found for a write cache.", list_type="atomic")
    ] = ()


class CStorClusterPlanSpec(Struct):
    nodes: Annotated[
        tuple[PlanNode, ...], declare("The nodes that take part in the pool cluster.", keys=("name", "uid"))
    ] = ()


class ProgressStatus(Struct):
    phase: Annotated[str, declare("How far it is, in one word.")] = ""
    message: Annotated[str, declare("What it waits for, as a sentence.")] = ""
    conditions: Conditions = ()
    observed_generation: Annotated[int | None, declare("The metadata.generation that this status is about.")] = None


@kind(
    group=GROUP,
    version=VERSION,
    plural="cstorclusterplans",
    short_names=("cscplan",),
    columns=(
        Column("Phase", ".status.phase", description="How far it is"),
        Column("Message", ".status.message", description="What it waits for"),
        _AGE,
    ),
    categories=CATEGORIES,
    own=True,
    status_subresource=True,
    generation=True,
)
class CStorClusterPlan(Object):
    """The nodes that were chosen for a CStorClusterConfig of the same name."""

    spec: Annotated[CStorClusterPlanSpec, declare("The choice.")] = CStorClusterPlanSpec()
    status: Annotated[ProgressStatus, declare("What became of it; written by the operator.")] = ProgressStatus()


class SetDisk(Struct):
    capacity: Annotated[Quantity, declare("The capacity of each disk.")]
    count: Annotated[int, declare("How many disks the node needs.", minimum=1)]


class CStorClusterStorageSetSpec(Struct):
    node: Annotated[PlannedNode, declare("The node that the disks are for.")]
    disk: Annotated[SetDisk, declare("What the disks are like.")]
    external_provisioner: Annotated[ExternalProvisioner | None, declare("Who provisions the disks.")] = None
    role: Annotated[str, declare("What the disks are for; data if unset.", enum=ROLES, immutable="always")] = ""
    replaced: Annotated[tuple[str, ...], declare("Storages that were given up.", list_type="set")] = ()


@kind(
    group=GROUP,
    version=VERSION,
    plural="cstorclusterstoragesets",
    short_names=("cscstorageset",),
    columns=(
        Column("Node", ".spec.node.name", description="The node that the disks are for"),
        Column("Disks", ".spec.disk.count", "integer", description="How many disks it needs"),
        Column("Capacity", ".spec.disk.capacity", description="The capacity of each"),
        Column("Phase", ".status.phase", description="How far it is"),
        _AGE,
    ),
    categories=CATEGORIES,
    own=True,
    status_subresource=True,
    generation=True,
)
class CStorClusterStorageSet(Object):
    """The disks of one node of a cStor cluster."""

    spec: Annotated[CStorClusterStorageSetSpec, declare("What is needed.")]
    status: Annotated[ProgressStatus, declare("What became of it; written by the operator.")] = ProgressStatus()


class StorageSpec(Struct):
    capacity: Annotated[Quantity, declare("The capacity of the disk.")]
    node_name: Annotated[str, declare("The node to which the disk is attached.", min_length=1)]


class StorageProgress(Struct):
    phase: Annotated[str, declare("How far it is, in one word.")] = ""
    message: Annotated[str, declare("What it waits for, as a sentence.")] = ""
    conditions: Conditions = ()
    observed_generation: Annotated[int | None, declare("The metadata.generation that this status is about.")] = None
    persistent_volume_claim: Annotated[str, declare("The claim through which the disk was asked for.")] = ""
    persistent_volume: Annotated[str, declare("The volume that is the disk.")] = ""
    volume_attachment: Annotated[str, declare("The attachment of the volume to the node.")] = ""
    block_device: Annotated[str, declare("The BlockDevice as which the disk shows up on the node.")] = ""
    block_device_state: Annotated[str, declare("Active, Inactive or Unknown, as its node reports.")] = ""
    block_device_claimed: Annotated[bool | None, declare("Whether a pool has it.")] = None
    attached_to: Annotated[str, declare("The node to which the disk is attached.")] = ""
    reachable_from: Annotated[
        tuple[NodeSelectorTerm, ...],
        declare(
            "From which nodes its volume can be reached, any of the terms; all if unset. "
            "The key metadata.name stands for the name of the node.",
            list_type="atomic",
        ),
    ] = ()


@kind(
    group=GROUP,
    version=VERSION,
    plural="storages",
    short_names=("stor",),
    columns=(
        Column("Capacity", ".spec.capacity", description="The capacity of the disk"),
        Column("Node", ".spec.nodeName", description="The node to which it is attached"),
        Column("Device", ".status.blockDevice", description="The BlockDevice that it is"),
        Column("Phase", ".status.phase", description="How far it is"),
        _AGE,
    ),
    selectable_fields=("spec.nodeName",),
    categories=CATEGORIES,
    own=True,
    status_subresource=True,
    generation=True,
)
class Storage(Object):
    """One disk, provisioned through a claim and attached to a node."""

    spec: Annotated[StorageSpec, declare("What is needed.")]
    status: Annotated[StorageProgress, declare("What became of it; written by the operator.")] = StorageProgress()


@rule(
    CStorClusterConfig,
    cel={
        "spec": [
            Expression(
                "!has(self.minPoolCount) || !has(self.maxPoolCount) || self.minPoolCount <= self.maxPoolCount",
                "minPoolCount must not be more than maxPoolCount",
            )
        ]
    },
)
def pool_counts_are_in_order(document: dict[str, Any]) -> Iterator[Problem]:
    least, greatest = (document["spec"].get(name) for name in ("minPoolCount", "maxPoolCount"))
    if least is not None and greatest is not None and least > greatest:
        yield Problem("spec.minPoolCount", f"{least} is more than maxPoolCount {greatest}", "raise maxPoolCount")


@rule(
    CStorClusterConfig,
    cel={
        "spec.diskConfig": [
            Expression(
                "!(has(self.externalProvisioner) && has(self.local))",
                "externalProvisioner and local exclude each other",
            )
        ]
    },
)
def disks_come_from_one_place(document: dict[str, Any]) -> Iterator[Problem]:
    disks = document["spec"].get("diskConfig", {})
    if "externalProvisioner" in disks and "local" in disks:
        yield Problem(
            "spec.diskConfig.local",
            "is given beside externalProvisioner",
            "keep local to use disks that exist, or externalProvisioner to make new ones",
        )


@rule(CStorClusterConfig, CStorClusterStorageSet, Storage)
def capacities_are_more_than_nothing(document: dict[str, Any]) -> Iterator[Problem]:
    spec = document["spec"]
    pools = spec.get("poolConfig", {})
    found = [
        ("spec.capacity", spec.get("capacity")),
        ("spec.disk.capacity", spec.get("disk", {}).get("capacity")),
        ("spec.diskConfig.minCapacity", spec.get("diskConfig", {}).get("minCapacity")),
        *((f"spec.poolConfig.{cache}.capacity", pools.get(cache, {}).get("capacity")) for cache in _CACHES),
    ]
    for path, quantity in found:
        if quantity is not None and Amount.of(quantity).value <= 0:
            yield Problem(path, f"must be more than 0, is {quantity}", "for example 100Gi")
