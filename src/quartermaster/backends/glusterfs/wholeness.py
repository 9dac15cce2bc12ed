"""Which copies of a volume are known to be whole: pure.

gluster says all that is to be healed only while every brick answers. So it is remembered of which bricks something may
be missing: those that did not run while enough others did to be written to, until a count of all of them has shown
nothing. A brick is given up for a copy that is whole. One that runs again and lacks what was written meanwhile is none.

Where a brick is dead and none of the others is known to be whole, these are compared: whatever was written is on so
many bricks that one of those that answer has it, and that one knows who lacks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from msgspec.structs import replace

from quartermaster.backends.glusterfs.amending import old_place
from quartermaster.backends.glusterfs.facts import NODE, BrickPlace, Memory, VolumeFact
from quartermaster.backends.glusterfs.filling import filled, unfilled
from quartermaster.backends.glusterfs.layouts import Layout
from quartermaster.backends.glusterfs.seeing import DEAD, Seen, answers, brick_state, is_on_device, layout_in
from quartermaster.planning.cluster import ABANDON, NodeView, VolumeView

# Why an agent gives up no brick for copies that it was told to be whole.
KNOWING_LESS = "know of less that is to be healed than another one that answers, so they lack something"
States = Sequence[tuple[str, str]]  # of every brick: what it is, and why


def remembered(seen: Seen) -> Memory:
    """With the bricks that may lack something, by what was known before and by what is told now."""
    behind: dict[str, tuple[int, ...]] = {}
    down: dict[str, tuple[int, ...]] = {}
    processes: dict[str, tuple[str, ...]] = {}
    known_filled = {volume.name: found for volume in seen.view.volumes if (found := filled(seen, volume))}
    seen = replace(seen, memory=replace(seen.memory, filled=known_filled))
    for volume in seen.view.volumes:
        known, fact = seen.memory.behind.get(volume.name, ()), seen.fact(volume.name)
        if fact is not None:
            now = _not_running(seen, volume.name, fact)
            known = _behind(seen, volume, fact, known, now)
            down |= {volume.name: now} if now else {}
        behind |= {volume.name: known} if known else {}
        ran = _ran(seen, volume.name)
        processes |= {volume.name: ran} if any(ran) else {}
    return replace(seen.memory, behind=behind, down=down, processes=processes)


def _ran(seen: Seen, name: str) -> tuple[str, ...]:
    """The processes that ran the bricks last: of one that does not run, the one before."""
    fact, before = seen.fact(name), seen.memory.processes.get(name, ())
    if fact is None or not seen.facts_current:
        return before
    known = (*before, *[""] * len(fact.processes))
    return tuple(now or known[at] for at, now in enumerate(fact.processes))


def _restarted(seen: Seen, name: str) -> list[int]:
    """Positions of bricks that were away for a while that nobody has seen."""
    before = seen.memory.processes.get(name, ())
    return [at for at, (one, now) in enumerate(zip(before, _ran(seen, name), strict=False)) if one and one != now]


def _not_running(seen: Seen, name: str, fact: VolumeFact) -> tuple[int, ...]:
    """Where nobody who lives has looked since, a brick of a silent host counts as one that does not run."""
    places = () if seen.facts_fresh else seen.bricks[name]
    unseen = [at for at, place in enumerate(places) if not answers(seen, place.host)]
    return tuple(sorted({*unseen, *fact.offline}))


def _behind(
    seen: Seen, volume: VolumeView, fact: VolumeFact, known: tuple[int, ...], down: tuple[int, ...]
) -> tuple[int, ...]:
    # A count from before it was asked for may be older than what it is to disprove.
    empty = unfilled(seen, volume)
    if fact.pending == 0 and fact.healed and not down and volume.name in seen.counted:
        return empty
    layout, before = layout_in(volume.details), seen.memory.down.get(volume.name, ())
    missed = [at for at in down if _could_be_written(layout, at, before, down)]
    moved = seen.memory.moves.get(volume.name)
    new = [moved.open.position] if moved is not None and moved.open is not None else []
    alike = _believed(layout, fact.alike, {*new, *empty}) if volume.name in seen.compared else []
    doubtful = [at for at in (*known, *_restarted(seen, volume.name)) if at not in alike]
    return tuple(sorted({*doubtful, *missed, *fact.behind, *new, *empty}))


def _believed(layout: Layout, alike: tuple[int, ...], new: set[int]) -> list[int]:
    """Copies that know of nothing that any of them lacks, where so many say so that one of them has whatever was
    written. A brick that is new has none of what was on the one before it, and says nothing of that.
    """
    heard = [at for at in alike if at not in new]
    width = layout.width
    return [at for at in heard if sum(one // width == at // width for one in heard) > width - layout.needed]


def _could_be_written(layout: Layout, position: int, before: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """Whether its set may have been written to without it: while it is away, or before another one went as well."""
    begin = position - position % layout.width
    ran, run = (sum(at not in down for at in range(begin, begin + layout.width)) for down in (before, now))
    return run >= layout.needed or ran > layout.needed


def copies_beside(
    seen: Seen, volume: VolumeView, fact: VolumeFact, states: States, position: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(known to be whole, alive) of the other bricks of its set from which it could be made anew. What was told of a
    volume before it was started says nothing of its bricks; and of one of which nobody knows by which process it was
    run, nobody can say later whether it was away since.
    """
    layout, behind = layout_in(volume.details), seen.memory.behind.get(volume.name, ())
    processes = seen.memory.processes.get(volume.name, ())
    begin = position - position % layout.width
    alive = [
        other
        for other in range(begin, min(begin + layout.width, len(states), len(fact.bricks)))
        if other != position
        and states[other][0] != DEAD
        and fact.started
        and other not in fact.offline
        and not layout.is_arbiter(other)
    ]
    whole = [other for other in alive if other not in behind and any(processes[other : other + 1])]
    return tuple(fact.bricks[at] for at in whole), tuple(fact.bricks[at] for at in alive)


