"""Who coordinates, who belongs to the pool, who has to leave it: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quartermaster.backends.glusterfs.cleaning import has_to_clean, leaves_bricks
from quartermaster.backends.glusterfs.ending import deleted_volumes, ending_volumes
from quartermaster.backends.glusterfs.facts import NODE, POOL, BrickPlace, Moved
from quartermaster.backends.glusterfs.filling import clear, rooted, unrooted
from quartermaster.backends.glusterfs.keeping import is_being_made, is_ending
from quartermaster.backends.glusterfs.pool_agent import RUN_S
from quartermaster.backends.glusterfs.seeing import (
    DEAD,
    SERVING,
    Seen,
    address_of,
    answers,
    bases_in_pool,
    beside_another,
    brick_state,
    owner_of,
)
from quartermaster.backends.glusterfs.volumes import allowed_clients
from quartermaster.backends.glusterfs.wholeness import in_doubt
from quartermaster.planning.cluster import ABANDON, DRAIN, Desired, NodeView, VolumeView

_POOL_S = RUN_S + 100.0
_FORMER = 64  # members that were let go and are remembered


def choose_coordinator(seen: Seen) -> str:
    """The host that was it, as long as it lives and stays; else the first by name that can do it. Where there is a pool
    it is one of its members, be it that it leaves or has to be waited for: who is not would begin a pool of its own,
    and two of them never become one.
    """
    if _is_over(seen):
        return ""
    able = [node for node in seen.view.nodes if _is_able(node)]
    inside = [node for node in seen.view.nodes if _is_inside(seen, node)]
    is_pool = len(seen.facts.peers) > 1 or bool(seen.facts.volumes) or not seen.facts_from
    if is_pool and inside:
        able = [node for node in able if node in inside] or inside
    hosts = [node.host for node in _staying(able) or able]
    return seen.memory.coordinator if seen.memory.coordinator in hosts else next(iter(hosts), "")


def _is_inside(seen: Seen, node: NodeView) -> bool:
    """A member of the pool, as it was last looked at, that can be waited for. Where the word of whoever looked is lost,
    who has bricks is one.
    """
    report = node.report(NODE)
    if report is None or report.absent or node.wrong is not None or node.leaving == ABANDON:
        return False
    if not seen.facts_from:
        return bool(seen.bricks_on(node.host))
    return seen.node_facts[node.host].uuid in seen.facts.peers


def _staying(nodes: Sequence[NodeView]) -> list[NodeView]:
    return [node for node in nodes if node.leaving not in (DRAIN, ABANDON)]


def _is_over(seen: Seen) -> bool:
    """The last node is to go, and there is nobody and nothing left to speak for."""
    last = seen.view.nodes[0] if len(seen.view.nodes) == 1 else None
    if last is None or last.leaving not in (DRAIN, ABANDON) or not last.host:
        return False
    others = {*seen.memory.members, *seen.facts.peers} - {seen.node_facts[last.host].uuid}
    return not (others or seen.view.volumes or seen.facts.volumes or leaves_bricks(seen, last))


def _is_able(node: NodeView) -> bool:
    report = node.report(NODE)
    runs = report is not None and report.done and not report.absent
    return bool(node.host) and node.healthy and node.wrong is None and runs


def members_of(seen: Seen) -> dict[str, str]:
    """UUID → host of all that we ever took in and that are still in the pool, or are to be."""
    found = {
        uuid: host for uuid, host in seen.memory.members.items() if not seen.facts_from or uuid in seen.facts.peers
    }
    for node in seen.view.nodes:
        uuid = seen.node_facts[node.host].uuid if node.host else ""
        # One that leaves may have been taken in after that was decided.
        is_member = node.leaving not in (DRAIN, ABANDON) or uuid in seen.facts.peers
        if uuid and node.wrong is None and is_member:
            found[uuid] = node.host
    return {**_returned(seen), **found}


def _returned(seen: Seen) -> dict[str, str]:
    """Let go, and taken in again by one who was not told in time; then their glusterd ended, and nobody answers there.
    As long as the pool has them, nobody else can leave it.
    """
    peers = {uuid: seen.facts.peers[uuid] for uuid in seen.memory.former if uuid in seen.facts.peers}
    return {uuid: peer.name for uuid, peer in peers.items() if not peer.connected}


def former_members(seen: Seen, members: Mapping[str, str]) -> tuple[str, ...]:
    """With those that are let go now."""
    gone = [uuid for uuid in sorted(seen.memory.members) if uuid not in members and uuid not in seen.memory.former]
    return (*seen.memory.former, *gone)[-_FORMER:]


def unknown_peers(seen: Seen, members: Mapping[str, str]) -> list[str]:
    """In the pool, and not by us."""
    return [peer.name for uuid, peer in sorted(seen.facts.peers.items()) if uuid not in members]


def peers_wanted(seen: Seen) -> list[dict[str, str]]:
    return [
        {"address": address_of(node), "uuid": seen.node_facts[node.host].uuid}
        for node in seen.view.nodes
        if node.host and node.wrong is None and node.leaving not in (DRAIN, ABANDON) and seen.node_facts[node.host].uuid
    ]


def peers_to_detach(seen: Seen, members: Mapping[str, str], coordinator: str) -> list[str]:
    """Members whose node is leaving or gone, and that hold no brick any more."""
    leaving = []
    for uuid, host in sorted(members.items()):
        node = seen.node(host)
        # A host whose glusterd began anew has another UUID, and cannot be taken in while the old one is there.
        known = seen.node_facts[host].uuid if host in seen.node_facts else ""
        stays = node is not None and node.leaving not in (DRAIN, ABANDON) and known in ("", uuid)
        if stays or host == coordinator or uuid not in seen.facts.peers or holds_bricks(seen, host, uuid):
            continue
        if node is not None and _is_at_work(seen, node):
            continue
        leaving.append(uuid)
    return leaving


def _is_at_work(seen: Seen, node: NodeView) -> bool:
    """Whether its agent may be asking gluster about what is left there. A host that is let go in the middle of that can
    not take its locks away any more, and for three minutes nobody can ask for the volume or change it.
    """
    return node.healthy and node.leaving == DRAIN and has_to_clean(seen, node)


def holds_bricks(seen: Seen, host: str, uuid: str = "") -> bool:
    return bool(volumes_on(seen, host, uuid))


def stuck_bricks(seen: Seen, node: NodeView) -> list[str]:
    """Its bricks that do not run however often they are started."""
    uuid = seen.node_facts[node.host].uuid if node.host in seen.node_facts else ""
    address = address_of(node)
    stuck = [(fact, fact.bricks[at]) for fact in seen.own_facts.values() for at in fact.stuck]
    return sorted(brick for fact, brick in stuck if brick in fact.bricks_on(uuid, address))


def volumes_on(seen: Seen, host: str, uuid: str = "") -> list[str]:
    """With a brick there, by what was decided or by what the pool says; also those in nobody's books."""
    uuid = uuid or (seen.node_facts[host].uuid if host in seen.node_facts else "")
    peer, node = seen.facts.peers.get(uuid), seen.node(host)
    names = {peer.name} if peer is not None else set()
    # Where what is declared is wrong, the address may be another node's.
    names |= {address_of(node)} if node is not None and node.wrong is None else set()
    decided = {volume.name for volume, _, _ in seen.bricks_on(host)}
    return sorted(decided | {name for name, fact in seen.facts.volumes.items() if fact.bricks_on(uuid, *names)})


