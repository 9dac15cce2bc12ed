"""Which bricks go elsewhere, and when it is safe: those of dead disks and lost hosts, and those that are to leave.

One brick of a volume at a time, and the next only when the copy is whole. A brick that can still be read is given up
only when every copy is whole and all of them answer. One that is dead is given up as soon as enough others live to make
it anew from. What is decided is remembered before it is done, so the next leader goes on with the same brick.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from quartermaster.backends.glusterfs.facts import MOVE, BrickPlace, Moved, OpenMove, VolumeFact
from quartermaster.backends.glusterfs.layouts import Layout, Room, choose_substitute
from quartermaster.backends.glusterfs.seeing import (
    DEAD,
    SERVING,
    Seen,
    brick_state,
    bricks_of,
    layout_in,
    owner_of,
    rooms_of,
    share_of,
)
from quartermaster.planning.cluster import Desired, Verdict, VolumeView

AT_ONCE = 4  # volumes of which a brick is on its way
_USED_BEFORE = "part of a volume"


class Moves(msgspec.Struct, frozen=True):
    moved: Mapping[str, Moved]  # to be remembered
    stuck: Mapping[str, str]  # volume → why a brick of it that should go stays


def decide_moves(seen: Seen) -> Moves:
    moved: dict[str, Moved] = {}
    stuck: dict[str, str] = {}
    rooms = rooms_of(seen)
    under_way = sum(one.open is not None for one in seen.memory.moves.values())
    for volume in seen.view.volumes:
        known = seen.memory.moves.get(volume.name, Moved())
        fact = seen.fact(volume.name)
        if fact is None or fact.owner != owner_of(seen.view.key) or not volume.details.get("bricks"):
            if known != Moved():
                moved[volume.name] = known
            continue
        current = _closed(known, fact)
        wanted = _wanted(seen, volume, current, fact)
        if isinstance(wanted, OpenMove) and (current.open is not None or under_way < AT_ONCE):
            target = _target(seen, volume, current, wanted, rooms)
            if isinstance(target, Verdict):
                stuck[volume.name] = f"{wanted.why}; {target.message}"
            else:
                under_way += current.open is None
                layout, places = layout_in(volume.details), bricks_of(volume, current)
                taken = share_of(layout, volume.size, len(places), wanted.position)
                rooms = [_less(room, target, taken) for room in rooms]
                current = _opened(volume, current, wanted, target)
        elif isinstance(wanted, str) and wanted:
            stuck[volume.name] = wanted
        if current != Moved():
            moved[volume.name] = current
    return Moves(moved, stuck)


def move_assignments(seen: Seen, moves: Moves, coordinator: str) -> list[Desired]:
    """One for each brick under way, on the coordinator; what is left of others is taken back."""
    wanted: dict[tuple[str, str], Desired] = {}
    for volume in seen.view.volumes:
        moved = moves.moved.get(volume.name)
        if moved is None or moved.open is None or not coordinator:
            continue
        place = bricks_of(volume, moved)[moved.open.position]
        config = {"volume": volume.name, "old": moved.open.old, "new": place.name}
        instance = f"brick-{volume.name}"
        wanted[coordinator, instance] = Desired(
            coordinator,
            MOVE,
            config,
            instance,
            deadline_s=300.0,
            why=moved.open.why,
            destroys=f"the copy of {volume.name} on {moved.open.old} is given up, node {place.node} takes its place",
        )
    over = [
        Desired(node.host, MOVE, None, report.instance, why="the brick is in its place")
        for node in seen.view.nodes
        for report in node.reports
        if report.agent == MOVE and (node.host, report.instance) not in wanted
    ]
    return [*wanted.values(), *over]


def _closed(known: Moved, fact: VolumeFact) -> Moved:
    """A move is over when the new brick is in its place and every copy is whole."""
    move = known.open
    if move is None:
        return known
    place = known.bricks[str(move.position)]
    applied = place.name in fact.bricks and move.old not in fact.bricks
    return replace(known, open=None) if applied and fact.healed and fact.pending == 0 else known


def _wanted(seen: Seen, volume: VolumeView, moved: Moved, fact: VolumeFact) -> OpenMove | str:
    """The brick that should go next; else why one that should go has to wait, or nothing."""
    states = [brick_state(seen, place) for place in bricks_of(volume, moved)]
    if moved.open is not None:
        return _again(seen, moved, fact, states)
    known = [(position, *states[position]) for position in range(min(len(states), len(fact.bricks)))]
    dead = next(((position, why) for position, state, why in known if state == DEAD), None)
    if dead is not None:
        return _made_anew(volume, fact, states, *dead)
    leaving = next(((position, why) for position, state, why in known if state != SERVING), None)
    return _moved_away(volume, fact, *leaving) if leaving is not None else ""


def _made_anew(
    volume: VolumeView, fact: VolumeFact, states: list[tuple[str, str]], position: int, why: str
) -> OpenMove | str:
    layout = layout_in(volume.details)
    sources, least = _living(layout, states, fact, position), layout.data or 1
    if sources < least:
        return f"{why}, and {sources} of the {least} copies that are needed to make it anew can be read"
    return OpenMove(position, fact.bricks[position], f"{why}: its copy of {volume.name} is made anew", dead=True)


def _moved_away(volume: VolumeView, fact: VolumeFact, position: int, why: str) -> OpenMove | str:
    if layout_in(volume.details).width == 1:
        return f"{why}; {volume.name} is kept in one copy, which cannot move by itself"
    if not fact.healed or fact.pending is None:
        return f"{why}; {volume.name} is not whole: {_missing(fact)}"
    return OpenMove(position, fact.bricks[position], f"{why}: {volume.name} moves elsewhere")


def _again(seen: Seen, moved: Moved, fact: VolumeFact, states: list[tuple[str, str]]) -> OpenMove | str:
    """Another target for a move that is open, where the first one died or cannot be used before it took its place."""
    move = moved.open
    if move is None:
        return ""
    place = moved.bricks[str(move.position)]
    if place.name in fact.bricks:
        # It has taken its place: dead now, it is replaced as any other brick is.
        if states[move.position][0] == DEAD:
            why = f"{states[move.position][1]}: a third copy is made"
            return OpenMove(move.position, place.name, why, dead=True)
        return ""
    refused = any(
        report.agent == MOVE
        and (report.desired or {}).get("new") == place.name
        and report.current
        and _USED_BEFORE in report.status.message
        for node in seen.view.nodes
        for report in node.reports
    )
    return move if refused or states[move.position][0] == DEAD else ""


def _living(layout: Layout, states: list[tuple[str, str]], fact: VolumeFact, position: int) -> int:
    """How many other bricks of the same set live."""
    begin = position - position % layout.width
    return sum(
        states[other][0] != DEAD and other < len(fact.bricks) and fact.bricks[other] not in fact.offline
        for other in range(begin, min(begin + layout.width, len(states)))
        if other != position
    )


def _target(seen: Seen, volume: VolumeView, moved: Moved, move: OpenMove, rooms: list[Room]) -> Room | Verdict:
    layout, places = layout_in(volume.details), bricks_of(volume, moved)
    begin = move.position - move.position % layout.width
    others = [
        (place.node, _zone(seen, place))
        for number, place in enumerate(places[begin : begin + layout.width], begin)
        if number != move.position and brick_state(seen, place)[0] != DEAD
    ]
    sets = max(1, len(places) // layout.width)
    # The very place that is to be given up is no way out.
    old = places[move.position]
    left = [room for room in rooms if (room.host, room.base) != (old.host, old.base)]
    return choose_substitute(left, layout, -(-volume.size // sets), move.position, others)


def _zone(seen: Seen, place: BrickPlace) -> int:
    node = seen.node(place.host)
    return node.zone if node is not None else 0


def _opened(volume: VolumeView, moved: Moved, move: OpenMove, room: Room) -> Moved:
    count = moved.count + 1
    place = BrickPlace(room.node, room.host, room.address, room.base, f"{room.base}/{volume.name}.m{count}")
    return Moved(count, {**moved.bricks, str(move.position): place}, move)


def _less(room: Room, chosen: Room, taken: int) -> Room:
    same = (room.host, room.base) == (chosen.host, chosen.base)
    return replace(room, free=room.free - taken) if same else room


def _missing(fact: VolumeFact) -> str:
    if fact.offline:
        return f"{len(fact.offline)} of its bricks do not run"
    if fact.pending:
        return f"{fact.pending} entries are to be healed"
    return "what is to be healed is being counted" if fact.started else "it is stopped"
