"""Pools that fill up grow by the least that OpenEBS allows: one disk of a stripe, one whole group of the others.

One pool at a time. Whether the last expansion has arrived is seen by what the pool can hold: as long as that is what
it was when it was decided, the use that is reported is the old one, and to expand again would be for the same reason.
"""

from __future__ import annotations

import msgspec

from quartermaster.backends.cstor.groups import growth
from quartermaster.backends.cstor.plan import Held
from quartermaster.backends.cstor.reasons import EXPANSION_DISABLED, EXPANSION_LIMIT, NO_REPLACEMENT, THRESHOLD_PASSED
from quartermaster.backends.cstor.settings import Settings
from quartermaster.backends.cstor.view import Pool, Slot
from quartermaster.resources.agility import PlanNode
from quartermaster.resources.quantity import Amount, of_bytes


class Growth(msgspec.Struct, frozen=True):
    """The slot that grows, if one does, and what is to be said."""

    node: PlanNode | None = None
    findings: tuple[Held, ...] = ()


def in_flight(slot: Slot) -> bool:
    """Whether the pool has fewer disks than are planned for it."""
    return slot.pool is not None and (slot.node.disks or 0) > len(slot.pool.data_devices)


def expand(slots: tuple[Slot, ...], settings: Settings, free_disks: dict[int, int] | None = None) -> Growth:
    """`free_disks`: how many disks that exist already each slot could still take; None where disks are made."""
    full = [slot for slot in slots if slot.pool is not None and _use(slot.pool) >= settings.threshold]
    full.sort(key=lambda slot: (-_use(slot.pool), slot.number))
    waiting = [slot for slot in slots if in_flight(slot)]
    findings = [Held(THRESHOLD_PASSED, f"the pool on node {slot.node.name} is being expanded") for slot in waiting]
    for slot in full:
        if slot in waiting:
            continue
        obstacle = _obstacle(slot, settings, free_disks)
        if obstacle is not None:
            findings.append(obstacle)
        elif not waiting and _has_arrived(slot):
            grown = msgspec.structs.replace(
                slot.node,
                disks=_disks(slot) + growth(_group_size(slot)),
                expanded_from=of_bytes(slot.pool.total_bytes if slot.pool is not None else 0),
            )
            said = f"the pool on node {slot.node.name} is {_use(slot.pool):.0%} full: it grows to {grown.disks} disks"
            return Growth(grown, (*findings, Held(THRESHOLD_PASSED, said)))
    return Growth(None, tuple(findings))


def _use(pool: Pool | None) -> float:
    return pool.used_bytes / pool.total_bytes if pool is not None and pool.total_bytes else 0.0


def _disks(slot: Slot) -> int:
    return max(slot.node.disks or 0, len(slot.pool.data_devices) if slot.pool is not None else 0)


def _group_size(slot: Slot) -> int:
    return slot.pool.group_size if slot.pool is not None else 0


def _obstacle(slot: Slot, settings: Settings, free_disks: dict[int, int] | None) -> Held | None:
    full = f"the pool on node {slot.node.name} is {_use(slot.pool):.0%} full"
    if not settings.expands:
        return Held(EXPANSION_DISABLED, f"{full}, and poolExpansion is disabled")
    step = growth(_group_size(slot))
    if settings.most_groups is not None:
        # A stripe is one group for ever; as many disks as it had at first count as one.
        per_group = _group_size(slot) or settings.disks
        if _disks(slot) + step > settings.most_groups * per_group:
            return Held(EXPANSION_LIMIT, f"{full}, and poolExpansion.maxGroups is {settings.most_groups}")
    if free_disks is not None and free_disks.get(slot.number, 0) < step:
        return Held(NO_REPLACEMENT, f"{full}, and its node has too few free disks: it takes {step}")
    return None


def _has_arrived(slot: Slot) -> bool:
    pool = slot.pool
    if pool is None or not slot.settled or not pool.online or pool.busy:
        return False
    before = slot.node.expanded_from
    return before is None or pool.total_bytes > Amount.of(before).bytes
