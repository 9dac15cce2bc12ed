"""A GlusterFS cluster as its plan needs it: members, directories for bricks, and where every brick is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from quartermaster.backends.directories import is_mount_of
from quartermaster.backends.glusterfs.facts import (
    NODE,
    POOL,
    VOLUME_PREFIX,
    BrickPlace,
    Memory,
    Moved,
    NodeFacts,
    PoolFacts,
    VolumeFact,
    read_memory,
    read_pool_facts,
)
from quartermaster.backends.glusterfs.layouts import Layout, Room
from quartermaster.planning.cluster import ABANDON, DRAIN, ClusterKey, ClusterView, NodeView, Report, VolumeView
from quartermaster.planning.offering import bases_of

# A file system that is full to the brim cannot even be healed.
_RESERVE = 64

SERVING = "serving"
LEAVING = "leaving"  # it can be read, and is to be emptied
DEAD = "dead"  # nothing can be read there any more


class Base(msgspec.Struct, frozen=True):
    node: str
    host: str
    address: str
    zone: int
    path: str
    total: int
    taken: int = 0  # by others who use its file system too
    available: int | None = None  # as its agent last saw it, where there may be others


class Seen(msgspec.Struct, frozen=True):
    """All that follows from a view without a decision."""

    view: ClusterView
    memory: Memory
    facts: PoolFacts
    facts_from: str  # the host that told them; "" where nobody has
    facts_fresh: bool  # they are what was asked for last, and the host that told them lives
    counted: frozenset[str]  # volumes whose entries were counted because it was asked for
    compared: frozenset[str]  # volumes whose living copies were compared because it was asked for
    rooted: frozenset[str]  # new bricks that were counted when their roots were known to have been healed
    clear: frozenset[str]  # the same for those beside which no directory was marked since
    ending: frozenset[str]  # ids of volumes that are being deleted, of which the coordinator knew when it looked
    gone: frozenset[str]  # volumes in nobody's books that it was asked to look for
    running: frozenset[str]  # bricks that run by the word of the coordinator
    ran: frozenset[str]  # the same by whoever looked last, be it long ago
    bases: tuple[Base, ...]
    bricks: Mapping[str, tuple[BrickPlace, ...]]  # volume → its bricks, as they are to be
    node_facts: Mapping[str, NodeFacts]  # by host

    @property
    def facts_current(self) -> bool:
        """Whether nothing was decided by newer ones: what another one than the coordinator told may be old."""
        return self.facts_fresh and self.facts_from == self.memory.coordinator

    def node(self, host: str) -> NodeView | None:
        return next((node for node in self.view.nodes if node.host == host and host), None)

    def fact(self, volume: str) -> VolumeFact | None:
        return self.facts.volumes.get(volume)

    @property
    def own_facts(self) -> dict[str, VolumeFact]:
        """Of our volumes, by name in order: a pool may have others, which are no concern of ours."""
        known = sorted(volume.name for volume in self.view.volumes)
        return {name: self.facts.volumes[name] for name in known if name in self.facts.volumes}

    def bricks_on(self, host: str) -> list[tuple[VolumeView, int, BrickPlace]]:
        return [
            (volume, position, place)
            for volume in self.view.volumes
            for position, place in enumerate(self.bricks.get(volume.name, ()))
            if place.host == host
        ]


def owner_of(key: ClusterKey) -> str:
    """How volumes and directories say to which cluster they belong."""
    return f"{key.namespace}/{key.name}"


def is_named(place: BrickPlace, brick: str) -> bool:
    """One that was made at the second attempt has a longer name."""
    return brick == place.name or brick.startswith(f"{place.name}.")


def see(view: ClusterView) -> Seen:
    memory = read_memory(view.memory)
    facts, report, teller = _pool_facts(view, memory.coordinator)
    fresh = report is not None and report.done and any(node.host == teller and node.healthy for node in view.nodes)
    asked = (report.desired or {}) if fresh and report is not None else {}
    if fresh and teller == memory.coordinator:
        memory = _of_these(memory, facts)
    bricks = {volume.name: bricks_of(volume, memory.moves.get(volume.name)) for volume in view.volumes}
    ran = _running(facts, bricks)
    return Seen(
        view=view,
        memory=memory,
        facts=facts,
        facts_from=teller,
        facts_fresh=fresh,
        counted=frozenset(asked.get("watch", ())),
        compared=frozenset(asked.get("compare", ())),
        rooted=frozenset(asked.get("rooted", ())),
        clear=frozenset(asked.get("clear", ())),
        ending=frozenset(asked.get("ending", ())),
        gone=frozenset(asked.get("gone", ())),
        running=ran if fresh and teller == memory.coordinator else frozenset(),
        ran=ran,
        bases=tuple(base for node in view.nodes for base in _bases(node)),
        bricks=bricks,
        node_facts={node.host: node_facts(node.report(NODE)) for node in view.nodes if node.host},
    )


def _running(facts: PoolFacts, places: Mapping[str, Sequence[BrickPlace]]) -> frozenset[str]:
    """As the places of our bricks are called, too."""
    found: set[str] = set()
    for name, fact in facts.volumes.items():
        running = [(at, brick) for at, brick in enumerate(fact.bricks) if fact.started and at not in fact.offline]
        found.update(brick for _, brick in running)
        ours = places.get(name, ())
        found.update(ours[at].name for at, brick in running if at < len(ours) and is_named(ours[at], brick))
    return frozenset(found)


def _of_these(memory: Memory, facts: PoolFacts) -> Memory:
    """Without what was decided of volumes that were deleted, and made anew under the same name."""
    moves = {
        name: Moved(count=moved.count) if _is_another(moved, facts.volumes.get(name)) else moved
        for name, moved in memory.moves.items()
    }
    return msgspec.structs.replace(memory, moves=moves)


def _is_another(moved: Moved, fact: VolumeFact | None) -> bool:
    return fact is not None and bool(moved.of and fact.id) and moved.of != fact.id


def node_facts(report: Report | None) -> NodeFacts:
    found = (report.status.result if report is not None else None) or {}
    return msgspec.convert(found, NodeFacts)


def bricks_of(volume: VolumeView, moved: Moved | None = None) -> tuple[BrickPlace, ...]:
    """Where they are to be: as they were placed, and as they were moved since."""
    placed = [msgspec.convert(one, BrickPlace) for one in volume.details.get("bricks", ())]
    for position, place in (moved.bricks if moved is not None else {}).items():
        placed[int(position)] = place
    return tuple(placed)


def layout_in(details: Mapping[str, Any]) -> Layout:
    return msgspec.convert(details.get("layout", {}), Layout)


def address_of(node: NodeView) -> str:
    return node.addresses[0] if node.addresses else node.host


def answers(seen: Seen, host: str) -> bool:
    """Whether it is a host of the cluster that is not silent."""
    node = seen.node(host)
    return node is not None and node.healthy


def brick_state(seen: Seen, place: BrickPlace) -> tuple[str, str]:
    """SERVING, LEAVING or DEAD, and why."""
    node = seen.node(place.host)
    if node is None:
        return _state_without_node(seen, place)
    if node.leaving == ABANDON or (node.lost and place.name not in seen.running):
        return DEAD, f"host {place.host} is lost"
    why = seen.node_facts[place.host].dead.get(place.base)
    if why:
        return DEAD, why
    state, why = _state_of_base(node, place.base)
    report = node.report(NODE)
    if node.leaving == DRAIN and (state != DEAD or report is None or report.absent):
        return LEAVING, f"node {node.name} is leaving"
    return state, why


def _state_without_node(seen: Seen, place: BrickPlace) -> tuple[str, str]:
    """Somebody gave its host up, or took the node out of the store by hand. What runs was not given up, whatever is
    known of its host. A peer that we never took in is left alone with the bricks that somebody has put there.
    """
    why = f"host {place.host} is no node of this cluster"
    if place.name not in seen.ran:
        return DEAD, f"{why} any more"
    return (SERVING, "") if is_unknown_peer(seen, place.address) else (LEAVING, f"{why} any more, and its brick runs")


def is_unknown_peer(seen: Seen, address: str) -> bool:
    """In the pool, and not by us."""
    return any(peer.name == address and uuid not in seen.memory.members for uuid, peer in seen.facts.peers.items())


def _state_of_base(node: NodeView, base: str) -> tuple[str, str]:
    report = node.report(NODE)
    listed = ((report.desired if report is not None else None) or {}).get("devices", ())
    entry = next((one for one in listed if base.endswith(f"/{one['uuid']}")), None)
    if entry is None and is_on_device(base):
        known = base in node.directories or report is None
        return (SERVING, "") if known else (DEAD, f"the disk of {base} is gone")
    if entry is None:
        dropped = base not in node.directories and base in _directories_offered(report) and node.wrong is None
        return (
            (LEAVING, f"the directory {base} of node {node.name} is no longer declared") if dropped else (SERVING, "")
        )
    device = next((one for one in node.devices if one.id == entry["id"] and one.id), None)
    if device is None and entry["id"]:
        present = any(one.id == entry["id"] for one in node.present)
        if present:
            return LEAVING, f"the disk {entry['path']} of node {node.name} is no longer declared"
        return DEAD, f"the disk {entry['id']} of node {node.name} is not found any more"
    if device is not None and device.serving and not device.usable:
        return DEAD, device.message
    return SERVING, ""


def _directories_offered(report: Report | None) -> Sequence[str]:
    return tuple(((report.desired if report is not None else None) or {}).get("directories", ()))


def directories_with_bricks(seen: Seen, node: NodeView) -> list[str]:
    """Of those that are offered: one that was dropped stays until what is left of bricks in it is removed."""
    if not node.host:
        return []
    found, removing = bricks_of_ours(seen, node), seen.node_facts[node.host].removing
    return [base for base in _directories_offered(node.report(NODE)) if found.get(base) or base in removing]


def bricks_of_ours(seen: Seen, node: NodeView) -> dict[str, list[str]]:
    """Base → the directories in it that are bricks of ours, or were. On a disk of ours that are all with a name that we
    give; elsewhere its agent says which: an earlier version of it says of none, and there they stay for now.
    """
    facts = seen.node_facts[node.host]
    return {
        base: sorted(
            name
            for name in names
            if (name.startswith(VOLUME_PREFIX) if is_on_device(base) else name in facts.ours.get(base, ()))
        )
        for base, names in sorted(facts.bricks.items())
    }


def beside_another(seen: Seen, volume: VolumeView) -> tuple[int, str] | None:
    """Position and why of a brick that took a place beside one that was dead and is back: both may be lost at once."""
    moved, width = seen.memory.moves.get(volume.name), layout_in(volume.details).width
    hosts = [place.host for place in seen.bricks[volume.name]]
    for position in sorted(int(one) for one in (moved.bricks if moved is not None else ())):
        begin = position - position % width
        if hosts[begin : begin + width].count(hosts[position]) > 1:
            return position, f"host {hosts[position]} has another copy of the same files"
    return None


def shared_zones(seen: Seen) -> dict[str, list[int]]:
    """Volume → zones with more bricks of one of its sets than may be lost at once. They were declared, or changed,
    after it was made.
    """
    zone_of = {node.host: node.zone for node in seen.view.nodes if node.host}
    if len(set(zone_of.values())) < 2:
        return {}
    found: dict[str, list[int]] = {}
    for volume in seen.view.volumes:
        layout, places = layout_in(volume.details), seen.bricks[volume.name]
        shared: set[int] = set()
        for begin in range(0, len(places) if layout.width > 1 else 0, layout.width):
            beside = [zone_of[one.host] for one in places[begin : begin + layout.width] if one.host in zone_of]
            shared |= {zone for zone in beside if beside.count(zone) > layout.per_zone}
        if shared:
            found[volume.name] = sorted(shared)
    return found


def bases_in_pool(seen: Seen, node: NodeView) -> list[str]:
    """Directories in which the pool has bricks of our volumes on a node, wherever they are to be; and disks of ours
    with a brick of any volume, for one that no PersistentVolume has any more is still somebody's.
    """
    uuid, ours = node_facts(node.report(NODE)).uuid, seen.own_facts
    bricks = [
        brick
        for name, fact in seen.facts.volumes.items()
        for brick in fact.bricks_on(uuid, address_of(node))
        if name in ours or is_on_device(_base_of(brick))
    ]
    moves = [moved.open for moved in seen.memory.moves.values() if moved.open is not None]
    bricks += [move.old for move in moves if move.place is not None and move.place.host == node.host]
    return [_base_of(brick) for brick in bricks]


def _base_of(brick: str) -> str:
    return brick.partition(":")[2].rpartition("/")[0]


def is_on_device(base: str) -> bool:
    """Whether it is a disk that the agent of a node mounts, and not a directory that somebody declared."""
    return is_mount_of(NODE, base)


def rooms_of(seen: Seen, *, without: str = "") -> list[Room]:
    """Where a brick may go now: on nodes that are ready and in the pool, less what was promised, and no more than is
    free where others write too. `without` is a volume that is being placed.
    """
    used = promised_to_nobody(seen, without=without)
    own: dict[tuple[str, str], int] = {}
    for volume in seen.view.volumes:
        layout, places = layout_in(volume.details), seen.bricks[volume.name]
        counted = used if volume.name != without else own
        for position, place in enumerate(places):
            where = (place.host, place.base)
            counted[where] = counted.get(where, 0) + share_of(layout, volume.size, len(places), position)
    rooms = []
    for base in seen.bases:
        node = seen.node(base.host)
        if node is None or not takes_bricks(seen, node):
            continue
        place = BrickPlace(base.node, base.host, base.address, base.path, base.path)
        if brick_state(seen, place)[0] != SERVING:
            continue
        where = (base.host, base.path)
        free = base.total - base.taken - base.total // _RESERVE - used.get(where, 0)
        if base.available is not None and base.total:
            free = min(free, base.available - base.total // _RESERVE + own.get(where, 0))
        rooms.append(Room(base.node, base.host, base.address, base.zone, base.path, free))
    return rooms


def promised_to_nobody(seen: Seen, *, without: str = "") -> dict[tuple[str, str], int]:
    """Host and directory → what bricks of volumes in nobody's books may come to hold there: these may be written to as
    before. One that does not say its size is not counted, nor one that was deleted and is only not looked for since.
    """
    found: dict[tuple[str, str], int] = {}
    for name, fact in seen.facts.volumes.items():
        if name in seen.bricks or name == without or fact.id in seen.memory.ended or not fact.promised:
            continue
        for node in [one for one in seen.view.nodes if one.host]:
            for brick in fact.bricks_on(seen.node_facts[node.host].uuid, address_of(node)):
                share = fact.promised[fact.bricks.index(brick) % len(fact.promised)]
                where = node.host, _base_of(brick)
                found[where] = found.get(where, 0) + share
    return found


def share_of(layout: Layout, size: int, bricks: int, position: int) -> int:
    """How much of a volume of that size a brick holds."""
    sets = max(1, bricks // layout.width)
    return layout.share(-(-size // sets), position)


def takes_bricks(seen: Seen, node: NodeView) -> bool:
    report = node.report(NODE)
    if report is None or not report.done or not node.healthy or node.leaving or node.wrong is not None:
        return False
    return in_pool(seen, node)


def in_pool(seen: Seen, node: NodeView) -> bool:
    """Whether the coordinator says that the node is in the pool and answers."""
    uuid = seen.node_facts[node.host].uuid if node.host else ""
    peer = seen.facts.peers.get(uuid)
    return peer is not None and peer.connected and peer.serves


def _bases(node: NodeView) -> list[Base]:
    address = address_of(node)
    return [
        Base(node.name, node.host, address, node.zone, base.path, base.total, base.taken, base.free)
        for base in bases_of(node.report(NODE))
    ]


def _pool_facts(view: ClusterView, coordinator: str) -> tuple[PoolFacts, Report | None, str]:
    """Those of the coordinator; while a new one has not looked yet, those of the one before it."""
    told = [
        (node.host == coordinator, node.host, report)
        for node in view.nodes
        if (report := node.report(POOL)) is not None and not report.absent and report.status.result is not None
    ]
    if not told:
        return PoolFacts(), None, ""
    _, host, report = max(told, key=lambda one: (one[0], one[1]))
    return read_pool_facts(report.status.result or {}), report, host
