"""Directories of bricks that belong to no volume any more: what a deleted volume or a replaced brick leaves behind.

One is removed only when the leader knows no volume of its name that would have it there, the pool knows none either,
and every copy that took its place is whole.
"""

from __future__ import annotations

from quartermaster.backends.glusterfs.facts import NODE
from quartermaster.backends.glusterfs.seeing import Seen, address_of
from quartermaster.planning.cluster import NodeView

VOLUME_PREFIX = "pvc-"


def bricks_to_remove(seen: Seen, node: NodeView) -> list[str]:
    report = node.report(NODE)
    if not seen.facts_from or report is None or not report.done:
        return []
    return [
        f"{base}/{name}"
        for base, directories in sorted(seen.node_facts[node.host].bricks.items())
        for name in sorted(directories)
        if _is_left_over(seen, node, base, name)
    ]


def _is_left_over(seen: Seen, node: NodeView, base: str, name: str) -> bool:
    volume, path = name.partition(".")[0], f"{base}/{name}"
    if not volume.startswith(VOLUME_PREFIX):
        return False
    known = next((one for one in seen.view.volumes if one.name == volume), None)
    fact = seen.fact(volume)
    if known is None:
        return fact is None
    planned = any(place.host == node.host and place.path == path for place in seen.bricks[volume])
    if planned or fact is None or not fact.healed or volume in seen.memory.behind:
        return False
    moved = seen.memory.moves.get(volume)
    under_way = moved is not None and moved.open is not None
    return not under_way and f"{address_of(node)}:{path}" not in fact.bricks
