"""Where there is room for a volume on one node: what was offered, less what was promised."""

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
    for volume in view.volumes:
        for host in volume.hosts if volume.name != without else ():
            where = (host, str(volume.details.get(BASE, "")))
            used[where] = used.get(where, 0) + volume.size
    rooms = []
    for node in view.nodes:
        report = node.report(agent, instance)
        if report is None or not report.done or not node.healthy or node.leaving or node.wrong is not None:
            continue
        rooms += [Room(node, base.path, base.total - used.get((node.host, base.path), 0)) for base in bases_of(report)]
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
