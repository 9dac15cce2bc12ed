"""Which bricks go elsewhere, and when it is safe: those of dead disks and lost hosts, and those that are to leave.

One brick of a volume at a time, and the next only when the copy is whole. A brick that can still be read is given up
only when every copy is whole and all of them answer. One that is dead is given up as soon as enough others run that are
known to be whole; where it can never come back, as soon as enough others run. What is decided is remembered before it
is done, so the next leader goes on with the same brick.

Of a volume that is being deleted no copy is wanted. But gluster deletes none while a peer is away, and lets no peer go
that has a brick: the brick of a host that was given up goes anywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from quartermaster.backends.glusterfs.amending import amended, old_place, place_of
from quartermaster.backends.glusterfs.bounds import why_no_move
from quartermaster.backends.glusterfs.facts import MOVE, MOVE_PREFIX, BrickPlace, Moved, OpenMove, VolumeFact
from quartermaster.backends.glusterfs.filling import unfilled
from quartermaster.backends.glusterfs.keeping import is_doomed, is_forced
from quartermaster.backends.glusterfs.layouts import Room, choose_substitute
from quartermaster.backends.glusterfs.reasons import LACKING, USED_BEFORE
from quartermaster.backends.glusterfs.seeing import (
    DEAD,
    SERVING,
    Seen,
    beside_another,
    brick_state,
    bricks_of,
    is_named,
    layout_in,
    owner_of,
    rooms_of,
    share_of,
)
from quartermaster.backends.glusterfs.volumes import allowed_clients
from quartermaster.backends.glusterfs.wholeness import KNOWING_LESS, States, copies_beside, lost_name, may_come_back
from quartermaster.planning.cluster import DRAIN, Desired, Verdict, VolumeView

AT_ONCE = 4  # volumes of which a brick is on its way


class _Case(msgspec.Struct, frozen=True):
    """One volume: where its bricks are to be, what these are, and what the pool says."""

    volume: VolumeView
    moved: Moved
    fact: VolumeFact
    places: tuple[BrickPlace, ...]
    states: States
    doomed: bool  # it is being deleted


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
        case = _with_sources(seen, _case(seen, volume, known, fact))
        current, wanted = case.moved, _wanted(seen, case)
        if isinstance(wanted, OpenMove) and (current.open is not None or under_way < AT_ONCE):
            anywhere = rooms if wanted.needed or rooms else rooms_of(_as_if_all_stayed(seen))
            target = _target(seen, volume, current, wanted, anywhere)
            if full := why_no_move(seen, current, wanted.position):
                stuck[volume.name] = f"{wanted.why}; {full}"
            elif isinstance(target, Verdict):
                stuck[volume.name] = f"{wanted.why}; {target.message}"
            else:
                under_way += current.open is None
                layout, places = layout_in(volume.details), bricks_of(volume, current)
                taken = share_of(layout, volume.size, len(places), wanted.position)
                rooms = [_less(room, target, taken) for room in rooms]
                current = replace(_opened(volume, current, wanted, target), of=fact.id)
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
        config = {
            "volume": volume.name,
            "old": moved.open.old,
            "new": place.name,
            "dead": moved.open.dead,
            "sources": list(moved.open.sources),
            "needed": moved.open.needed,
            "returns": moved.open.returns,
            "allow": allowed_clients(seen.view),
        }
        old, _, _ = old_place(seen, moved.open)
        if moved.open.dead and (old is None or seen.node(old.host) is None):
            config["spared"] = True
        if not moved.open.needed and is_forced(volume, seen.view):
            config["forced"] = True
        if processes := _processes(seen, volume, moved.open):
            config["processes"] = processes
        if beside := _dead_beside(seen, volume, moved, moved.open):
            config["beside"] = beside
        instance = f"{MOVE_PREFIX}{volume.name}"
        desired = Desired(coordinator, MOVE, config, instance, deadline_s=300.0, why=moved.open.why)
        fact = seen.fact(volume.name)
        if fact is None or place.name not in fact.bricks:
            desired = _destroying(desired, moved.open, volume.name, place)
        wanted[coordinator, instance] = desired
    over = [
        Desired(node.host, MOVE, None, report.instance, why="the brick is in its place")
        for node in seen.view.nodes
        for report in node.reports
        if report.agent == MOVE and (node.host, report.instance) not in wanted
    ]
    return [*wanted.values(), *over]


def _destroying(desired: Desired, move: OpenMove, volume: str, place: BrickPlace) -> Desired:
    """What somebody approves is that this brick is given up for that one. From what the new one is made, and which
    processes have to run then, follows what happens meanwhile, and no other approval is needed for that. But whoever
    gives up a copy of a volume that nobody wants has not given up one that is wanted again. While the decision of now
    waits, none from before stands: it may have been made on other grounds.
    """
    wish = "" if move.needed else "; nothing of the volume is wanted any more"
    destroys = f"the copy of {volume} on {move.old} is given up, node {place.node} takes its place{wish}"
    return replace(
        desired,
        destroys=destroys,
        loses={"volume": volume, "old": move.old, "new": place.name, "destroys": destroys},
        instead=replace(desired, config=None, why="how it is to be moved now waits for an approval"),
    )


def _dead_beside(seen: Seen, volume: VolumeView, moved: Moved, move: OpenMove) -> list[str]:
    """Copies of the same files on the host that gets the new one: none of them is to live, now or when it is done.
    They are called as the pool calls them.
    """
    places, width, fact = bricks_of(volume, moved), layout_in(volume.details).width, seen.fact(volume.name)
    names = fact.bricks if fact is not None else ()
    begin = move.position - move.position % width
    others = [at for at in range(begin, min(begin + width, len(places), len(names))) if at != move.position]
    beside = [at for at in others if places[at].host == places[move.position].host]
    return [names[at] for at in beside if brick_state(seen, places[at])[0] == DEAD]


def _processes(seen: Seen, volume: VolumeView, move: OpenMove) -> dict[str, str]:
    """Of the copies from which a dead brick is made anew because they are whole: one that was started since may lack
    something.
    """
    fact, known = seen.fact(volume.name), seen.memory.processes.get(volume.name, ())
    if fact is None or not move.dead or not (move.returns or move.whole):
        return {}
    return {brick: ran for brick, ran in zip(fact.bricks, known, strict=False) if ran and brick in move.sources}


def _wanted(seen: Seen, case: _Case) -> OpenMove | str:
    """The brick that should go next; else why one that should go has to wait, or nothing."""
    move = case.moved.open
    if move is not None:
        again = _again(seen, case, move)
        in_place = case.places[move.position].name in case.fact.bricks
        # Another one that dies before the copy is whole would keep it from being so for ever.
        others = [at for at in _known(seen, case) if case.states[at][0] == DEAD and at != move.position]
        if again or not in_place:
            return again or _why_it_waits(seen, case, move)
        return _made_anew(seen, case, others[0]) if others else ""
    if case.doomed:
        return _dropped(seen, case)
    known = _known(seen, case)
    dead = next((at for at in known if case.states[at][0] == DEAD), None)
    if dead is not None:
        return _made_anew(seen, case, dead)
    leaving = next(((at, case.states[at][1]) for at in known if case.states[at][0] != SERVING), None)
    leaving = leaving or beside_another(seen, case.volume)
    return _moved_away(seen, case, *leaving) if leaving is not None and leaving[0] in known else ""


def _known(seen: Seen, case: _Case) -> list[int]:
    """Positions of bricks of which it can be said whether they should go. Where the pool has another brick than was
    decided, a move was done after it was taken back, and whoever speaks for the pool now has to tell of it first.
    """
    pairs = list(zip(case.places, case.fact.bricks, strict=False))
    return [at for at, (place, name) in enumerate(pairs) if seen.facts_current or is_named(place, name)]


def _why_it_waits(seen: Seen, case: _Case, move: OpenMove) -> str:
    old, state, why = old_place(seen, move)
    if case.doomed:
        return ""
    if not (move.dead or state == DEAD):
        _, empty = _copies_beside(seen, case, move.position)
        return _not_filled(move.why, case, empty[0]) if empty else ""
    if old is None:
        return f"{move.why}; {why}"
    found = _sources(seen, case, move.position, old, why)
    if isinstance(found, str) or not _is_refused(seen, case.places[move.position], LACKING):
        return found if isinstance(found, str) else ""
    return f"{why}, and the other copies {KNOWING_LESS}: bring it back, or {_give_up(seen, old)}"


def _case(seen: Seen, volume: VolumeView, known: Moved, fact: VolumeFact) -> _Case:
    doomed = is_doomed(volume, seen.view)
    moved = amended(seen, volume, known, fact, doomed=doomed)
    places = bricks_of(volume, moved)
    return _Case(volume, moved, fact, places, [brick_state(seen, place) for place in places], doomed)


def _with_sources(seen: Seen, case: _Case) -> _Case:
    """While the old brick has its place, those that the new one is made from are the ones that are whole by now: none
    where too few are, for one that was whole when it was decided may have been away since. One that was to leave may
    have died; and one beside it may have been replaced by somebody who was told to before that.
    """
    move = case.moved.open
    if move is None or case.places[move.position].name in case.fact.bricks:
        return case
    old, state, why = old_place(seen, move)
    if case.doomed:
        returns = old is not None and may_come_back(seen, old)
        unwanted = replace(move, dead=True, sources=(), needed=0, returns=returns)
        return replace(case, moved=replace(case.moved, open=unwanted))
    known = replace(move, needed=_least(case))
    if old is None and move.dead:
        known = replace(known, sources=())  # it waits: whoever is to give it up finds too few
    elif old is not None and (move.dead or state == DEAD):
        found = _sources(seen, case, move.position, old, why)
        sources = found if isinstance(found, tuple) else ()
        whole = _are_whole(seen, case, move.position, sources)
        known = replace(known, dead=True, sources=sources, whole=whole, returns=may_come_back(seen, old))
    elif old is not None:
        known = replace(known, sources=_copies_beside(seen, case, move.position)[0])
    return replace(case, moved=replace(case.moved, open=known))


def _least(case: _Case) -> int:
    """So many copies make a file."""
    return layout_in(case.volume.details).data or 1


def _made_anew(seen: Seen, case: _Case, position: int) -> OpenMove | str:
    why, place = case.states[position][1], case.places[position]
    found = _sources(seen, case, position, place, why)
    if isinstance(found, str):
        return found
    about, returns = f"{why}: its copy of {case.volume.name} is made anew", may_come_back(seen, place)
    whole, least = _are_whole(seen, case, position, found), _least(case)
    return _opening(seen, case, position, about, dead=True, sources=found, whole=whole, needed=least, returns=returns)


def _opening(seen: Seen, case: _Case, position: int, why: str, **more: Any) -> OpenMove:
    old = case.fact.bricks[position]
    return OpenMove(position, old, why, place=place_of(seen, case.volume, case.moved, case.fact, old), **more)


def _sources(seen: Seen, case: _Case, position: int, dead: BrickPlace, why: str) -> tuple[str, ...] | str:
    """The copies from which a brick that is dead can be made anew; else why it has to stay."""
    least = _least(case)
    whole, alive = copies_beside(seen, case.volume, case.fact, case.states, position)
    if not may_come_back(seen, dead) and len(whole) < least and (away := _away_beside(seen, case, position, alive)):
        return (
            f"{why}, and what runs of {case.volume.name} is not known to be whole, while {away.name} does not run and "
            f"may hold what it lacks: bring that back, or {_give_up(seen, away)}"
        )
    sources = whole if may_come_back(seen, dead) or len(whole) >= least else alive
    if len(sources) >= least:
        return sources
    lacking = f"{why}, and {len(sources)} of the {least} copies that are needed to make it anew can be read"
    if len(alive) < least:
        return lacking
    doubt = "it may hold what the others lack"
    return f"{lacking} and are known to be whole: {doubt}; bring it back, or {_give_up(seen, dead)}"


def _are_whole(seen: Seen, case: _Case, position: int, sources: Collection[str]) -> bool:
    """Else they are all there is for one that can never come back."""
    return set(sources) <= set(copies_beside(seen, case.volume, case.fact, case.states, position)[0])


def _away_beside(seen: Seen, case: _Case, position: int, alive: Collection[str]) -> BrickPlace | None:
    """A copy that does not run and may do so again. Made from one that lacks what it has, a new brick would look like a
    whole one to it, and be healed over it.
    """
    layout = layout_in(case.volume.details)
    begin = position - position % layout.width
    for at in range(begin, min(begin + layout.width, len(case.places), len(case.fact.bricks))):
        is_away = at != position and not layout.is_arbiter(at) and case.fact.bricks[at] not in alive
        if is_away and (case.states[at][0] != DEAD or may_come_back(seen, case.places[at])):
            return case.places[at]
    return None


def _dropped(seen: Seen, case: _Case) -> OpenMove | str:
    """The brick of a host that was given up, or of a disk that can never come back: else its node would miss the disk
    for as long as gluster does not delete the volume, and that may be until another node is ready. One that is only not
    found stays: the volume may be kept after all.
    """
    missed = ""
    for position in _known(seen, case):
        place = case.places[position]
        node, (state, why) = seen.node(place.host), case.states[position]
        is_left = node is None or (node.leaving == DRAIN and node.lost)
        returns, about = may_come_back(seen, place), f"{why}, and {case.volume.name} is being deleted"
        if is_left or (state == DEAD and not returns):
            return _opening(seen, case, position, about, dead=True, returns=returns)
        if state == DEAD and node is not None and node.healthy:
            missed = missed or f"{about}: bring it back, or {_give_up(seen, place)}"
    return missed


def _give_up(seen: Seen, place: BrickPlace) -> str:
    """What a person can do who knows that it will never be back: of a host that lives, it is the disk that is lost."""
    node = seen.node(place.host)
    if node is not None and node.healthy:
        return f"give the disk up by naming {lost_name(node, place)} in spec.wipe of StorageNode {node.name}"
    return f"give it up with `qm node remove {place.node} --lost`"


def _moved_away(seen: Seen, case: _Case, position: int, why: str) -> OpenMove | str:
    volume, fact, layout = case.volume, case.fact, layout_in(case.volume.details)
    if layout.width == 1:
        advice = "copy its files to a volume of another claim and delete this one"
        return f"{why}; {volume.name} is kept in one copy, which cannot move by itself: {advice}"
    if not fact.healed or fact.pending is None or volume.name not in seen.counted:
        return f"{why}; {volume.name} is not whole: {_missing(fact)}"
    sources, empty = _copies_beside(seen, case, position)
    if empty:
        return _not_filled(why, case, empty[0])
    about = f"{why}: {volume.name} moves elsewhere"
    return _opening(seen, case, position, about, sources=sources, needed=layout.data or 1)


def _copies_beside(seen: Seen, case: _Case, position: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The bricks beside one that hold data, and those of which nobody knows yet whether they do."""
    layout, bricks, empty = layout_in(case.volume.details), case.fact.bricks, unfilled(seen, case.volume)
    begin = position - position % layout.width
    others = [at for at in range(begin, begin + layout.width) if at != position and not layout.is_arbiter(at)]
    there = [at for at in others if at < len(bricks)]
    return tuple(bricks[at] for at in there if at not in empty), tuple(bricks[at] for at in there if at in empty)


