"""The small kinds: settings, secrets, accounts, namespaces, nodes, leases and events."""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from msgspec import field

from quartermaster.resources.declare import ATOMIC, SET, NumberOrQuantity, by, declare
from quartermaster.resources.kind import Column, kind
from quartermaster.resources.model import Object, Struct, Time
from quartermaster.resources.rules import prepare, rule, update_rule
from quartermaster.support.errors import Problem

AGE = Column("Age", ".metadata.creationTimestamp", "date")


class ObjectReference(Struct):
    """Names an object of any kind."""

    atomic: ClassVar[bool] = True

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class LocalObjectReference(Struct):
    atomic: ClassVar[bool] = True

    name: str = ""


class NamespaceSpec(Struct):
    finalizers: Annotated[tuple[str, ...], ATOMIC] = ()


class CoreCondition(Struct):
    """A condition as the core group has it: with two more times than others."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None
    last_heartbeat_time: Time | None = None
    last_probe_time: Time | None = None
    last_update_time: Time | None = None
    observed_generation: int | None = None


CoreConditions = Annotated[tuple[CoreCondition, ...], by("type")]


class NamespaceStatus(Struct):
    phase: str = ""
    conditions: CoreConditions = ()


@kind(
    group="",
    version="v1",
    plural="namespaces",
    short_names=("ns",),
    namespaced=False,
    columns=(Column("Status", ".status.phase"), AGE),
    status_subresource=True,
)
class Namespace(Object):
    """A room for names."""

    spec: NamespaceSpec | None = None
    status: NamespaceStatus | None = None


@kind(group="", version="v1", plural="configmaps", short_names=("cm",), columns=(AGE,))
class ConfigMap(Object):
    """Settings as keys and texts."""

    data: Annotated[dict[str, str], declare("The settings, as text.")] = field(default_factory=dict)
    binary_data: Annotated[dict[str, str], declare("Settings that are not text, in base64.")] = field(
        default_factory=dict
    )
    immutable: Annotated[bool | None, declare("Whether the data may never change.")] = None


@kind(
    group="",
    version="v1",
    plural="secrets",
    columns=(Column("Type", ".type"), AGE),
    selectable_fields=("type",),
    host="suffix",
)
class Secret(Object):
    """Values that are never shown. One named <purpose>.<host> is that host's own; no other host can read it."""

    type: Annotated[str, declare("What the values are for.", default="Opaque", immutable="always")] = ""
    data: Annotated[dict[str, str], declare("The values, in base64.")] = field(default_factory=dict)
    string_data: Annotated[dict[str, str], declare("Values as text; put into data in base64 when written.")] = field(
        default_factory=dict
    )
    immutable: Annotated[bool | None, declare("Whether the data may never change.")] = None


@kind(group="", version="v1", plural="serviceaccounts", short_names=("sa",), columns=(AGE,))
class ServiceAccount(Object):
    """Who a Pod is when it talks to the API server."""

    secrets: Annotated[tuple[ObjectReference, ...], by("name")] = ()
    image_pull_secrets: Annotated[tuple[LocalObjectReference, ...], ATOMIC] = ()
    automount_service_account_token: bool | None = None


class LeaseSpec(Struct):
    holder_identity: Annotated[str | None, declare("Who holds it.")] = None
    lease_duration_seconds: Annotated[
        int | None, declare("How long others wait after the last renewal before they take it.", minimum=1)
    ] = None
    acquire_time: Annotated[Time | None, declare("When the present holder took it.")] = None
    renew_time: Annotated[Time | None, declare("When it was last renewed.")] = None
    lease_transitions: Annotated[int | None, declare("The epoch: rises with each holder.", minimum=0)] = None
    strategy: str | None = None
    preferred_holder: str | None = None


@kind(
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    columns=(Column("Holder", ".spec.holderIdentity"), AGE),
    host="suffix",
    stands_alone=True,  # and changes all the time
)
class Lease(Object):
    """Something that one holder has at a time, as long as it is renewed; also the heartbeat of a host."""

    spec: LeaseSpec = LeaseSpec()


