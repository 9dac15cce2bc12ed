"""Which nodes hold the pools of a cluster: chosen once, kept as long as they may be, changed one at a time.

    nothing planned        choose up to the least number, spread over zones, then by free disks, then by name
    least ≤ kept ≤ most    keep all, change nothing
    kept > most            drop one without volume replicas, the newest first; never one with replicas
    kept < least           keep all and fill up; too few candidates: plan what there is

A node leaves when it is gone (the name with another uid is another node) or is no longer allowed. Its slot, which is
the pool with its disks, then moves to another node that can reach the disks; disks that cannot move keep their pool
where it is as long as it holds volumes. That a node is not ready or cordoned matters only before it is chosen.

Once pools exist, changes that are not repairs wait while another change is in flight or another pool is not healthy.
A pool is down while it moves: off a node that is there it moves only if each of its volumes has a healthy copy in a
pool that stays.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from quartermaster.backends.cstor.devices import Criteria
from quartermaster.backends.cstor.inventory import Inventory
from quartermaster.backends.cstor.reasons import (
    LAST_HEALTHY_COPY,
    NODE_LOST,
    NODE_NOT_ALLOWED,
    OTHER_CHANGE_IN_FLIGHT,
    OTHER_POOL_UNHEALTHY,
    VOLUMES_IN_THE_WAY,
)
from quartermaster.backends.cstor.settings import Settings
from quartermaster.backends.cstor.view import Slot
from quartermaster.planning.nodes import Candidate, NodeFacts, fits, spread, untolerated
from quartermaster.resources.agility import NODE_NAME_FIELD, NodeSelectorTerm, PlanNode, PoolToleration


class Change(msgspec.Struct, frozen=True):
    """One node that comes, goes or takes over a pool, and why."""

    kind: Literal["add", "drop", "move"]
    slot: int
    node: str
    why: str
    origin: str = ""  # of a move: where the pool was


class Held(msgspec.Struct, frozen=True):
    """A change that should be and may not be, or not yet."""

    reason: str
    message: str


class Choice(msgspec.Struct, frozen=True):
    nodes: tuple[PlanNode, ...]
    changes: tuple[Change, ...] = ()
    held: tuple[Held, ...] = ()
    missing: int = 0  # pools that are wanted and for which there is no node


class Ground(msgspec.Struct, frozen=True):
    """What a choice is made from, besides the slots."""

    settings: Settings
    inventory: Inventory
    criteria: Criteria | None = None  # what disks of a node must be like, where they exist already
    formed: bool = False  # the pool cluster exists: changes may disturb somebody
    surplus: int = 0  # pools that stand and are no longer planned
    reserved: frozenset[int] = frozenset()  # numbers of slots whose storage is still being taken down


def choose(slots: Sequence[Slot], ground: Ground) -> Choice:
    """What the plan should be."""
    return _Chooser(slots, ground).choose()


def refusal(node: NodeFacts, ground: Ground) -> str:
    """Why a node cannot be chosen anew, as the end of a sentence; "" if it can."""
    settings = ground.settings
    if node.name not in ground.inventory.allowed(settings.terms):
        return "it fits none of the allowedNodes terms"
    if why := _node_refusal(node, settings.pool.tolerations):
        return why
    if ground.criteria is None:
        return ""
    free = ground.inventory.free_on(node.hostname, ground.criteria)
    return (
        f"it has too few free disks that fit: {free}, and a pool needs {settings.disks}"
        if free < settings.disks
        else ""
    )


def _node_refusal(node: NodeFacts, tolerations: Sequence[PoolToleration]) -> str:
    if not node.ready:
        return "it is not ready"
    if node.cordoned:
        return "it is cordoned"
    if node.taints and (taint := untolerated(node, tolerations)) is not None:
        return f"its taint {taint.key}:{taint.effect} is not tolerated"
    return ""


class _Chooser:
    """The state of one choice. Each step is a rule of the module's docstring."""

    def __init__(self, slots: Sequence[Slot], ground: Ground) -> None:
        self.ground = ground
        self.slots = {slot.number: slot for slot in slots}
        self.nodes: dict[int, PlanNode] = {slot.number: slot.node for slot in slots}
        self.changes: list[Change] = []
        self.held: list[Held] = []
        self.allowed = ground.inventory.allowed(ground.settings.terms)
        self.in_flight = ground.surplus + sum(1 for slot in slots if ground.formed and not slot.settled)
        self.unhealthy = [s.number for s in slots if s.settled and s.pool is not None and not s.pool.online]
        self._candidates: list[NodeFacts] | None = None
        self._numbers = (n for n in itertools.count() if n not in self.slots and n not in ground.reserved)

    def choose(self) -> Choice:
        least = self.ground.settings.least_pools
        gone, unwanted = self._leaving()
        for slot in gone:
            self._repair(slot)
        self._shrink(unwanted)
        for slot in unwanted:
            if slot.number in self.nodes:
                self._evict(slot)
        self._fill(least)
        return Choice(
            nodes=tuple(self.nodes.values()),
            changes=tuple(self.changes),
            held=tuple(self.held),
            missing=max(0, least - len(self.nodes)) + sum(1 for slot in gone if self._is_stranded(slot)),
        )

    def _is_stranded(self, slot: Slot) -> bool:
        return self.nodes.get(slot.number) == slot.node

    def _leaving(self) -> tuple[list[Slot], list[Slot]]:
        gone, unwanted = [], []
        for slot in self.slots.values():
            if self.ground.inventory.node(slot.node.name, slot.node.uid) is None:
                gone.append(slot)
            elif slot.node.name not in self.allowed:
                unwanted.append(slot)
        return gone, unwanted

    def _repair(self, slot: Slot) -> None:
        """The node is gone. That waits for nothing: the pool is down already."""
        needed = bool(slot.replicas) or len(self.nodes) - 1 < self.ground.settings.least_pools
        target = self._target(slot) if needed else None
        why = f"node {slot.node.name} is gone"
        if target is not None:
            self._move(slot, target, why)
        elif slot.replicas:
            self.held.append(Held(NODE_LOST, f"{why}, and {self._no_target(slot)}; {_holds(slot)}"))
        else:
            self._drop(slot, why)

    def _shrink(self, unwanted: Sequence[Slot]) -> None:
        """More pools than the most that there may be."""
        most = self.ground.settings.most_pools
        last_out = {slot.number for slot in unwanted}
        while (excess := len(self.nodes) - most) > 0:
            empty = [self.slots[n] for n in self.nodes if n in self.slots and not self.slots[n].replicas]
            if not empty:
                names = ", ".join(sorted(node.name for node in self.nodes.values()))
                why = f"{excess} more than maxPoolCount {most}, and the pools on {names} all hold volume replicas"
                self.held.append(Held(VOLUMES_IN_THE_WAY, why))
                return
            # New nodes come at the end of a plan, whatever number of a slot they were given.
            slot = max(enumerate(empty), key=lambda found: (found[1].number in last_out, found[0]))[1]
            if not self._may_change(slot, f"dropping node {slot.node.name}, as maxPoolCount is {most}"):
                return
            self._drop(slot, f"maxPoolCount is {most}")

    def _evict(self, slot: Slot) -> None:
        """The node is there and no longer allowed."""
        why = f"node {slot.node.name} is no longer allowed"
        needed = bool(slot.replicas) or len(self.nodes) - 1 < self.ground.settings.least_pools
        target = self._target(slot) if needed else None
        if target is None and slot.replicas:
            self.held.append(Held(NODE_NOT_ALLOWED, f"{why}, but {self._no_target(slot)}; {_holds(slot)}"))
        elif last := self._last_copies(slot):
            said = f"{why}, but no pool that stays has a healthy copy of {_shown(last)}, which would stop on the way"
            self.held.append(Held(LAST_HEALTHY_COPY, said))
        elif self._may_change(slot, f"moving away from node {slot.node.name}, which is no longer allowed"):
            if target is not None:
                self._move(slot, target, why)
            else:
                self._drop(slot, why)

    def _last_copies(self, slot: Slot) -> list[str]:
        """The volumes of a pool that have no healthy copy in a pool that is online and stays where it is."""
        elsewhere = {
            copy.volume
            for other in self.slots.values()
            if other.number != slot.number and self._stays(other) and other.pool is not None
            for copy in other.pool.copies
            if copy.healthy and copy.volume
        }
        copies = slot.pool.copies if slot.pool is not None else ()
        return sorted({copy.volume or copy.name for copy in copies if copy.volume not in elsewhere})

    def _stays(self, slot: Slot) -> bool:
        settled = slot.settled and slot.pool is not None and slot.pool.online
        return settled and self.nodes.get(slot.number) == slot.node

    def _fill(self, least: int) -> None:
        while len(self.nodes) < least:
            want = least - len(self.nodes)
            taken = [self._zone(node) for node in self.nodes.values()]
            chosen = spread(self._weighted(self._free(), self.ground.settings.disks), taken, want)
            if not chosen:
                return
            for name in chosen:
                if not self._may_change(None, f"adding node {name}"):
                    return
                node = self.ground.inventory.nodes[name]
                number = next(self._numbers)
                self.nodes[number] = PlanNode(
                    name=node.name, uid=node.uid, slot=number, disks=self.ground.settings.disks
                )
                self._note(Change("add", number, node.name, f"{len(self.nodes)} of at least {least} pools"))

    def _may_change(self, slot: Slot | None, what: str) -> bool:
        """Whether a change that is no repair may begin; else it is noted as held."""
        if not self.ground.formed:
            return True
        sick = [number for number in self.unhealthy if slot is None or number != slot.number]
        if sick:
            names = ", ".join(sorted(self.slots[number].node.name for number in sick))
            self.held.append(Held(OTHER_POOL_UNHEALTHY, f"{what} waits: not healthy are the pools on {names}"))
            return False
        others = self.in_flight - (1 if slot is not None and not slot.settled else 0)
        limit = self.ground.settings.node_changes
        if others >= limit:
            self.held.append(Held(OTHER_CHANGE_IN_FLIGHT, f"{what} waits: {others} of {limit} changes in flight"))
            return False
        return True

    def _target(self, slot: Slot) -> NodeFacts | None:
        """The node that can take over the pool: the old one made anew if it is there, else as for a new pool."""
        able = self._able(slot)
        for node in able:
            if node.name == slot.node.name:
                return node
        others = [node for key, node in self.nodes.items() if key != slot.number]
        chosen = spread(self._weighted(able), [self._zone(node) for node in others], 1)
        return self.ground.inventory.nodes[chosen[0]] if chosen else None

    def _able(self, slot: Slot) -> list[NodeFacts]:
        if slot.node.block_devices or slot.node.write_cache:
            # The disks are part of the host, whatever its node is called now.
            free = {node.name for node in self._free()}
            return [node for node in self.ground.inventory.on_hostname(self._old_host(slot)) if node.name in free]
        return [node for node in self._free() if all(_reaches(node, terms) for terms in slot.reachable)]

    def _old_host(self, slot: Slot) -> str:
        return slot.host or (slot.pool.host if slot.pool is not None else slot.node.name)

    def _no_target(self, slot: Slot) -> str:
        if slot.node.block_devices or slot.node.write_cache:
            return "its disks are part of it and cannot move"
        if slot.reachable:
            return "no node that may be chosen can reach its disks"
        return "there is no other node to choose"

    def _free(self) -> list[NodeFacts]:
        """Nodes that can be chosen anew and are not planned, apart from what disks they have."""
        if self._candidates is None:
            nodes, tolerations = self.ground.inventory.nodes, self.ground.settings.pool.tolerations
            allowed = [nodes[name] for name in self.allowed]
            # Most nodes have no taints; to ask why of each of thousands would take longer than all the rest.
            able = [node for node in allowed if node.ready and not node.cordoned]
            self._candidates = [n for n in able if not n.taints or not _node_refusal(n, tolerations)]
        planned = {node.name for node in self.nodes.values() if self._stands(node)}
        return [node for node in self._candidates if node.name not in planned]

    def _stands(self, node: PlanNode) -> bool:
        return self.ground.inventory.node(node.name, node.uid) is not None

    def _weighted(self, nodes: Iterable[NodeFacts], least: int = 0) -> Iterator[Candidate]:
        """With the number of its free disks, where disks exist already; those with fewer than `least` are left out."""
        criteria = self.ground.criteria
        count = self.ground.inventory.counter(criteria) if criteria is not None else None
        for node in nodes:
            weight = count(node.hostname) if count is not None else least
            if weight >= least:
                yield node.name, node.zone, weight

    def _zone(self, node: PlanNode) -> str:
        known = self.ground.inventory.node(node.name)
        return known.zone if known is not None else ""

    def _move(self, slot: Slot, target: NodeFacts, why: str) -> None:
        self.nodes[slot.number] = msgspec.structs.replace(slot.node, name=target.name, uid=target.uid)
        self._note(Change("move", slot.number, target.name, why, origin=slot.node.name))

    def _drop(self, slot: Slot, why: str) -> None:
        del self.nodes[slot.number]
        self._note(Change("drop", slot.number, slot.node.name, why))

    def _note(self, change: Change) -> None:
        self.changes.append(change)
        self.in_flight += 1


def _reaches(node: NodeFacts, terms: Sequence[NodeSelectorTerm]) -> bool:
    return fits(terms, {**node.labels, NODE_NAME_FIELD: node.name}, {})


def _holds(slot: Slot) -> str:
    return f"its pool holds volume replicas ({_shown(slot.replicas)}) and stays planned there"


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
