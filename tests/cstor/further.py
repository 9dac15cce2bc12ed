"""Workflows beyond those that a live installation is driven through: other disks, and what must not be hurried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from msgspec.structs import replace

from quartermaster.backends.cstor.reasons import BEYOND_OPENEBS, NODE_CHANGE_HELD, READY
from quartermaster.backends.cstor.view import SPARE, role_of
from quartermaster.hooks.conformance import hands
from quartermaster.hooks.conformance.site import NODE_LABEL, ScenarioFailedError, Site, require
from quartermaster.resources import ObjectMeta, Storage, VolumeAttachment
from quartermaster.resources.agility import CacheConfig, CStorClusterConfigSpec, DiskConfig, LocalDisks, PoolConfig
from quartermaster.resources.openebs import (
    INACTIVE,
    POOL_INSTANCE_LABEL,
    VOLUME_LABEL,
    BlockDevice,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorVolumeReplica,
    CStorVolumeReplicaStatus,
    RaidGroup,
)
from quartermaster.resources.selectors import LabelSelector
from quartermaster.stores.modify import modify

from .standins import ATTACHER, IMMEDIATE

USE_LABEL = "use"


async def local_disks(site: Site) -> None:
    """Disks that exist become pools, with the fast one that was selected as a write cache; a lost one is followed."""
    await hands.take_nodes(site, "n1", "n2", "n3")
    for node in ("n1", "n2", "n3"):
        for disk in await hands.make_devices(site, node, "d1", "d2", "d3"):
            await change_disk(site, disk, drive="HDD", selected=True)
    [fast] = await hands.make_devices(site, "n1", "ssd")
    [private] = await hands.make_devices(site, "n2", "ssd")
    await change_disk(site, fast, drive="SSD", selected=True)
    await change_disk(site, private, drive="SSD", selected=False)
    declared = site.config(least=3, raid="mirror")
    selector = LabelSelector(match_labels={NODE_LABEL: site.name, USE_LABEL: "pools"})
    disks = DiskConfig(
        min_count=2, min_capacity="10Gi", local=LocalDisks(block_device_selector=selector), lost_after_seconds=0
    )
    await site.create(replace(declared, spec=replace(declared.spec, disk_config=disks)))
    await site.phase(READY)
    caches = [d.block_device_name for _, groups in await _caches(site) for g in groups for d in g.block_devices]
    require(caches == [fast], f"the write caches are {caches}")
    require(await site.storages() == (), "disks were made although they exist")
    before = await site.groups_of_pools()
    await change_disk(site, before[0][0][0], drive="HDD", selected=True, state=INACTIVE)

    async def replaced() -> bool:
        return before[0][0][0] not in (await site.groups_of_pools())[0][0]

    await site.eventually(replaced, f"replacement of {before[0][0][0]}")
    await site.phase(READY)
    untouched = await site.store.get(BlockDevice, private, site.openebs)
    require(untouched.spec.claim_ref is None, f"{private} was not selected and is claimed")
    require("dao.mayadata.io/cstorclusterconfig-uid" not in untouched.metadata.labels, f"{private} was taken")


async def change_disk(site: Site, name: str, *, drive: str, selected: bool, state: str = "") -> None:
    def change(found: BlockDevice) -> BlockDevice:
        labels = {**found.metadata.labels, **({USE_LABEL: "pools"} if selected else {})}
        details = replace(found.spec.details, drive_type=drive)
        status = replace(found.status, state=state or found.status.state)
        spec = replace(found.spec, details=details)
        return replace(found, metadata=replace(found.metadata, labels=labels), spec=spec, status=status)

    await modify(site.store, BlockDevice, name, site.openebs, change)


async def _caches(site: Site) -> list[tuple[str, tuple[RaidGroup, ...]]]:
    """Type and groups of each pool's write cache."""
    pools = (await site.pool_cluster()).spec.pools
    return [(pool.pool_config.write_cache_group_type, pool.write_cache_raid_groups) for pool in pools]


async def caches_and_spares(site: Site) -> None:
    """Caches and spares are made for every pool; a spare takes the place of a disk that is lost."""
    await hands.take_nodes(site, "n1", "n2")
    cache = CacheConfig(csi_attacher_name=ATTACHER, storage_class_name=IMMEDIATE, capacity="1Gi")
    wanted = PoolConfig(write_cache=replace(cache, count=2), read_cache=cache, spare=True)
    await site.create(site.config(least=2, raid="mirror", pool=wanted))
    await site.phase(READY)
    await site.condition(BEYOND_OPENEBS)
    require(len(await site.storages()) == 2 * (2 + 2 + 1 + 1), "not all disks were made")
    kinds = [kind for kind, groups in await _caches(site) if len(groups) == 1]
    require(kinds == ["mirror", "mirror"], f"the write caches are {kinds}")
    before = await site.groups_of_pools()
    spares = {s.status.block_device for s in await site.storages() if role_of(s) == SPARE}
    await hands.lose_disk(site, before[0][0][0])

    async def replaced() -> bool:
        first = (await site.groups_of_pools())[0][0][0]
        return first != before[0][0][0] and first in spares

    await site.eventually(replaced, f"spare in the place of {before[0][0][0]}")
    await site.phase(READY)


