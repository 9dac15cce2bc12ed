"""Pods and what makes them, as far as storage daemons and provisioners need them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import field

from quartermaster.resources.declare import ATOMIC, IntOrString, NumberOrQuantity, by, declare
from quartermaster.resources.kind import Column, kind
from quartermaster.resources.kubernetes.core import AGE, CoreConditions, LocalObjectReference
from quartermaster.resources.kubernetes.volumes import HostPathVolumeSource, NFSVolumeSource
from quartermaster.resources.model import Object, ObjectMeta, Struct, Time
from quartermaster.resources.selectors import LabelSelector


class EnvVar(Struct):
    name: str
    value: str = ""
    value_from: dict[str, Any] | None = None


class ContainerPort(Struct):
    container_port: int
    protocol: Annotated[str, declare(default="TCP")] = ""
    name: str = ""
    host_port: int | None = None
    host_ip: str = field(default="", name="hostIP")


class VolumeMount(Struct):
    name: str
    mount_path: str
    read_only: bool = False
    sub_path: str = ""
    sub_path_expr: str = ""
    mount_propagation: str | None = None
    recursive_read_only: str | None = None


class VolumeDevice(Struct):
    name: str
    device_path: str


class Capabilities(Struct):
    add: Annotated[tuple[str, ...], ATOMIC] = ()
    drop: Annotated[tuple[str, ...], ATOMIC] = ()


class SecurityContext(Struct):
    partial: ClassVar[bool] = True

    privileged: bool | None = None
    capabilities: Capabilities | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None


class ResourceRequirements(Struct):
    partial: ClassVar[bool] = True

    requests: dict[str, NumberOrQuantity] = field(default_factory=dict)
    limits: dict[str, NumberOrQuantity] = field(default_factory=dict)


class Container(Struct):
    partial: ClassVar[bool] = True

    name: str
    image: str = ""
    command: Annotated[tuple[str, ...], ATOMIC] = ()
    args: Annotated[tuple[str, ...], ATOMIC] = ()
    working_dir: str = ""
    ports: Annotated[tuple[ContainerPort, ...], by("containerPort", "protocol")] = ()
    env: Annotated[tuple[EnvVar, ...], by("name")] = ()
    env_from: Annotated[tuple[dict[str, Any], ...], ATOMIC] = ()
    resources: ResourceRequirements | None = None
    volume_mounts: Annotated[tuple[VolumeMount, ...], by("mountPath")] = ()
    volume_devices: Annotated[tuple[VolumeDevice, ...], by("devicePath")] = ()
    liveness_probe: dict[str, Any] | None = None
    readiness_probe: dict[str, Any] | None = None
    startup_probe: dict[str, Any] | None = None
    image_pull_policy: str = ""
    security_context: SecurityContext | None = None
    termination_message_path: str = ""
    termination_message_policy: str = ""
    restart_policy: str | None = None


class KeyToPath(Struct):
    key: str
    path: str
    mode: int | None = None


class SecretVolumeSource(Struct):
    secret_name: str = ""
    items: Annotated[tuple[KeyToPath, ...], ATOMIC] = ()
    default_mode: int | None = None
    optional: bool | None = None


class ConfigMapVolumeSource(Struct):
    name: str = ""
    items: Annotated[tuple[KeyToPath, ...], ATOMIC] = ()
    default_mode: int | None = None
    optional: bool | None = None


class EmptyDirVolumeSource(Struct):
    medium: str = ""
    size_limit: NumberOrQuantity | None = None


class PersistentVolumeClaimVolumeSource(Struct):
    claim_name: str
    read_only: bool = False


class Volume(Struct):
    partial: ClassVar[bool] = True

    name: str
    empty_dir: EmptyDirVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    nfs: NFSVolumeSource | None = None
    projected: dict[str, Any] | None = None


class Toleration(Struct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PodSpec(Struct):
    partial: ClassVar[bool] = True

    containers: Annotated[tuple[Container, ...], by("name")] = ()
    init_containers: Annotated[tuple[Container, ...], by("name")] = ()
    volumes: Annotated[tuple[Volume, ...], by("name")] = ()
    node_name: str = ""
    node_selector: Annotated[dict[str, str], declare(atomic_map=True)] = field(default_factory=dict)
    affinity: dict[str, Any] | None = None
    tolerations: Annotated[tuple[Toleration, ...], ATOMIC] = ()
    image_pull_secrets: Annotated[tuple[LocalObjectReference, ...], by("name")] = ()
    service_account_name: str = ""
    automount_service_account_token: bool | None = None
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    host_network: bool = False
    host_pid: bool = field(default=False, name="hostPID")
    host_ipc: bool = field(default=False, name="hostIPC")
    dns_policy: str = ""
    priority_class_name: str = ""
    security_context: dict[str, Any] | None = None
    enable_service_links: bool | None = None


class ContainerStateWaiting(Struct):
    reason: str = ""
    message: str = ""


class ContainerStateRunning(Struct):
    started_at: Time | None = None


class ContainerStateTerminated(Struct):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None
    container_id: str = field(default="", name="containerID")


class ContainerState(Struct):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Struct):
    partial: ClassVar[bool] = True

    name: str
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    ready: bool = False
    restart_count: int = 0
    image: str = ""
    image_id: str = field(default="", name="imageID")
    container_id: str = field(default="", name="containerID")
    started: bool | None = None


class PodStatus(Struct):
    partial: ClassVar[bool] = True

    phase: str = ""
    conditions: CoreConditions = ()
    message: str = ""
    reason: str = ""
    host_ip: str = field(default="", name="hostIP")
    pod_ip: str = field(default="", name="podIP")
    start_time: Time | None = None
    init_container_statuses: Annotated[tuple[ContainerStatus, ...], ATOMIC] = ()
    container_statuses: Annotated[tuple[ContainerStatus, ...], ATOMIC] = ()


@kind(
    group="",
    version="v1",
    plural="pods",
    short_names=("po",),
    columns=(
        Column("Status", ".status.phase"),
        AGE,
        Column("IP", ".status.podIP", wide=True),
        Column("Node", ".spec.nodeName", wide=True),
    ),
    selectable_fields=("spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase"),
    status_subresource=True,
    generation=True,
)
class Pod(Object):
    """Containers that run together on one node."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplateSpec(Struct):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class RollingUpdate(Struct):
    max_unavailable: IntOrString | None = None
    max_surge: IntOrString | None = None