def watched(seen: Seen, moves: Mapping[str, Moved]) -> list[str]:
    """Volumes that have to be looked at until they are as they should be, and their copies counted: one moves or has
    to, or a node says that something waits there.
    """
    waiting: set[str] = set()
    for node in seen.view.nodes:
        if not node.host:
            continue
        for directories in seen.node_facts[node.host].bricks.values():
            waiting |= {name.partition(".")[0] for name, count in directories.items() if count}
    return [
        volume.name
        for volume in seen.view.volumes
        if volume.name in waiting
        or ((moved := moves.get(volume.name)) is not None and moved.open is not None)
        or any(brick_state(seen, place)[0] != SERVING for place in seen.bricks[volume.name])
        or volume.name in seen.memory.behind
        or beside_another(seen, volume) is not None
        or _is_stopped(seen, volume)
    ]


def _is_stopped(seen: Seen, volume: VolumeView) -> bool:
    """Nobody is at making or deleting it: it was looked at a moment too early, or somebody has stopped it by hand."""
    fact = seen.fact(volume.name)
    is_at_rest = not is_being_made(volume, seen.view) and not is_ending(volume, seen.view)
    return fact is not None and not fact.started and is_at_rest


def pool_assignments(
    seen: Seen, coordinator: str, members: Mapping[str, str], moves: Mapping[str, Moved]
) -> list[Desired]:
    """The coordinator's, and the end of the one before it when the new one has looked."""
    wanted: list[Desired] = []
    if coordinator:
        config: dict[str, Any] = {
            "owner": owner_of(seen.view.key),
            "peers": peers_wanted(seen),
            "detach": peers_to_detach(seen, members, coordinator),
            "allow": allowed_clients(seen.view),
            "watch": watched(seen, moves),
            "down": sorted(uuid for uuid, host in members.items() if not answers(seen, host)),
        }
        if gone := deleted_volumes(seen):
            config["gone"] = gone
        if ending := sorted(ending_volumes(seen).values()):
            config["ending"] = ending
        if back := [seen.facts.volumes[name].id for name in gone if seen.facts.volumes[name].id in seen.memory.ended]:
            config["ended"] = back
        if away := [uuid for uuid, host in sorted(members.items()) if _is_lost(seen, host)]:
            config["away"] = away
        if lost := [uuid for uuid, host in sorted(members.items()) if _is_host_given_up(seen, host)]:
            config["lost"] = lost
        if dead := _dead_bases(seen):
            config["dead"] = dead
        if doubtful := in_doubt(seen):
            config["compare"] = doubtful
        if known := rooted(seen):
            config["rooted"] = known
        if countable := clear(seen):
            config["clear"] = countable
        if empty := unrooted(seen):
            config["empty"] = empty
        wanted.append(Desired(coordinator, POOL, config, deadline_s=_POOL_S, why="one host speaks for the pool"))
    told = seen.facts_from == coordinator
    wanted += [
        Desired(node.host, POOL, None, why=f"host {coordinator} speaks for the pool")
        for node in seen.view.nodes
        if node.host != coordinator and node.report(POOL) is not None and (told or not coordinator)
    ]
    return wanted