class EventSource(Struct):
    component: str = ""
    host: str = ""


class EventSeries(Struct):
    count: int = 0
    last_observed_time: Time | None = None


@kind(
    group="",
    version="v1",
    plural="events",
    short_names=("ev",),
    columns=(
        Column("Last Seen", ".lastTimestamp", "date"),
        Column("Type", ".type"),
        Column("Reason", ".reason"),
        Column("Kind", ".involvedObject.kind"),
        Column("Object", ".involvedObject.name"),
        Column("Message", ".message"),
        Column("Source", ".source.component", wide=True),
        Column("Count", ".count", "integer", wide=True),
    ),
    selectable_fields=(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "reason",
        "reportingComponent",
        "type",
    ),
    stands_alone=True,  # and ends by age
)
class Event(Object):
    """Something that happened to an object, for people to read."""

    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    action: str = ""
    source: EventSource = EventSource()
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    event_time: Time | None = None
    count: int = 0
    series: EventSeries | None = None
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


class Taint(Struct):
    key: str
    effect: str
    value: str = ""
    time_added: Time | None = None


class NodeSpec(Struct):
    partial: ClassVar[bool] = True

    unschedulable: bool = False
    taints: Annotated[tuple[Taint, ...], ATOMIC] = ()
    provider_id: str = field(default="", name="providerID")
    pod_cidr: str = field(default="", name="podCIDR")
    pod_cidrs: Annotated[tuple[str, ...], SET] = field(default=(), name="podCIDRs")


class NodeAddress(Struct):
    type: str
    address: str


class NodeSystemInfo(Struct):
    partial: ClassVar[bool] = True

    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    architecture: str = ""


class AttachedVolume(Struct):
    name: str
    device_path: str = ""


class NodeStatus(Struct):
    partial: ClassVar[bool] = True

    conditions: CoreConditions = ()
    addresses: Annotated[tuple[NodeAddress, ...], by("type")] = ()
    capacity: dict[str, NumberOrQuantity] = field(default_factory=dict)
    allocatable: dict[str, NumberOrQuantity] = field(default_factory=dict)
    node_info: NodeSystemInfo | None = None
    volumes_in_use: Annotated[tuple[str, ...], ATOMIC] = ()
    volumes_attached: Annotated[tuple[AttachedVolume, ...], ATOMIC] = ()


@kind(
    group="",
    version="v1",
    plural="nodes",
    short_names=("no",),
    namespaced=False,
    columns=(
        Column("Status", '.status.conditions[?(@.type=="Ready")].reason'),
        AGE,
        Column("Version", ".status.nodeInfo.kubeletVersion"),
    ),
    status_subresource=True,
    selectable_fields=("spec.unschedulable",),
)
class Node(Object):
    """A machine of a Kubernetes cluster."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


@prepare(Secret)
def text_into_data(document: dict[str, Any]) -> dict[str, Any]:
    """`stringData` is for writing only."""
    texts = document.get("stringData")
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        return document
    encoded = {name: binascii.b2a_base64(text.encode(), newline=False).decode() for name, text in texts.items()}
    rest = {name: value for name, value in document.items() if name != "stringData"}
    return {**rest, "data": {**(document.get("data") or {}), **encoded}}


@rule(Secret, ConfigMap)
def data_is_base64(document: dict[str, Any]) -> Iterator[Problem]:
    section = "data" if document["kind"] == "Secret" else "binaryData"
    for name, value in document.get(section, {}).items():
        try:
            binascii.a2b_base64(value, strict_mode=True)
        except (binascii.Error, ValueError):
            yield Problem(
                f"{section}.{name}",
                "is not base64",
                "put the plain text under stringData" if section == "data" else "put plain text under data",
            )


@update_rule(Secret, ConfigMap)
def immutable_data_stay(old: dict[str, Any], new: dict[str, Any]) -> Iterator[Problem]:
    if not old.get("immutable"):
        return
    for section in ("data", "binaryData", "immutable"):
        if old.get(section) != new.get(section):
            yield Problem(section, "cannot change: the object is marked immutable", "delete it and create it anew")
