"""What is left of volumes for whoever gives up a host: pure.

By where bricks are now, not by where they were placed; and only what is known to be whole counts as a copy: an arbiter
is none, nor is a part of an erasure-coded volume without as many others as it takes to read it.
"""

from __future__ import annotations

from msgspec.structs import replace

from quartermaster.backends.base import Remains
from quartermaster.backends.glusterfs.facts import BrickPlace
from quartermaster.backends.glusterfs.keeping import is_being_made
from quartermaster.backends.glusterfs.seeing import DEAD, Seen, answers, brick_state, layout_in, see
from quartermaster.backends.glusterfs.wholeness import may_come_back, remembered
from quartermaster.planning.cluster import ClusterView, VolumeView

_WORST_FIRST = (Remains.NOTHING, Remains.SILENT, Remains.DOUBTFUL, Remains.WHOLE)


def remains_without(view: ClusterView, host: str) -> dict[str, Remains]:
    """Of each volume with a brick on the host, by the worst of its sets there."""
    seen = see(view)
    seen = replace(seen, memory=remembered(seen))
    found: dict[str, Remains] = {}
    for volume in view.volumes:
        places, width = _places(seen, volume), layout_in(volume.details).width
        begins = {at - at % width for at, place in enumerate(places) if place.host == host}
        sets = [range(begin, min(begin + width, len(places))) for begin in begins]
        if sets and not is_being_made(volume, view):
            fates = [_remains(seen, volume, places, one, host) for one in sets]
            found[volume.name] = min(fates, key=_WORST_FIRST.index)
    return found


def hosts_now(view: ClusterView) -> dict[str, tuple[str, ...]]:
    """Of each volume, the hosts of its bricks, in their order."""
    seen = see(view)
    return {one.name: tuple(dict.fromkeys(place.host for place in _places(seen, one))) for one in view.volumes}


def _places(seen: Seen, volume: VolumeView) -> list[BrickPlace]:
    """Where its bricks are: a move that was decided and not done yet has moved nothing."""
    places, fact = list(seen.bricks[volume.name]), seen.fact(volume.name)
    moved = seen.memory.moves.get(volume.name)
    move = moved.open if moved is not None else None
    if move is not None and move.place is not None:
        is_done = fact is not None and places[move.position].name in fact.bricks
        places[move.position] = places[move.position] if is_done else move.place
    return places


def _remains(seen: Seen, volume: VolumeView, places: list[BrickPlace], one: range, host: str) -> Remains:
    layout, behind = layout_in(volume.details), seen.memory.behind.get(volume.name, ())
    least = layout.data or 1
    others = [at for at in one if places[at].host != host and not layout.is_arbiter(at)]
    alive = [at for at in others if _may_be_read(seen, volume, places[at], at)]
    whole = [at for at in alive if at not in behind]
    if len(whole) >= least and seen.fact(volume.name) is not None and answers(seen, seen.facts_from):
        return Remains.WHOLE
    if len(alive) >= least:
        return Remains.DOUBTFUL
    there = [at for at in others if at in alive or may_come_back(seen, places[at])]
    return Remains.SILENT if len(there) >= least else Remains.NOTHING


def _may_be_read(seen: Seen, volume: VolumeView, place: BrickPlace, position: int) -> bool:
    """Its host lives, and nobody says that the brick does not run."""
    fact = seen.fact(volume.name)
    runs = fact is None or (position < len(fact.bricks) and position not in fact.offline)
    return runs and answers(seen, place.host) and brick_state(seen, place)[0] != DEAD
