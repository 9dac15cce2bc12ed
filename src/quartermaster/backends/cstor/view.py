"""A cStor cluster as it stands at a moment, put together from the objects that describe it.

The pool is the middle of everything: it has a slot in the plan, an entry in the pool cluster, an instance that OpenEBS
made of it, and disks. Which belongs to which is found by the disks first, for they are what stays when a pool moves,
and by the host where there are none yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from quartermaster.backends.cstor.devices import host_of, is_active
from quartermaster.backends.cstor.inventory import Inventory
from quartermaster.backends.cstor.names import (
    CONFIG_UID_LABEL,
    DISK_ANNOTATION,
    REPLACE_ANNOTATION,
    ROLE_ANNOTATION,
    SLOT_ANNOTATION,
)
from quartermaster.resources.agility import (
    ATTACHER_ANNOTATION,
    CLASS_ANNOTATION,
    CStorClusterStorageSet,
    ExternalProvisioner,
    NodeSelectorTerm,
    PlanNode,
    Storage,
)
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import Object
from quartermaster.resources.openebs import (
    DISK_REPLACEMENT,
    HEALTHY,
    ONLINE,
    POOL_CLUSTER_LABEL,
    POOL_EXPANSION,
    POOL_INSTANCE_LABEL,
    STRIPE,
    VOLUME_LABEL,
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorVolumeReplica,
    PoolSpec,
    RaidGroup,
)
from quartermaster.resources.quantity import Amount

DATA, WRITE_CACHE, READ_CACHE, SPARE = "data", "writeCache", "readCache", "spare"


class Disk(msgspec.Struct, frozen=True):
    """A disk of a slot. `device` is "" until the node shows it; `ready`: it is active on the slot's own node."""

    device: str
    role: str
    bytes: int = 0
    ready: bool = False
    storage: str = ""  # "" for one that existed already
    asked: bool = False  # its Storage asks to be replaced
    outdated: bool = False  # it never showed up, and its set names another class or attacher by now


class Copy(msgspec.Struct, frozen=True):
    """A replica of a volume in a pool. `volume` is "" where nobody says of which."""

    name: str
    volume: str = ""
    healthy: bool = False


class Pool(msgspec.Struct, frozen=True):
    """An entry of the pool cluster, with the instance that OpenEBS made of it."""

    spec: PoolSpec
    host: str
    data: tuple[tuple[str, ...], ...]
    cache: tuple[tuple[str, ...], ...]
    instance: CStorPoolInstance | None = None
    copies: tuple[Copy, ...] = ()  # of volumes; while there is one the pool must not go

    @property
    def replicas(self) -> tuple[str, ...]:
        return tuple(copy.name for copy in self.copies)

    @property
    def raid_type(self) -> str:
        return self.spec.pool_config.data_raid_group_type

    @property
    def group_size(self) -> int:
        """How many disks a group of it has; 0 for a stripe."""
        return 0 if self.raid_type == STRIPE or not self.data else len(self.data[0])

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable((*self.data, *self.cache)))

    @property
    def data_devices(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(self.data))

    @property
    def online(self) -> bool:
        return self.instance is not None and self.instance.status.phase == ONLINE

    @property
    def total_bytes(self) -> int:
        return _bytes(self.instance.status.capacity.total if self.instance is not None else None)

    @property
    def used_bytes(self) -> int:
        return _bytes(self.instance.status.capacity.used if self.instance is not None else None)

    @property
    def busy(self) -> bool:
        """Whether OpenEBS is still replacing a disk of it or expanding it."""
        return self.instance is not None and any(
            c.status == "True" and c.type in (DISK_REPLACEMENT, POOL_EXPANSION) for c in self.instance.status.conditions
        )


def _bytes(quantity: str | int | None) -> int:
    return Amount.of(quantity).bytes if quantity is not None else 0


class Slot(msgspec.Struct, frozen=True):
    """A pool that is planned. `host` is the hostname label of its node, "" when the node is gone."""

    number: int
    node: PlanNode
    host: str
    disks: tuple[Disk, ...] = ()
    pool: Pool | None = None
    reachable: tuple[tuple[NodeSelectorTerm, ...], ...] = ()  # per disk: the nodes from which it can be reached

    @property
    def replicas(self) -> tuple[str, ...]:
        return self.pool.replicas if self.pool is not None else ()

    @property
    def settled(self) -> bool:
        """Whether the pool stands where it is planned."""
        return self.pool is not None and self.pool.host == self.host

    def of_role(self, *roles: str) -> tuple[Disk, ...]:
        return tuple([disk for role in roles for disk in self.disks if disk.role == role])


