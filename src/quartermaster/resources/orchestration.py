"""How the leader and the agents meet: Host (what a machine is) and Assignment (what an agent is to do on it)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import field

from quartermaster.resources.declare import declare
from quartermaster.resources.devices import AllDevices, DeviceList, Devices, Directories, FilterOfDevices, IPAddress
from quartermaster.resources.kind import Column, kind
from quartermaster.resources.model import Conditions, Object, Struct, Time
from quartermaster.resources.rules import Expression, rule
from quartermaster.support.errors import Problem

GROUP = "orchestration.coreos.com"
VERSION = "v1alpha1"
CATEGORIES = ("quartermaster",)

TRIGGERED = "triggered"
RUNNING = "running"
SUCCEEDED = "succeeded"
FAILED = "failed"

_AGE = Column("Age", ".metadata.creationTimestamp", "date")


class Wishes(Struct):
    """What the agent was started with."""

    devices: Devices = ()
    directories: Directories = ()
    device_filter: FilterOfDevices = None
    use_all_devices: AllDevices = None


class HostSpec(Struct):
    addresses: Annotated[
        tuple[IPAddress, ...], declare("The addresses of the host.", list_type="atomic", max_items=64)
    ] = ()
    wishes: Annotated[Wishes | None, declare("What the host offers of its own accord, as its agent was told.")] = None


class Inventory(Struct):
    devices: DeviceList = ()
    addresses: Annotated[tuple[str, ...], declare("The addresses that were found.", list_type="atomic")] = ()
    facts: Annotated[dict[str, str], declare("What else was found: kernel, distribution, programs.")] = field(
        default_factory=dict
    )


class HostStatus(Struct):
    conditions: Conditions = ()
    inventory: Annotated[Inventory | None, declare("What the agent found on the host.")] = None
    agent_version: Annotated[str, declare("The version of the agent.")] = ""
    state: Annotated[str, declare("The state of the host in one word.")] = ""


@kind(
    group=GROUP,
    version=VERSION,
    plural="hosts",
    columns=(
        Column("State", ".status.state", description="Its state in one word"),
        Column("Agent", ".status.agentVersion", description="The version of its agent"),
        Column("Addresses", ".spec.addresses", wide=True, description="Its addresses"),
        _AGE,
    ),
    categories=CATEGORIES,
    own=True,
    status_subresource=True,
    generation=True,
    host="name",
)
class Host(Object):
    """A machine on which an agent runs; its labels are those that nodeSelector matches."""

    spec: Annotated[HostSpec, declare("What the host offers.")] = HostSpec()
    status: Annotated[HostStatus, declare("What was found; written by the agent.")] = HostStatus()


class AssignmentSpec(Struct):
    host: Annotated[str, declare("The host on which it is to be done.", immutable="always", min_length=1)]
    agent: Annotated[
        str,
        declare(
            "The service agent that does it.",
            immutable="always",
            pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            says='must be lower-case letters, digits and "-"',
            max_length=63,
        ),
    ]
    instance: Annotated[
        str,
        declare(
            "Which of several services that the agent keeps on the host, such as one volume.",
            immutable="always",
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
            says='must be lower-case letters, digits and "-"',
            max_length=63,
        ),
    ] = ""
    generation: Annotated[int, declare("Counts the changes of what is desired.", minimum=0)] = 0
    epoch: Annotated[int, declare("The epoch of the leader that wrote it; agents refuse a lower one.", minimum=0)] = 0
    desired: Annotated[dict[str, Any] | None, declare("The configuration that is to hold, as the agent knows it.")] = (
        None
    )
    absent: Annotated[bool | None, declare("Whether the service is to be gone from the host.")] = None
    deadline_seconds: Annotated[
        float | None, declare("How long the agent may take before it ends its own work.", minimum=0)
    ] = None


class AssignmentStatus(Struct):
    state: Annotated[str, declare("How far it is.", enum=(TRIGGERED, RUNNING, SUCCEEDED, FAILED))] = ""
    observed_generation: Annotated[int | None, declare("The spec.generation that this report is about.")] = None
    epoch: Annotated[int | None, declare("The epoch that this report is about.")] = None
    message: Annotated[str, declare("What is being done, or why it failed, as a sentence.")] = ""
    reason: Annotated[str, declare("Why it failed, in one word that programs may rely on.")] = ""
    started: Annotated[Time | None, declare("When the agent began.")] = None
    finished: Annotated[Time | None, declare("When the agent ended.")] = None
    result: Annotated[dict[str, Any] | None, declare("What the agent reports of the service.")] = None


@kind(
    group=GROUP,
    version=VERSION,
    plural="assignments",
    short_names=("asg",),
    columns=(
        Column("Host", ".spec.host", description="Where it is to be done"),
        Column("Agent", ".spec.agent", description="Who does it"),
        Column("State", ".status.state", description="How far it is"),
        Column("Message", ".status.message", description="What is being done, or why it failed"),
        _AGE,
    ),
    selectable_fields=("spec.host", "spec.agent"),
    categories=CATEGORIES,
    own=True,
    status_subresource=True,
    generation=True,
    host="suffix",
)
class Assignment(Object):
    """What one service agent is to do on one host; named <agent>.<host>, or <agent>-<instance>.<host>."""

    spec: Annotated[AssignmentSpec, declare("What is to be done.")]
    status: Annotated[AssignmentStatus, declare("What the agent reports.")] = AssignmentStatus()


def assignment_name(agent: str, host: str, instance: str = "") -> str:
    return f"{agent}-{instance}.{host}" if instance else f"{agent}.{host}"


@rule(
    Assignment,
    cel={
        "": [
            Expression(
                "self.metadata.name == self.spec.agent"
                " + (has(self.spec.instance) && self.spec.instance != '' ? '-' + self.spec.instance : '')"
                " + '.' + self.spec.host",
                "the name must be <spec.agent>.<spec.host>, or <spec.agent>-<spec.instance>.<spec.host>",
            )
        ]
    },
)
def named_after_agent_and_host(document: dict[str, Any]) -> Iterator[Problem]:
    spec = document["spec"]
    wanted = assignment_name(spec["agent"], spec["host"], spec.get("instance", ""))
    name = document["metadata"].get("name")
    if name != wanted:
        yield Problem(
            "metadata.name", f'must be "{wanted}", is "{name}"', "<agent>.<host> or <agent>-<instance>.<host>"
        )


@rule(
    Assignment,
    cel={
        "spec": [
            Expression(
                "!(has(self.desired) && has(self.absent) && self.absent)", "desired and absent exclude each other"
            )
        ]
    },
)
def desired_or_absent(document: dict[str, Any]) -> Iterator[Problem]:
    if "desired" in document["spec"] and document["spec"].get("absent"):
        yield Problem("spec.absent", "is given beside desired", "keep one of them")
