"""Claims, volumes, classes, attachments and drivers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from msgspec import field

from quartermaster.resources.declare import ATOMIC, NumberOrQuantity, declare
from quartermaster.resources.kind import Column, kind
from quartermaster.resources.kubernetes.core import AGE, CoreConditions, ObjectReference
from quartermaster.resources.model import Object, Struct, Time
from quartermaster.resources.names import check_subdomain
from quartermaster.resources.quantity import Amount, check_quantity
from quartermaster.resources.rules import rule, update_rule
from quartermaster.resources.selectors import LabelSelector
from quartermaster.support.errors import Problem

ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
VOLUME_MODES = ("Filesystem", "Block")

AccessModes = Annotated[tuple[Annotated[str, declare(enum=ACCESS_MODES)], ...], declare(list_type="atomic")]
FixedAccessModes = Annotated[
    tuple[Annotated[str, declare(enum=ACCESS_MODES)], ...], declare(list_type="atomic", immutable="always")
]
VolumeMode = Annotated[str | None, declare(enum=VOLUME_MODES, default="Filesystem", immutable="always")]
ResourceList = dict[str, NumberOrQuantity]


class VolumeResourceRequirements(Struct):
    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)


class TypedObjectReference(Struct):
    kind: str
    name: str
    api_group: str | None = None
    namespace: str | None = None


class PersistentVolumeClaimSpec(Struct):
    access_modes: FixedAccessModes = ()
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: Annotated[str, declare(immutable="once set")] = ""
    storage_class_name: Annotated[str | None, declare(immutable="once set")] = None
    volume_mode: VolumeMode = None
    data_source: Annotated[TypedObjectReference | None, declare(atomic_map=True)] = None
    data_source_ref: TypedObjectReference | None = None
    volume_attributes_class_name: str | None = None


class ModifyVolumeStatus(Struct):
    status: str = ""
    target_volume_attributes_class_name: str = ""


class PersistentVolumeClaimStatus(Struct):
    phase: str = ""
    access_modes: AccessModes = ()
    capacity: ResourceList = field(default_factory=dict)
    conditions: CoreConditions = ()
    allocated_resources: ResourceList = field(default_factory=dict)
    allocated_resource_statuses: dict[str, str] = field(default_factory=dict)
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: ModifyVolumeStatus | None = None


@kind(
    group="",
    version="v1",
    plural="persistentvolumeclaims",
    short_names=("pvc",),
    columns=(
        Column("Status", ".status.phase"),
        Column("Volume", ".spec.volumeName"),
        Column("Capacity", ".status.capacity.storage"),
        Column("Access Modes", ".status.accessModes[*]"),
        Column("StorageClass", ".spec.storageClassName"),
        AGE,
        Column("VolumeMode", ".spec.volumeMode", wide=True),
    ),
    status_subresource=True,
)
class PersistentVolumeClaim(Object):
    """An application's wish for a volume."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class SecretReference(Struct):
    atomic: ClassVar[bool] = True

    name: str = ""
    namespace: str = ""


class CSIPersistentVolumeSource(Struct):
    driver: str
    volume_handle: str
    read_only: bool = False
    fs_type: str = ""
    volume_attributes: dict[str, str] = field(default_factory=dict)
    controller_publish_secret_ref: SecretReference | None = None
    node_stage_secret_ref: SecretReference | None = None
    node_publish_secret_ref: SecretReference | None = None
    controller_expand_secret_ref: SecretReference | None = None
    node_expand_secret_ref: SecretReference | None = None


class NFSVolumeSource(Struct):
    server: str
    path: str
    read_only: bool = False


class HostPathVolumeSource(Struct):
    path: str
    type: str | None = None


class LocalVolumeSource(Struct):
    path: str
    fs_type: str | None = None


class ISCSIPersistentVolumeSource(Struct):
    target_portal: str
    iqn: str
    lun: int
    iscsi_interface: str = ""
    fs_type: str = ""
    read_only: bool = False
    portals: Annotated[tuple[str, ...], ATOMIC] = ()
    chap_auth_discovery: bool = False
    chap_auth_session: bool = False
    secret_ref: SecretReference | None = None
    initiator_name: str | None = None


