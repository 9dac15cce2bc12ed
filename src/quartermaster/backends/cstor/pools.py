"""The pool cluster that should be, made from the one that is: every disk that survives stays where it is.

A pool that stands keeps its groups and their order. A disk that was given up is followed, in its place, by a free disk
of the slot that is at least as large. What was planned beyond that is added: whole groups at the end, or disks at the
end of a stripe. A pool that moves keeps everything but its node. A new pool is added when all of its disks are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from quartermaster.backends.cstor.groups import cut
from quartermaster.backends.cstor.settings import Settings
from quartermaster.backends.cstor.view import DATA, SPARE, WRITE_CACHE, Cluster, Disk, Pool, Slot, names_of
from quartermaster.resources.kubernetes.workloads import ResourceRequirements, Toleration
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.openebs import (
    MIRROR,
    STRIPE,
    CStorPoolSettings,
    PoolBlockDevice,
    PoolSpec,
    RaidGroup,
)

Names = tuple[str, ...]

# Fields of poolConfig that a declaration can state, and what they are when it does not any more.
_DEFAULTS: dict[str, Any] = {
    name: getattr(CStorPoolSettings(), name)
    for name in (
        *("resources", "compression", "thick_provision", "ro_threshold_limit"),
        *("tolerations", "priority_class_name"),
    )
}


class Formation(msgspec.Struct, frozen=True):
    """The pools that should be, and what some of them still wait for, by node."""

    pools: tuple[PoolSpec, ...]
    waiting: tuple[str, ...] = ()


def form(cluster: Cluster, settings: Settings, stated: Iterable[str] = ()) -> Formation:
    """Pools that stand first, in their order, then new ones in the order of the plan.

    `stated` are the fields of poolConfig that the declaration had when the pool cluster was written.
    """
    config = {**{name: _DEFAULTS[name] for name in stated if name in _DEFAULTS}, **_stated(settings)}
    by_host = {slot.pool.host: slot for slot in cluster.slots if slot.pool is not None}
    waiting: list[str] = []
    pools: list[PoolSpec] = []
    for pool in cluster.pools:
        slot = by_host.get(pool.host)
        if slot is not None:
            pools.append(_kept(pool, slot, config, cluster, waiting))
        elif pool.replicas:
            pools.append(pool.spec)
            waiting.append(f"the pool on host {pool.host} is no longer planned and holds volume replicas")
    fresh = (_new(slot, settings, config, waiting) for slot in cluster.slots if slot.pool is None)
    pools += [pool for pool in fresh if pool is not None]
    return Formation(tuple(pools), tuple(waiting))


def _kept(pool: Pool, slot: Slot, stated: Mapping[str, Any], cluster: Cluster, waiting: list[str]) -> PoolSpec:
    free = _free_disks(slot, pool)
    data, free = _replaced(pool.data, slot, free, cluster, waiting)
    cache, _ = _replaced(pool.cache, slot, _free_disks(slot, pool, WRITE_CACHE), cluster, waiting)
    data = _grown(data, pool.group_size, slot, free, waiting)
    config = msgspec.structs.replace(pool.spec.pool_config, **stated)
    spec = pool.spec
    if data != pool.data or cache != pool.cache or config != spec.pool_config:
        spec = msgspec.structs.replace(
            spec,
            data_raid_groups=_groups(spec.data_raid_groups, data),
            write_cache_raid_groups=_groups(spec.write_cache_raid_groups, cache),
            pool_config=config,
        )
    if slot.host and slot.host != pool.host:
        away = [disk.device for disk in slot.disks if disk.device in pool.devices and not disk.ready]
        if away:
            waiting.append(
                f"the pool of host {pool.host} moves to {slot.host}, which does not have {', '.join(away)} yet"
            )
        else:
            spec = msgspec.structs.replace(spec, node_selector={HOSTNAME_LABEL: slot.host})
    return spec


def _free_disks(slot: Slot, pool: Pool, *roles: str) -> list[Disk]:
    """Disks of the slot that no pool uses: those for data first, a spare only when there is no other."""
    used = {*pool.devices, *slot.node.lost_devices}
    return [disk for disk in slot.of_role(*(roles or (DATA, SPARE))) if disk.ready and disk.device not in used]


def _replaced(
    groups: tuple[Names, ...], slot: Slot, free: list[Disk], cluster: Cluster, waiting: list[str]
) -> tuple[tuple[Names, ...], list[Disk]]:
    """The groups with a new disk in the place of each that was given up, and the disks that are then still free."""
    given_up = set(slot.node.lost_devices)
    if not any(given_up.intersection(group) for group in groups):
        return groups, free
    result, free = [], list(free)
    for group in groups:
        names = list(group)
        for place, name in enumerate(group):
            if name not in given_up:
                continue
            old = cluster.device(name)
            least = old.spec.capacity.storage if old is not None else 0
            heir = next((disk for disk in free if disk.bytes >= least), None)
            if heir is None:
                waiting.append(f"disk {name} on node {slot.node.name} is to be replaced by one that is not there yet")
                continue
            free.remove(heir)
            names[place] = heir.device
        result.append(tuple(names))
    return tuple(result), free


def _grown(
    groups: tuple[Names, ...], size: int, slot: Slot, free: Sequence[Disk], waiting: list[str]
) -> tuple[Names, ...]:
    """With groups of the pool's own size, or of size 0 with disks at the end of its one group."""
    have = sum(len(group) for group in groups)
    want = (slot.node.disks or 0) - have
    if want <= 0:
        return groups
    fresh = [disk.device for disk in free if disk.role == DATA][:want]
    if len(fresh) < want:
        waiting.append(f"the pool on node {slot.node.name} grows by {want} disks, of which {len(fresh)} are there")
    if size:
        return (*groups, *cut(fresh, size))
    return ((*(groups[0] if groups else ()), *fresh),) if fresh else groups


