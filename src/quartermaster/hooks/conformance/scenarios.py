"""The workflows of a cStor cluster as scenarios. Each drives one cluster of its own, and fails with a sentence.

A scenario says what it does to the cluster and what must then be seen; it knows nothing of how that comes about.
Scenarios that need a `rehearsal` make nodes and break things, which is done to stand-ins only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from msgspec.structs import replace

from quartermaster.backends.cstor.reasons import DEGRADED, DELETION_BLOCKED, DISK_LOST, READY, REPLACEMENT_OFFERED
from quartermaster.hooks.conformance import hands
from quartermaster.hooks.conformance.site import NODE_LABEL, ScenarioFailedError, Site, require
from quartermaster.resources import CStorClusterConfig, CStorClusterPlan, PersistentVolumeClaim, VolumeAttachment
from quartermaster.resources.agility import (
    AllowedNodes,
    CStorClusterConfigSpec,
    DiskConfig,
    ExpansionThreshold,
    LocalDisks,
    NodeSelectorTerm,
    PoolConfig,
    PoolExpansion,
)
from quartermaster.resources.openebs import CStorPoolCluster, CStorPoolInstance
from quartermaster.resources.selectors import LabelSelector

Drive = Callable[[Site], Awaitable[None]]


class Scenario(msgspec.Struct, frozen=True):
    name: str
    about: str
    drive: Drive
    breaks: bool  # whether it breaks or plays something, and so needs a rehearsal


SCENARIOS: dict[str, Scenario] = {}


def scenario(*, breaks: bool) -> Callable[[Drive], Drive]:
    """The first line of the docstring is what people read."""

    def register(drive: Drive) -> Drive:
        name = drive.__name__.replace("_", "-")
        about = (drive.__doc__ or "").strip().splitlines()[0]
        SCENARIOS[name] = Scenario(name, about, drive, breaks)
        return drive

    return register


@scenario(breaks=False)
async def creation(site: Site) -> None:
    """A config becomes as many pools as it asks for, each on a node of its own."""
    await hands.take_nodes(site, "n1", "n2", "n3", "n4")
    await site.create(site.config(least=3))
    config = await site.phase(READY)
    hosts = await site.hosts_of_pools()
    require(len(set(hosts)) == 3, f"3 pools on 3 nodes were asked for, and they are on {', '.join(hosts)}")
    require(sorted(hosts) == sorted(await site.planned_nodes()), "the pools are not on the nodes of the plan")
    pools = config.status.pools
    require(pools is not None and pools.ready == 3, f"the status does not count 3 pools that are ready: {pools}")
    plan = await site.plan()
    uid = plan.metadata.annotations.get("dao.mayadata.io/cstorclusterconfig-uid")
    require(uid == config.metadata.uid, "the plan does not bear the uid of its config")
    require(len(await site.storages()) == 6, "3 pools of 2 disks need 6 Storages")


@scenario(breaks=True)
async def deletion(site: Site) -> None:
    """Deleting waits, with the reason, while volumes have copies in the pools; then everything goes, in order."""
    await hands.take_nodes(site, "n1", "n2", "n3")
    await site.create(site.config(least=3))
    await site.phase(READY)
    claims = [storage.status.persistent_volume_claim for storage in await site.storages()]
    attachments = [storage.status.volume_attachment for storage in await site.storages()]
    await hands.place_replica(site, (await site.instances())[0], "volume-1")
    await site.delete()
    message = await site.condition(DELETION_BLOCKED)
    require("volume-1" in message, f"the message does not name the volume's copy: {message}")
    require(len((await site.pool_cluster()).spec.pools) == 3, "a pool went although a volume has a copy there")
    await hands.remove_replicas(site)
    await _all_gone(site)
    for kind, names, namespace in (
        (PersistentVolumeClaim, claims, site.namespace),
        (VolumeAttachment, attachments, ""),
    ):
        left = [name for name in names if not await site.gone(kind, name, namespace)]
        require(not left, f"left over: {', '.join(left)}")


@scenario(breaks=True)
async def max_pools_changed(site: Site) -> None:
    """Lowering maxPoolCount drops a pool that holds nothing; raising it is headroom and adds nothing."""
    await hands.take_nodes(site, "n1", "n2", "n3", "n4")
    await site.create(site.config(least=3, most=3))
    await site.phase(READY)
    full = (await site.instances())[:2]
    for number, instance in enumerate(full):
        await hands.place_replica(site, instance, f"volume-{number}")
    await site.change(lambda spec: replace(spec, min_pool_count=1, max_pool_count=2))

    async def two_left() -> bool:
        return len(await site.instances()) == 2

    await site.eventually(two_left, "cluster of two pools")
    await site.phase(READY)
    left = {instance.metadata.name for instance in await site.instances()}
    require(left == {instance.metadata.name for instance in full}, "a pool that holds copies of volumes was dropped")
    await site.change(lambda spec: replace(spec, max_pool_count=4))
    await site.phase(READY)
    require(len(await site.instances()) == 2, "raising maxPoolCount added a pool by itself")


@scenario(breaks=False)
async def node_labels_changed(site: Site) -> None:
    """A node that loses its label leaves, and another one takes over its place."""
    await hands.take_nodes(site, "n1", "n2", "n3", "n4")
    await site.create(site.config(least=3, most=3))
    await site.phase(READY)
    before = await site.planned_nodes()
    spare = next(name for name in site.nodes if name not in before)
    await hands.forbid_node(site, before[0])

    async def moved() -> bool:
        return sorted(await site.hosts_of_pools()) == sorted({*before[1:], spare})

    await site.eventually(moved, f"pool on {spare} in place of {before[0]}")
    await site.phase(READY)


@scenario(breaks=False)
async def selector_changed(site: Site) -> None:
    """A selector that allows other nodes moves the pools that have to, one after the other."""
    await hands.take_nodes(site, "n1", "n2", "n3", "n4")
    await site.create(site.config(least=2, most=2))
    await site.phase(READY)
    before = await site.planned_nodes()
    kept = before[1]
    others = [name for name in site.nodes if name not in before]
    allowed = (kept, others[0])

    def only_these(spec: CStorClusterConfigSpec) -> CStorClusterConfigSpec:
        terms = tuple(NodeSelectorTerm(match_labels={"kubernetes.io/hostname": name}) for name in allowed)
        return replace(spec, allowed_nodes=AllowedNodes(node_selector_terms=terms))

    await site.change(only_these)

    async def moved() -> bool:
        return sorted(await site.hosts_of_pools()) == sorted(allowed)

    await site.eventually(moved, f"pools on {' and '.join(allowed)}")
    await site.phase(READY)


@scenario(breaks=True)
async def node_removed(site: Site) -> None:
    """The pool of a node that is gone is found on another one, with the same disks."""
    await hands.take_nodes(site, "n1", "n2", "n3", "n4", zones=("a",))
    await site.create(site.config(least=3, most=3))
    await site.phase(READY)
    before = await site.planned_nodes()
    gone = before[0]
    devices = await _devices_on(site, gone)
    await hands.remove_node(site, gone)
    spare = next(name for name in site.nodes if name not in before)

    async def moved() -> bool:
        return spare in await site.hosts_of_pools() and gone not in await site.hosts_of_pools()

    await site.eventually(moved, f"pool on {spare} in place of {gone}")
    await site.phase(READY)
    require(await _devices_on(site, spare) == devices, "the disks did not move with their pool")


@scenario(breaks=True)
async def disks_lost(site: Site) -> None:
    """Disks that broke, one in each of several groups, are all replaced, and each replacement takes the old place."""
    await hands.take_nodes(site, "n1", "n2", "n3")
    await site.create(site.config(least=3, raid="mirror", disks=4))
    await site.phase(READY)
    before = await site.groups_of_pools()
    broken = (before[0][0][0], before[0][1][1], before[1][0][0])
    for device in broken:
        await hands.lose_disk(site, device)

    async def replaced() -> bool:
        now = await site.groups_of_pools()
        return not any(device in group for pool in now for group in pool for device in broken)

    await site.eventually(replaced, f"replacement of {', '.join(broken)}")
    await site.phase(READY)
    after = await site.groups_of_pools()
    for old_pool, new_pool in zip(before, after, strict=True):
        for old_group, new_group in zip(old_pool, new_pool, strict=True):
            for old, new in zip(old_group, new_group, strict=True):
                require(old == new or old in broken, f"{old} was well and is not in its place any more")


@scenario(breaks=True)
async def group_lost(site: Site) -> None:
    """Two disks lost in one mirror cannot be mended: the cluster says so and leaves the group as it is."""
    await hands.take_nodes(site, "n1", "n2", "n3")
    await site.create(site.config(least=3, raid="mirror", disks=2, lost_after_s=5))
    await site.phase(READY)
    before = await site.groups_of_pools()
    for device in before[0][0]:
        await hands.lose_disk(site, device)
    await site.phase(DEGRADED)
    message = await site.condition(DISK_LOST)
    require(all(device in message for device in before[0][0]), f"the message does not name both disks: {message}")
    require(await site.groups_of_pools() == before, "the groups were changed although they cannot be mended")


@scenario(breaks=True)
async def expansion(site: Site) -> None:
    """A pool that is filled beyond the threshold gets one more group, the others stay as they are."""
    await hands.take_nodes(site, "n1", "n2", "n3")
    grows = PoolConfig(pool_expansion=PoolExpansion(threshold=ExpansionThreshold(used_capacity=0.80)))
    await site.create(site.config(least=3, raid="mirror", disks=2, pool=grows))
    await site.phase(READY)
    before = await site.groups_of_pools()
    full = await _instance_with(site, before[0][0][0])
    await hands.fill_pool(site, full, 0.79)
    await site.phase(READY)
    require(await site.groups_of_pools() == before, "a pool was expanded below the threshold")
    await hands.fill_pool(site, full, 0.81)

    async def grown() -> bool:
        return len((await site.groups_of_pools())[0]) == 2

    await site.eventually(grown, "second group in the pool that is full")
    await site.phase(READY)
    after = await site.groups_of_pools()
    require(after[0][0] == before[0][0], "the first group did not stay as it was")
    require(after[1:] == before[1:], "a pool that is not full was changed")


@scenario(breaks=True)
async def expansion_disabled(site: Site) -> None:
    """With poolExpansion.disable a full pool is left as it is."""
    await hands.take_nodes(site, "n1", "n2", "n3")
    stays = PoolConfig(pool_expansion=PoolExpansion(disable=True))
    await site.create(site.config(least=3, raid="mirror", disks=2, pool=stays))
    await site.phase(READY)
    before = await site.groups_of_pools()
    await hands.fill_pool(site, await _instance_with(site, before[0][0][0]), 0.95)
    # Whatever the controller does about it, it does before it has seen a later change of the config.
    await site.change(lambda spec: replace(spec, max_pool_count=6))
    await site.phase(READY)
    require(await site.groups_of_pools() == before, "a pool was expanded although that is disabled")


@scenario(breaks=False)
async def capacity_changed(site: Site) -> None:
    """A larger minCapacity is for new disks; for those that exist a replacement is offered, nothing is changed."""
    await hands.take_nodes(site, "n1", "n2", "n3")
    await site.create(site.config(least=3, raid="mirror", disks=2))
    await site.phase(READY)
    before = await site.groups_of_pools()

    def larger(spec: CStorClusterConfigSpec) -> CStorClusterConfigSpec:
        return replace(spec, disk_config=replace(spec.disk_config or DiskConfig(), min_capacity="20Gi"))

    await site.change(larger)
    await site.condition(REPLACEMENT_OFFERED)
    require(await site.groups_of_pools() == before, "disks were changed by themselves")


@scenario(breaks=True)
async def adoption(site: Site) -> None:
    """A pool cluster that exists already under the config's name is taken over as it is, never made twice."""
    await hands.take_nodes(site, "n1", "n2", "n3")
    devices = {name: await hands.make_devices(site, name, "d2", "d1") for name in ("n1", "n2", "n3")}
    before = await hands.make_pool_cluster(site, devices)
    config = site.config(least=3, raid="mirror", disks=2)
    local = DiskConfig(
        min_count=2,
        min_capacity="10Gi",
        local=LocalDisks(block_device_selector=LabelSelector(match_labels={NODE_LABEL: site.name})),
    )
    await site.create(replace(config, spec=replace(config.spec, disk_config=local)))
    await site.phase(READY)
    after = await site.pool_cluster()
    require(after.metadata.uid == before.metadata.uid, "the pool cluster was made anew")
    require(after.spec.pools == before.spec.pools, "the pools were changed when they were taken over")