async def only_copies(site: Site) -> None:
    """A pool does not leave its node while a volume has no other healthy copy."""
    await hands.take_nodes(site, "n1", "n2", "n3", zones=("a",))
    await site.create(site.config(least=2, most=2))
    await site.phase(READY)
    before = await site.planned_nodes()
    spare = next(name for name in site.nodes if name not in before)
    on = {instance.spec.host_name: instance for instance in await site.instances()}
    await _copy(site, on[before[0]])
    await hands.forbid_node(site, before[0])
    message = await site.condition(NODE_CHANGE_HELD)
    require(f"has a healthy copy of {site.name}-volume" in message, f"the message does not say so: {message}")
    require(before[0] in await site.hosts_of_pools(), "the pool left with the only copy")
    await _copy(site, on[before[1]])

    async def moved() -> bool:
        return sorted(await site.hosts_of_pools()) == sorted((before[1], spare))

    await site.eventually(moved, f"pool on {spare} in place of {before[0]}")
    await site.phase(READY)


async def _copy(site: Site, instance: CStorPoolInstance) -> None:
    volume = f"{site.name}-volume"
    labels = {POOL_INSTANCE_LABEL: instance.metadata.name, VOLUME_LABEL: volume, NODE_LABEL: site.name}
    metadata = ObjectMeta(name=f"{volume}-{instance.metadata.name}", namespace=site.openebs, labels=labels)
    await site.store.create(CStorVolumeReplica(metadata=metadata, status=CStorVolumeReplicaStatus(phase="Healthy")))


async def mistakes_mended(site: Site) -> None:
    """A class that does not exist is mended in the config; a node written into a Storage detaches nothing."""
    await hands.take_nodes(site, "n1", "n2", "n3")
    declared = site.config(least=2)
    right = declared.spec.disk_config
    assert right is not None
    assert right.external_provisioner is not None
    wrong = replace(right, external_provisioner=replace(right.external_provisioner, storage_class_name="misspelt"))
    await site.create(replace(declared, spec=replace(declared.spec, disk_config=wrong)))

    async def made() -> bool:
        return len(await site.storages()) == 4

    await site.eventually(made, "Storage of each disk")

    def mend(spec: CStorClusterConfigSpec) -> CStorClusterConfigSpec:
        return replace(spec, disk_config=right)

    await site.change(mend)
    await site.phase(READY)
    storage = next(iter(await site.storages()))
    before = await site.store.get(VolumeAttachment, storage.status.volume_attachment)
    other = next(name for name in site.nodes if name != storage.spec.node_name)

    def move(found: Storage) -> Storage:
        return replace(found, spec=replace(found.spec, node_name=other))

    await modify(site.store, Storage, storage.metadata.name, site.namespace, move)

    async def back() -> bool:
        found = await site.store.get(Storage, storage.metadata.name, site.namespace)
        settled = found.status.observed_generation == found.metadata.generation and found.status.phase == READY
        return settled and found.spec.node_name == storage.spec.node_name

    await site.eventually(back, "Storage on its old node")
    after = await site.store.get(VolumeAttachment, storage.status.volume_attachment)
    require(after.metadata.uid == before.metadata.uid, "the disk was detached")


async def one_update(site: Site) -> None:
    """Disks that are lost in several groups are all replaced by a single update of the pool cluster."""
    await hands.take_nodes(site, "n1", "n2")
    await site.create(site.config(least=2, raid="mirror", disks=4, lost_after_s=5))
    await site.phase(READY)
    before = await site.groups_of_pools()
    broken = {before[0][0][0], before[0][1][1], before[1][0][0]}
    since = (await site.store.list(CStorPoolCluster, site.openebs)).revision
    for device in sorted(broken):
        await hands.lose_disk(site, device)
    names = await _first_change(site, since, _names_in(before))
    left = broken & set(names)
    require(not left, f"the first update after the loss left {', '.join(sorted(left))}")
    await site.phase(READY)
    require(_names(await site.pool_cluster()) == names, "another update followed")


async def _first_change(site: Site, since: str, before: tuple[str, ...]) -> tuple[str, ...]:
    """The devices of the pool cluster as soon as they are others."""
    changes = site.store.watch(CStorPoolCluster, site.openebs, since=since)
    async with asyncio.timeout(site.timeout_s), aclosing(changes):
        async for change in changes:
            found = change.object
            if found is not None and found.metadata.name == site.name and _names(found) != before:
                return _names(found)
    raise ScenarioFailedError("cannot go on: the watch ended before the pool cluster was changed")


def _names(cluster: CStorPoolCluster) -> tuple[str, ...]:
    groups = (group for pool in cluster.spec.pools for group in pool.data_raid_groups)
    return tuple(device.block_device_name for group in groups for device in group.block_devices)


def _names_in(pools: tuple[tuple[tuple[str, ...], ...], ...]) -> tuple[str, ...]:
    return tuple(name for pool in pools for group in pool for name in group)


FURTHER: dict[str, Callable[[Site], Awaitable[None]]] = {
    drive.__name__.replace("_", "-"): drive
    for drive in (local_disks, caches_and_spares, only_copies, mistakes_mended, one_update)
}