def _dead_bases(seen: Seen) -> list[str]:
    """Of hosts that live: each try to start a brick there would cost the pool two commands, in every run."""
    return sorted(
        {
            f"{address_of(node)}:{base}"
            for node in seen.view.nodes
            if node.host and node.healthy
            for base in set(bases_in_pool(seen, node))
            if brick_state(seen, BrickPlace(node.name, node.host, address_of(node), base, base))[0] == DEAD
        }
    )


def _is_lost(seen: Seen, host: str) -> bool:
    node = seen.node(host)
    return node is not None and node.lost


def _is_host_given_up(seen: Seen, host: str) -> bool:
    node = seen.node(host)
    return node is None or (node.leaving == ABANDON and not node.healthy)


def is_in_pool(seen: Seen, node: NodeView) -> bool:
    """Whether the pool still counts it, alone with itself or not, or may do so: one who is away may have taken it in,
    and when he is back he tells the others of it, be it that another glusterd serves at its address by then. That
    holds for a stranger as well, who was told by the others. And it holds for a node that was never seen in the pool:
    whom a host that is away has taken in, on an earlier word, nobody else knows.
    """
    uuid = seen.node_facts[node.host].uuid if node.host in seen.node_facts else ""
    counted = uuid in seen.facts.peers and len(seen.facts.peers) > 1
    return counted or _may_be_taken_in(seen, uuid) or (bool(uuid) and bool(unreached(seen)))


def unreached(seen: Seen) -> dict[str, str]:
    """UUID → name of the peers that do not answer the coordinator and are not given up, whoever has taken them in. One
    that is to leave counts until the pool has let it go: it may be back before that.
    """
    members = members_of(seen)
    return {
        uuid: peer.name
        for uuid, peer in sorted(seen.facts.peers.items(), key=lambda one: one[1].name)
        if not peer.connected and not (uuid in members and _is_host_given_up(seen, members[uuid]))
    }


def _may_be_taken_in(seen: Seen, uuid: str) -> bool:
    """Whether somebody may be about to: who was told not to any more, and has not answered, may be at it."""
    reports = [report for node in seen.view.nodes if (report := node.report(POOL)) is not None and not report.absent]
    for report in reports:
        asked = any(one["uuid"] == uuid for one in (report.desired or {}).get("peers", ()))
        if asked or not report.done:  # one that failed may have done it before
            return True
    return False


def version_of(seen: Seen) -> str:
    return max((facts.version for facts in seen.node_facts.values()), default="")