class NodeSelectorRequirement(Struct):
    key: str
    operator: Annotated[str, declare(enum=("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))]
    values: Annotated[tuple[str, ...], ATOMIC] = ()


class NodeSelectorTerm(Struct):
    atomic: ClassVar[bool] = True

    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...], ATOMIC] = ()
    match_fields: Annotated[tuple[NodeSelectorRequirement, ...], ATOMIC] = ()


class NodeSelector(Struct):
    atomic: ClassVar[bool] = True

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], ATOMIC] = ()


class VolumeNodeAffinity(Struct):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Struct):
    partial: ClassVar[bool] = True  # a volume of any source is taken; these sources are known by name

    capacity: ResourceList = field(default_factory=dict)
    access_modes: AccessModes = ()
    claim_ref: Annotated[ObjectReference | None, declare(atomic_map=False)] = None
    persistent_volume_reclaim_policy: Annotated[
        str, declare(enum=("Retain", "Delete", "Recycle"), default="Retain")
    ] = ""
    storage_class_name: str = ""
    mount_options: Annotated[tuple[str, ...], ATOMIC] = ()
    volume_mode: VolumeMode = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    csi: Annotated[CSIPersistentVolumeSource | None, declare(immutable="always")] = None
    nfs: Annotated[NFSVolumeSource | None, declare(immutable="always")] = None
    host_path: Annotated[HostPathVolumeSource | None, declare(immutable="always")] = None
    local: Annotated[LocalVolumeSource | None, declare(immutable="always")] = None
    iscsi: Annotated[ISCSIPersistentVolumeSource | None, declare(immutable="always")] = None


class PersistentVolumeStatus(Struct):
    phase: str = ""
    message: str = ""
    reason: str = ""
    last_phase_transition_time: Time | None = None


