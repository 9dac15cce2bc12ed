"""What an administrator declares and sees of a storage cluster: StorageNode, StorageStatus, StorageCluster.

A cluster is (namespace, type, `spec.<type>.cluster`); see `cluster_of`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import field

from quartermaster.resources.declare import Quantity, declare
from quartermaster.resources.devices import (
    AllDevices,
    DeviceList,
    Devices,
    Directories,
    FilterOfDevices,
    IPAddress,
    device_filter_can_match,
    nothing_is_listed_twice,
)
from quartermaster.resources.kind import Column, kind
from quartermaster.resources.model import Conditions, Object, Struct, Time
from quartermaster.resources.names import check_label_value, check_qualified_name
from quartermaster.resources.paths import join
from quartermaster.resources.rules import Expression, rule
from quartermaster.support.errors import Problem

GROUP = "coreos.com"
VERSION = "v1"
CATEGORIES = ("quartermaster", "storage")

# The backends that have a section in the API; `local` needs nothing installed.
STORAGE_TYPES = ("ceph", "glusterfs", "local", "nfs", "torus")
OFFLINE = "OFFLINE"
ONLINE = "ONLINE"
DEFAULT_CLUSTER = "default"

_CLUSTER_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

ClusterName = Annotated[
    str,
    declare(
        "The cluster to which the node belongs; one per namespace and type is called default.",
        default=DEFAULT_CLUSTER,
        pattern=_CLUSTER_PATTERN,
        says='must be lower-case letters, digits and "-"',
        max_length=40,
    ),
]
Zone = Annotated[
    int | None,
    declare("The failure zone of the node: copies of data are put into different ones.", default=1, minimum=1),
]


class StorageNetwork(Struct):
    ips: Annotated[
        tuple[IPAddress, ...],
        declare(
            "The addresses that the node's storage daemons listen on and its peers use.",
            list_type="atomic",
            max_items=16,
        ),
    ] = ()


class GlusterFSNode(Struct):
    """GlusterFS specific information of a node."""

    cluster: ClusterName = ""
    zone: Zone = None


class TorusNode(Struct):
    """Torus specific information of a node."""

    cluster: ClusterName = ""
    zone: Zone = None
    size: Annotated[Quantity | None, declare("How much of the node's storage Torus may use.")] = None


class CephNode(Struct):
    """Ceph specific information of a node."""

    cluster: ClusterName = ""
    zone: Zone = None
    device_class: Annotated[str, declare("The CRUSH device class of the node's OSDs instead of the detected one.")] = ""


class NFSNode(Struct):
    """NFS specific information of a node."""

    cluster: ClusterName = ""
    zone: Zone = None


class LocalNode(Struct):
    """Information of a node whose disks are used as they are, without a storage system."""

    cluster: ClusterName = ""
    zone: Zone = None


class StorageNodeSpec(Struct):
    type: Annotated[
        str, declare("The storage system to which the node belongs.", enum=STORAGE_TYPES, immutable="always")
    ]
    node_selector: Annotated[
        dict[str, str], declare("Labels of the one host that is meant, such as kubernetes.io/hostname.")
    ] = field(default_factory=dict)
    storage_network: Annotated[StorageNetwork | None, declare("The network over which storage traffic goes.")] = None
    devices: Devices = ()
    directories: Directories = ()
    device_filter: FilterOfDevices = None
    use_all_devices: AllDevices = None
    wipe: Annotated[
        tuple[
            Annotated[
                str,
                declare(
                    pattern=r"^[^/]+$",
                    says="must be a serial number or WWN: the name of a device may change",
                    max_length=256,
                ),
            ],
            ...,
        ],
        declare(
            "Serial numbers or WWNs of devices that may be wiped although they hold something; used once.",
            list_type="atomic",
            max_items=1024,
        ),
    ] = ()
    glusterfs: Annotated[GlusterFSNode | None, declare("GlusterFS specific information; only with type glusterfs.")] = (
        None
    )
    torus: Annotated[TorusNode | None, declare("Torus specific information; only with type torus.")] = None
    ceph: Annotated[CephNode | None, declare("Ceph specific information; only with type ceph.")] = None
    nfs: Annotated[NFSNode | None, declare("NFS specific information; only with type nfs.")] = None
    local: Annotated[LocalNode | None, declare("Information on a local node; only with type local.")] = None


class WipedDevice(Struct):
    id: Annotated[str, declare("The serial number or WWN that was named in spec.wipe.")]
    time: Annotated[Time | None, declare("When the consent was used.")] = None


class Capacity(Struct):
    total: Annotated[Quantity | None, declare("All there is.")] = None
    used: Annotated[Quantity | None, declare("What is in use.")] = None
    available: Annotated[Quantity | None, declare("What can still be given out.")] = None


class StorageNodeStatus(Struct):
    conditions: Conditions = ()
    observed_generation: Annotated[int | None, declare("The metadata.generation that this status is about.")] = None
    state: Annotated[str, declare("The state of the node in one word.")] = ""
    message: Annotated[str, declare("What the node waits for or what is wrong, as a sentence.")] = ""
    host: Annotated[str, declare("The name of the Host that nodeSelector matched.")] = ""
    cluster: Annotated[str, declare("The cluster to which the node belongs.")] = ""
    devices: DeviceList = ()
    wiped: Annotated[tuple[WipedDevice, ...], declare("Consents of spec.wipe that were used up.", keys=("id",))] = ()
    capacity: Annotated[Capacity | None, declare("How much the node stores.")] = None


@kind(
    group=GROUP,
    version=VERSION,
    plural="storagenodes",
    short_names=("sn",),
    columns=(
        Column("Type", ".spec.type", description="The storage system"),
        Column(
            "Cluster",
            ".spec['ceph','glusterfs','local','nfs','torus'].cluster",
            description="The cluster to which it belongs",
        ),
        Column("Host", ".status.host", description="The host that it is"),
        Column("State", ".status.state", description="Its state in one word"),
        Column("Capacity", ".status.capacity.total", wide=True, description="How much it stores"),
        Column("Message", ".status.message", wide=True, description="What it waits for or what is wrong"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
    selectable_fields=("spec.type",),
    categories=CATEGORIES,
    own=True,
    status_subresource=True,
    generation=True,
)
class StorageNode(Object):
    """One storage node to be managed: a host, its disks and the storage system that they belong to."""

    spec: Annotated[StorageNodeSpec, declare("What the node is to be.")]
    status: Annotated[StorageNodeStatus, declare("What the node is; written by the operator.")] = StorageNodeStatus()


class BackendReport(Struct):
    cluster: Annotated[str, declare("The cluster's name.")] = ""
    version: Annotated[str, declare("The version of the storage system.")] = ""
    id: Annotated[str, declare("What the storage system calls the cluster.")] = ""
    details: Annotated[dict[str, str], declare("What else the storage system says of itself.")] = field(
        default_factory=dict
    )


class StorageStatusSpec(Struct):
    type: Annotated[str, declare("The storage system.", immutable="always", pattern=_CLUSTER_PATTERN, max_length=40)]
    status: Annotated[str, declare("Whether the storage can be used.", enum=(OFFLINE, ONLINE), default=OFFLINE)] = ""
    glusterfs: Annotated[BackendReport | None, declare("What GlusterFS reports.")] = None
    torus: Annotated[BackendReport | None, declare("What Torus reports.")] = None
    ceph: Annotated[BackendReport | None, declare("What Ceph reports.")] = None
    nfs: Annotated[BackendReport | None, declare("What the NFS servers report.")] = None
    local: Annotated[BackendReport | None, declare("What the local nodes report.")] = None


class NodeReport(Struct):
    name: Annotated[str, declare("The name of the StorageNode.")]
    host: Annotated[str, declare("The host that it is.")] = ""
    zone: Annotated[int | None, declare("Its failure zone.")] = None
    state: Annotated[str, declare("Its state in one word.")] = ""
    message: Annotated[str, declare("What it waits for or what is wrong, as a sentence.")] = ""
    devices: DeviceList = ()
    capacity: Annotated[Capacity | None, declare("How much it stores.")] = None


class StorageStatusStatus(Struct):
    conditions: Conditions = ()
    message: Annotated[str, declare("Why it is ONLINE or OFFLINE, or what is missing, as a sentence.")] = ""
    node_count: Annotated[int | None, declare("How many nodes are declared.")] = None
    ready_count: Annotated[int | None, declare("How many nodes are ready.")] = None
    nodes: Annotated[tuple[NodeReport, ...], declare("The nodes and what has become of each.", keys=("name",))] = ()
    capacity: Annotated[Capacity | None, declare("How much the cluster stores.")] = None
    storage_class: Annotated[str, declare("The StorageClass through which volumes are asked for.")] = ""


@kind(
    group=GROUP,
    version=VERSION,
    plural="storagestatuses",
    short_names=("ss",),
    columns=(
        Column("Type", ".spec.type", description="The storage system"),
        Column("Status", ".spec.status", description="ONLINE when volumes can be made and used"),
        Column("Nodes", ".status.nodeCount", "integer", description="How many nodes are declared"),
        Column("Ready", ".status.readyCount", "integer", description="How many of them are ready"),
        Column("Used", ".status.capacity.used", description="How much is in use"),
        Column("Capacity", ".status.capacity.total", description="How much there is"),
        Column("Message", ".status.message", description="Why it is so"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
    selectable_fields=("spec.type", "spec.status"),
    categories=CATEGORIES,
    own=True,
    status_subresource=True,
    generation=True,
)
class StorageStatus(Object):
    """The state of one storage cluster, named <type>-<cluster>; written by the operator only."""

    spec: Annotated[StorageStatusSpec, declare("Which cluster it is, and whether it can be used.")]
    status: Annotated[StorageStatusStatus, declare("The details.")] = StorageStatusStatus()


class Disperse(Struct):
    data: Annotated[int, declare("How many parts hold data.", minimum=2)]
    redundancy: Annotated[int, declare("How many parts may be lost.", minimum=1)]


class Replication(Struct):
    replicas: Annotated[int | None, declare("How many copies of data are kept.", minimum=1, maximum=16)] = None
    arbiter: Annotated[bool | None, declare("Whether the last copy holds names only, no data.")] = None
    disperse: Annotated[Disperse | None, declare("Erasure coding in place of copies.")] = None


class Timings(Struct):
    heartbeat_seconds: Annotated[float | None, declare("How often a host says that it lives.", minimum=0)] = None
    unhealthy_after_seconds: Annotated[
        float | None, declare("How long a host may be silent until it is unhealthy.", minimum=0)
    ] = None
    move_data_after_seconds: Annotated[
        float | None, declare("How long a host may be silent until its data are moved.", minimum=0)
    ] = None
    debounce_seconds: Annotated[
        float | None, declare("How long changes are gathered before they are acted upon.", minimum=0)
    ] = None


class StorageClusterSpec(Struct):
    type: Annotated[str, declare("The storage system of the cluster.", enum=STORAGE_TYPES, immutable="always")]
    cluster: Annotated[
        str,
        declare(
            "The cluster's name, as nodes give it in their own section.",
            default=DEFAULT_CLUSTER,
            immutable="always",
            pattern=_CLUSTER_PATTERN,
            max_length=40,
        ),
    ] = ""
    replication: Annotated[Replication | None, declare("How data are kept more than once.")] = None
    min_nodes: Annotated[int | None, declare("How many nodes there must be before the cluster is used.", minimum=1)] = (
        None
    )
    devices: Devices = ()
    directories: Directories = ()
    device_filter: FilterOfDevices = None
    use_all_devices: AllDevices = None
    timings: Annotated[Timings | None, declare("How long to wait for what.")] = None
    default_class: Annotated[
        bool | None, declare("Whether claims that name no StorageClass get their volume from this cluster.")
    ] = None
    require_approval: Annotated[
        bool | None, declare("Whether steps that destroy something wait until somebody approves them.")
    ] = None
    tls: Annotated[
        bool | None,
        declare("Whether GlusterFS uses TLS between its nodes and to clients; holds from the first node on."),
    ] = None


class StorageClusterStatus(Struct):
    conditions: Conditions = ()
    observed_generation: Annotated[int | None, declare("The metadata.generation that this status is about.")] = None


@kind(
    group=GROUP,
    version=VERSION,
    plural="storageclusters",
    short_names=("scl",),
    columns=(
        Column("Type", ".spec.type", description="The storage system"),
        Column("Cluster", ".spec.cluster", description="The cluster that it is about"),
        Column("Replicas", ".spec.replication.replicas", "integer", description="How many copies are kept"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
    selectable_fields=("spec.type", "spec.cluster"),
    categories=CATEGORIES,
    own=True,
    status_subresource=True,
    generation=True,
)
class StorageCluster(Object):
    """Settings of one storage cluster; optional: without one, defaults hold."""

    spec: Annotated[StorageClusterSpec, declare("The settings.")]
    status: Annotated[StorageClusterStatus, declare("What became of them; written by the operator.")] = (
        StorageClusterStatus()
    )


def cluster_of(node: StorageNode) -> str:
    """The name of the cluster to which a node belongs."""
    section = getattr(node.spec, node.spec.type, None)
    return (section.cluster if section is not None else "") or DEFAULT_CLUSTER


def zone_of(node: StorageNode) -> int:
    section = getattr(node.spec, node.spec.type, None)
    return (section.zone if section is not None else None) or 1


@rule(
    StorageNode,
    StorageStatus,
    cel={
        "spec": [
            Expression(f"!has(self.{name}) || self.type == '{name}'", f"the section {name} is only for type {name}")
            for name in STORAGE_TYPES
        ]
    },
)
def section_fits_type(document: dict[str, Any]) -> Iterator[Problem]:
    spec = document["spec"]
    for name in STORAGE_TYPES:
        if name in spec and spec["type"] != name:
            yield Problem(
                f"spec.{name}",
                f"is only for type {name}, and spec.type is {spec['type']}",
                f"remove it, or set spec.type to {name}",
            )


@rule(StorageNode)
def node_selector_is_of_labels(document: dict[str, Any]) -> Iterator[Problem]:
    for key, value in document["spec"].get("nodeSelector", {}).items():
        if wrong := check_qualified_name(key):
            yield Problem(join("spec.nodeSelector", key), f"the key of a label {wrong}")
        if wrong := check_label_value(value):
            yield Problem(join("spec.nodeSelector", key), f'the value of a label {wrong}, is "{value}"')


@rule(StorageCluster)
def tls_is_of_glusterfs(document: dict[str, Any]) -> Iterator[Problem]:
    spec = document["spec"]
    if spec.get("tls") and spec["type"] != "glusterfs":
        yield Problem("spec.tls", f"is only for type glusterfs, and spec.type is {spec['type']}", "remove it")


@rule(StorageCluster)
def one_way_of_replication(document: dict[str, Any]) -> Iterator[Problem]:
    replication = document["spec"].get("replication", {})
    if "disperse" in replication and "replicas" in replication:
        yield Problem("spec.replication.disperse", "is given beside replicas", "keep one of them")
    if replication.get("arbiter") and replication.get("replicas", 3) != 3:
        yield Problem(
            "spec.replication.arbiter",
            f"needs 3 replicas, and replicas is {replication['replicas']}",
            "set replicas to 3: two with data and the arbiter",
        )
    disperse = replication.get("disperse")
    if disperse and disperse["redundancy"] >= disperse["data"]:
        yield Problem(
            "spec.replication.disperse.redundancy",
            f"{disperse['redundancy']} is not less than data {disperse['data']}",
            "for example data 4 and redundancy 2",
        )


rule(StorageNode, StorageCluster)(nothing_is_listed_twice)
rule(StorageNode, StorageCluster)(device_filter_can_match)