def in_doubt(seen: Seen) -> list[str]:
    """Volumes with a dead brick that stays, because too few of the others that live are known to be whole."""
    return [volume.name for volume in seen.view.volumes if _is_in_doubt(seen, volume)]


def _is_in_doubt(seen: Seen, volume: VolumeView) -> bool:
    fact = seen.fact(volume.name)
    if fact is None or volume.name not in seen.memory.behind:
        return False
    least = layout_in(volume.details).data or 1
    states = [brick_state(seen, place) for place in seen.bricks[volume.name]]
    for position, place in _dead_places(seen, volume, fact, states):
        if may_come_back(seen, place):
            whole, alive = copies_beside(seen, volume, fact, states, position)
            if len(whole) < least <= len(alive):
                return True
    return False


def _dead_places(seen: Seen, volume: VolumeView, fact: VolumeFact, states: States) -> list[tuple[int, BrickPlace]]:
    """With the one whose successor was chosen, and has not taken its place yet."""
    places = seen.bricks[volume.name]
    dead = [(position, place) for position, place in enumerate(places) if states[position][0] == DEAD]
    moved = seen.memory.moves.get(volume.name)
    move = moved.open if moved is not None else None
    if move is not None and places[move.position].name not in fact.bricks:
        old, state, _ = old_place(seen, move)
        dead += [(move.position, old)] if old is not None and state == DEAD else []
    return dead


def may_come_back(seen: Seen, place: BrickPlace) -> bool:
    """A host that is silent, or a disk that is not found: somebody may plug it in again. Not what answers with errors,
    and not what somebody has given up by name.
    """
    node = seen.node(place.host)
    if node is None or node.leaving == ABANDON or place.base in seen.node_facts[place.host].dead:
        return False
    return lost_name(node, place) not in node.node.spec.wipe


def lost_name(node: NodeView, place: BrickPlace) -> str:
    """By which a person gives up what a brick is on: serial number or WWN of the disk, by what was assigned. Where
    nobody knows the disk, for the node was declared anew without it, the UUID of its file system; else the directory.
    """
    report = node.report(NODE)
    listed = ((report.desired if report is not None else None) or {}).get("devices", ())
    uuid = PurePosixPath(place.base).name
    unknown = uuid if is_on_device(place.base) else place.base
    return next((str(one["id"]) for one in listed if one["uuid"] == uuid), unknown)