class UpdateStrategy(Struct):
    type: str = ""
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(Struct):
    selector: Annotated[LabelSelector, declare(immutable="always")]
    template: PodTemplateSpec
    replicas: Annotated[int | None, declare(default=1, minimum=0)] = None
    strategy: UpdateStrategy | None = None
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    paused: bool = False
    progress_deadline_seconds: int | None = None


class DeploymentStatus(Struct):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    terminating_replicas: int | None = None
    conditions: CoreConditions = ()
    collision_count: int | None = None


@kind(
    group="apps",
    version="v1",
    plural="deployments",
    short_names=("deploy",),
    columns=(
        Column("Ready", ".status.readyReplicas", "integer"),
        Column("Up-to-date", ".status.updatedReplicas", "integer"),
        Column("Available", ".status.availableReplicas", "integer"),
        AGE,
    ),
    status_subresource=True,
    generation=True,
)
class Deployment(Object):
    """A number of equal Pods."""

    spec: DeploymentSpec
    status: DeploymentStatus = DeploymentStatus()


class DaemonSetSpec(Struct):
    selector: Annotated[LabelSelector, declare(immutable="always")]
    template: PodTemplateSpec
    update_strategy: UpdateStrategy | None = None
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None


class DaemonSetStatus(Struct):
    current_number_scheduled: int = 0
    number_misscheduled: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0
    observed_generation: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    collision_count: int | None = None
    conditions: CoreConditions = ()


@kind(
    group="apps",
    version="v1",
    plural="daemonsets",
    short_names=("ds",),
    columns=(
        Column("Desired", ".status.desiredNumberScheduled", "integer"),
        Column("Current", ".status.currentNumberScheduled", "integer"),
        Column("Ready", ".status.numberReady", "integer"),
        Column("Up-to-date", ".status.updatedNumberScheduled", "integer"),
        Column("Available", ".status.numberAvailable", "integer"),
        AGE,
    ),
    status_subresource=True,
    generation=True,
)
class DaemonSet(Object):
    """One Pod on each node."""

    spec: DaemonSetSpec
    status: DaemonSetStatus = DaemonSetStatus()
