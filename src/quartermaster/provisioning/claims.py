"""From a claim to its volume: what is to be done next, and why. Pure.

    (nothing) ─ Record ─▶ intent on the claim ─ Make ─▶ assignment ─ report ─▶ Publish the volume ─ Settle ─▶ (nothing)
                                  └──────────── Undo, Release ◀── deleted half way, bound elsewhere, host lost

Each act may be done twice, and the process may die before or after any of them: what is to be done next follows from
what is there. Until the volume is published nobody was ever given it, so up to there it may be taken back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from quartermaster.backends.assigning import as_plain, is_done
from quartermaster.backends.base import Refusal, Volume, VolumeDriver, VolumeRequest, lost_with
from quartermaster.planning.cluster import ClusterView, Desired
from quartermaster.provisioning.holds import hold_of
from quartermaster.provisioning.intent import Intent, has_trace
from quartermaster.provisioning.protocol import (
    DELETE,
    SELECTED_NODE,
    cluster_of,
    is_block,
    is_deleting,
    requested,
    volume_name,
    waits_for_consumer,
)
from quartermaster.provisioning.topology import allowed, within
from quartermaster.provisioning.volumes import persistent_volume
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from quartermaster.resources.orchestration import FAILED, Assignment

PAUSED = "Paused"  # the reason of a claim that waits because its cluster is held


class Situation(msgspec.Struct, frozen=True):
    """All that is known of one claim of ours at a moment."""

    claim: PersistentVolumeClaim
    storage_class: StorageClass | None = None
    intent: Intent | None = None
    volume: PersistentVolume | None = None  # the one that is named after the claim
    assignment: Assignment | None = None  # that of the intent, with its report
    view: ClusterView | None = None  # of the cluster that the intent names, else the class
    labels: Mapping[str, Mapping[str, str]] = {}  # of hosts
    scheduled: bool = False  # whether somebody else chooses the node, and can choose another


class Nothing(msgspec.Struct, frozen=True):
    why: str


class Wait(msgspec.Struct, frozen=True):
    """Nothing can be done now; people are told why, in a condition and an Event."""

    reason: str
    why: str
    failed: bool = False  # somebody tried and failed


class Quiet(msgspec.Struct, frozen=True):
    """It goes its way: what is awaited tells by itself."""

    why: str


class Record(msgspec.Struct, frozen=True):
    intent: Intent
    why: str


class Reschedule(msgspec.Struct, frozen=True):
    """Ask who chose the node for another one."""

    reason: str
    why: str


class Make(msgspec.Struct, frozen=True):
    desired: Desired
    why: str


class Publish(msgspec.Struct, frozen=True):
    volume: PersistentVolume
    why: str


class Settle(msgspec.Struct, frozen=True):
    """The volume carries on: the claim needs no intent any more."""

    why: str


class Undo(msgspec.Struct, frozen=True):
    """What was made or begun is to be gone; then the claim is let go."""

    desired: Desired
    lost: bool  # its host does not answer, and nobody waits for it
    why: str
    anew: bool = False  # the claim wants a volume still, and whoever makes that finds what is left of this one


class Release(msgspec.Struct, frozen=True):
    why: str


Act = Nothing | Wait | Quiet | Record | Reschedule | Make | Publish | Settle | Undo | Release


def next_act(situation: Situation, driver: VolumeDriver) -> Act:
    if situation.intent is None:
        return _begin(situation, driver)
    return _go_on(situation, situation.intent, driver)


def _begin(situation: Situation, driver: VolumeDriver) -> Act:
    claim, storage_class = situation.claim, situation.storage_class
    if not _wants_volume(claim):
        return Release("it needs no volume, and bears an intent that is not ours") if has_trace(claim) else Nothing("")
    if situation.volume is not None:
        return Nothing(f"its volume {situation.volume.metadata.name} waits to be bound")
    node = claim.metadata.annotations.get(SELECTED_NODE, "")
    if storage_class is None or (waits_for_consumer(storage_class) and not node):
        return Nothing("it waits for its class or its first consumer")
    refusal = _unsupported(claim) or _not_now(situation)
    if refusal is not None:
        return Wait(refusal.reason, refusal.message)
    return _place(situation, storage_class, node, driver)


def _wants_volume(claim: PersistentVolumeClaim) -> bool:
    return not is_deleting(claim) and not claim.spec.volume_name


def _unsupported(claim: PersistentVolumeClaim) -> Refusal | None:
    source = claim.spec.data_source_ref or claim.spec.data_source
    if source is not None:
        return Refusal("Unsupported", f"a volume cannot be made from the {source.kind} {source.name}")
    if claim.spec.selector:
        return Refusal("Unsupported", "a selector chooses among volumes that are there; none of them fits")
    return None


def _not_now(situation: Situation) -> Refusal | None:
    view, storage_class = situation.view, situation.storage_class
    if view is None:
        name = cluster_of(storage_class, situation.claim).status_name if storage_class is not None else ""
        return Refusal("ClusterMissing", f"there is no storage cluster {name}")
    if hold := hold_of(view):
        return Refusal(PAUSED, hold)
    if not view.online:
        return Refusal("ClusterOffline", f"the storage cluster {view.key.status_name} is OFFLINE")
    return None


def _place(situation: Situation, storage_class: StorageClass, node: str, driver: VolumeDriver) -> Act:
    claim, view = situation.claim, situation.view
    if view is None:
        raise ValueError("a claim is placed in a cluster")
    narrowed = within(view, storage_class.allowed_topologies, situation.labels)
    if not narrowed.nodes and view.nodes:
        wanted = allowed(storage_class.allowed_topologies)
        return Wait("NoTopology", f"no host of {view.key.status_name} is within the class's topologies: {wanted}")
    block = is_block(claim)
    request = VolumeRequest(
        name=volume_name(claim),
        namespace=claim.metadata.namespace,
        claim=claim.metadata.name,
        size=requested(claim),
        parameters=storage_class.parameters,
        access_modes=claim.spec.access_modes,
        block=block,
        host=node,
    )
    placed = driver.place(request, narrowed)
    if isinstance(placed, Refusal):
        if node and situation.scheduled:
            return Reschedule(placed.reason, placed.message)
        return Wait(placed.reason, placed.message)
    volume = Volume(
        name=request.name, size=request.size, placement=placed, parameters=dict(storage_class.parameters), block=block
    )
    intent = Intent(
        cluster=view.key,
        volume=volume,
        reclaim_policy=storage_class.reclaim_policy or DELETE,
        class_name=storage_class.metadata.name,
        mount_options=storage_class.mount_options,
    )
    return Record(intent, placed.why or f"there is room on {', '.join(placed.hosts)}")


def _go_on(situation: Situation, intent: Intent, driver: VolumeDriver) -> Act:
    claim, assignment = situation.claim, situation.assignment
    if situation.volume is not None:
        return Settle(f"the volume {intent.volume.name} is there")
    desired = driver.desired(intent.volume)
    lost = host_is_lost(situation.view, desired.host)
    leaving = _departing(situation.view, intent.volume.placement.hosts)
    leaving = leaving or lost_with(driver, intent.volume, situation.view)
    ended = unwanted(claim, intent)
    given_up = ended or (f"the host {desired.host} was lost" if lost else "")
    if not given_up and assignment is not None and assignment.spec.absent:
        given_up = leaving  # begun below, and not over yet: to make it again would fail again, and so on for ever
    if given_up:
        return Undo(desired, lost, f"{given_up} before the volume was finished", anew=not ended)
    if assignment is None or differs(assignment, desired):
        return Make(desired, intent.volume.placement.why or f"the volume {intent.volume.name} is to be made")
    if is_done(assignment):
        volume = persistent_volume(claim, intent, driver.source(intent.volume, assignment.status.result or {}))
        return Publish(volume, f"{desired.agent} on {desired.host} has made it")
    progress = progress_of(assignment, desired)
    if leaving and (isinstance(progress, Wait) or _has_no_node(situation.view, desired.host)):
        # Else the node would wait for the volume, and the volume for the node.
        return Undo(desired, False, f"{leaving} before the volume was finished", anew=True)
    return progress


def unwanted(claim: PersistentVolumeClaim, intent: Intent) -> str:
    """Why the claim needs the volume no longer; "" if it does."""
    if is_deleting(claim):
        return "the claim was deleted"
    if claim.spec.volume_name not in ("", intent.volume.name):
        return f"the claim was bound to {claim.spec.volume_name}"
    return ""


def progress_of(assignment: Assignment, desired: Desired) -> Wait | Quiet:
    """What an unfinished assignment says of itself."""
    status = assignment.status
    if status.observed_generation == assignment.spec.generation and status.state == FAILED:
        cause = status.message or "no reason was given"
        return Wait("AgentFailed", f"{desired.agent} on {desired.host} failed: {cause}", failed=True)
    return Quiet(f"{desired.agent} on {desired.host}: {status.message or status.state or 'not begun'}")


def differs(assignment: Assignment, desired: Desired) -> bool:
    """Whether the agent was asked for something else than this."""
    config = None if desired.config is None else as_plain(desired.config)
    return assignment.spec.desired != config or bool(assignment.spec.absent) != (config is None)


def gone(desired: Desired) -> Desired:
    return replace(desired, config=None)


def _departing(view: ClusterView | None, hosts: Sequence[str]) -> str:
    """Why a host that was to have a part of a volume will not have it; "" while all of them stay."""
    if view is None:
        return ""
    for host in hosts:
        nodes = [node for node in view.nodes if node.host == host]
        if not nodes:
            return f"host {host} has no node any more"
        if any(node.leaving for node in nodes):
            return f"the node on host {host} is leaving"
        if any(node.lost for node in nodes):
            return f"the host {host} was lost"
    return ""


def _has_no_node(view: ClusterView | None, host: str) -> bool:
    """Whoever was to make the volume was given up, and may never answer."""
    return view is not None and all(node.host != host for node in view.nodes)


def host_is_lost(view: ClusterView | None, host: str) -> bool:
    return view is not None and any(node.lost for node in view.nodes if node.host == host)
