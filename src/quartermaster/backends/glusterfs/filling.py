"""Whether a brick that took the place of another one in an erasure-coded volume has been filled: pure.

Of a replicated volume the others mark a new brick as one that lacks everything before it serves. Of an erasure-coded
one nobody does: until the daemon that heals has healed the root of the new brick, gluster counts nothing to be healed,
and an empty brick looks like a whole one. It heals in an order: before a name is made on the new brick its entry is
marked at the others; a directory gets its version when all names in it are made, and loses its mark after that. So from
the moment on in which the root has its version, whatever is not healed is marked, or is in a directory that is.

1. The root of the new brick has a version, which no new directory has; or none of the set has one, for nothing was ever
   written there. Its host tells it (`root_agent`).
2. After that, each of the others was seen to have no directory marked but the root: whatever is not healed is a file,
   and marked. A count alone does not say so: a directory may be done, and what is in it be marked, between the moments
   in which gluster lists the marks and looks at what they mean.
3. A count that was asked for after that shows nothing to be healed.

Where somebody makes and removes files without a pause a directory is always marked. There, nothing to be healed in any
count for minutes has to do: one moment may be missed by a count, and not all of them. What was found so is remembered.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from quartermaster.backends.glusterfs.facts import ROOT, BrickPlace, VolumeFact
from quartermaster.backends.glusterfs.seeing import Seen, address_of, bricks_of, is_named, layout_in
from quartermaster.planning.cluster import Desired, NodeView, VolumeView

_MOVED = re.compile(r"\.m\d+$")


def unfilled(seen: Seen, volume: VolumeView) -> tuple[int, ...]:
    """Positions of bricks of which nobody knows yet that they were filled."""
    fact = seen.fact(volume.name)
    if fact is None or not layout_in(volume.details).data:
        return ()
    known = seen.memory.filled.get(volume.name, ())
    return tuple(
        at
        for at, (place, brick) in enumerate(zip(bricks_of(volume), fact.bricks, strict=False))
        if brick not in known and not _is_made_there(place, brick)
    )


def _is_made_there(place: BrickPlace, brick: str) -> bool:
    """With the volume, and not by a move, whose number follows an m."""
    return is_named(place, brick) and not _MOVED.search(brick)


def filled(seen: Seen, volume: VolumeView) -> tuple[str, ...]:
    """The bricks that are known to have been filled, to be remembered as long as the volume has them."""
    fact, known = seen.fact(volume.name), seen.memory.filled.get(volume.name, ())
    if fact is None or not seen.facts_current:
        return known
    is_whole = fact.pending == 0 and fact.healed
    found = [fact.bricks[at] for at in unfilled(seen, volume)] if is_whole else []
    now = [brick for brick in found if brick in seen.clear or (brick in seen.rooted and fact.quiet)]
    return tuple(brick for brick in fact.bricks if brick in known or brick in now)


def rooted(seen: Seen) -> list[str]:
    """New bricks whose roots are known to have been healed."""
    return _those(seen, _is_rooted)


def clear(seen: Seen) -> list[str]:
    """Those among them beside which no directory was marked after that: from now on a count says what they lack."""
    return _those(seen, _is_clear)


def unrooted(seen: Seen) -> list[str]:
    """Volumes with a brick whose root is not known to have been healed."""
    known = rooted(seen)
    return [
        volume.name
        for volume in seen.view.volumes
        if (fact := seen.fact(volume.name)) is not None
        and any(fact.bricks[at] not in known for at in unfilled(seen, volume))
    ]


def root_assignments(seen: Seen) -> list[Desired]:
    """For each host with a brick of a set that has a new one; what is left of others is taken back."""
    wanted: dict[tuple[str, str], Desired] = {}
    for volume in seen.view.volumes:
        fact, new = seen.fact(volume.name), unfilled(seen, volume)
        if fact is None or not new:
            continue
        beside = {fact.bricks[at] for one in new for at in _set_of(volume, fact, one)}
        config = {"new": [fact.bricks[at] for at in new]}
        if known := [fact.bricks[at] for at in new if _is_rooted(seen, volume, fact, at)]:
            config["rooted"] = known
        why = f"whether {fact.bricks[new[0]]} was filled is seen on the disks"
        for node in seen.view.nodes:
            paths = [brick.partition(":")[2] for brick in _bricks_on(seen, fact, node) if brick in beside]
            if paths and node.wrong is None:
                instance = _instance(volume)
                wanted[node.host, instance] = Desired(node.host, ROOT, {**config, "paths": paths}, instance, why=why)
    over = [
        Desired(node.host, ROOT, None, report.instance, why="every new brick was filled")
        for node in seen.view.nodes
        for report in node.reports
        if report.agent == ROOT and (node.host, report.instance) not in wanted
    ]
    return [*wanted.values(), *over]


_Rule = Callable[[Seen, VolumeView, VolumeFact, int], bool]


def _those(seen: Seen, rule: _Rule) -> list[str]:
    return [
        fact.bricks[at]
        for volume in seen.view.volumes
        if (fact := seen.fact(volume.name)) is not None
        for at in unfilled(seen, volume)
        if rule(seen, volume, fact, at)
    ]


def _is_rooted(seen: Seen, volume: VolumeView, fact: VolumeFact, position: int) -> bool:
    roots = _told(seen, volume, fact.bricks[position], "new", "roots")
    known = [roots.get(fact.bricks[at]) for at in _set_of(volume, fact, position)]
    return roots.get(fact.bricks[position]) is True or all(one is False for one in known)


def _is_clear(seen: Seen, volume: VolumeView, fact: VolumeFact, position: int) -> bool:
    """By all from which it is filled: one that may lack something itself knows of less."""
    others = [at for at in _set_of(volume, fact, position) if at not in unfilled(seen, volume)]
    found = _told(seen, volume, fact.bricks[position], "rooted", "clear")
    enough = len(others) >= layout_in(volume.details).data
    return enough and _is_rooted(seen, volume, fact, position) and all(found.get(fact.bricks[at]) for at in others)


def _told(seen: Seen, volume: VolumeView, new: str, question: str, answer: str) -> dict[str, bool]:
    """Brick → what its host says of it, of those that were asked it for the sake of the new one."""
    found: dict[str, bool] = {}
    fact = seen.fact(volume.name)
    for node in seen.view.nodes if fact is not None else ():
        report = node.report(ROOT, _instance(volume))
        if fact is None or report is None or not report.done or new not in (report.desired or {}).get(question, ()):
            continue
        told = (report.status.result or {}).get(answer, {})
        bricks = {brick: brick.partition(":")[2] for brick in _bricks_on(seen, fact, node)}
        found |= {brick: bool(told[path]) for brick, path in bricks.items() if path in told}
    return found


def _instance(volume: VolumeView) -> str:
    return f"roots-{volume.name}"


def _bricks_on(seen: Seen, fact: VolumeFact, node: NodeView) -> list[str]:
    return fact.bricks_on(seen.node_facts[node.host].uuid, address_of(node)) if node.host else []


def _set_of(volume: VolumeView, fact: VolumeFact, position: int) -> range:
    width = layout_in(volume.details).width
    begin = position - position % width
    return range(begin, min(begin + width, len(fact.bricks)))
