"""What a GlusterFS cluster is to be: every node runs glusterd on its disks, one of them speaks for the pool.

The order of a life: a node's disks and glusterd, then the pool takes it in, then it gets bricks. The order of its end:
its bricks move and are healed, the pool lets it go, its glusterd ends. Each waits for the report of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from quartermaster.backends.base import ServiceAgent
from quartermaster.backends.glusterfs.adopter import GlusterAdopter
from quartermaster.backends.glusterfs.cleaning import (
    EMPTIED,
    bricks_to_remove,
    disks_to_clean,
    has_to_clean,
    known_whole,
    why_not_clean,
)
from quartermaster.backends.glusterfs.encryption import uses_tls
from quartermaster.backends.glusterfs.ending import ended_volumes, ending_volumes, kept_by_nobody
from quartermaster.backends.glusterfs.facts import NODE, POOL, TYPE, VOLUME, PeerFact, write_memory
from quartermaster.backends.glusterfs.filling import root_assignments
from quartermaster.backends.glusterfs.keeping import keeping_assignments, was_there
from quartermaster.backends.glusterfs.looking import Looks
from quartermaster.backends.glusterfs.move_agent import MoveAgent
from quartermaster.backends.glusterfs.moving import Moves, decide_moves, move_assignments
from quartermaster.backends.glusterfs.node_agent import NodeAgent
from quartermaster.backends.glusterfs.pool_agent import PoolAgent
from quartermaster.backends.glusterfs.pooling import (
    choose_coordinator,
    former_members,
    holds_bricks,
    is_in_pool,
    members_of,
    pool_assignments,
    stuck_bricks,
    unknown_peers,
    unreached,
    version_of,
    volumes_on,
)
from quartermaster.backends.glusterfs.root_agent import RootAgent
from quartermaster.backends.glusterfs.seeing import (
    Seen,
    bases_in_pool,
    directories_with_bricks,
    in_pool,
    layout_in,
    owner_of,
    promised_to_nobody,
    see,
    share_of,
)
from quartermaster.backends.glusterfs.survey import SurveyAgent
from quartermaster.backends.glusterfs.verdicts import degraded_verdict, details_of, ready_verdict, usable_verdict
from quartermaster.backends.glusterfs.volume_agent import VolumeAgent
from quartermaster.backends.glusterfs.volumes import GlusterVolumes
from quartermaster.backends.glusterfs.wholeness import remembered
from quartermaster.planning.choosing import IN_USE, MISSING
from quartermaster.planning.cluster import (
    ABANDON,
    DRAIN,
    ChosenDevice,
    ClusterPlan,
    ClusterView,
    Desired,
    NodeOutcome,
    NodeView,
    VolumeView,
)
from quartermaster.planning.leaving import leave
from quartermaster.planning.offering import BASE, bases_of, nothing_offered, offered, with_losses
from quartermaster.planning.outcomes import DEGRADED, DEPLOYING, DRAINING, PENDING, READY, outcome_of, waiting_for_host
from quartermaster.planning.releasing import is_record, with_releases
from quartermaster.resources.orchestration import FAILED

_REJECTED = "Rejected"  # in the words of gluster for the state of a peer
_NODE_S = 180.0
_NAMED = 3
_BY_HAND = "`gluster volume replace-brick` puts it elsewhere, `gluster volume delete` ends the volume"
_FOR_NOW = (EMPTIED, "remove", "whole", "apart", "stuck")  # what a node is told by what its bricks are now


class GlusterBackend:
    type = TYPE

    def agents(self) -> Sequence[ServiceAgent]:
        looks = Looks()
        return (NodeAgent(), PoolAgent(looks), MoveAgent(looks), RootAgent(), VolumeAgent(looks), SurveyAgent())

    def volumes(self) -> GlusterVolumes:
        return GlusterVolumes()

    def adopter(self) -> GlusterAdopter:
        return GlusterAdopter()

    def plan(self, view: ClusterView) -> ClusterPlan:
        seen = see(view)
        seen = replace(seen, memory=remembered(seen))
        moves = decide_moves(seen)
        # What was decided now counts at once: no second volume takes the same room.
        memory = replace(seen.memory, moves=dict(moves.moved))
        seen = see(replace(view, memory=write_memory(memory)))
        coordinator, members = choose_coordinator(seen), members_of(seen)
        assignments: list[Desired] = []
        outcomes: dict[str, NodeOutcome] = {}
        removable: list[str] = []
        kept = promised_to_nobody(seen)
        for node in view.nodes:
            wanted, outcome, gone = _plan_node(seen, node, moves)
            if gone and (why := _why_its_word_is_needed(seen, node, coordinator)):
                gone, outcome = False, NodeOutcome(DRAINING, why)
            assignments += wanted
            outcomes[node.name] = _measured(seen, node, outcome, kept)
            removable += [node.name] if gone else []
        assignments += pool_assignments(seen, coordinator, members, moves.moved)
        assignments += move_assignments(seen, moves, coordinator)
        assignments += root_assignments(seen)
        assignments += keeping_assignments(view)
        known = replace(
            memory,
            coordinator=coordinator,
            members=members,
            ending=ending_volumes(seen),
            ended=ended_volumes(seen),
            former=former_members(seen, members),
        )
        return ClusterPlan(
            assignments=tuple(assignments),
            nodes=outcomes,
            ready=ready_verdict(seen, outcomes),
            usable=usable_verdict(seen, outcomes),
            degraded=degraded_verdict(seen, outcomes, moves, members),
            removable=tuple(removable),
            details={**details_of(seen, members, moves), "version": version_of(seen)},
            memory={**write_memory(known), **_let_go(seen, view.memory, assignments)},
        )


def _why_its_word_is_needed(seen: Seen, node: NodeView, coordinator: str) -> str:
    """Of a host that was given up, and was the last to tell of the pool: without that nobody would know who is in it,
    and one that is not may be asked to speak for it.
    """
    if seen.facts_from != node.host or coordinator in ("", node.host):
        return ""
    return f"it is given up, and goes when host {coordinator} has looked at the pool"


def _let_go(seen: Seen, memory: Mapping[str, str], assignments: Sequence[Desired]) -> dict[str, str]:
    """The disks of nodes that leave in good order, and those that a node gives up with nothing on them, so that they
    are taken back when they are declared again. One that a node gives up with bricks on it, which may be wanted, is
    not taken back unasked.
    """
    nodes = {node.host: node for node in seen.view.nodes if node.host}
    told: list[Desired] = []
    for desired in [one for one in assignments if one.agent == NODE]:
        node = nodes[desired.host]
        if desired.config is not None:
            kept = [*_with_bricks(seen, node), *desired.config["devices"]]
            told.append(replace(desired, config={"devices": kept}))
        elif node.leaving == DRAIN:
            told.append(desired)
    records = {name: text for name, text in memory.items() if is_record(name)}
    return with_releases(records, seen.view.nodes, told)


def _with_bricks(seen: Seen, node: NodeView) -> list[Mapping[str, Any]]:
    """Of the disks that its agent was told of, those that are not known to be empty."""
    report = node.report(NODE)
    before = ((report.desired if report is not None else None) or {}).get("devices", ())
    facts = seen.node_facts[node.host]
    empty = [base for base, names in facts.bricks.items() if not names and base not in facts.removing]
    return [one for one in before if not any(base.endswith(f"/{one['uuid']}") for base in empty)]


def _plan_node(seen: Seen, node: NodeView, moves: Moves) -> tuple[list[Desired], NodeOutcome, bool]:
    """What its own agent is to do, what the node is found to be, and whether it may go."""
    if node.leaving == ABANDON or (node.leaving == DRAIN and not _still_needed(seen, node)):
        departure = leave(node, NODE)
        if departure is not None:
            return list(departure.assignments), departure.outcome, departure.gone
    config = node_config(seen, node)
    if node.leaving == DRAIN:
        outcome = NodeOutcome(DRAINING, _why_it_stays(seen, node, moves))
    else:
        outcome = _outcome(seen, node, config)
    told = _was_told(node)
    if node.wrong is not None and not (told and node.leaving == DRAIN):
        return [], outcome, False
    if not config["devices"] and not config["directories"]:
        outcome = outcome if node.leaving == DRAIN else NodeOutcome(PENDING, nothing_offered(node))
        if not told:
            return [], outcome, False
    why = f"StorageNode {node.name} declares it"
    return [with_losses(Desired(node.host, NODE, config, deadline_s=_NODE_S, why=why))], outcome, False


def _was_told(node: NodeView) -> bool:
    """Whether its agent has something to give up, or to look at before the node goes."""
    report = node.report(NODE)
    return report is not None and not report.absent


def node_config(seen: Seen, node: NodeView) -> dict[str, Any]:
    """Nothing of a declaration that is wrong is carried out: there, what its agent was told before stands."""
    wanted = _declared(seen, node) if node.wrong is None else _told_before(node)
    return {**wanted, **_end_of_bricks(seen, node)}


def _told_before(node: NodeView) -> dict[str, Any]:
    report = node.report(NODE)
    before = (report.desired if report is not None else None) or {}
    return {name: value for name, value in before.items() if name not in _FOR_NOW}


def _declared(seen: Seen, node: NodeView) -> dict[str, Any]:
    # A brick that is to be elsewhere is where it was until the pool says otherwise: to give up its disk is to name it.
    needed = [*(place.base for _, _, place in seen.bricks_on(node.host)), *bases_in_pool(seen, node)]
    left = [*directories_with_bricks(seen, node), *disks_to_clean(seen, node)]
    bases = dict.fromkeys([*needed, *left])
    held = [VolumeView("", 0, (node.host,), {BASE: base}) for base in bases]
    stated = node.node.spec.storage_network.ips if node.node.spec.storage_network is not None else ()
    offers = offered(seen.view.key, node, node.report(NODE), held)
    kept = [entry for entry in offers["devices"] if not _is_disk_given_up(node, entry, list(bases))]
    config: dict[str, Any] = {"owner": owner_of(seen.view.key), "node": node.name, **offers, "devices": kept}
    if len(stated) == 1:
        config["bind"] = stated[0]
    if uses_tls(seen.view):
        config["tls"] = True
    if stuck := stuck_bricks(seen, node):
        config["stuck"] = stuck
    report = node.report(NODE)
    adopted = ((report.desired if report is not None else None) or {}).get("adopted")
    if adopted:
        config["adopted"] = adopted  # directories that were somebody's before: there is more than ours in them
    return config


def _end_of_bricks(seen: Seen, node: NodeView) -> dict[str, Any]:
    """What is told of bricks that are no more, and of a node that leaves when it has none."""
    told: dict[str, Any] = {}
    is_known = bool(seen.facts_from) or not seen.view.volumes
    if node.leaving == DRAIN and is_known and not holds_bricks(seen, node.host):
        told[EMPTIED] = True
    if remove := bricks_to_remove(seen, node):
        told["remove"] = remove
        if whole := known_whole(seen, remove):
            told["whole"] = whole
        uuid = seen.node_facts[node.host].uuid
        if uuid in seen.memory.former and uuid not in seen.facts.peers:
            told["apart"] = True  # the pool has let it go, perhaps while it was away: its glusterd knows nothing
    return told


def _is_disk_given_up(node: NodeView, entry: Mapping[str, Any], bases: Sequence[str]) -> bool:
    """A disk that is not found, and that a person who knows so has named; nothing that is to be there is on it."""
    is_found = any(one.id == entry["id"] for one in node.present)
    is_needed = any(base.endswith(f"/{entry['uuid']}") for base in bases)
    return entry["id"] in node.node.spec.wipe and not is_found and not is_needed


def _still_needed(seen: Seen, node: NodeView) -> bool:
    """A node goes when the pool has let it go and nothing on its host needs its disks or its glusterd."""
    report = node.report(NODE)
    if report is None or (report.absent and not seen.bricks_on(node.host)):
        return False  # what was begun is not taken back: its glusterd may be another one by then
    used = any(report.agent in (POOL, VOLUME) for report in node.reports)
    return used or holds_bricks(seen, node.host) or has_to_clean(seen, node) or is_in_pool(seen, node)


def _why_it_stays(seen: Seen, node: NodeView, moves: Moves) -> str:
    on_it = volumes_on(seen, node.host)
    held = [name for name in on_it if name in seen.bricks]
    stuck = next((f"{name}: {moves.stuck[name]}" for name in held if name in moves.stuck), "")
    if stuck:
        return f"a volume cannot move: {stuck}"
    if held:
        count = "a volume moves" if len(held) == 1 else f"{len(held)} volumes move"
        return f"{count} to other nodes: {', '.join(held[:_NAMED])}"
    if others := kept_by_nobody(seen, on_it):
        return _kept_for(others)
    if not node.healthy:
        return waiting_for_host(node)
    return why_not_clean(seen, node) or _who_is_to_be_told(seen, node) or "it is being taken out of the pool"


def _kept_for(volumes: Sequence[str]) -> str:
    return f"it has a brick of {', '.join(volumes[:_NAMED])}, which no PersistentVolume has: {_BY_HAND}"


def _who_is_to_be_told(seen: Seen, node: NodeView) -> str:
    """Others that do not answer. A stranger among them is no host that somebody could give up here."""
    away = [name for uuid, name in unreached(seen).items() if uuid != seen.node_facts[node.host].uuid]
    if not away:
        return ""
    why = f"it goes when {', '.join(away[:_NAMED])} can be told: what does not answer would know it"
    strangers = [name for name in unknown_peers(seen, members_of(seen)) if name in away]
    if not strangers:
        return why
    name = strangers[0]
    return f"{why}; no StorageNode declares {name}: bring it back, or take it out with `gluster peer detach {name}`"


def _outcome(seen: Seen, node: NodeView, config: dict[str, Any]) -> NodeOutcome:
    outcome = outcome_of(node, NODE, config)
    if outcome.state != READY:
        return outcome
    if not in_pool(seen, node):
        uuid = seen.node_facts[node.host].uuid
        why = seen.facts.failed.get(uuid) or _why_outside(seen.facts.peers.get(uuid))
        return NodeOutcome(DEGRADED if uuid in seen.facts.peers else DEPLOYING, why)
    return replace(outcome, message=outcome.message or _why_a_disk_stays(seen, node, config))


def _why_a_disk_stays(seen: Seen, node: NodeView, config: Mapping[str, Any]) -> str:
    """One that is no longer declared, and that nobody empties, for its bricks are of volumes in nobody's books, or on
    which something is left that cannot be removed yet.
    """
    declared = {one.id for one in node.devices}
    others = kept_by_nobody(seen, volumes_on(seen, node.host))
    for entry in [one for one in config["devices"] if one["id"] not in declared]:
        on_it = [name for name in others if any(f"/{entry['uuid']}/" in one for one in seen.facts.volumes[name].bricks)]
        is_left = any(base.endswith(f"/{entry['uuid']}") for base in disks_to_clean(seen, node))
        why = _kept_for(on_it) if on_it else why_not_clean(seen, node) if is_left else ""
        if why:
            return f"the disk {entry['path']} is no longer declared, and stays: {why}"
    return ""


def _why_outside(peer: PeerFact | None) -> str:
    if peer is not None and peer.connected and _REJECTED in peer.state:
        return "the glusterds of the pool refuse it: it knows a volume otherwise than they do (see its glusterd.log)"
    return "it is being taken into the pool"


def _trouble(device: ChosenDevice) -> str:
    if device.reason != MISSING:
        return device.message
    return f"{device.message}: put it back, or give it up by naming {device.id} in spec.wipe"


def _measured(seen: Seen, node: NodeView, outcome: NodeOutcome, kept: Mapping[tuple[str, str], int]) -> NodeOutcome:
    report = node.report(NODE)
    desired = (report.desired if report is not None and report.done else None) or {}
    in_use = {entry["path"]: IN_USE for entry in desired.get("devices", ())}
    result = (report.status.result if report is not None else None) or {}
    broken = [_trouble(one) for one in node.devices if one.serving and not one.usable]
    broken += [str(message) for message in result.get("failed", {}).values()]
    failed = [one for one in node.reports if one.agent == VOLUME and one.status.state == FAILED]
    broken += [one.status.message for one in failed if not one.absent and was_there(one)]
    if broken and outcome.state == READY:
        outcome = NodeOutcome(DEGRADED, broken[0])
    # A volume that cannot be made or deleted yet is no lack of its host: the cluster may need it to get over what it
    # waits for.
    waiting = [one.status.message for one in failed if one.absent or not was_there(one)]
    if waiting and outcome.state == READY:
        outcome = NodeOutcome(READY, outcome.message or waiting[0])
    total = sum(max(0, base.total - base.taken) for base in bases_of(report))
    used = sum(
        share_of(layout_in(volume.details), volume.size, len(seen.bricks[volume.name]), position)
        for volume, position, _ in seen.bricks_on(node.host)
    )
    used += sum(share for (host, _), share in kept.items() if host == node.host)
    return replace(outcome, total=total, used=used, in_use=in_use)
