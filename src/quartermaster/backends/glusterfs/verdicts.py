"""What is said of a GlusterFS cluster: whether it is ready, can be used, what is missing. Each names what it means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from quartermaster.backends.glusterfs.encryption import uses_tls, what_differs
from quartermaster.backends.glusterfs.facts import SERVERS, VolumeFact
from quartermaster.backends.glusterfs.keeping import is_being_made, is_doomed, is_ending
from quartermaster.backends.glusterfs.moving import Moves
from quartermaster.backends.glusterfs.pooling import unknown_peers
from quartermaster.backends.glusterfs.seeing import (
    DEAD,
    Seen,
    address_of,
    brick_state,
    in_pool,
    layout_in,
    shared_zones,
)
from quartermaster.planning.cluster import NodeOutcome, Verdict, VolumeView
from quartermaster.planning.outcomes import DEGRADED, READY
from quartermaster.planning.verdicts import enough_nodes_ready, something_missing

LEAST_NODES = 3
_NAMED = 3
_SERVERS = 8  # any of them knows all of the pool


def ready_verdict(seen: Seen, outcomes: Mapping[str, NodeOutcome]) -> Verdict:
    """What cannot be used does not begin: it would end again at once, and begin again, and so on for ever."""
    ready = enough_nodes_ready(outcomes, _least(seen))
    usable = usable_verdict(seen, outcomes)
    return ready if usable.holds or not ready.holds else usable


def usable_verdict(seen: Seen, outcomes: Mapping[str, NodeOutcome]) -> Verdict:
    """Quorum of the pool, and every volume can be written to."""
    known = set(seen.memory.members.values())
    members = [node for node in seen.view.nodes if node.host and outcomes[node.name].state in (READY, DEGRADED)]
    members = members or [node for node in seen.view.nodes if node.host in known]  # all are being configured anew
    living = [node for node in members if node.healthy]
    if not living or len(living) * 2 <= len(members):
        return Verdict(False, "NoQuorum", f"{len(living)} of {len(members)} nodes of the pool answer: no majority")
    wanted = [volume for volume in seen.view.volumes if not is_doomed(volume, seen.view)]
    stopped = [volume.name for volume in wanted if not _is_writable(seen, volume)]
    if stopped:
        message = f"{len(stopped)} of {len(seen.view.volumes)} volumes cannot be written to: {_named(stopped)}"
        return Verdict(False, "VolumesUnusable", message)
    return Verdict(True, "Usable", f"{len(living)} nodes serve")


def degraded_verdict(
    seen: Seen, outcomes: Mapping[str, NodeOutcome], moves: Moves, members: Mapping[str, str]
) -> Verdict:
    """The first that somebody has to know of."""
    rules: tuple[Callable[[], Verdict | None], ...] = (
        lambda: _split(seen),
        lambda: _stuck(moves),
        lambda: _bricks_down(seen),
        lambda: _healing(seen, moves),
        lambda: _refusals(seen, members),
        lambda: _strangers(seen, members),
        lambda: _failures(seen),
    )
    nodes = something_missing(seen.view, outcomes)
    if nodes.holds and nodes.reason != "VolumesUnusable":
        return nodes
    return next(
        (found for rule in rules if (found := rule()) is not None), Verdict(False, "Complete", "nothing is missing")
    )


def details_of(seen: Seen, members: Mapping[str, str], moves: Moves) -> dict[str, str]:
    """For the section of the StorageStatus."""
    found = {"peers": ", ".join(sorted(members[uuid] for uuid in seen.facts.peers if uuid in members))}
    own = seen.own_facts
    healing = [f"{name}: {fact.pending}" for name, fact in own.items() if fact.pending]
    split = [f"{name}: {_named(fact.split, fact.splits)}" for name, fact in own.items() if fact.split]
    moving = [f"{name}: {one.open.why}" for name, one in sorted(moves.moved.items()) if one.open is not None]
    stuck = [f"{name}: {why}" for name, why in sorted(moves.stuck.items())]
    found |= {"healing": _short(healing), "splitBrain": _short(split), "moving": _short(moving), "stuck": _short(stuck)}
    together = [f"{name} in zone {', '.join(map(str, zones))}" for name, zones in sorted(shared_zones(seen).items())]
    found |= {"sharedZones": _short(together)}
    found |= {"unknownPeers": _short(_strange(seen, members)), "bricksDown": _short(_down(seen))}
    found |= {SERVERS: ", ".join(_servers(seen))}
    found |= {"tls": what_differs(seen.view) or ("on" if uses_tls(seen.view) else "")}
    return {name: text for name, text in found.items() if text}


def _servers(seen: Seen) -> list[str]:
    """By whose address a volume can be mounted now; those that leave come last."""
    members = [node for node in seen.view.nodes if in_pool(seen, node)]
    return [address_of(node) for node in sorted(members, key=lambda node: bool(node.leaving))][:_SERVERS]


def _least(seen: Seen) -> int:
    return seen.view.settings.min_nodes or LEAST_NODES


def _is_writable(seen: Seen, volume: VolumeView) -> bool:
    """In every set enough bricks live, by the pool's word and by the heartbeats of their hosts."""
    layout, fact = layout_in(volume.details), seen.fact(volume.name)
    places = seen.bricks[volume.name]
    if fact is None or is_being_made(volume, seen.view):
        return True  # or nobody has looked yet
    if not fact.started and is_ending(volume, seen.view):
        return True  # it is stopped before it is deleted
    is_new, lives = _is_told_from_its_making(seen, volume.name), []
    for position, place in enumerate(places):
        node = seen.node(place.host)
        answers = (node is None or node.healthy) and brick_state(seen, place)[0] != DEAD
        runs = is_new or position >= len(fact.bricks) or position not in fact.offline
        lives.append(answers and runs)
    sets = [lives[at : at + layout.width] for at in range(0, len(lives), layout.width)]
    return (is_new or fact.started) and all(sum(one) >= layout.needed for one in sets)


