"""What a scenario does to the cluster around its config: nodes, disks, pools and the volumes in them.

In a rehearsal the nodes, disks and pools are played by stand-ins through the same API. Only there may a scenario make
nodes, break disks and fill pools; on real ones it may not, and scenarios that need it are left out with that reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from quartermaster.hooks.conformance.site import NODE_LABEL, ScenarioSkippedError, Site
from quartermaster.resources import Node, ObjectMeta, PersistentVolume
from quartermaster.resources.kubernetes.core import CoreCondition, NodeStatus
from quartermaster.resources.marks import HOSTNAME_LABEL, ZONE_LABEL
from quartermaster.resources.openebs import (
    ACTIVE,
    MIRROR,
    POOL_INSTANCE_LABEL,
    UNCLAIMED,
    BlockDevice,
    BlockDeviceSpec,
    BlockDeviceStatus,
    CStorPoolCluster,
    CStorPoolClusterSpec,
    CStorPoolInstance,
    CStorPoolSettings,
    CStorVolumeReplica,
    DeviceCapacity,
    DeviceDetails,
    NodeAttributes,
    PoolBlockDevice,
    PoolCapacity,
    PoolSpec,
    RaidGroup,
)
from quartermaster.stores.modify import modify
from quartermaster.support.errors import AlreadyExistsError, NotFoundError

USABLE_LABEL = "conformance.dao.mayadata.io/use"  # on real nodes that scenarios may use
LOST_ANNOTATION = "conformance.dao.mayadata.io/lost"  # on a volume of a rehearsal: its disk is broken
_LEFT = ".left"  # after the name of a scenario: a node that it uses and that its config may not use any more


async def take_nodes(site: Site, *names: str, zones: Iterable[str] = ("a", "b", "c")) -> None:
    """Nodes with the label of this scenario: made for a rehearsal, else of those that may be used."""
    if not site.rehearsal:
        await _borrow_nodes(site, names)
        return
    known = tuple(zones)
    ready = NodeStatus(conditions=(CoreCondition(type="Ready", status="True"),))
    for number, name in enumerate(names):
        made = f"{site.name}-{name}"
        site.use_node(name, made)
        labels = {HOSTNAME_LABEL: made, NODE_LABEL: site.name, ZONE_LABEL: known[number % len(known)]}
        with suppress(AlreadyExistsError):
            await site.store.create(Node(metadata=ObjectMeta(name=made, labels=labels)))
        await modify(site.store, Node, made, "", lambda node: replace(node, status=ready), status=True)


async def _borrow_nodes(site: Site, names: Sequence[str]) -> None:
    found = (await site.store.list(Node, labels=f"{USABLE_LABEL}=true")).items
    free = [node.metadata.name for node in found if node.metadata.labels.get(NODE_LABEL, site.name) == site.name]
    if len(free) < len(names):
        raise ScenarioSkippedError(
            f"it needs {len(names)} free nodes with the label {USABLE_LABEL}=true, and there are {len(free)}"
        )
    for name, node in zip(names, free, strict=False):
        site.use_node(name, node)
        await _label_node(site, node, site.name)


async def return_nodes(site: Site) -> None:
    """What `take_nodes` made goes; what it borrowed loses its label."""
    for value in (site.name, site.name + _LEFT):
        for node in (await site.store.list(Node, labels=f"{NODE_LABEL}={value}")).items:
            if site.rehearsal:
                await site.store.delete(Node, node.metadata.name)
            else:
                await _label_node(site, node.metadata.name, None)


async def forbid_node(site: Site, name: str) -> None:
    """The node loses the label by which the config of this scenario chooses."""
    await _label_node(site, name, site.name + _LEFT)


async def _label_node(site: Site, name: str, value: str | None) -> None:
    def label(found: Node) -> Node:
        labels = {key: kept for key, kept in found.metadata.labels.items() if key != NODE_LABEL}
        if value is not None:
            labels[NODE_LABEL] = value
        return replace(found, metadata=replace(found.metadata, labels=labels))

    await modify(site.store, Node, name, "", label)


async def remove_node(site: Site, name: str) -> None:
    await site.store.delete(Node, name)


async def make_devices(site: Site, node: str, *names: str) -> tuple[str, ...]:
    """Disks of a rehearsal that are there already, on one node; their names."""
    host = site.node(node)
    devices = [
        BlockDevice(
            metadata=ObjectMeta(
                name=f"{host}-{name}", namespace=site.openebs, labels={HOSTNAME_LABEL: host, NODE_LABEL: site.name}
            ),
            spec=BlockDeviceSpec(
                path=f"/dev/{name}",
                capacity=DeviceCapacity(storage=10 << 30),
                details=DeviceDetails(device_type="disk", serial=f"{host}-{name}"),
                node_attributes=NodeAttributes(node_name=host),
            ),
            status=BlockDeviceStatus(claim_state=UNCLAIMED, state=ACTIVE),
        )
        for name in names
    ]
    for device in devices:
        await site.store.create(device)
    return tuple(device.metadata.name for device in devices)


async def remove_devices(site: Site) -> None:
    """What `make_devices` made."""
    for device in (await site.store.list(BlockDevice, site.openebs, labels=f"{NODE_LABEL}={site.name}")).items:
        await site.store.delete(BlockDevice, device.metadata.name, site.openebs)


async def make_pool_cluster(site: Site, devices: Mapping[str, Iterable[str]]) -> CStorPoolCluster:
    """A pool cluster as somebody would write it: on each node one mirror of the given devices."""
    pools = tuple(
        PoolSpec(
            node_selector={HOSTNAME_LABEL: site.node(node)},
            data_raid_groups=(
                RaidGroup(block_devices=tuple(PoolBlockDevice(block_device_name=name) for name in names)),
            ),
            pool_config=CStorPoolSettings(data_raid_group_type=MIRROR),
        )
        for node, names in devices.items()
    )
    metadata = ObjectMeta(name=site.name, namespace=site.openebs)
    return await site.store.create(CStorPoolCluster(metadata=metadata, spec=CStorPoolClusterSpec(pools=pools)))


async def remove_pool_cluster(site: Site) -> None:
    """What `make_pool_cluster` made and nobody adopted."""
    with suppress(NotFoundError):
        await site.store.delete(CStorPoolCluster, site.name, site.openebs)
        await site.eventually(lambda: site.gone(CStorPoolCluster, site.name, site.openebs), "end of its pool cluster")


async def lose_disk(site: Site, device: str) -> None:
    """The disk behind a device breaks."""

    def mark(found: PersistentVolume) -> PersistentVolume:
        annotations = {**found.metadata.annotations, LOST_ANNOTATION: "true"}
        return replace(found, metadata=replace(found.metadata, annotations=annotations))

    await modify(site.store, PersistentVolume, await site.volume_of_device(device), "", mark)


async def fill_pool(site: Site, instance: CStorPoolInstance, share: float) -> None:
    """Applications write until this share of the pool is used."""

    def fill(found: CStorPoolInstance) -> CStorPoolInstance:
        total = int(found.status.capacity.total or 0)
        used = int(total * share)
        capacity = PoolCapacity(used=used, total=total, free=total - used)
        return replace(found, status=replace(found.status, capacity=capacity))

    await modify(site.store, CStorPoolInstance, instance.metadata.name, instance.metadata.namespace, fill)


async def place_replica(site: Site, instance: CStorPoolInstance, name: str) -> None:
    """A volume's copy comes to be in a pool."""
    metadata = ObjectMeta(
        name=f"{site.name}-{name}",
        namespace=instance.metadata.namespace,
        labels={POOL_INSTANCE_LABEL: instance.metadata.name, NODE_LABEL: site.name},
    )
    await site.store.create(CStorVolumeReplica(metadata=metadata))


async def remove_replicas(site: Site) -> None:
    """The volumes of this scenario are deleted."""
    for replica in (await site.store.list(CStorVolumeReplica, site.openebs, labels=f"{NODE_LABEL}={site.name}")).items:
        with suppress(NotFoundError):
            await site.store.delete(CStorVolumeReplica, replica.metadata.name, site.openebs)
