"""What was decided of the bricks of a volume, as far as it still holds: pure.

A move is remembered before it is done. By the time it is looked at again it may be over, be done otherwise than was
known, or have to make room for another one.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from msgspec.structs import replace

from quartermaster.backends.glusterfs.facts import BrickPlace, Moved, OpenMove, VolumeFact
from quartermaster.backends.glusterfs.seeing import DEAD, Seen, address_of, brick_state, bricks_of
from quartermaster.planning.cluster import VolumeView


def amended(seen: Seen, volume: VolumeView, known: Moved, fact: VolumeFact, *, doomed: bool) -> Moved:
    """`doomed`: the volume is being deleted."""
    return _yielding(seen, volume, _as_found(seen, volume, _closed(known, fact, doomed=doomed), fact), fact)


def old_place(seen: Seen, move: OpenMove) -> tuple[BrickPlace | None, str, str]:
    """Where the brick is that is to be given up, if its host is a node still; what it is, and why."""
    place = _place(seen, move.old)
    if place is None:
        return None, DEAD, f"{move.old.partition(':')[0]} is no node of this cluster any more"
    return place, *brick_state(seen, place)


def _place(seen: Seen, brick: str) -> BrickPlace | None:
    address, _, path = brick.partition(":")
    node = next((node for node in seen.view.nodes if node.host and address_of(node) == address), None)
    if node is None:
        return None
    return BrickPlace(node.name, node.host, address, str(PurePosixPath(path).parent), path)


def _closed(known: Moved, fact: VolumeFact, *, doomed: bool) -> Moved:
    """A move is over when the new brick is in its place and every copy is whole."""
    move = known.open
    if move is None:
        return known
    place = known.bricks[str(move.position)]
    applied = place.name in fact.bricks and move.old not in fact.bricks
    whole = doomed or (fact.healed and fact.pending == 0)
    return replace(known, open=None) if applied and whole else known


def _as_found(seen: Seen, volume: VolumeView, moved: Moved, fact: VolumeFact) -> Moved:
    """Whoever was told not to move a brick any more may have done it before he heard."""
    if not seen.facts_current:
        return moved
    bricks = dict(moved.bricks)
    for position, place in enumerate(bricks_of(volume, moved)[: len(fact.bricks)]):
        name, is_open = fact.bricks[position], moved.open is not None and moved.open.position == position
        # One that was made at the second attempt has a longer name.
        if is_open or name == place.name or name.startswith(f"{place.name}."):
            continue
        found = _place(seen, name)
        if found is not None:
            bricks[str(position)] = found
    return replace(moved, bricks=bricks) if bricks != moved.bricks else moved


def _yielding(seen: Seen, volume: VolumeView, moved: Moved, fact: VolumeFact) -> Moved:
    """A brick that can be read leaves only while all others answer: it stays where one of these is dead, which is made
    anew first. One that was dead and is back stays, too.
    """
    move, places = moved.open, bricks_of(volume, moved)
    if move is None or places[move.position].name in fact.bricks:
        return moved
    old, state, _ = old_place(seen, move)
    dead = any(brick_state(seen, place)[0] == DEAD for at, place in enumerate(places) if at != move.position)
    if old is None or state == DEAD or not (move.dead or dead):
        return moved
    return replace(moved, open=None, bricks={**moved.bricks, str(move.position): old})
