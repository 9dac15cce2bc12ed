"""What the reconcilers of provisioning share in one term of one leader, and what they ask for from outside.

Caches may be older than what an earlier leader wrote. That never makes two volumes of one claim, for a claim is written
by its version; but it could hand out the same room twice. So a term begins by reading what is taken from the store
itself, and remembers its own decisions until the caches show them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from weakref import WeakValueDictionary

from msgspec.structs import replace

from quartermaster.backends.assigning import Assigning, is_gone
from quartermaster.backends.base import Volume, VolumeDriver, desired_now, let_go
from quartermaster.engine import Scope
from quartermaster.planning.cluster import ClusterKey, ClusterView, Desired
from quartermaster.planning.gathering import settings_clusters, settings_of
from quartermaster.planning.health import LOST
from quartermaster.planning.matching import home_of
from quartermaster.provisioning.claims import Quiet, Wait, host_is_lost, progress_of
from quartermaster.provisioning.intent import Seal, open_seal, record_of
from quartermaster.provisioning.protocol import is_growing
from quartermaster.provisioning.taken import Taken, view_of
from quartermaster.provisioning.volumes import handed_out
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from quartermaster.resources.marks import INTENT, provisioner_of
from quartermaster.resources.model import Key, Object
from quartermaster.resources.mounts import Mount
from quartermaster.resources.orchestration import Assignment, Host, assignment_name
from quartermaster.resources.storage import StorageCluster, StorageNode, StorageStatus, cluster_of
from quartermaster.support.errors import NotFoundError

# How many claims one change wakes.
_WOKEN = 100

Views = Callable[[ClusterKey], ClusterView | None]


@dataclass(frozen=True)
class Setup:
    """What provisioning is given: who makes volumes, and how clusters are."""

    namespace: str  # where the clusters, hosts and assignments are; claims are served from all namespaces
    drivers: Mapping[str, VolumeDriver]  # by type
    views: Views
    agents: Collection[str]  # of the drivers' storage systems
    scheduled: bool  # whether nodes are chosen by a scheduler, which can be asked for another one

    @property
    def provisioners(self) -> tuple[str, ...]:
        return tuple(provisioner_of(name) for name in self.drivers)

    def serves(self, key: ClusterKey) -> bool:
        return key.namespace == self.namespace and key.type in self.drivers


class Wakes:
    """Whom a change concerns that does not say so itself. Hints only: whoever is forgotten here looks again anyway."""

    def __init__(self) -> None:
        self._claims: dict[str, Key] = {}  # volume → claim
        self._waiting: dict[str, dict[Key, None]] = {}  # name → the claims that wait for it
        self._names: dict[Key, tuple[str, ...]] = {}  # claim → what it waits for

    def expect(self, volume: str, claim: Key) -> None:
        """An assignment for the volume concerns the claim."""
        self._claims[volume] = claim

    def wait(self, claim: Key, *names: str) -> None:
        """A class, a cluster or a volume of one of these names concerns the claim; "" is any class."""
        self._stop_waiting(claim)
        self._names[claim] = names
        for name in names:
            self._waiting.setdefault(name, {})[claim] = None

    def forget(self, claim: Key, volume: str = "") -> None:
        self._stop_waiting(claim)
        self._claims.pop(volume, None)

    def _stop_waiting(self, claim: Key) -> None:
        for name in self._names.pop(claim, ()):
            self._waiting[name].pop(claim, None)
            if not self._waiting[name]:
                del self._waiting[name]

    def of_assignment(self, assignment: Assignment) -> Iterator[Key]:
        claim = self._claims.get(assignment.spec.instance)
        if claim is not None:
            yield claim

    def of_volume(self, volume: PersistentVolume) -> Iterator[Key]:
        reference = volume.spec.claim_ref
        if reference is not None:
            yield Key(reference.namespace, reference.name)
        yield from self._waiting_for(volume.metadata.name)

    def of_room(self, volume: PersistentVolume) -> Iterator[Key]:
        """For a volume that went, or is free: whoever waits for one of its class."""
        yield from self._waiting_for(volume.spec.storage_class_name)

    def of_room_promised(self, claim: PersistentVolumeClaim) -> Iterator[Key]:
        """The same for a claim that was to have a volume, and is not."""
        yield from self._waiting_for(claim.spec.storage_class_name or "")

    def of_class(self, storage_class: StorageClass) -> Iterator[Key]:
        yield from self._waiting_for(storage_class.metadata.name, "")

    def of_status(self, status: StorageStatus) -> Iterator[Key]:
        yield from self._waiting_for(status.metadata.name)

    def _waiting_for(self, *names: str) -> Iterator[Key]:
        """So many at a time, in turn: who is not among them looks again by himself."""
        for name in names:
            waiting = self._waiting.get(name, {})
            for claim in list(islice(waiting, _WOKEN)):
                waiting[claim] = waiting.pop(claim)
                yield claim


class Term:
    """Made anew for each term: nothing known in an earlier one survives."""

    def __init__(self, scope: Scope, setup: Setup) -> None:
        self.setup = setup
        self.store = scope.store
        self.events = scope.events
        self.assigning = Assigning(scope, setup.namespace)
        self.claims = scope.caches.of(PersistentVolumeClaim)
        self.volumes = scope.caches.of(PersistentVolume)
        self.classes = scope.caches.of(StorageClass)
        self.hosts = scope.caches.of(Host, setup.namespace)
        self.mounts = scope.caches.of(Mount, setup.namespace)
        self._clusters = scope.caches.of(StorageCluster, setup.namespace)
        self.volumes.add_index("claim", _claim_of)
        self.mounts.add_index("claim", _claim_asked_for)
        self.taken = Taken(self.claims, self.volumes)
        self._seal: Seal | None = None
        self._placing: dict[ClusterKey, asyncio.Lock] = {}
        self._working: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._began = False

    async def seal(self) -> Seal:
        if self._seal is None:
            self._seal = await open_seal(self.store, self.setup.namespace)
        return self._seal

    def placing(self, key: ClusterKey) -> asyncio.Lock:
        """Held from looking at what is taken until the decision is written, so that no two decide on the same room."""
        return self._placing.setdefault(key, asyncio.Lock())

    def working(self, volume: str) -> asyncio.Lock:
        """Held while an agent is asked to make a published volume larger, or gone, and from the last look before it."""
        return self._working.setdefault(volume, asyncio.Lock())

    async def view(self, key: ClusterKey) -> ClusterView | None:
        """The cluster, with all that is taken of it."""
        view = self.setup.views(key)
        if view is None:
            return None
        await self._begin()
        seal = await self.seal()
        return replace(view, volumes=self.taken.of(key, seal))

    def is_behind(self, view: ClusterView) -> bool:
        """Whether the cluster was declared otherwise since the leader looked: what a volume is like is decided once."""
        now = settings_of(settings_clusters(self._clusters.list()).get(view.key), None)
        return (now.replication, now.tls) != (view.settings.replication, view.settings.tls)

    def volumes_for(self, claim: Key) -> tuple[Key, ...]:
        return tuple(volume.key for volume in self.volumes.by_index("claim", str(claim)))

    def mounts_for(self, claim: Key) -> tuple[Key, ...]:
        return tuple(mount.key for mount in self.mounts.by_index("claim", str(claim)))

    def host_labels(self) -> dict[str, Mapping[str, str]]:
        return {host.metadata.name: host.metadata.labels for host in self.hosts.list()}

    def is_given_up(self, key: ClusterKey, host: str) -> bool:
        """Whether nobody will answer for what the cluster has on a host: its node is gone, and it is lost itself."""
        view, known = self.setup.views(key), self.hosts.get(Key(self.setup.namespace, host))
        is_node = view is None or any(node.host == host for node in view.nodes)
        return not is_node and known is not None and known.status.state == LOST

    async def is_declared(self, key: ClusterKey) -> bool:
        """Whether there are nodes of the cluster, also before they were looked at."""
        nodes = (await self.store.list(StorageNode, key.namespace)).items
        return any(node.spec.type == key.type and key.name in (home_of(node), cluster_of(node)) for node in nodes)

    async def take_back(self, desired: Desired, *, lost: bool, made: bool, forced: bool = False) -> bool:
        """Have a volume gone from its host; True when it is, or when nobody will ever answer for that host.

        `made`: it was finished once, so its agent is asked even where the assignment is not to be found. A host that
        left has cleared its assignments away; one whose Host was only deleted clears up if it ever comes back.
        `forced`: also while somebody uses it.
        """
        name = assignment_name(desired.agent, desired.host, desired.instance)
        deleted = not await self._there(Host, desired.host)
        known = self.assigning.get(desired.host, desired.agent, desired.instance) is not None
        if (deleted or not made) and not known and not await self._there(Assignment, name):
            return True
        return await self.assigning.retire(
            desired.host, desired.agent, desired.instance, lost=lost or deleted, ask=True, forced=forced
        )

    async def end(
        self, key: ClusterKey, volume: Volume, *, answered: str = "", forced: bool = False
    ) -> Wait | Quiet | None:
        """Have a volume gone by the host that keeps it now, unless that is who `answered`; None when it is gone.
        `forced`: also while somebody uses it.
        """
        view = self.setup.views(key)
        if view is None and await self.is_declared(key):
            return Quiet("nobody has looked at the cluster in this term: who keeps the volume now is not known yet")
        desired = desired_now(self.setup.drivers[key.type], volume, view)
        lost = host_is_lost(view, desired.host) or self.is_given_up(key, desired.host)
        if desired.host == answered or await self.take_back(desired, lost=lost, made=True, forced=forced):
            return None
        assignment = self.assigning.get(desired.host, desired.agent, desired.instance)
        return progress_of(assignment, desired) if assignment is not None else Quiet("it is asked for")

    async def spare(self, key: ClusterKey, volume: Volume) -> bool | None:
        """Ask for a volume again that was to be gone; False where it is gone, None where that cannot be told yet.

        Whoever else was asked to end it is told otherwise as well: a host that was silent then may be back at any time.
        """
        view = self.setup.views(key)
        if view is None and await self.is_declared(key):
            return None
        desired = desired_now(self.setup.drivers[key.type], volume, view)
        asked = await self.assigning.latest(desired.host, desired.agent, desired.instance)
        if asked is not None and asked.spec.absent:
            if is_gone(asked):
                return False
            await self.assigning.ensure(desired)
        instead = let_go(self.setup.drivers[key.type])
        for one in [one for one in self.assigning.all() if self._is_ending(one, desired)]:
            if instead is None:
                return None  # nobody else deletes it but who keeps it: whoever that is, he is not known here yet
            await self.assigning.ensure(Desired(one.spec.host, desired.agent, instead, desired.instance))
        return True

    @staticmethod
    def _is_ending(assignment: Assignment, desired: Desired) -> bool:
        spec = assignment.spec
        same = (spec.agent, spec.instance) == (desired.agent, desired.instance)
        return same and bool(spec.absent) and not is_gone(assignment)

    async def _there(self, kind: type[Object], name: str) -> bool:
        try:
            await self.store.get(kind, name, self.setup.namespace)
        except NotFoundError:
            return False
        return True

    async def _begin(self) -> None:
        """Claims first: what leaves a claim meanwhile is in a volume by then."""
        if self._began:
            return
        seal = await self.seal()
        claims = (await self.store.list(PersistentVolumeClaim)).items
        growing = [claim for claim in claims if is_growing(claim)]
        intents = [seal.read(claim) for claim in claims if INTENT in claim.metadata.annotations]
        for intent in intents:
            if intent is not None and self.setup.serves(intent.cluster):
                self.taken.remember(intent.cluster, view_of(intent))
        for volume in (await self.store.list(PersistentVolume)).items:
            record = record_of(volume)
            if record is not None and self.setup.serves(record.cluster):
                for one in handed_out(record.cluster, [volume], (), growing):
                    self.taken.remember(record.cluster, one)
        self._began = True


def _claim_of(volume: PersistentVolume) -> Iterator[str]:
    reference = volume.spec.claim_ref
    if reference is not None:
        yield str(Key(reference.namespace, reference.name))


def _claim_asked_for(mount: Mount) -> Iterator[str]:
    yield str(Key(mount.spec.claim.namespace, mount.spec.claim.name))


class Terms:
    """One `Term` for all controllers that are built in the same scope."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.current: Term | None = None
        self._scope: Scope | None = None

    def of(self, scope: Scope) -> Term:
        if self.current is None or self._scope is not scope:
            if self.current is not None:
                self.current.taken.close()
            self._scope, self.current = scope, Term(scope, self.setup)
        return self.current
