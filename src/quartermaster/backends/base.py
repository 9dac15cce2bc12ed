"""What a storage system brings to Quartermaster, and the roles that it plays there.

A backend is the "storage system specific layer": a pure `plan` over a cluster, the service agents that act on hosts,
and a volume driver. It never reads a store and never knows who runs its daemons. `backends/local` is the shortest one
and the example; `tests/backends/conformance` holds every backend to the same rules.

Managers and agents have the names of the orchestration design: a manager decides on the leader, an agent acts on a
host, and they meet only in Assignments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from quartermaster.host import Host
from quartermaster.planning.cluster import ClusterKey, ClusterPlan, ClusterView, Desired
from quartermaster.resources.kubernetes.volumes import PersistentVolume
from quartermaster.resources.model import Key, Object
from quartermaster.resources.orchestration import Assignment
from quartermaster.resources.storage import StorageNode, StorageStatus
from quartermaster.stores.base import Store

ENTRY_POINTS = "quartermaster.backends"


class RefreshKey(msgspec.Struct, frozen=True):
    """A change that makes an orchestration necessary: objects of a kind, of which a field differs."""

    kind: type[Object]
    labels: str = ""
    fields: str = ""  # a field selector, as a store takes it
    field: str = ""  # a path such as "spec"; "" is anything


class Touched(msgspec.Struct, frozen=True):
    """An object of a refresh key that came, went or changed."""

    kind: type[Object]
    key: Key


class RefreshEvent(msgspec.Struct, frozen=True):
    """All that happened since the last orchestration, merged into one. Names are of Hosts, in order."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unhealthy: tuple[str, ...] = ()
    keys: tuple[RefreshKey, ...] = ()  # those that fired
    touched: tuple[Touched, ...] = ()  # the objects that made them fire, in order
    full: bool = False  # a new leader, or the periodic sweep: look at everything
    since: float = 0.0  # loop time of the first of them


class ServiceManager(Protocol):
    """Decides for one distributed service. Lives for one term of one leader."""

    @property
    def name(self) -> str: ...

    def refresh_keys(self) -> Sequence[RefreshKey]:
        """What, when changed, should trigger an orchestration."""
        ...

    async def handle_refresh(self, event: RefreshEvent) -> float | None:
        """Bring the service nearer to what is desired. With nothing to do it writes nothing.

        It does not wait for agents: their reports cause the next refresh. The answer, if there is one, is in how many
        seconds to look again although nothing happened. An error is answered by the same event after a pause.
        """
        ...


@dataclass(frozen=True)
class AgentContext:
    """What an agent is given for one call."""

    host: str  # the name of this host
    namespace: str
    machine: Host
    directory: Path  # the agent's own files; they survive its restart
    store: Store  # with the rights of this host only
    assignment: Assignment | None  # None while initializing
    report: Callable[[str], Awaitable[None]]  # says what is being done, while it is

    @property
    def desired(self) -> dict[str, Any]:
        return (self.assignment.spec.desired if self.assignment is not None else None) or {}

    @property
    def instance(self) -> str:
        return self.assignment.spec.instance if self.assignment is not None else ""


class ServiceAgent(Protocol):
    """Deploys one service on one host. Every call may be repeated, or cut off at any line and repeated."""

    @property
    def name(self) -> str: ...

    async def initialize(self, context: AgentContext) -> None:
        """Called once at the start of the agent, before any assignment."""
        ...

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        """Make `context.desired` true here; the answer is reported. A second run changes nothing."""
        ...

    async def destroy_local_service(self, context: AgentContext) -> None:
        """Stop the service here and release what it held. Nothing that might hold somebody's data is wiped."""
        ...


@runtime_checkable
class KnowsFileSystems(Protocol):
    """A service agent that puts file systems on devices: the inventory shows these as in use and not as foreign."""

    def file_systems(self, desired: Mapping[str, Any]) -> Sequence[str]:
        """The UUIDs of the file systems that belong to what is desired."""
        ...


@runtime_checkable
class KeepsDaemons(Protocol):
    """A service agent whose daemons are not named after it: when one of them dies, its configurations run again."""

    def keeps(self, daemon: str) -> bool: ...