class Cluster(msgspec.Struct, frozen=True):
    """Everything that is known of one cStor cluster."""

    namespace: str  # where OpenEBS is
    inventory: Inventory
    pool_cluster: CStorPoolCluster | None
    pools: tuple[Pool, ...]
    slots: tuple[Slot, ...]
    claims: Mapping[str, BlockDeviceClaim]  # of this cluster, by BlockDevice
    replicas: tuple[str, ...] = ()

    @property
    def surplus(self) -> tuple[Pool, ...]:
        """Pools that stand and are not planned."""
        planned = {slot.pool.host for slot in self.slots if slot.pool is not None}
        return tuple(pool for pool in self.pools if pool.host not in planned)

    def device(self, name: str) -> BlockDevice | None:
        return self.inventory.device(self.namespace, name)


def pools_of(
    pool_cluster: CStorPoolCluster | None,
    instances: Iterable[CStorPoolInstance],
    replicas: Iterable[CStorVolumeReplica],
    inventory: Inventory,
) -> tuple[tuple[Pool, ...], tuple[str, ...]]:
    """The pools in their order, and all volume replicas of the cluster.

    A replica whose instance cannot be found counts for every pool without one: better none goes than the wrong one.
    """
    name = pool_cluster.metadata.name if pool_cluster is not None else ""
    own = [i for i in instances if i.metadata.labels.get(POOL_CLUSTER_LABEL) == name] if name else []
    seen: dict[str, list[Copy]] = {instance.metadata.name: [] for instance in own}
    strays: list[Copy] = []
    for replica in replicas:
        holder = replica.metadata.labels.get(POOL_INSTANCE_LABEL, "")
        if holder in seen:
            seen[holder].append(_copy_of(replica))
        elif name and holder.rpartition("-")[0] == name:
            strays.append(_copy_of(replica))
    by_instance = {instance.metadata.name: _copies_in(instance, seen[instance.metadata.name]) for instance in own}
    found = []
    for spec in pool_cluster.spec.pools if pool_cluster is not None else ():
        host = host_of_pool(spec, inventory)
        instance = _instance_of(spec, host, own)
        held = strays if instance is None else by_instance[instance.metadata.name]
        found.append(
            Pool(
                spec=spec,
                host=host,
                data=names_of(spec.data_raid_groups),
                cache=names_of(spec.write_cache_raid_groups),
                instance=instance,
                copies=tuple(held),
            )
        )
    everything = (*(copy.name for held in by_instance.values() for copy in held), *(copy.name for copy in strays))
    return tuple(found), tuple(sorted(everything))


def _copy_of(replica: CStorVolumeReplica) -> Copy:
    meta = replica.metadata
    healthy = replica.status.phase == HEALTHY and meta.deletion_timestamp is None
    return Copy(meta.name, meta.labels.get(VOLUME_LABEL, ""), healthy)


def _copies_in(instance: CStorPoolInstance, known: Sequence[Copy]) -> Sequence[Copy]:
    """By the replicas themselves, or by the number that OpenEBS reports, whichever says more."""
    missing = instance.status.provisioned_replicas - len(known)
    return known if missing <= 0 else (*known, *(Copy(f"{instance.metadata.name}#{n}") for n in range(missing)))


def host_of_pool(spec: PoolSpec, inventory: Inventory) -> str:
    """The host that the selector names, or that of the one node that has the labels."""
    named = spec.node_selector.get(HOSTNAME_LABEL)
    if named is not None or not spec.node_selector:
        return named or ""
    nodes = inventory.matching(spec.node_selector)
    return nodes[0].hostname if len(nodes) == 1 else ""


def names_of(groups: Iterable[RaidGroup]) -> tuple[tuple[str, ...], ...]:
    return tuple([tuple([device.block_device_name for device in group.block_devices]) for group in groups])


def _instance_of(spec: PoolSpec, host: str, instances: Sequence[CStorPoolInstance]) -> CStorPoolInstance | None:
    wanted = {name for group in names_of(spec.data_raid_groups) for name in group}
    for instance in instances:
        if any(wanted.intersection(group) for group in names_of(instance.spec.data_raid_groups)):
            return instance
    if not host:
        return None
    return next((i for i in instances if host in (i.spec.host_name, i.metadata.labels.get(HOSTNAME_LABEL))), None)


