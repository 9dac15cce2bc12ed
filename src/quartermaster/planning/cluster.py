"""One storage cluster as the leader sees it at a moment, and what it decides to do about it.

A view is gathered once per refresh; a backend's `plan` is a pure function from it to a plan; applying the plan is the
generic layer's work. `qm plan` is the same function on a view with changed files, and applies nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from quartermaster.resources.devices import Device
from quartermaster.resources.orchestration import AssignmentStatus
from quartermaster.resources.storage import Replication, StorageNode

# Why a node is not to serve: its daemons may be stopped, its data are to move away, or are given up with its host.
MAINTENANCE = "maintenance"
DRAIN = "drain"
ABANDON = "abandon"


class ClusterKey(msgspec.Struct, frozen=True, order=True):
    """A cluster is (namespace, type, name)."""

    namespace: str
    type: str
    name: str

    @property
    def status_name(self) -> str:
        return f"{self.type}-{self.name}"

    @property
    def class_name(self) -> str:
        """A StorageClass has no namespace, so its name carries it."""
        return f"{self.namespace}-{self.type}-{self.name}"


class Verdict(msgspec.Struct, frozen=True):
    """Whether something holds, and why: a condition's reason and message."""

    holds: bool
    reason: str
    message: str


class Settings(msgspec.Struct, frozen=True):
    """What a StorageCluster says, with every default filled in."""

    min_nodes: int | None = None  # None: the backend's own requirement
    replication: Replication | None = None
    heartbeat_s: float = 5.0
    unhealthy_after_s: float = 30.0
    move_data_after_s: float = 600.0
    debounce_s: float = 5.0
    default_class: bool = False
    require_approval: bool = False
    tls: bool = False
    paused: bool = False
    observing: bool = False  # after a restore; for those who make and delete volumes it is as being paused
    approved: str = ""  # the digests of the steps that somebody approved, with spaces between them


class ChosenDevice(msgspec.Struct, frozen=True, gc=False):
    """A device that the node's declaration means, as its host reported it."""

    path: str
    id: str
    size: int
    rotational: bool = False
    usable: bool = True
    reason: str = ""  # why it is not
    message: str = ""
    serving: bool = False  # an assignment names it already: it is used, whatever its host says of its content
    declared: str = ""  # the path by which the declaration named it, where it lists paths
    uuid: str = ""  # of the file system on it, where this cluster left it there and the node may have it back
    consent: str = ""  # the serial number or WWN with which a person allowed to wipe what is on it


class Report(msgspec.Struct, frozen=True, gc=False):
    """What an agent said of one assignment, beside what was asked of it."""

    agent: str
    instance: str
    generation: int
    desired: dict[str, Any] | None
    absent: bool
    status: AssignmentStatus
    forced: bool = False  # it is to be gone also while somebody uses it

    @property
    def current(self) -> bool:
        """Whether the report is about what is asked now."""
        return self.status.observed_generation == self.generation

    @property
    def done(self) -> bool:
        return self.current and self.status.state == "succeeded"

    @property
    def failed_by(self) -> str:
        """The reason why what is asked now failed; "" where it did not."""
        return self.status.reason if self.current and self.status.state == "failed" else ""


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """A StorageNode and the host that it is."""

    node: StorageNode
    host: str  # "" while the selector does not match exactly one, or one that is another node already
    zone: int = 1
    addresses: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}  # of the host
    devices: tuple[ChosenDevice, ...] = ()
    present: tuple[Device, ...] = ()  # every device that its host reported, also those that are not meant
    directories: tuple[str, ...] = ()
    healthy: bool = True  # its heartbeat is fresh
    lost: bool = False  # silent for so long that its data may move
    leaving: str = ""  # "" stays; else DRAIN (also when it is being deleted), MAINTENANCE or ABANDON
    held: Verdict | None = None  # why it may not leave although somebody wants it to
    wrong: Verdict | None = None  # why nothing can be planned for it; the rest of the cluster goes on
    complaints: tuple[Verdict, ...] = ()  # what else is wrong with its declaration; what is right of it is served
    reports: tuple[Report, ...] = ()

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def complaint(self) -> Verdict | None:
        """All that is wrong beside `wrong`, as one: the first reason, and every sentence."""
        if len(self.complaints) <= 1:
            return self.complaints[0] if self.complaints else None
        return Verdict(False, self.complaints[0].reason, "; ".join(one.message for one in self.complaints))

    def report(self, agent: str, instance: str = "") -> Report | None:
        for one in self.reports:
            if one.agent == agent and one.instance == instance:
                return one
        return None


