"""What `qm plan` shows of a CStorClusterConfig: the decision as it would be made now, and why not otherwise."""

from __future__ import annotations

import msgspec

from quartermaster.backends.cstor.decide import Decision, Gathered, ground_for
from quartermaster.backends.cstor.devices import is_free
from quartermaster.backends.cstor.groups import cut
from quartermaster.backends.cstor.plan import Change, refusal
from quartermaster.backends.cstor.settings import Verdict
from quartermaster.backends.cstor.view import DATA, Slot
from quartermaster.resources.openebs import MIRROR, RAIDZ, RAIDZ2
from quartermaster.resources.quantity import of_bytes

_PARITY = {RAIDZ: 1, RAIDZ2: 2}


class ChosenNode(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    zone: str
    slot: int
    disks: int
    groups: tuple[tuple[str, ...], ...]  # names of devices, or what has to be made
    why: str


class OtherNode(msgspec.Struct, frozen=True):
    name: str
    why: str


class Report(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Everything that can be said. With problems there is nothing else."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    least_pools: int = 0
    most_pools: int = 0
    raid_type: str = ""
    group_size: int = 0
    disks_per_pool: int = 0
    disk_capacity: str = ""
    chosen: tuple[ChosenNode, ...] = ()
    others: tuple[OtherNode, ...] = ()
    changes: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    capacity_per_pool: str = ""
    capacity: str = ""
    recommendations: tuple[str, ...] = ()


def refused_report(verdict: Verdict) -> Report:
    return Report(problems=tuple(map(str, verdict.problems)), warnings=tuple(map(str, verdict.warnings)))


def report(gathered: Gathered, decision: Decision) -> Report:
    settings = decision.settings
    chosen = tuple(_chosen(slot, decision) for slot in decision.cluster.slots)
    usable = [_usable_bytes(slot, decision) for slot in decision.cluster.slots]
    return Report(
        warnings=tuple(map(str, decision.verdict.warnings)),
        least_pools=settings.least_pools,
        most_pools=settings.most_pools,
        raid_type=settings.raid_type,
        group_size=settings.group_size,
        disks_per_pool=settings.disks,
        disk_capacity=settings.capacity,
        chosen=chosen,
        others=_others(gathered, decision),
        changes=tuple(_change(change) for change in decision.choice.changes),
        held=tuple(h.message for h in (*decision.choice.held, *decision.diagnosis.findings, *decision.growth.findings)),
        waiting=decision.formation.waiting,
        refused=tuple(map(str, decision.broken)),
        capacity_per_pool=of_bytes(min(usable)) if usable else "",
        capacity=of_bytes(sum(usable)),
        recommendations=_recommendations(gathered, decision),
    )


_VERBS = {"add": "add", "drop": "drop", "move": "move the pool to"}


def _change(change: Change) -> str:
    return f"{_VERBS[change.kind]} node {change.node}: {change.why}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _chosen(slot: Slot, decision: Decision) -> ChosenNode:
    settings, node = decision.settings, slot.node
    known = decision.cluster.inventory.node(node.name, node.uid)
    count = node.disks or settings.disks
    if slot.pool is not None:
        groups = slot.pool.data
    else:
        names = [disk.device or disk.storage for disk in slot.of_role(DATA)]
        source = settings.provisioner.storage_class_name if settings.provisioner is not None else "?"
        names += [f"new {settings.capacity} of {source}"] * (count - len(names))
        groups = cut(names, settings.group_size)
    fresh = next((change for change in decision.choice.changes if change.slot == slot.number), None)
    if fresh is not None:
        why = fresh.why
    elif known is None:
        why = "its node is gone, and nothing else can be done"
    else:
        why = "is planned already and may stay"
    return ChosenNode(node.name, known.zone if known is not None else "", slot.number, count, groups, why)


def _usable_bytes(slot: Slot, decision: Decision) -> int:
    """What the pool can hold, before what ZFS keeps for itself."""
    settings = decision.settings
    count = slot.node.disks or settings.disks
    sizes = [disk.bytes or settings.least_bytes for disk in slot.of_role(DATA)][:count]
    sizes += [settings.least_bytes] * (count - len(sizes))
    raid_type = slot.pool.raid_type if slot.pool is not None else settings.raid_type
    group_size = slot.pool.group_size if slot.pool is not None else settings.group_size
    return sum(_of_group(group, raid_type) for group in cut(sizes, group_size))


def _of_group(sizes: tuple[int, ...], raid_type: str) -> int:
    if raid_type == MIRROR:
        return min(sizes)
    parity = _PARITY.get(raid_type)
    return sum(sizes) if parity is None else (len(sizes) - parity) * min(sizes)


def _others(gathered: Gathered, decision: Decision) -> tuple[OtherNode, ...]:
    planned = {node.name for node in decision.nodes}
    ground = ground_for(gathered, decision.settings, 0, ())
    settings = decision.settings
    found = []
    for name in sorted(gathered.inventory.nodes):
        if name in planned:
            continue
        why = refusal(gathered.inventory.nodes[name], ground)
        if not why:
            enough = len(decision.nodes) >= settings.least_pools
            why = (
                f"it could be, but there are enough: {len(decision.nodes)} (at least {settings.least_pools}, "
                f"at most {settings.most_pools})"
                if enough
                else "it could be, but another change has to end first"
            )
        found.append(OtherNode(name, why))
    return tuple(found)


def _recommendations(gathered: Gathered, decision: Decision) -> tuple[str, ...]:
    settings = decision.settings
    found = []
    if decision.choice.missing:
        needed = "1 more node is" if decision.choice.missing == 1 else f"{decision.choice.missing} more nodes are"
        found.append(f"{needed} needed: label or add nodes, or lower minPoolCount")
    made = sum((slot.node.disks or 0) - len(slot.of_role(DATA)) for slot in decision.cluster.slots)
    if settings.provisioner is not None and made > 0:
        total = of_bytes(made * settings.least_bytes)
        found.append(
            f"{counted(made, 'disk')} of {settings.capacity} will be made from class "
            f"{settings.provisioner.storage_class_name}: {total} in all"
        )
    if settings.local is not None:
        found += _device_recommendations(gathered, decision)
    spread = {node.zone for node in gathered.inventory.nodes.values() if node.zone}
    chosen = (gathered.inventory.node(node.name) for node in decision.nodes)
    used = {node.zone for node in chosen if node is not None and node.zone}
    if len(decision.nodes) > 1 and len(spread) > 1 and len(used) == 1:
        found.append(f"all pools are in zone {used.pop()}: allow nodes of another zone")
    return tuple(found)


def _device_recommendations(gathered: Gathered, decision: Decision) -> list[str]:
    ground = ground_for(gathered, decision.settings, 0, ())
    criteria = ground.criteria
    found = []
    for name in sorted(gathered.inventory.allowed(decision.settings.terms)):
        node = gathered.inventory.nodes[name]
        if criteria is None or name in {n.name for n in decision.nodes}:
            continue
        free = sum(1 for d in gathered.inventory.devices_on(node.hostname) if is_free(d, criteria))
        if 0 < free < decision.settings.disks:
            lacking = decision.settings.disks - free
            disks = counted(lacking, "more disk")
            found.append(f"{disks} of at least {decision.settings.capacity} would make {name} usable")
    return found
