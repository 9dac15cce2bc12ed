"""What people do while leader and agents work: nodes come and go, claims too, and somebody works by hand."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from msgspec.structs import replace

from quartermaster.provisioning.protocol import DELETE, RELEASED, RETAIN
from quartermaster.resources import marks
from quartermaster.resources.kubernetes.volumes import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    VolumeResourceRequirements,
)
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.storage import (
    Disperse,
    Replication,
    StorageCluster,
    StorageClusterSpec,
    StorageNode,
    StorageNodeSpec,
    StorageStatus,
    Timings,
)
from quartermaster.stores import modify
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import entropy
from quartermaster.support.errors import NotFoundError, StoreError
from quartermaster.testing.simulation import record
from tests.simulation.orchestration.invariants import NAMESPACE

from .commands import begin
from .hosts import GlusterMachine
from .invariants import PHOTOS, STRANGER
from .verbs import Verbs

TYPE = "glusterfs"
CLAIMS = ("claim-a", "claim-b", "claim-c")
LEAST_NODES = 3
WAITED_S = 90.0
LAYOUTS = (
    Replication(replicas=3),
    Replication(replicas=3),
    Replication(replicas=3, arbiter=True),
    Replication(disperse=Disperse(2, 1)),
)
Action = Callable[[], Coroutine[Any, Any, None]]


class Administrator:
    def __init__(
        self,
        store: ObjectStore,
        machines: Mapping[str, GlusterMachine],
        addresses: Mapping[str, str],
        verbs: Verbs,
        *,
        retains: bool = False,
    ) -> None:
        """`retains`: now and then he keeps a volume whose deletion has begun and waits."""
        self.done: dict[str, int] = {}
        self._retains = retains
        self._store = store
        self._machines = machines
        self._addresses = addresses
        self._verbs = verbs

    async def begin(self, timings: Timings) -> None:
        layout = entropy.source().choice(LAYOUTS)
        spec = StorageClusterSpec(type=TYPE, replication=layout, timings=timings)
        metadata = ObjectMeta(name="gluster", namespace=NAMESPACE)
        await self._store.create(StorageCluster(metadata=metadata, spec=spec))
        hosts = list(self._machines)
        for host in hosts[: entropy.source().randint(LEAST_NODES, len(hosts))]:
            await self.declare(host)

    async def work(self, mean_gap_s: float, enough: asyncio.Event) -> None:
        source = entropy.source()
        actions: tuple[Action, ...] = (
            self._declare_node,
            self._declare_node,
            self._remove_node,
            self._give_up_node,
            self._claim,
            self._claim,
            self._unclaim,
            self._probe_by_hand,
            *((self._retain, self._retain, self._retain, self._retain) if self._retains else ()),
        )
        while not enough.is_set():
            await asyncio.sleep(source.expovariate(1 / mean_gap_s))
            action = source.choice(actions)
            try:
                async with asyncio.timeout(20 if action != self._retain else 2 * WAITED_S):
                    await action()
            except (StoreError, TimeoutError) as error:
                record("gave up", action.__name__.strip("_"), type(error).__name__)

    async def declare(self, host: str) -> None:
        """What is left on its disks of an earlier time as a node is not wanted any more."""
        self._machines[host].clear()
        self._machines[host].leaving = False
        spec = StorageNodeSpec(type=TYPE, node_selector={HOSTNAME_LABEL: host}, use_all_devices=True)
        await self._store.create(StorageNode(metadata=ObjectMeta(name=f"node-{host}", namespace=NAMESPACE), spec=spec))

    async def give_up(self, host: str) -> None:
        """As `qm node remove --lost`."""
        name = f"node-{host}"

        def marked(node: StorageNode) -> StorageNode:
            annotations = {**node.metadata.annotations, marks.ABANDON: host}
            return replace(node, metadata=replace(node.metadata, annotations=annotations))

        try:
            await modify(self._store, StorageNode, name, NAMESPACE, marked)
            await self._store.delete(StorageNode, name, NAMESPACE)
        except NotFoundError:
            return
        self._count("give up node")

    async def misses_disk(self, host: str, serial: str) -> bool:
        """Whether node or cluster say that the disk can be given up: a person does what they ask him to."""
        node, said = await self._said_of(host)
        return f"naming {serial} in spec.wipe" in said and node is not None and serial not in node.spec.wipe

    async def misses_file_systems(self, host: str) -> list[str]:
        """Of disks that nobody knows, and that can be given up: the node was declared anew."""
        node, said = await self._said_of(host)
        named = re.findall(rf"naming ([0-9a-f-]{{36}}) in spec\.wipe of StorageNode node-{host}", said)
        return [one for one in named if node is not None and one not in node.spec.wipe]

    async def refused_file_systems(self, host: str) -> list[str]:
        """Those that the node itself used, when it was a node before."""
        _, said = await self._said_of(host)
        return re.findall(r"with `umount \S+/([0-9a-f-]{36})`", said)

    async def is_refused(self, host: str) -> bool:
        node, _ = await self._said_of(host)
        return node is not None and "the glusterds of the pool refuse it" in node.status.message

    async def _said_of(self, host: str) -> tuple[StorageNode | None, str]:
        node = next((one for one in await self.nodes() if one.metadata.name == f"node-{host}"), None)
        said = [node.status, *(await self._store.list(StorageStatus, NAMESPACE)).items] if node is not None else []
        return node, str(said)

    async def give_up_disk(self, host: str, name: str) -> None:
        """Its content may be lost: as a node with a disk that is gone says when nobody else is known to be whole."""

        def consented(node: StorageNode) -> StorageNode:
            wipe = tuple(dict.fromkeys((*node.spec.wipe, name)))
            return replace(node, spec=replace(node.spec, wipe=wipe))

        await modify(self._store, StorageNode, f"node-{host}", NAMESPACE, consented)
        self._count("give up disk")

    async def claim(self, name: str) -> None:
        size = entropy.source().choice(("1Gi", "2Gi"))
        metadata = ObjectMeta(name=name, namespace=NAMESPACE)
        spec = PersistentVolumeClaimSpec(
            access_modes=("ReadWriteMany",),
            storage_class_name=f"{NAMESPACE}-{TYPE}-default",
            resources=VolumeResourceRequirements(requests={"storage": size}),
        )
        await self._store.create(PersistentVolumeClaim(metadata=metadata, spec=spec))
        self._count("claim")

    async def by_hand(self, address: str, *words: str) -> None:
        async with asyncio.timeout(60):
            await begin(self._verbs, address, ("gluster", *words))

    async def nodes(self) -> tuple[StorageNode, ...]:
        return tuple((await self._store.list(StorageNode, NAMESPACE)).items)

    async def _declare_node(self) -> None:
        declared = [node.metadata.name for node in await self.nodes()]
        free = [host for host, one in self._machines.items() if not one.destroyed and f"node-{host}" not in declared]
        if free:
            await self.declare(entropy.source().choice(free))
            self._count("node added")

    async def _remove_node(self) -> None:
        """One, or two at once, where enough others are left to take what they hold."""
        staying = [node for node in await self.nodes() if not node.metadata.deletion_timestamp]
        alive = [node for node in staying if not self._machines[_host(node)].destroyed]
        most = min(len(alive) - LEAST_NODES, entropy.source().randint(1, 2))
        chosen = entropy.source().sample(alive, max(0, most))
        for node in chosen:
            self._machines[_host(node)].leaving = True
        for node in chosen:
            await self._store.delete(StorageNode, node.metadata.name, NAMESPACE)
            self._count("node removed")

    async def _give_up_node(self) -> None:
        for node in await self.nodes():
            if self._machines[_host(node)].destroyed:
                await self.give_up(_host(node))

    async def _claim(self) -> None:
        await self.claim(entropy.source().choice(CLAIMS))

    async def _unclaim(self) -> None:
        await self._store.delete(PersistentVolumeClaim, entropy.source().choice(CLAIMS), NAMESPACE)
        self._count("unclaim")

    async def _retain(self) -> None:
        """Some time after its claim is gone: it waits only while a host is away."""
        if not any(machine.down for machine in self._machines.values()):
            return
        claims = [one.metadata.name for one in (await self._store.list(PersistentVolumeClaim, NAMESPACE)).items]
        if claims and entropy.source().random() < 0.7:
            await self._store.delete(PersistentVolumeClaim, entropy.source().choice(claims), NAMESPACE)
            await asyncio.sleep(entropy.source().uniform(0.0, WAITED_S))
        released = [one for one in await self._volumes() if one.status.phase == RELEASED and _policy(one) == DELETE]
        if released:
            await self._set_policy(entropy.source().choice(released).metadata.name, RETAIN)
            self._count("retain")

    async def let_go_of_retained(self) -> None:
        """What was kept is not wanted any more."""
        for volume in [one for one in await self._volumes() if _policy(one) == RETAIN]:
            await self._set_policy(volume.metadata.name, DELETE)

    async def _volumes(self) -> tuple[PersistentVolume, ...]:
        return tuple((await self._store.list(PersistentVolume)).items)

    async def _set_policy(self, name: str, policy: str) -> None:
        def changed(volume: PersistentVolume) -> PersistentVolume:
            return replace(volume, spec=replace(volume.spec, persistent_volume_reclaim_policy=policy))

        await modify(self._store, PersistentVolume, name, "", changed)

    async def _probe_by_hand(self) -> None:
        """Somebody takes a host of his own into the pool, with a volume on it."""
        members = [one for one in self._addresses.values() if self._verbs.members(one) >= LEAST_NODES]
        if not members:
            return
        address = entropy.source().choice(members)
        await self.by_hand(address, "peer", "probe", STRANGER)
        await self.by_hand(STRANGER, "volume", "create", PHOTOS, f"{STRANGER}:/srv/{PHOTOS}")
        self._count("probe by hand")

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1


def _policy(volume: PersistentVolume) -> str:
    return volume.spec.persistent_volume_reclaim_policy


def _host(node: StorageNode) -> str:
    return node.metadata.name.removeprefix("node-")