async def clean_up(site: Site) -> None:
    """Whatever a scenario made goes again, also after a failure half way."""
    if site.rehearsal:
        await hands.remove_replicas(site)
    if not await site.gone(CStorClusterConfig, site.name, site.namespace):
        await site.delete()
        await _all_gone(site)
    if site.rehearsal:
        await hands.remove_pool_cluster(site)
        await hands.remove_devices(site)
    await hands.return_nodes(site)


async def _all_gone(site: Site) -> None:
    async def gone() -> bool:
        return (
            await site.gone(CStorClusterConfig, site.name, site.namespace)
            and await site.gone(CStorClusterPlan, site.name, site.namespace)
            and await site.gone(CStorPoolCluster, site.name, site.openebs)
        )

    await site.eventually(gone, "end of the config, its plan and its pool cluster")


async def _devices_on(site: Site, host: str) -> tuple[str, ...]:
    hosts, groups = await site.hosts_of_pools(), await site.groups_of_pools()
    return tuple(name for where, pool in zip(hosts, groups, strict=True) if where == host for g in pool for name in g)


async def _instance_with(site: Site, device: str) -> CStorPoolInstance:
    for instance in await site.instances():
        groups = instance.spec.data_raid_groups
        if any(found.block_device_name == device for group in groups for found in group.block_devices):
            return instance
    raise ScenarioFailedError(f"cannot find the pool of {device}: no instance names it")
