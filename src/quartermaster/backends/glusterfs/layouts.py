"""How a volume is kept more than once, and on which nodes its bricks go: deterministic, spread, balanced by free room.

Copies go to different nodes, and to different zones where more than one zone is declared. Of an erasure-coded volume a
zone holds no more parts than may be lost.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import msgspec

from quartermaster.backends.glusterfs.model import VolumeInfo
from quartermaster.planning.capacity import shown
from quartermaster.planning.cluster import Verdict
from quartermaster.resources.storage import Replication

DEFAULT_REPLICAS = 3
_MOST_SETS = 16
# An arbiter keeps names and attributes only.
_ARBITER_PART = 64


class Layout(msgspec.Struct, frozen=True):
    replicas: int = DEFAULT_REPLICAS
    arbiter: bool = False
    data: int = 0  # of an erasure-coded volume: parts that hold data
    redundancy: int = 0

    @property
    def width(self) -> int:
        """Bricks of one set."""
        return self.data + self.redundancy if self.data else self.replicas

    @property
    def needed(self) -> int:
        """Bricks of a set that must live so that it can be written to."""
        if self.data:
            return self.data
        return 1 if self.replicas < 3 else self.replicas // 2 + 1

    @property
    def per_zone(self) -> int:
        return self.redundancy if self.data else 1

    def is_arbiter(self, position: int) -> bool:
        """Whether the brick at a position keeps no content."""
        return self.arbiter and position % self.width == self.width - 1

    @property
    def words(self) -> tuple[str, ...]:
        """As gluster takes it."""
        if self.data:
            return ("disperse-data", str(self.data), "redundancy", str(self.redundancy))
        if self.replicas == 1:
            return ()
        if self.arbiter:
            return ("replica", str(self.replicas - 1), "arbiter", "1")
        return ("replica", str(self.replicas))

    @property
    def text(self) -> str:
        if self.data:
            return f"{self.data} parts with data and {self.redundancy} more"
        copies = "one copy" if self.replicas == 1 else f"{self.replicas} copies"
        return f"{copies}, the last one an arbiter" if self.arbiter else copies

    def share(self, size: int, position: int) -> int:
        """How much of a set of that size the brick at a position holds."""
        if self.data:
            return math.ceil(size / self.data)
        return size // _ARBITER_PART if self.is_arbiter(position) else size


def layout_of(replication: Replication | None) -> Layout:
    if replication is None:
        return Layout()
    if replication.disperse is not None:
        return Layout(data=replication.disperse.data, redundancy=replication.disperse.redundancy)
    return Layout(replication.replicas or DEFAULT_REPLICAS, bool(replication.arbiter))


def layout_made(volume: VolumeInfo) -> Layout:
    """As gluster says it of a volume that is there."""
    if volume.disperse:
        return Layout(data=volume.disperse - volume.redundancy, redundancy=volume.redundancy)
    return Layout(replicas=volume.replica, arbiter=bool(volume.arbiter))


class Room(msgspec.Struct, frozen=True):
    """A directory for bricks, and how much of it is free."""

    node: str
    host: str
    address: str
    zone: int
    base: str
    free: int


def choose_rooms(
    rooms: Sequence[Room], layout: Layout, size: int, declared: Iterable[int] = ()
) -> tuple[Room, ...] | Verdict:
    """A room for every brick, set after set: the fewest sets that fit. Else why not, with the numbers. Also zones count
    that are `declared` and have no room at the moment: what is in one zone is not spread when the others are back.
    """
    known = {room.zone for room in rooms} | set(declared)
    refusal = _too_few(rooms, layout, known)
    if refusal is not None:
        return refusal
    zones = len(known)
    for sets in range(1, _MOST_SETS + 1):
        chosen = _sets(rooms, layout, math.ceil(size / sets), sets, zones)
        if chosen is not None:
            return chosen
    most = _greatest(rooms, layout, zones)
    times = f" for {layout.text}" if layout.width > 1 else ""
    return Verdict(False, "NoSpace", f"{shown(size)} were asked for, and there is room{times} of {shown(most)}")


def choose_substitute(
    rooms: Sequence[Room], layout: Layout, size: int, position: int, others: Collection[tuple[str, int]]
) -> Room | Verdict:
    """A room for one brick whose set has its `others` on these (node, zone)."""
    zones = {room.zone for room in rooms} | {zone for _, zone in others}
    taken = {node for node, _ in others}
    counted = [zone for _, zone in others]
    fitting = [
        room
        for room in rooms
        if room.node not in taken and (len(zones) == 1 or counted.count(room.zone) < layout.per_zone)
    ]
    if not fitting:
        where = "a zone" if len(zones) > 1 else "a node"
        return Verdict(False, "NoSubstitute", f"there is no other node to take it: {layout.text} need {where} each")
    best = max(fitting, key=_order)
    need = layout.share(size, position)
    if best.free < need:
        message = f"it needs {shown(need)}, and the most that is free elsewhere is {shown(max(best.free, 0))}"
        return Verdict(False, "NoSpace", f"{message}, on node {best.node}")
    return best


def _too_few(rooms: Sequence[Room], layout: Layout, known: Collection[int]) -> Verdict | None:
    nodes, zones = {room.node for room in rooms}, sorted({room.zone for room in rooms})
    if len(nodes) < layout.width:
        have = "none is" if not nodes else f"{len(nodes)} are" if len(nodes) > 1 else "one is"
        return Verdict(False, "TooFewNodes", f"{layout.text} need {layout.width} nodes, and {have} ready")
    least = math.ceil(layout.width / layout.per_zone)
    if len(known) > 1 and len(zones) < least:
        named = ", ".join(map(str, zones))
        missing = len(zones) < len(known)
        there = f"{len(zones)} of {len(known)} can take one now" if missing else f"there are {len(zones)}"
        return Verdict(False, "TooFewZones", f"{layout.text} need {least} zones, and {there}: {named}")
    return None


def _sets(rooms: Sequence[Room], layout: Layout, size: int, sets: int, zones: int) -> tuple[Room, ...] | None:
    left = list(rooms)
    chosen: list[Room] = []
    for _ in range(sets):
        picked = _one_set(left, layout, size, zones)
        if picked is None:
            return None
        for position, room in enumerate(picked):
            taken = layout.share(size, position)
            left = [msgspec.structs.replace(one, free=one.free - taken) if _same(one, room) else one for one in left]
        chosen += picked
    return tuple(chosen)


def _one_set(rooms: Iterable[Room], layout: Layout, size: int, zones: int) -> list[Room] | None:
    """By free room, never two on a node, nor more in a zone than may be lost: whatever fits at all is found so."""
    picked: list[Room] = []
    for room in sorted(rooms, key=_order, reverse=True):
        if len(picked) == layout.width:
            break
        if room.free < layout.share(size, len(picked)) or any(one.node == room.node for one in picked):
            continue
        if zones > 1 and sum(one.zone == room.zone for one in picked) >= layout.per_zone:
            continue
        picked.append(room)
    return picked if len(picked) == layout.width else None


def _greatest(rooms: Sequence[Room], layout: Layout, zones: int) -> int:
    """The largest size for which one set is found."""
    low, high = 0, sum(max(room.free, 0) for room in rooms)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _one_set(rooms, layout, middle, zones) is not None else (low, middle - 1)
    return low


def _order(room: Room) -> tuple[int, list[int], str]:
    """The most room first; of equal ones the first by name."""
    return room.free, [-ord(letter) for letter in room.node], room.base


def _same(one: Room, other: Room) -> bool:
    return (one.host, one.base) == (other.host, other.base)
