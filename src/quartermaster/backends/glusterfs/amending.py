"""What was decided of the bricks of a volume, as far as it still holds: pure.

A move is remembered before it is done. By the time it is looked at again it may be over, be done otherwise than was
known, or have to make room for another one.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from msgspec.structs import replace

from quartermaster.backends.glusterfs.facts import BrickPlace, Moved, OpenMove, VolumeFact
from quartermaster.backends.glusterfs.filling import unfilled
from quartermaster.backends.glusterfs.seeing import DEAD, LEAVING, Seen, brick_state, bricks_of, is_named
from quartermaster.planning.cluster import VolumeView


def amended(seen: Seen, volume: VolumeView, known: Moved, fact: VolumeFact, *, doomed: bool) -> Moved:
    """`doomed`: the volume is being deleted."""
    closed = known if _may_be_empty(seen, volume, known) and not doomed else _closed(known, fact, doomed=doomed)
    found = _as_found(seen, volume, closed, fact)
    return _yielding(seen, volume, _located(seen, volume, found, fact), fact)


def old_place(seen: Seen, move: OpenMove) -> tuple[BrickPlace | None, str, str]:
    """Where the brick is that is to be given up, what it is, and why. While nobody knows on which host it is, it is one
    that can be read.
    """
    if move.place is None:
        return None, LEAVING, f"on which node {move.old} is nobody knows"
    return move.place, *brick_state(seen, move.place)


def _located(seen: Seen, volume: VolumeView, moved: Moved, fact: VolumeFact) -> Moved:
    """An earlier version did not write down where the old brick is."""
    move = moved.open
    if move is None or move.place is not None:
        return moved
    return replace(moved, open=replace(move, place=place_of(seen, volume, moved, fact, move.old)))


def place_of(seen: Seen, volume: VolumeView, moved: Moved, fact: VolumeFact, brick: str) -> BrickPlace | None:
    """By what was decided, else by the UUID of its peer, else by its address, which is the weakest: a host has several,
    and they change. It may be on one that is no node; None: nobody knows.
    """
    for place in (*bricks_of(volume, moved), *bricks_of(volume)):
        if is_named(place, brick):
            return replace(place, path=brick.partition(":")[2])
    address, _, path = brick.partition(":")
    uuid = fact.peer_of(brick)
    hosts = {facts.uuid: host for host, facts in seen.node_facts.items() if facts.uuid}
    host = {**seen.memory.members, **hosts}.get(uuid) if uuid else None
    node = seen.node(host) if host else None
    if host is None:
        node = next((one for one in seen.view.nodes if one.host and address in (one.host, *one.addresses)), None)
        if node is None and not (uuid and len(hosts) == len(seen.view.nodes)):
            return None
    name = node.host if node is not None else host or address
    return BrickPlace(node.name if node is not None else name, name, address, str(PurePosixPath(path).parent), path)


def _may_be_empty(seen: Seen, volume: VolumeView, known: Moved) -> bool:
    """Whether the new brick may be, although nothing is counted. Of one whose host is no node any more nobody will ever
    know: it has to leave, and until then none of the others does.
    """
    move = known.open
    if move is None or move.position not in unfilled(seen, volume):
        return False
    return seen.node(known.bricks[str(move.position)].host) is not None


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
    """Whoever was told not to move a brick any more may have done it before he heard. And a volume that was placed anew
    may have been made before, by a host that was given up since.
    """
    if not seen.facts_current:
        return moved
    bricks, move = dict(moved.bricks), moved.open
    for position, place in enumerate(bricks_of(volume, moved)[: len(fact.bricks)]):
        name, is_open = fact.bricks[position], moved.open is not None and moved.open.position == position
        if is_named(place, name):
            continue
        found = place_of(seen, volume, moved, fact, name)
        if move is not None and is_open:
            # Done with another target, before whoever did it heard of this one: now that one has to go, or stays.
            move = replace(move, old=name, place=found) if name != move.old else move
        elif found is not None:
            bricks[str(position)] = found
    return moved if (bricks, move) == (moved.bricks, moved.open) else replace(moved, bricks=bricks, open=move)


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
