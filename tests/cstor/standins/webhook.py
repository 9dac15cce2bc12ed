"""What the admission webhook of OpenEBS refuses, written from its rules and not from ours.

In a cluster it stands before the API server. Here it is a store that refuses: whoever writes through a `Guarded` store
meets it. What was refused is remembered, for the program that is tested must never ask for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from quartermaster.resources import Node
from quartermaster.resources.codec import from_document
from quartermaster.resources.openebs import (
    POOL_CLUSTER_LABEL,
    POOL_INSTANCE_LABEL,
    PREDECESSOR_ANNOTATION,
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorVolumeReplica,
    PoolSpec,
)
from quartermaster.stores.base import Store
from quartermaster.support.errors import NotFoundError, RefusedError

Groups = list[list[str]]


class Guarded:
    """A store with the webhook before it; `refused` lists the reasons, in the order in which they came up."""

    def __init__(self, store: Store, refused: list[str]) -> None:
        self._store = store
        self.refused = refused

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, obj: Any, **options: Any) -> Any:
        if isinstance(obj, CStorPoolCluster):
            await self._judge(None, obj)
        return await self._store.create(obj, **options)

    async def update(self, obj: Any, **options: Any) -> Any:
        if isinstance(obj, CStorPoolCluster):
            await self._judge(await self._stored(obj.metadata.name, obj.metadata.namespace), obj)
        return await self._store.update(obj, **options)

    async def apply(self, document: dict[str, Any], **options: Any) -> Any:
        if document["kind"] == "CStorPoolCluster" and "spec" in document:
            new = from_document(CStorPoolCluster, document)
            await self._judge(await self._stored(new.metadata.name, new.metadata.namespace), new)
        return await self._store.apply(document, **options)

    async def delete(self, kind: type[Any], name: str, namespace: str = "", **options: Any) -> Any:
        if kind is CStorPoolCluster and (held := await replicas_of(self._store, name, namespace)):
            self._refuse(f"{name} is deleted while {', '.join(held)} are in its pools")
        return await self._store.delete(kind, name, namespace, **options)

    async def _stored(self, name: str, namespace: str) -> CStorPoolCluster | None:
        try:
            return await self._store.get(CStorPoolCluster, name, namespace)
        except NotFoundError:
            return None

    async def _judge(self, old: CStorPoolCluster | None, new: CStorPoolCluster) -> None:
        if old is not None and (old.spec.pools == new.spec.pools or old.metadata.deletion_timestamp):
            return
        world = await World.of(self._store, new)
        for reason in (*new_problems(new, world), *(update_problems(old, new, world) if old is not None else ())):
            self._refuse(reason)

    def _refuse(self, reason: str) -> None:
        self.refused.append(reason)
        raise RefusedError(f"admission webhook denied the request: {reason}")


class World:
    """What the webhook reads from the API server before it judges."""

    nodes: dict[str, Node]
    devices: dict[str, BlockDevice]
    claims: dict[str, BlockDeviceClaim]  # by device
    replicas: dict[str, list[str]]  # by device: what the pool with that device holds

    @classmethod
    async def of(cls, store: Store, cluster: CStorPoolCluster) -> World:
        world, namespace = cls(), cluster.metadata.namespace
        world.nodes = {node.metadata.name: node for node in (await store.list(Node)).items}
        world.devices = {d.metadata.name: d for d in (await store.list(BlockDevice, namespace)).items}
        claims = (await store.list(BlockDeviceClaim, namespace)).items
        world.claims = {claim.spec.block_device_name: claim for claim in claims}
        world.replicas = {}
        held = [r.metadata.labels.get(POOL_INSTANCE_LABEL) for r in (await store.list(CStorVolumeReplica)).items]
        for instance in (await store.list(CStorPoolInstance, namespace)).items:
            if instance.metadata.name in held:
                for group in instance.spec.data_raid_groups:
                    world.replicas.update({d.block_device_name: [instance.metadata.name] for d in group.block_devices})
        return world


async def replicas_of(store: Store, cluster: str, namespace: str) -> list[str]:
    """The volume replicas in the pools of a cluster, as the store itself has them."""
    selector = f"{POOL_CLUSTER_LABEL}={cluster}"
    instances = {i.metadata.name for i in (await store.list(CStorPoolInstance, namespace, labels=selector)).items}
    found = (await store.list(CStorVolumeReplica, namespace)).items
    return [r.metadata.name for r in found if r.metadata.labels.get(POOL_INSTANCE_LABEL) in instances]


def groups_of(pool: PoolSpec) -> Groups:
    return [[device.block_device_name for device in group.block_devices] for group in pool.data_raid_groups]


def cache_of(pool: PoolSpec) -> Groups:
    return [[device.block_device_name for device in group.block_devices] for group in pool.write_cache_raid_groups]


def new_problems(cluster: CStorPoolCluster, world: World) -> Iterator[str]:
    """What is wrong with the pools as they are, whatever was before."""
    nodes: set[str] = set()
    used: set[str] = set()
    for pool in cluster.spec.pools:
        found = [n for n in world.nodes.values() if pool.node_selector.items() <= n.metadata.labels.items()]
        if len(found) != 1:
            yield f"nodeSelector {pool.node_selector} matches {len(found)} nodes"
            continue
        (node,) = found
        if node.metadata.name in nodes:
            yield f"two pools on node {node.metadata.name}"
        nodes.add(node.metadata.name)
        yield from _sizes(pool.pool_config.data_raid_group_type, groups_of(pool))
        if pool.write_cache_raid_groups:
            yield from _sizes(pool.pool_config.write_cache_group_type, cache_of(pool))
        for name in (name for group in (*groups_of(pool), *cache_of(pool)) for name in group):
            if name in used:
                yield f"device {name} is used twice"
            used.add(name)
            yield from _device_problems(name, node, cluster, world)


def _sizes(kind: str, groups: Groups) -> Iterator[str]:
    if kind not in ("stripe", "mirror", "raidz", "raidz2"):
        yield f"there is no raid type {kind}"
    if kind == "stripe" and len(groups) != 1:
        yield "a stripe has one group"
    for group in groups:
        parity = {"raidz": 1, "raidz2": 2}.get(kind)
        rest = len(group) - (parity or 0)
        fits = len(group) % 2 == 0 if kind == "mirror" else rest > 1 and math.log2(rest) % 1 == 0 if parity else group
        if not fits:
            yield f"a group of {len(group)} is none for {kind}"


def _device_problems(name: str, node: Node, cluster: CStorPoolCluster, world: World) -> Iterator[str]:
    device = world.devices.get(name)
    if device is None:
        yield f"device {name} does not exist"
        return
    if device.status.state != "Active":
        yield f"device {name} is {device.status.state}"
    if device.metadata.labels.get("kubernetes.io/hostname") != node.metadata.labels.get("kubernetes.io/hostname"):
        yield f"device {name} is not on node {node.metadata.name}"
    if device.spec.filesystem.fs_type not in ("", "zfs_member"):
        yield f"device {name} has a file system"
    tag = device.metadata.labels.get("openebs.io/block-device-tag")
    allowed = cluster.metadata.annotations.get("openebs.io/allowed-bd-tags", "").split(",")
    if tag is not None and (not tag.strip() or tag not in [one.strip() for one in allowed]):
        yield f'device {name} has the tag "{tag}"'
    claim = world.claims.get(name)
    if device.spec.claim_ref is not None:
        owner = claim.metadata.labels.get(POOL_CLUSTER_LABEL) if claim is not None else None
        if owner != cluster.metadata.name:
            yield f"device {name} is claimed by {owner or 'somebody else'}"


def update_problems(old: CStorPoolCluster, new: CStorPoolCluster, world: World) -> Iterator[str]:
    for before in old.spec.pools:
        after = _same_pool(before, new)
        first = groups_of(before)[0][0]
        if after is None:
            if world.replicas.get(first):
                yield f"a pool that holds volume replicas is removed: {world.replicas[first][0]}"
            continue
        kind = before.pool_config.data_raid_group_type
        if kind != after.pool_config.data_raid_group_type:
            yield f"the raid type changes from {kind} to {after.pool_config.data_raid_group_type}"
        if before.pool_config.write_cache_group_type != after.pool_config.write_cache_group_type:
            yield "the type of the write cache changes"
        cache = before.pool_config.write_cache_group_type
        for type_, olds, news in (
            (kind, groups_of(before), groups_of(after)),
            (cache, cache_of(before), cache_of(after)),
        ):
            if len(news) < len(olds):
                yield "a group is removed"
            for old_group, new_group in zip(olds, news, strict=False):
                yield from _group_problems(type_, old_group, new_group, world)


def _same_pool(pool: PoolSpec, cluster: CStorPoolCluster) -> PoolSpec | None:
    """By its node; one that moved by its devices, of which it keeps every one."""
    same_node = [other for other in cluster.spec.pools if other.node_selector == pool.node_selector]
    same_devices = [other for other in cluster.spec.pools if groups_of(other) == groups_of(pool)]
    return next(iter((*same_node, *same_devices)), None)


def _group_problems(kind: str, old: list[str], new: list[str], world: World) -> Iterator[str]:
    gone = [name for name in old if name not in new]
    come = [name for name in new if name not in old]
    if len(new) < len(old) or (kind != "stripe" and len(new) != len(old)):
        yield f"a group of {kind} goes from {len(old)} disks to {len(new)}"
    if not gone:
        if new[: len(old)] != old:
            yield "disks that stay change their places"
        return
    if kind == "stripe":
        yield f"{gone[0]} is replaced in a stripe"
        return
    if len(gone) > 1:
        yield f"{' and '.join(gone)} of one group are replaced at once"
        return
    if any(PREDECESSOR_ANNOTATION in world.claims[name].metadata.annotations for name in old if name in world.claims):
        yield f"{gone[0]} is replaced while another replacement is in progress"
    there = world.devices.get(gone[0])
    if there is None:
        yield f"{gone[0]} is replaced and does not exist any more"
    elif world.devices[come[0]].spec.capacity.storage < there.spec.capacity.storage:
        yield f"{come[0]} is smaller than {gone[0]}"
    if old.index(gone[0]) != new.index(come[0]):
        yield f"{come[0]} does not take the place of {gone[0]}"