@kind(
    group="",
    version="v1",
    plural="persistentvolumes",
    short_names=("pv",),
    namespaced=False,
    columns=(
        Column("Capacity", ".spec.capacity.storage"),
        Column("Access Modes", ".spec.accessModes[*]"),
        Column("Reclaim Policy", ".spec.persistentVolumeReclaimPolicy"),
        Column("Status", ".status.phase"),
        Column("Claim", ".spec.claimRef.name"),
        Column("StorageClass", ".spec.storageClassName"),
        Column("Reason", ".status.reason"),
        AGE,
        Column("VolumeMode", ".spec.volumeMode", wide=True),
    ),
    status_subresource=True,
)
class PersistentVolume(Object):
    """A volume that exists."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorLabelRequirement(Struct):
    key: str
    values: Annotated[tuple[str, ...], ATOMIC] = ()


class TopologySelectorTerm(Struct):
    atomic: ClassVar[bool] = True

    match_label_expressions: Annotated[tuple[TopologySelectorLabelRequirement, ...], ATOMIC] = ()


@kind(
    group="storage.k8s.io",
    version="v1",
    plural="storageclasses",
    short_names=("sc",),
    namespaced=False,
    columns=(
        Column("Provisioner", ".provisioner"),
        Column("ReclaimPolicy", ".reclaimPolicy"),
        Column("VolumeBindingMode", ".volumeBindingMode"),
        Column("AllowVolumeExpansion", ".allowVolumeExpansion", "boolean"),
        AGE,
    ),
)
class StorageClass(Object):
    """How volumes of one sort are made."""

    provisioner: Annotated[str, declare("Who makes the volumes.", immutable="always")]
    parameters: Annotated[dict[str, str], declare("What the provisioner is told.", immutable="always")] = field(
        default_factory=dict
    )
    reclaim_policy: Annotated[
        str | None,
        declare(
            "What becomes of a volume whose claim is gone.",
            enum=("Retain", "Delete", "Recycle"),
            default="Delete",
            immutable="always",
        ),
    ] = None
    mount_options: Annotated[tuple[str, ...], ATOMIC] = ()
    allow_volume_expansion: bool | None = None
    volume_binding_mode: Annotated[
        str | None,
        declare(
            "When a volume is made: at once, or when a Pod needs it.",
            enum=("Immediate", "WaitForFirstConsumer"),
            default="Immediate",
            immutable="always",
        ),
    ] = None
    allowed_topologies: Annotated[tuple[TopologySelectorTerm, ...], ATOMIC] = ()


class VolumeAttachmentSource(Struct):
    partial: ClassVar[bool] = True  # an inline volume is a whole PersistentVolumeSpec

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Struct):
    attacher: str
    source: VolumeAttachmentSource
    node_name: str


class VolumeError(Struct):
    time: Time | None = None
    message: str = ""
    error_code: int | None = None


class VolumeAttachmentStatus(Struct):
    attached: bool = False
    attachment_metadata: dict[str, str] = field(default_factory=dict)
    attach_error: VolumeError | None = None
    detach_error: VolumeError | None = None


@kind(
    group="storage.k8s.io",
    version="v1",
    plural="volumeattachments",
    namespaced=False,
    columns=(
        Column("Attacher", ".spec.attacher"),
        Column("PV", ".spec.source.persistentVolumeName"),
        Column("Node", ".spec.nodeName"),
        Column("Attached", ".status.attached", "boolean"),
        AGE,
    ),
    status_subresource=True,
)
class VolumeAttachment(Object):
    """The wish that a volume be attached to a node."""

    spec: Annotated[VolumeAttachmentSpec, declare(immutable="always")]
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()


class TokenRequest(Struct):
    audience: str
    expiration_seconds: int | None = None


class CSIDriverSpec(Struct):
    partial: ClassVar[bool] = True

    attach_required: Annotated[bool | None, declare(default=True, immutable="always")] = None
    pod_info_on_mount: Annotated[bool | None, declare(default=False)] = None
    volume_lifecycle_modes: Annotated[
        tuple[str, ...], declare(list_type="set", default=["Persistent"], immutable="always")
    ] = ()
    storage_capacity: Annotated[bool | None, declare(default=False)] = None
    fs_group_policy: Annotated[str | None, declare(default="ReadWriteOnceWithFSType")] = None
    token_requests: Annotated[tuple[TokenRequest, ...], ATOMIC] = ()
    requires_republish: Annotated[bool | None, declare(default=False)] = None
    se_linux_mount: Annotated[bool | None, declare(default=False)] = None


@kind(
    group="storage.k8s.io",
    version="v1",
    plural="csidrivers",
    namespaced=False,
    columns=(
        Column("AttachRequired", ".spec.attachRequired", "boolean"),
        Column("PodInfoOnMount", ".spec.podInfoOnMount", "boolean"),
        Column("StorageCapacity", ".spec.storageCapacity", "boolean"),
        Column("Modes", ".spec.volumeLifecycleModes"),
        AGE,
    ),
)
class CSIDriver(Object):
    """What a CSI driver can do and needs."""

    spec: CSIDriverSpec


@rule(PersistentVolumeClaim)
def claim_asks_for_something(document: dict[str, Any]) -> Iterator[Problem]:
    spec = document.get("spec", {})
    if not spec.get("accessModes"):
        yield Problem("spec.accessModes", "is missing", "for example [ReadWriteOnce]")
    storage = spec.get("resources", {}).get("requests", {}).get("storage")
    if storage is None:
        yield Problem("spec.resources.requests.storage", "is missing", "for example 10Gi")
    elif not check_quantity(storage) and Amount.of(storage).value <= 0:
        yield Problem("spec.resources.requests.storage", f"must be more than 0, is {storage}", "for example 10Gi")


@rule(PersistentVolumeClaim)
def new_claim_can_be_met(document: dict[str, Any]) -> Iterator[Problem]:
    """Of one that is stored already nothing is asked here: who works on it could not write to it any more."""
    if document.get("metadata", {}).get("uid"):
        return
    spec = document.get("spec", {})
    storage = spec.get("resources", {}).get("requests", {}).get("storage")
    if isinstance(storage, float):
        same = (
            ""
            if check_quantity(storage)
            else f'write "{Amount.of(storage)}", or with its unit, for example {storage}Gi'
        )
        yield Problem("spec.resources.requests.storage", f"must be a quantity, is {storage}", same)
    if (name := spec.get("volumeName")) and (wrong := check_subdomain(name)):
        yield Problem("spec.volumeName", f'is the name of no volume: {wrong}; is "{name}"')


@update_rule(PersistentVolumeClaim)
def claim_only_grows(old: dict[str, Any], new: dict[str, Any]) -> Iterator[Problem]:
    before = old.get("spec", {}).get("resources", {}).get("requests", {}).get("storage")
    after = new.get("spec", {}).get("resources", {}).get("requests", {}).get("storage")
    given = old.get("status", {}).get("capacity", {}).get("storage")
    if before is None or after is None or Amount.of(after) >= Amount.of(before):
        return
    # A growth that has not happened can be taken back.
    if given is None or Amount.of(after) < Amount.of(given):
        yield Problem(
            "spec.resources.requests.storage",
            f"cannot shrink from {before} to {after}",
            "make a smaller claim and copy",
        )
