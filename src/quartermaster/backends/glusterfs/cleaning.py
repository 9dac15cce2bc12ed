"""Directories of bricks that belong to no volume any more: what a deleted volume or a replaced brick leaves behind.

One is removed only when it is known to be ours, the leader knows no volume of its name that would have it there, the
pool knows none either, and every copy that took its place is whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from quartermaster.backends.glusterfs.facts import NODE, BrickPlace, VolumeFact
from quartermaster.backends.glusterfs.seeing import DEAD, Seen, address_of, brick_state, bricks_of_ours, layout_in
from quartermaster.planning.cluster import NodeView, Report
from quartermaster.resources.orchestration import FAILED, SUCCEEDED

EMPTIED = "emptied"  # told to a node that leaves, when the pool has no brick of it any more


def bricks_to_remove(seen: Seen, node: NodeView) -> list[str]:
    """By what its agent has told of its disks. While it is at work what it was asked to remove stands, else the two
    would never come to an end: to ask for it makes what was told older than what is asked.
    """
    report = node.report(NODE)
    if report is None:
        return []
    left, asked = _left_over(seen, node), (report.desired or {}).get("remove", ())
    return left if report.done else [path for path in left if path in asked]


def known_whole(seen: Seen, paths: Sequence[str]) -> dict[str, list[str]]:
    """Of the erasure-coded volumes among those whose left-overs go: the bricks that are whole. gluster counts nothing
    for one that took the place of another since, be it empty.
    """
    named = {path.rpartition("/")[2].partition(".")[0] for path in paths}
    coded = [one.name for one in seen.view.volumes if one.name in named and layout_in(one.details).data]
    return {name: list(fact.bricks) for name in coded if (fact := seen.fact(name)) is not None}


def has_to_clean(seen: Seen, node: NodeView) -> bool:
    """Whether the agent of a node that leaves has to look, or to remove something that it can remove. Until then it may
    have gluster at work, and its disks are needed.
    """
    return not _has_looked(node) or leaves_bricks(seen, node)


def _has_looked(node: NodeView) -> bool:
    """Whether the agent of a node that leaves has told what is on its disks since no brick is there any more. What it
    told before may be from before a volume was made.
    """
    report = node.report(NODE)
    if report is None or report.absent:
        return True
    ended = report.current and report.status.state in (SUCCEEDED, FAILED)
    return ended and bool((report.desired or {}).get(EMPTIED))


def leaves_bricks(seen: Seen, node: NodeView) -> bool:
    """Whether something is left that its agent can remove, now or when every copy is whole: by what it told last, also
    while it is at work.
    """
    report = node.report(NODE)
    if report is None or (report.current and report.status.state == FAILED):
        return False
    return _is_removing(seen, node) or bool(_bases_to_clean(seen, node))


def why_not_clean(seen: Seen, node: NodeView) -> str:
    """Nothing is said where nothing is left that its agent can remove."""
    if not leaves_bricks(seen, node):
        return ""
    when = "is being removed" if _is_removing(seen, node) else "goes when every copy of them is whole"
    return f"what its volumes have left on it {when}"


def disks_to_clean(seen: Seen, node: NodeView) -> list[str]:
    """Of the disks that its agent has and that are declared no more, those that are not let go yet: with bricks on them
    nobody would take them back. One that is gone is not waited for; nor is the last one where the agent fails, for that
    may be the fault of the disk.
    """
    report = node.report(NODE)
    dropped = _dropped_disks(node, report) if node.host else []
    if report is None or not dropped:
        return []
    if report.current and report.status.state == FAILED and not (node.devices or node.directories):
        return []
    bases = {*_bases_to_clean(seen, node), *_bases_at_work(seen, node)}
    return sorted(base for base in bases if any(base.endswith(f"/{uuid}") for uuid in dropped))


def _dropped_disks(node: NodeView, report: Report | None) -> list[str]:
    """The UUIDs of their file systems."""
    listed = ((report.desired if report is not None else None) or {}).get("devices", ())
    declared = {name for one in node.devices for name in (one.id, one.path)}
    return [entry["uuid"] for entry in listed if (entry["id"] or entry["path"]) not in declared]


def _is_removing(seen: Seen, node: NodeView) -> bool:
    """Whether its agent is at it, and has not come to its end yet."""
    return bool(_bases_at_work(seen, node))


def _bases_at_work(seen: Seen, node: NodeView) -> list[str]:
    return [base for base in seen.node_facts[node.host].removing if not _is_dead(seen, node, base)]


def _bases_to_clean(seen: Seen, node: NodeView) -> list[str]:
    """With something that nobody would have there. What a volume in nobody's books has left stays."""
    bases = {base for base, name in _superseded(seen, node) if not _is_nobodys(seen, _volume_of(name))}
    return sorted(base for base in bases if not _is_dead(seen, node, base))


def _left_over(seen: Seen, node: NodeView) -> list[str]:
    return [f"{base}/{name}" for base, name in _superseded(seen, node) if _is_replaced(seen, _volume_of(name))]


def _superseded(seen: Seen, node: NodeView) -> list[tuple[str, str]]:
    """Those that nobody would have there, the leader no more than the pool."""
    if not seen.facts_from:
        return []
    found = [(base, name) for base, names in bricks_of_ours(seen, node).items() for name in names]
    return [(base, name) for base, name in found if not _is_wanted(seen, node, base, name)]


def _is_dead(seen: Seen, node: NodeView, base: str) -> bool:
    return brick_state(seen, BrickPlace(node.name, node.host, address_of(node), base, base))[0] == DEAD


def _is_wanted(seen: Seen, node: NodeView, base: str, name: str) -> bool:
    volume, path = _volume_of(name), f"{base}/{name}"
    fact = seen.fact(volume)
    planned = any(
        place.host == node.host and place.path == path and not _has_another_name(fact, position, place)
        for position, place in enumerate(seen.bricks.get(volume, ()))
    )
    held = fact.bricks_on(seen.node_facts[node.host].uuid, address_of(node)) if fact is not None else ()
    return planned or any(brick.endswith(f":{path}") for brick in held)


def _is_nobodys(seen: Seen, volume: str) -> bool:
    """In the pool and in no book, and so it stays: what it left is not known to be replaced, and stays on its disk."""
    return seen.fact(volume) is not None and all(one.name != volume for one in seen.view.volumes)


def _is_replaced(seen: Seen, volume: str) -> bool:
    """Whether every copy of the volume is whole, or there is no such volume any more."""
    fact = seen.fact(volume)
    if all(one.name != volume for one in seen.view.volumes):
        return fact is None
    moved = seen.memory.moves.get(volume)
    under_way = moved is not None and moved.open is not None
    return fact is not None and fact.healed and volume not in seen.memory.behind and not under_way


def _volume_of(name: str) -> str:
    return name.partition(".")[0]


def _has_another_name(fact: VolumeFact | None, position: int, place: BrickPlace) -> bool:
    """An attempt to make a volume that was refused leaves directories behind, and the next one has other names."""
    made = fact.bricks[position] if fact is not None and position < len(fact.bricks) else ""
    return made.startswith(f"{place.name}.")
