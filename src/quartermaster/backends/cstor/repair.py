"""Disks that fail while their node is well: who is missing since when, and which of them are given up for new ones.

A disk that does not answer is not lost at once: nodes restart, drivers hiccup. After `lostAfterSeconds` it is. Then it
is replaced, if OpenEBS can: in a group with redundancy, one disk of a group at a time, while the BlockDevice object of
the old disk is still there. A user can ask for the same by an annotation on the Storage.

A disk that is in no pool yet (or never will be, as a spare) holds nothing: it is given up when its Storage asks for it,
and by itself when it never came and would be asked for from elsewhere by now.

The decision is written to the plan before anything follows from it: `lostDevices` names the disks that are given up,
`replaced` the Storages for which the set makes new ones, `blockDevices` what existing disks the pool has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from quartermaster.backends.cstor.devices import Criteria, host_of, is_active, is_fast, is_free
from quartermaster.backends.cstor.plan import Held
from quartermaster.backends.cstor.reasons import (
    DEVICE_OBJECT_GONE,
    GRACE_PERIOD,
    GROUP_LOST,
    NO_REPLACEMENT,
    REPLACEMENT_REFUSED,
    REPLACING,
    STRIPE_LOST,
)
from quartermaster.backends.cstor.settings import Settings
from quartermaster.backends.cstor.view import Cluster, Pool, Slot
from quartermaster.resources.agility import MissingDevice, PlanNode
from quartermaster.resources.openebs import PREDECESSOR_ANNOTATION, STRIPE, BlockDevice
from quartermaster.support.clock import parse_timestamp


class Replacement(msgspec.Struct, frozen=True):
    slot: int
    node: str
    disk: str  # the device, or the Storage of one that never came
    why: str


class Diagnosis(msgspec.Struct, frozen=True):
    nodes: tuple[PlanNode, ...]
    missing: tuple[MissingDevice, ...] = ()
    replacements: tuple[Replacement, ...] = ()
    findings: tuple[Held, ...] = ()
    look_again_s: float = 0.0


def diagnose(
    cluster: Cluster, settings: Settings, known: Iterable[MissingDevice], now: str, criteria: Criteria
) -> Diagnosis:
    """What became of the disks of all pools, and the plan with those that are now given up."""
    since = {device.name: device.since for device in known}
    round_ = _Round(cluster, settings, since, now, criteria)
    nodes = tuple(round_.treat(slot) for slot in cluster.slots)
    return Diagnosis(
        nodes=nodes,
        missing=tuple(sorted(round_.missing, key=lambda device: device.name)),
        replacements=tuple(round_.replacements),
        findings=tuple(round_.findings),
        look_again_s=round_.look_again_s,
    )


class _Round:
    def __init__(
        self, cluster: Cluster, settings: Settings, since: dict[str, str], now: str, criteria: Criteria
    ) -> None:
        self.cluster, self.settings, self.since, self.now = cluster, settings, since, now
        self.criteria = criteria
        self.now_s = parse_timestamp(now)
        self.in_pools = {name for pool in cluster.pools for name in pool.devices}
        self.chosen = {name for slot in cluster.slots for name in (*slot.node.block_devices, *slot.node.write_cache)}
        self.missing: list[MissingDevice] = []
        self.replacements: list[Replacement] = []
        self.findings: list[Held] = []
        self.look_again_s = 0.0

    def treat(self, slot: Slot) -> PlanNode:
        pool, node = slot.pool, self._set_aside(slot)
        if pool is None:
            return node
        # What has left the pool is settled.
        if not set(pool.devices).issuperset(node.lost_devices):
            node = msgspec.structs.replace(node, lost_devices=tuple(d for d in node.lost_devices if d in pool.devices))
        known = self.cluster.inventory.node(node.name, node.uid)
        if not slot.settled or known is None or not known.ready:
            return node
        types = pool.spec.pool_config
        for raid_type, groups in (
            (types.data_raid_group_type, pool.data),
            (types.write_cache_group_type, pool.cache),
        ):
            for group in groups:
                node = self._treat_group(slot, node, pool, raid_type, group)
        return node

    def _set_aside(self, slot: Slot) -> PlanNode:
        """The plan without the disks that nobody waits for any more."""
        node = slot.node
        for disk in slot.disks:
            if not disk.storage or disk.device in self.in_pools or not (disk.asked or disk.outdated):
                continue
            why = "its Storage asks for it" if disk.asked else "it never came, and its set names another source by now"
            self.replacements.append(Replacement(slot.number, node.name, disk.device or disk.storage, why))
            node = msgspec.structs.replace(node, replaced=(*node.replaced, disk.storage))
        return node

    def _treat_group(self, slot: Slot, node: PlanNode, pool: Pool, raid_type: str, group: Sequence[str]) -> PlanNode:
        dead = [name for name in group if not self._answers(name, slot.host)]
        lost = [name for name in dead if self._is_lost(name)]
        asked = [disk.device for disk in slot.disks if disk.asked and disk.device in group and disk.device not in dead]
        decided = [name for name in group if name in node.lost_devices]
        for name in decided:
            self.findings.append(Held(REPLACING, f"disk {name} on node {node.name} is to be replaced"))
        if not lost and not asked:
            return node
        gone = set(dead) | set(decided)
        if raid_type == STRIPE:
            for name in lost:
                self._find(STRIPE_LOST, name, node, "is lost, and a stripe has no redundancy: it cannot be replaced")
            for name in asked:
                self._find(REPLACEMENT_REFUSED, name, node, "cannot be replaced as asked: a stripe has no redundancy")
            return node
        if len(gone) > 1:
            names = ", ".join(sorted(gone))
            self.findings.append(
                Held(
                    GROUP_LOST, f"disks {names} of one group on node {node.name}: OpenEBS replaces one of a group only"
                )
            )
            return node
        if decided or self._is_replacing(group) or pool.busy:
            return node
        return self._give_up(slot, node, (lost or asked)[0], asked=not lost)

    def _answers(self, name: str, host: str) -> bool:
        device = self.cluster.device(name)
        return device is not None and is_active(device) and host_of(device) == host

    def _is_lost(self, name: str) -> bool:
        """Noted as missing, and whether it has been so for long enough."""
        since = self.since.get(name, self.now)
        self.missing.append(MissingDevice(name=name, since=since))
        left_s = parse_timestamp(since) + self.settings.lost_after_s - self.now_s
        if left_s <= 0:
            return True
        self.look_again_s = min(left_s, self.look_again_s or left_s)
        # Since when, not for how long yet: a status that counts down would be written again and again.
        grace = f"disk {name} does not answer since {since}; after {self.settings.lost_after_s} s it is given up"
        self.findings.append(Held(GRACE_PERIOD, grace))
        return False

    def _is_replacing(self, group: Iterable[str]) -> bool:
        claims = (self.cluster.claims.get(name) for name in group)
        return any(claim is not None and claim.metadata.annotations.get(PREDECESSOR_ANNOTATION) for claim in claims)

    def _give_up(self, slot: Slot, node: PlanNode, name: str, *, asked: bool) -> PlanNode:
        device = self.cluster.device(name)
        if device is None:
            self._find(
                DEVICE_OBJECT_GONE, name, node, "is lost and its BlockDevice deleted: OpenEBS needs it to replace"
            )
            return node
        disk = next((disk for disk in slot.disks if disk.device == name), None)
        changes: dict[str, object] = {"lost_devices": (*node.lost_devices, name)}
        if disk is not None and disk.storage:
            changes["replaced"] = (*node.replaced, disk.storage)
        elif self.settings.provisioner is not None and name not in node.write_cache:
            # One that existed already gives way to one that is made: the set grows by one.
            changes["block_devices"] = tuple(other for other in node.block_devices if other != name)
        else:
            heir = self._heir(slot.host, device, cache=name in node.write_cache)
            if heir is None:
                self._find(NO_REPLACEMENT, name, node, "is lost, and its node has no free disk that is as large")
                return node
            self.chosen.add(heir)
            field = "write_cache" if name in node.write_cache else "block_devices"
            changes[field] = tuple(heir if other == name else other for other in getattr(node, field))
        why = "its Storage asks for it" if asked else "it does not answer"
        self.replacements.append(Replacement(slot.number, node.name, name, why))
        self._find(REPLACING, name, node, f"is to be replaced: {why}")
        return msgspec.structs.replace(node, **changes)

    def _heir(self, host: str, old: BlockDevice, *, cache: bool) -> str | None:
        """The smallest free disk of the host that is as large as the old one, and for a cache as fast."""
        criteria = self.criteria
        if cache:
            if self.settings.local is None and self.settings.pool.detect_caches is False:
                return None
            criteria = msgspec.structs.replace(criteria, least_bytes=0)
        fitting = [
            device
            for device in self.cluster.inventory.devices_on(host)
            if is_free(device, criteria)
            and device.metadata.name not in self.chosen
            and device.spec.capacity.storage >= old.spec.capacity.storage
            and (not cache or is_fast(device) >= is_fast(old))
        ]
        return min(fitting, key=lambda d: (d.spec.capacity.storage, d.metadata.name)).metadata.name if fitting else None

    def _find(self, reason: str, name: str, node: PlanNode, what: str) -> None:
        self.findings.append(Held(reason, f"disk {name} on node {node.name} {what}"))