class VolumeView(msgspec.Struct, frozen=True):
    """A volume that was handed out: its PersistentVolume's name, its size and where it is."""

    name: str
    size: int
    hosts: tuple[str, ...]
    details: dict[str, Any] = {}
    claim: str = ""  # whose it is, as namespace/name
    kept: bool = False  # somebody wants what is in it, whatever an agent was asked for at some time

    @property
    def title(self) -> str:
        """As people know it."""
        return self.claim or self.name


class ClusterView(msgspec.Struct, frozen=True, dict=True):
    key: ClusterKey
    settings: Settings
    nodes: tuple[NodeView, ...]  # by name
    volumes: tuple[VolumeView, ...] = ()  # by name
    online: bool = False  # as the status says now: to enter takes more than to stay
    memory: dict[str, str] = {}  # what the last plan wanted remembered
    clients: tuple[str, ...] = ()  # addresses of every host of the namespace, each of which may use volumes
    hosts: int = 0  # so many of them are there, with a node or without

    @cached_property
    def reports(self) -> Mapping[tuple[str, str], Sequence[tuple[NodeView, Report]]]:
        """By agent and instance, in the order of nodes. Whoever asks of each of thousands of volumes who was told of it
        would else look through all that hundreds of nodes report, for each again.
        """
        found: dict[tuple[str, str], list[tuple[NodeView, Report]]] = {}
        for node in self.nodes:
            for report in node.reports:
                found.setdefault((report.agent, report.instance), []).append((node, report))
        return found


class Desired(msgspec.Struct, frozen=True):
    """What one agent is to do on one host; becomes an Assignment.

    A `config` names devices as `{"devices": [{"id": …, "path": …, "declared": …}, …]}`: these are then `serving` in
    the next view, wherever the kernel puts them.
    """

    host: str
    agent: str
    config: dict[str, Any] | None  # None: the service is to be gone from the host
    instance: str = ""  # which of several that the agent keeps on the host
    deadline_s: float = 120.0
    why: str = ""  # for people
    destroys: str = ""  # what is lost by it; where that is set, it may need an approval
    # The same for good and in full: an approval is of that, whatever else of the configuration changes and whoever does
    # it. None: it is of host, agent and all of the configuration.
    loses: Mapping[str, Any] | None = None
    # What is asked for while this waits for an approval, in place of what was asked before. It destroys nothing. None:
    # what was asked before stands.
    instead: Desired | None = None


class NodeOutcome(msgspec.Struct, frozen=True):
    """What a node is found to be: a word for the table, a sentence for the person."""

    state: str  # Pending, Deploying, Ready, Degraded, Draining, Drained, Failed or Maintenance
    message: str = ""
    total: int = 0
    used: int = 0
    in_use: Mapping[str, str] = {}  # device path → state, for the devices that serve


class Step(msgspec.Struct, frozen=True):
    """One thing that is about to be done, for people. A destructive one may need an approval."""

    what: str  # "configure glusterd on host h1"
    why: str
    destructive: bool = False
    digest: str = ""  # by which it is approved


class VolumeClass(msgspec.Struct, frozen=True):
    """What the cluster's StorageClass says."""

    parameters: dict[str, str] = {}
    wait_for_consumer: bool = False
    expandable: bool = True


class ClusterPlan(msgspec.Struct, frozen=True):
    """What should be, and why. What is not in `assignments` and is the backend's own is left as it is."""

    assignments: tuple[Desired, ...]
    nodes: Mapping[str, NodeOutcome]  # by StorageNode name
    ready: Verdict  # the full requirement: takes the cluster ONLINE
    usable: Verdict  # what keeps it ONLINE
    degraded: Verdict  # holds when something is missing although it is usable
    removable: tuple[str, ...] = ()  # nodes that hold nothing any more: their finalizer may go
    steps: tuple[Step, ...] = ()  # beside the assignments, which become steps where they differ from what is there
    volume_class: VolumeClass = VolumeClass()
    details: dict[str, str] = {}  # for the backend's section of the StorageStatus
    memory: dict[str, str] = {}  # intent that the next plan must know, written before the assignments are
