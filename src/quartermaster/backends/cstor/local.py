"""Disks that exist already: which of them a pool takes, and which fast one may become its write cache.

A choice is written to the plan and as a label on the device before a pool is made of it, so that two clusters that
want the same disk find out before OpenEBS has to refuse one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from quartermaster.backends.cstor.devices import Criteria, is_fast, is_free, is_slow
from quartermaster.backends.cstor.settings import Settings
from quartermaster.backends.cstor.view import DATA, Cluster, Slot
from quartermaster.resources.agility import PlanNode
from quartermaster.resources.openebs import BlockDevice


def pick_disks(cluster: Cluster, criteria: Criteria) -> tuple[PlanNode, ...]:
    """The plan with enough existing disks for each slot, as far as there are any.

    A disk that was chosen and is in no pool yet is chosen anew when it can no longer be had. Slow disks are taken
    before fast ones, which are worth more as a cache; then the smallest that fit, by name.
    """
    taken = {name for slot in cluster.slots for name in (*slot.node.block_devices, *slot.node.write_cache)}
    nodes = []
    for slot in cluster.slots:
        kept = tuple(name for name in slot.node.block_devices if _still_ours(name, slot, cluster, criteria))
        want = (slot.node.disks or 0) - len(kept)
        if want > 0 and slot.host:
            free = [d for d in cluster.inventory.devices_on(slot.host) if is_free(d, criteria)]
            fresh = [d for d in free if d.metadata.name not in taken]
            fresh.sort(key=lambda d: (is_fast(d), d.spec.capacity.storage, d.metadata.name))
            chosen = tuple(d.metadata.name for d in fresh[:want])
            taken.update(chosen)
            kept += chosen
        changed = kept != slot.node.block_devices
        nodes.append(msgspec.structs.replace(slot.node, block_devices=kept) if changed else slot.node)
    return tuple(nodes)


def _still_ours(name: str, slot: Slot, cluster: Cluster, criteria: Criteria) -> bool:
    if slot.pool is not None and name in slot.pool.devices:
        return True
    device = cluster.device(name)
    return device is not None and is_free(device, criteria)


def find_write_caches(cluster: Cluster, settings: Settings, criteria: Criteria) -> tuple[PlanNode, ...]:
    """The plan with a fast free disk as write cache for each pool that is about to be made of slow ones.

    OpenEBS cannot change the type of a write cache later, so a pool that exists without one stays so.
    """
    if settings.write_cache is not None or settings.pool.detect_caches is False:
        return tuple(slot.node for slot in cluster.slots)
    taken = {name for slot in cluster.slots for name in (*slot.node.block_devices, *slot.node.write_cache)}
    nodes = []
    for slot in cluster.slots:
        node = slot.node
        if slot.pool is None and not node.write_cache and _is_slow(slot, cluster):
            fast = _fast_and_free(slot, cluster, criteria, taken)
            if fast:
                name = min(fast, key=lambda d: (d.spec.capacity.storage, d.metadata.name)).metadata.name
                taken.add(name)
                node = msgspec.structs.replace(node, write_cache=(name,))
        nodes.append(node)
    return tuple(nodes)


def _is_slow(slot: Slot, cluster: Cluster) -> bool:
    """Whether all disks of the pool to be are there, and all are slow."""
    devices = [cluster.device(disk.device) for disk in slot.of_role(DATA)]
    return len(devices) >= (slot.node.disks or 1) and all(d is not None and is_slow(d) for d in devices)


def _fast_and_free(slot: Slot, cluster: Cluster, criteria: Criteria, taken: set[str]) -> Sequence[BlockDevice]:
    # A cache may be small. What the user did not select stays untouched here too.
    wanted = msgspec.structs.replace(criteria, least_bytes=0)
    found = [
        device for device in cluster.inventory.devices_on(slot.host) if is_fast(device) and is_free(device, wanted)
    ]
    return [device for device in found if device.metadata.name not in taken]
