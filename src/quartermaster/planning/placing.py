"""Where there is room for a volume on one node: what was offered, less what was promised or others have taken.

Nor is more promised than is free now: what fills a file system may be something that nobody has told us of.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from quartermaster.planning.capacity import shown
from quartermaster.planning.cluster import ClusterView, NodeView, Verdict
from quartermaster.planning.offering import BASE, bases_of


class Room(msgspec.Struct, frozen=True):
    node: NodeView
    base: str
    free: int


def rooms_of(view: ClusterView, agent: str, instance: str = "", *, without: str = "") -> list[Room]:
    """On nodes that can take a volume now; `without` is a volume that does not count because it is being placed."""
    used: dict[tuple[str, str], int] = {}
    own: dict[tuple[str, str], int] = {}
    for volume in view.volumes:
        counted = used if volume.name != without else own
        for host in volume.hosts:
            where = (host, str(volume.details.get(BASE, "")))
            counted[where] = counted.get(where, 0) + volume.size
    rooms = []
    for node in view.nodes:
        report = node.report(agent, instance)
        if report is None or not report.done or not node.healthy or node.leaving or node.wrong is not None:
            continue
        for base in bases_of(report):
            where = (node.host, base.path)
            free = base.total - base.taken - used.get(where, 0)
            if base.free is not None and base.total:
                free = min(free, base.free + own.get(where, 0))
            rooms.append(Room(node, base.path, free))
    return rooms


def most_room(rooms: Sequence[Room], size: int, *, host: str = "", base: str = "") -> Room | Verdict:
    """The room with the most space that fits; else why there is none, with the numbers."""
    here = [room for room in rooms if host in ("", room.node.host) and base in ("", room.base)]
    if not here:
        return Verdict(False, "NoNode", f"no node is ready{f' on host {host}' if host else ''}")
    best = max(here, key=lambda room: room.free)
    if best.free >= size:
        return best
    most = f"the most that is free is {shown(max(best.free, 0))}, on node {best.node.name} in {best.base}"
    return Verdict(False, "NoSpace", f"{shown(size)} were asked for, and {most}")