def _not_filled(why: str, case: _Case, brick: str) -> str:
    return f"{why}; {case.volume.name} is not whole: whether {brick} was filled is not known yet"


def _again(seen: Seen, case: _Case, move: OpenMove) -> OpenMove | str:
    """Another target for a move that is open, where the first one died or cannot be used before it took its place."""
    place, is_dead = case.places[move.position], case.states[move.position][0] == DEAD
    if place.name in case.fact.bricks:
        # It has taken its place: dead now, it is replaced as any other brick is.
        return _made_anew(seen, case, move.position) if is_dead else ""
    refused = _is_refused(seen, place, USED_BEFORE)
    width = layout_in(case.volume.details).width
    begin = move.position - move.position % width
    others = [at for at in range(begin, min(begin + width, len(case.places))) if at != move.position]
    # One that was taken back may have been done before whoever did it heard of that.
    beside = any(case.places[at].host == place.host and case.states[at][0] != DEAD for at in others)
    return move if refused or is_dead or (beside and move.needed) else ""


def _is_refused(seen: Seen, place: BrickPlace, why: str) -> bool:
    """Whether an agent that was to put a brick there says that."""
    return any(
        report.agent == MOVE and (report.desired or {}).get("new") == place.name and report.failed_by == why
        for node in seen.view.nodes
        for report in node.reports
    )