class VolumeRequest(msgspec.Struct, frozen=True):
    """A claim, as far as a storage system needs to know it."""

    name: str  # of the volume: pvc-<uid of the claim>
    namespace: str
    claim: str
    size: int
    parameters: Mapping[str, str] = {}
    access_modes: tuple[str, ...] = ()
    block: bool = False
    host: str = (
        ""  # where its first consumer is, if that is known: a volume that can only be used on one host goes there
    )
    current: Placement | None = None  # of a volume that is to grow to `size`: it stays where it is, or is refused


class Placement(msgspec.Struct, frozen=True):
    """Where a volume is to be, recorded on the claim before anything is made."""

    hosts: tuple[str, ...]
    details: dict[str, Any] = {}
    why: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """Why a volume cannot be made now, with the numbers."""

    reason: str
    message: str


class Volume(msgspec.Struct, frozen=True):
    """A volume that is to exist."""

    name: str
    size: int
    placement: Placement
    parameters: Mapping[str, str] = {}
    block: bool = False


class VolumeDriver(Protocol):
    """How a storage system makes volumes. The decisions are pure; the work is an assignment to one of its agents."""

    def place(self, request: VolumeRequest, view: ClusterView) -> Placement | Refusal:
        """Where the volume is to be. One that is to grow is in the view as it is now, and takes no room from itself."""
        ...

    def desired(self, volume: Volume) -> Desired:
        """The assignment that makes the volume exist with its size; with `config=None` in place of it, be gone."""
        ...

    def source(self, volume: Volume, result: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a PersistentVolume's spec that is the storage system's: its source, nodeAffinity."""
        ...

    async def mount(self, machine: Host, volume: PersistentVolume, target: Path) -> Path:
        """The volume on this host at `target`; the path to use, which is another one where nothing can be mounted."""
        ...

    def is_mounted(self, machine: Host, volume: PersistentVolume, target: Path) -> bool:
        """Whether the volume itself is mounted there, be it beneath something else; MountConflictError in doubt."""
        ...

    async def unmount(self, machine: Host, volume: PersistentVolume, target: Path) -> bool:
        """Whether it was mounted there; what else is stays. MountConflictError, and nothing is changed, where something
        lies on top of it, or in doubt.
        """
        ...


class KnowsKeepers(Protocol):
    """A volume driver whose volumes can be looked after by any of several hosts: the one that made them may be gone."""

    def desired_now(self, volume: Volume, view: ClusterView) -> Desired:
        """As `desired`, of the host whose agent is asked about the volume now."""
        ...


def desired_now(driver: VolumeDriver, volume: Volume, view: ClusterView | None) -> Desired:
    """What `driver.desired` says, asked of the host that keeps the volume now."""
    asked_now = getattr(driver, "desired_now", None)
    if view is None or asked_now is None:
        return driver.desired(volume)
    desired: Desired = asked_now(volume, view)
    return desired


class ChangesHands(Protocol):
    """A volume driver whose volumes may be deleted by a host that was told to before another one kept them."""

    def let_go(self) -> dict[str, Any]:
        """What such a host is told in place of that, for the volume is kept."""
        ...


def let_go(driver: VolumeDriver) -> dict[str, Any] | None:
    """None where only one host can ever be asked."""
    said = getattr(driver, "let_go", None)
    return dict(said()) if said is not None else None


class KnowsDisks(Protocol):
    """A volume driver whose placements name more than hosts."""

    def lost_with(self, volume: Volume, view: ClusterView) -> str:
        """What of its placement is gone, so that the volume can never be made there; "" while all of it is there."""
        ...


def lost_with(driver: VolumeDriver, volume: Volume, view: ClusterView | None) -> str:
    said = getattr(driver, "lost_with", None)
    return str(said(volume, view)) if view is not None and said is not None else ""


class Remains(StrEnum):
    """What is left of a volume for whoever gives up a host that has something of it."""

    WHOLE = "whole"  # hosts that answer have all of it
    DOUBTFUL = "doubtful"  # nobody knows whether hosts that answer have all of it
    SILENT = "silent"  # it can be read only when others that do not answer are back
    NOTHING = "nothing"


class KnowsRemains(Protocol):
    """A volume driver that keeps copies or parts of a volume on several hosts, and knows which of them are whole."""

    def remains(self, view: ClusterView, host: str) -> Mapping[str, Remains]:
        """Of each volume of which something is on the host now, wherever it was placed."""
        ...


def remains_without(driver: VolumeDriver | None, view: ClusterView, host: str) -> Mapping[str, Remains]:
    """By where volumes were placed where nobody says more. What is on several hosts may have moved since."""
    said = getattr(driver, "remains", None)
    if said is None:
        several = {one.name: Remains.DOUBTFUL for one in view.volumes if len(one.hosts) > 1}
        return {**several, **{one.name: Remains.NOTHING for one in view.volumes if one.hosts == (host,)}}
    found: Mapping[str, Remains] = said(view, host)
    return found


class KnowsPlaces(Protocol):
    """A volume driver that moves copies or parts of volumes to other hosts than they were placed on."""

    def hosts_now(self, view: ClusterView) -> Mapping[str, tuple[str, ...]]:
        """By volume, the hosts that have something of it now."""
        ...


def knows_places(driver: VolumeDriver) -> bool:
    return hasattr(driver, "hosts_now")


def hosts_now(driver: VolumeDriver, view: ClusterView) -> Mapping[str, tuple[str, ...]]:
    """Where volumes were placed where nobody says more."""
    said = getattr(driver, "hosts_now", None)
    if said is None:
        return {one.name: one.hosts for one in view.volumes}
    found: Mapping[str, tuple[str, ...]] = said(view)
    return found


class KnowsServers(Protocol):
    """A volume driver whose volumes are served by hosts: those that a volume was made on may all be others by now."""

    def served_now(self, volume: PersistentVolume, status: StorageStatus) -> PersistentVolume:
        """The volume as it is to be mounted, by what its cluster says of itself."""
        ...


def served_now(driver: VolumeDriver, volume: PersistentVolume, status: StorageStatus | None) -> PersistentVolume:
    """As it was made where nobody says more."""
    said = getattr(driver, "served_now", None)
    if status is None or said is None:
        return volume
    found: PersistentVolume = said(volume, status)
    return found


class Backend(Protocol):
    """One storage system. Found by the entry point group `quartermaster.backends`, named nowhere else."""

    @property
    def type(self) -> str: ...

    def plan(self, view: ClusterView) -> ClusterPlan: ...

    def agents(self) -> Sequence[ServiceAgent]: ...

    def volumes(self) -> VolumeDriver: ...


class AdoptedVolume(msgspec.Struct, frozen=True):
    """A volume that is there."""

    volume: Volume
    claim: str = ""  # namespace/name, where it says so


class Adoption(msgspec.Struct, frozen=True):
    """What runs on hosts and is in no store, as what is to be written of it."""

    key: ClusterKey
    nodes: tuple[StorageNode, ...] = ()
    volumes: tuple[AdoptedVolume, ...] = ()
    assignments: tuple[Desired, ...] = ()  # by which agents keep what they find
    given_up: Mapping[str, str] = {}  # members of it that will not come back: their identity → how they are called
    shown: tuple[str, ...] = ()  # all of it, for a person
    mistakes: tuple[str, ...] = ()  # with one of them nothing is written
    notes: tuple[str, ...] = ()


class Adopter(Protocol):
    """How a storage system is found again that runs and is in no store, for `qm adopt`."""

    @property
    def survey(self) -> str:
        """The agent that tells what is on a host, and changes nothing."""
        ...

    def adopt(
        self,
        told: Mapping[str, Mapping[str, Any]],
        namespace: str,
        *,
        cluster: str,
        lost: Sequence[str],
        addresses: Mapping[str, Sequence[str]],
    ) -> Adoption:
        """From what every host told and the addresses that it has, by host; `cluster` is how one is to be called that
        does not say it, `lost` are members of it that are given up.
        """
        ...

    def remember(self, memory: Mapping[str, str], found: Adoption) -> Mapping[str, str]:
        """What plans of the cluster are to remember, by what they do: with those that were given up."""
        ...


@runtime_checkable
class CanAdopt(Protocol):
    """A backend that has an adopter."""

    def adopter(self) -> Adopter: ...