def _is_told_from_its_making(seen: Seen, name: str) -> bool:
    """Whether the coordinator may have looked while the volume was made, and is about to be asked again."""
    ran = seen.memory.processes.get(name, ())
    return name not in seen.counted and not (ran and all(ran))


def _split(seen: Seen) -> Verdict | None:
    split = {name: fact for name, fact in seen.own_facts.items() if fact.split}
    if not split:
        return None
    name = min(split)
    first, count = split[name], sum(max(fact.splits, len(fact.split)) for fact in split.values())
    files = "1 file has" if count == 1 else f"{count} files have"
    message = (
        f"{files} copies that contradict each other, in {name}: {_named(first.split, first.splits)}; "
        f"`gluster volume heal {name} split-brain source-brick BRICK FILE` keeps the copy of one of its bricks"
    )
    return Verdict(True, "SplitBrain", message)


def _stuck(moves: Moves) -> Verdict | None:
    if not moves.stuck:
        return None
    name = min(moves.stuck)
    return Verdict(True, "BricksCannotMove", f"a brick of {name} stays where it is: {moves.stuck[name]}")


def _bricks_down(seen: Seen) -> Verdict | None:
    down = _down(seen)
    how_many = "1 brick does" if len(down) == 1 else f"{len(down)} bricks do"
    return Verdict(True, "BricksDown", f"{how_many} not run: {_named(down)}") if down else None


def _down(seen: Seen) -> list[str]:
    """Not of a volume that is being made, which is not started yet."""
    made = [volume.name for volume in seen.view.volumes if not is_being_made(volume, seen.view)]
    return [fact.bricks[at] for name in made if (fact := seen.fact(name)) is not None for at in fact.offline]


def _healing(seen: Seen, moves: Moves) -> Verdict | None:
    open_moves = [name for name, moved in moves.moved.items() if moved.open is not None]
    healing = {name: fact.pending for name, fact in seen.own_facts.items() if fact.pending}
    if healing:
        count = sum(number or 0 for number in healing.values())
        return Verdict(True, "Healing", f"{count} entries are to be healed, in {_named(sorted(healing))}")
    if open_moves:
        return Verdict(True, "BricksMoving", f"bricks of {_named(sorted(open_moves))} are being replaced")
    doubtful = [volume.name for volume in seen.view.volumes if volume.name in seen.memory.behind]
    if doubtful:
        message = f"copies in {_named(doubtful)} were away, and what they lack is being counted"
        return Verdict(True, "Healing", message)
    return None


def _refusals(seen: Seen, members: Mapping[str, str]) -> Verdict | None:
    """Also of two of which none speaks for the pool: what one of them is told the other never hears of."""
    told = {node.host: seen.node_facts[node.host].refused for node in seen.view.nodes if node.host}
    found = [(host, members[uuid]) for host, refused in told.items() for uuid in refused if uuid in members]
    if not found:
        return None
    names = _named(sorted({" and ".join(sorted(pair)) for pair in found}))
    return Verdict(True, "PeersRefused", f"glusterds know a volume otherwise than others do, and refuse these: {names}")


def _strangers(seen: Seen, members: Mapping[str, str]) -> Verdict | None:
    found = _strange(seen, members)
    message = f"the pool has peers that no StorageNode declares: {_named(found)}; nothing of theirs is touched"
    return Verdict(True, "UnknownPeers", message) if found else None


def _strange(seen: Seen, members: Mapping[str, str]) -> list[str]:
    """Unknown peers, with the volumes of which somebody has put bricks there."""
    names = unknown_peers(seen, members) if seen.facts_from else []
    held = {
        name: [one for one, fact in sorted(seen.facts.volumes.items()) if _has_brick_on(fact, name)] for name in names
    }
    return [f"{name} (bricks of {_named(held[name])})" if held[name] else name for name in names]


def _has_brick_on(fact: VolumeFact, peer: str) -> bool:
    return any(brick.startswith(f"{peer}:") for brick in fact.bricks)


def _failures(seen: Seen) -> Verdict | None:
    found = sorted(seen.facts.failed.values())
    return Verdict(True, "PoolTrouble", found[0]) if found else None


def _named(names: Sequence[str], count: int = 0) -> str:
    """`count`: there are more than these."""
    rest = max(count, len(names)) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _short(lines: list[str]) -> str:
    return "; ".join(lines[:_NAMED]) + (f"; and {len(lines) - _NAMED} more" if len(lines) > _NAMED else "")