def _target(seen: Seen, volume: VolumeView, moved: Moved, move: OpenMove, rooms: list[Room]) -> Room | Verdict:
    layout, places = layout_in(volume.details), bricks_of(volume, moved)
    begin = move.position - move.position % layout.width
    beside = [
        ((place.node, _zone(seen, place)), brick_state(seen, place)[0] == DEAD)
        for number, place in enumerate(places[begin : begin + layout.width], begin)
        if number != move.position
    ]
    size = -(-volume.size // max(1, len(places) // layout.width)) if move.needed else 0
    # The very place that is to be given up is no way out.
    old = places[move.position]
    left = [room for room in rooms if (room.host, room.base) != (old.host, old.base)]
    found = choose_substitute(left, layout, size, move.position, [one for one, _ in beside])
    if isinstance(found, Room):
        return found
    # Beside a copy that is dead, and that may be back one day: better than none. Beside any where nothing is wanted any
    # more, but not sooner: whoever takes the volume over to delete it would find two copies on a host, and move one.
    living = [one for one, is_dead in beside if not is_dead] if move.needed else []
    return choose_substitute(left, layout, size, move.position, living)


def _as_if_all_stayed(seen: Seen) -> Seen:
    """For a brick of which nothing is wanted any more: it goes with the volume, and keeps no node that leaves."""
    nodes = tuple(replace(node, leaving="") if node.leaving == DRAIN else node for node in seen.view.nodes)
    return replace(seen, view=replace(seen.view, nodes=nodes))


def _zone(seen: Seen, place: BrickPlace) -> int:
    node = seen.node(place.host)
    return node.zone if node is not None else 0


def _opened(volume: VolumeView, moved: Moved, move: OpenMove, room: Room) -> Moved:
    count = moved.count + 1
    place = BrickPlace(room.node, room.host, room.address, room.base, f"{room.base}/{volume.name}.m{count}")
    return Moved(count=count, bricks={**moved.bricks, str(move.position): place}, open=move)


def _less(room: Room, chosen: Room, taken: int) -> Room:
    same = (room.host, room.base) == (chosen.host, chosen.base)
    return replace(room, free=room.free - taken) if same else room


def _missing(fact: VolumeFact) -> str:
    if fact.offline:
        return f"{len(fact.offline)} of its bricks {'does' if len(fact.offline) == 1 else 'do'} not run"
    if fact.pending:
        return f"{fact.pending} entries are to be healed"
    return "what is to be healed is being counted" if fact.started else "it is stopped"