def slots_of(
    nodes: Iterable[PlanNode],
    sets: Iterable[CStorClusterStorageSet],
    storages: Iterable[Storage],
    pools: Sequence[Pool],
    inventory: Inventory,
    *,
    namespace: str,
    config_uid: str,
) -> tuple[Slot, ...]:
    """The slots of a plan. Nodes of an older plan without numbers are numbered in their order."""
    sources = {(slot_of(s), s.spec.role or DATA): s.spec.external_provisioner for s in sets}
    by_slot: dict[int, list[tuple[Storage, bool]]] = {}
    for storage in storages:
        number = slot_of(storage)
        outdated = _is_outdated(storage, sources.get((number, role_of(storage))))
        by_slot.setdefault(number, []).append((storage, outdated))
    nodes = tuple(nodes)
    taken = {node.slot for node in nodes if node.slot is not None}
    free = (number for number in range(len(nodes) + len(taken)) if number not in taken)
    found: list[Slot] = []
    for node in nodes:
        number = node.slot if node.slot is not None else next(free)
        known = inventory.node(node.name, node.uid)
        slot = Slot(number, _numbered(node, number), known.hostname if known is not None else "")
        found.append(_with_disks(slot, by_slot.get(number, ()), inventory, namespace=namespace, config_uid=config_uid))
    return _with_pools(found, pools)


def _numbered(node: PlanNode, number: int) -> PlanNode:
    return node if node.slot == number else msgspec.structs.replace(node, slot=number)


def slot_of(obj: Object) -> int:
    """The slot to which a Storage or a set belongs, -1 where it does not say."""
    text = obj.metadata.annotations.get(SLOT_ANNOTATION, "")
    return int(text) if text.isdecimal() else -1


def role_of(storage: Storage) -> str:
    return storage.metadata.annotations.get(ROLE_ANNOTATION, DATA)


def wants_replacement(storage: Storage) -> bool:
    return storage.metadata.annotations.get(REPLACE_ANNOTATION) == "true"


def _is_outdated(storage: Storage, source: ExternalProvisioner | None) -> bool:
    """Whether it waits for a disk in vain: none has come yet, and none would be asked for in this way any more."""
    if source is None or storage.status.block_device:
        return False
    annotations = storage.metadata.annotations
    given = (annotations.get(ATTACHER_ANNOTATION), annotations.get(CLASS_ANNOTATION))
    return given != (source.csi_attacher_name, source.storage_class_name)


def _with_disks(
    slot: Slot, storages: Iterable[tuple[Storage, bool]], inventory: Inventory, *, namespace: str, config_uid: str
) -> Slot:
    """The slot with its disks in the order of their place: those that were made for it, then those that existed.

    One that existed is ready only when its label shows that it was taken for this cluster: nobody else does then.
    """
    disks, reachable = [], []
    for storage, outdated in sorted(storages, key=lambda known: _place_of(known[0])):
        if storage.metadata.name in slot.node.replaced:
            continue
        name = storage.status.block_device
        device = inventory.device(namespace, name) if name else None
        disk = _disk(name, role_of(storage), device, slot.host, storage.metadata.name)
        disks.append(msgspec.structs.replace(disk, asked=wants_replacement(storage), outdated=outdated))
        reachable.append(storage.status.reachable_from)
    for role, names in ((DATA, slot.node.block_devices), (WRITE_CACHE, slot.node.write_cache)):
        for name in names:
            device = inventory.device(namespace, name)
            disk = _disk(name, role, device, slot.host)
            taken = device is not None and device.metadata.labels.get(CONFIG_UID_LABEL) == config_uid
            disks.append(disk if taken else msgspec.structs.replace(disk, ready=False))
    return msgspec.structs.replace(slot, disks=tuple(disks), reachable=tuple(filter(None, reachable)))


def _place_of(storage: Storage) -> tuple[str, int, str]:
    place = storage.metadata.annotations.get(DISK_ANNOTATION, "")
    return (
        role_of(storage),
        int(place) if place.isdecimal() else 0,
        storage.metadata.name,
    )


def _disk(name: str, role: str, device: BlockDevice | None, host: str, storage: str = "") -> Disk:
    size = device.spec.capacity.storage if device is not None else 0
    ready = device is not None and is_active(device) and bool(host) and host_of(device) == host
    return Disk(device=name, role=role, bytes=size, ready=ready, storage=storage)


def _with_pools(slots: Sequence[Slot], pools: Sequence[Pool]) -> tuple[Slot, ...]:
    by_device = {name: pool for pool in pools for name in pool.devices}
    by_host = {pool.host: pool for pool in pools}
    matched: dict[int, Pool] = {}
    used: set[str] = set()
    for slot in slots:
        known = (*(disk.device for disk in slot.disks), *slot.node.lost_devices)
        pool = next((by_device[name] for name in known if name in by_device), None)
        if pool is not None and pool.host not in used:
            matched[slot.number] = pool
            used.add(pool.host)
    for slot in slots:
        if slot.number not in matched and slot.host in by_host and slot.host not in used:
            matched[slot.number] = by_host[slot.host]
            used.add(slot.host)
    return tuple(msgspec.structs.replace(slot, pool=matched.get(slot.number)) for slot in slots)