def _new(slot: Slot, settings: Settings, stated: Mapping[str, Any], waiting: list[str]) -> PoolSpec | None:
    data = [disk.device for disk in slot.of_role(DATA) if disk.ready]
    cache = [disk.device for disk in slot.of_role(WRITE_CACHE) if disk.ready]
    wanted = slot.node.disks or settings.disks
    wanted_cache = len(slot.node.write_cache) or (settings.write_cache.count or 0 if settings.write_cache else 0)
    if len(data) < wanted or len(cache) < wanted_cache or not slot.host:
        have, all_ = len(data) + len(cache), wanted + wanted_cache
        waiting.append(f"node {slot.node.name} has {have} of {all_} disks")
        return None
    cache_type = (MIRROR if wanted_cache % 2 == 0 else STRIPE) if wanted_cache else ""
    return PoolSpec(
        node_selector={HOSTNAME_LABEL: slot.host},
        data_raid_groups=_groups((), cut(data[:wanted], settings.group_size)),
        write_cache_raid_groups=_groups((), cut(cache[:wanted_cache], 0)),
        pool_config=CStorPoolSettings(
            data_raid_group_type=settings.raid_type, write_cache_group_type=cache_type, **stated
        ),
    )


def _groups(old: tuple[RaidGroup, ...], names: Iterable[Names]) -> tuple[RaidGroup, ...]:
    """Groups of those disks. What OpenEBS noted of a disk that stays is kept."""
    if names_of(old) == tuple(names):
        return old
    known = {device.block_device_name: device for group in old for device in group.block_devices}
    return tuple(
        RaidGroup(block_devices=tuple(known.get(name) or PoolBlockDevice(block_device_name=name) for name in group))
        for group in names
    )


def stated_of(settings: Settings) -> tuple[str, ...]:
    """Which fields of poolConfig the declaration states."""
    return tuple(sorted(_stated(settings)))


def _stated(settings: Settings) -> dict[str, Any]:
    """What the declaration says of poolConfig; what it does not mention is OpenEBS's, or that of whoever wrote it."""
    pool = settings.pool
    found: dict[str, Any] = {}
    if pool.compute_resources is not None:
        found["resources"] = ResourceRequirements(
            requests=dict(pool.compute_resources.requests), limits=dict(pool.compute_resources.limits)
        )
    if pool.compression:
        found["compression"] = pool.compression
    if pool.thick_provision is not None:
        found["thick_provision"] = pool.thick_provision
    if pool.read_only_percent is not None:
        found["ro_threshold_limit"] = pool.read_only_percent
    if pool.tolerations:
        found["tolerations"] = tuple(
            Toleration(
                key=t.key, operator=t.operator, value=t.value, effect=t.effect, toleration_seconds=t.toleration_seconds
            )
            for t in pool.tolerations
        )
    if pool.priority_class_name:
        found["priority_class_name"] = pool.priority_class_name
    return found
