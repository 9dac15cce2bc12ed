"""What is written into the status of nodes and clusters, computed from a view and its plan. Pure but for the time.

A StorageStatus stays small however many nodes there are: it counts all of them, and shows those first that need
somebody. The whole of a node is in its own status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from quartermaster.planning.capacity import capacity_of, total_of
from quartermaster.planning.choosing import AVAILABLE, MISSING, REJECTED
from quartermaster.planning.cluster import ChosenDevice, ClusterPlan, ClusterView, NodeOutcome, NodeView, Verdict
from quartermaster.planning.leaving import LEAVING
from quartermaster.planning.outcomes import READY
from quartermaster.planning.readiness import Standing, ready_nodes
from quartermaster.planning.steps import APPROVAL_NEEDED, Work, sentences
from quartermaster.resources.conditions import remove_condition, set_condition
from quartermaster.resources.devices import Device
from quartermaster.resources.model import Condition
from quartermaster.resources.quantity import of_bytes
from quartermaster.resources.storage import (
    OFFLINE,
    ONLINE,
    BackendReport,
    NodeReport,
    StorageNodeStatus,
    StorageStatusSpec,
    StorageStatusStatus,
    WipedDevice,
)
from quartermaster.support import clock

# Conditions.
ONLINE_CONDITION = "Online"
DEGRADED = "Degraded"
PAUSED = "Paused"
ACCEPTED = "Accepted"

NODES_SHOWN = 100
DEVICES_SHOWN = 16  # of one node in a StorageStatus
SENTENCE_LIMIT = 400
_STEPS_SHOWN = 20


class Hold:
    """Why nothing is done although there is something to do."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message


def device_of(device: ChosenDevice, state: str) -> Device:
    """As a status shows it; `state` is the backend's word for one that serves."""
    return Device(
        path=device.path,
        id=device.id,
        size=_size_text(device.size),
        rotational=device.rotational or None,
        state=(state if device.usable else "") or _state(device),
        reason=device.reason,
        message=_short(device.message),
    )


@lru_cache(maxsize=4096)
def _size_text(size: int) -> str | None:
    return of_bytes(size) if size else None


def _state(device: ChosenDevice) -> str:
    if device.usable:
        return AVAILABLE
    return MISSING if device.reason == MISSING else REJECTED


def devices_of(node: NodeView, outcome: NodeOutcome) -> tuple[Device, ...]:
    return tuple(device_of(device, outcome.in_use.get(device.path, "")) for device in node.devices)


def wiped_by(node: NodeView, known: Sequence[WipedDevice]) -> tuple[WipedDevice, ...]:
    """The consents that agents report as used, beside those that are known; nothing is ever forgotten."""
    found = {one.id: one for one in known}
    for report in node.reports:
        for consent in (report.status.result or {}).get("wiped", ()):
            if consent in node.node.spec.wipe and consent not in found:
                found[consent] = WipedDevice(id=consent, time=clock.timestamp())
    return tuple(found.values())


def node_status(old: StorageNodeStatus, node: NodeView, outcome: NodeOutcome, cluster: str) -> StorageNodeStatus:
    generation = node.node.metadata.generation
    conditions = with_condition(old.conditions, ACCEPTED, _accepted(node.wrong or node.complaint), generation)
    ready = Verdict(outcome.state == READY, outcome.state, _short(outcome.message))
    conditions = with_condition(conditions, READY, ready, generation)
    conditions = _with_leaving(conditions, node, outcome)
    return replace(
        old,
        conditions=conditions,
        observed_generation=generation,
        state=outcome.state,
        message=_short(outcome.message),
        host=node.host or old.host,
        cluster=cluster,
        devices=devices_of(node, outcome),
        wiped=wiped_by(node, old.wiped),
        capacity=capacity_of(outcome.total, outcome.used),
    )


def _accepted(wrong: Verdict | None) -> Verdict:
    if wrong is None:
        return Verdict(True, "Accepted", "the declaration can be met")
    return replace(wrong, message=_short(wrong.message))


def _with_leaving(conditions: tuple[Condition, ...], node: NodeView, outcome: NodeOutcome) -> tuple[Condition, ...]:
    if node.held is not None:
        return with_condition(conditions, LEAVING, node.held, node.node.metadata.generation)
    if node.leaving:
        verdict = Verdict(True, outcome.state, _short(outcome.message))
        return with_condition(conditions, LEAVING, verdict, node.node.metadata.generation)
    return remove_condition(conditions, LEAVING)


def cluster_spec(old: StorageStatusSpec, view: ClusterView, plan: ClusterPlan, standing: Standing) -> StorageStatusSpec:
    section = BackendReport(
        cluster=view.key.name,
        version=plan.details.get("version", ""),
        id=plan.details.get("id", ""),
        details={name: text for name, text in plan.details.items() if name not in ("version", "id")},
    )
    spec = replace(old, status=ONLINE if standing.online else OFFLINE)
    return replace(spec, **{view.key.type: section}) if hasattr(spec, view.key.type) else spec


def cluster_status(
    old: StorageStatusStatus,
    view: ClusterView,
    plan: ClusterPlan,
    standing: Standing,
    work: Work,
    *,
    hold: Hold | None = None,
    class_name: str = "",
    class_trouble: str = "",
) -> StorageStatusStatus:
    conditions = with_condition(old.conditions, ONLINE_CONDITION, replace(standing.why, holds=standing.online))
    degraded = Verdict(True, "StorageClass", class_trouble) if class_trouble else standing.degraded
    conditions = with_condition(conditions, DEGRADED, degraded)
    conditions = _optional(conditions, PAUSED, Verdict(True, hold.reason, hold.message) if hold is not None else None)
    conditions = _optional(conditions, APPROVAL_NEEDED, _approval(work))
    message = f"{hold.message}; {standing.why.message}" if hold is not None else standing.why.message
    return replace(
        old,
        conditions=conditions,
        message=_short(message),
        node_count=len(view.nodes),
        ready_count=ready_nodes(plan),
        nodes=node_reports(view, plan.nodes),
        capacity=total_of(plan.nodes.values()),
        storage_class=class_name,
    )


def node_reports(view: ClusterView, outcomes: Mapping[str, NodeOutcome]) -> tuple[NodeReport, ...]:
    """Those that are not ready first, and never more than a person can read."""
    ordered = sorted(view.nodes, key=lambda node: (outcomes[node.name].state == READY, node.name))
    return tuple(_node_report(node, outcomes[node.name]) for node in ordered[:NODES_SHOWN])


def _node_report(node: NodeView, outcome: NodeOutcome) -> NodeReport:
    devices = sorted(devices_of(node, outcome), key=lambda device: (not device.reason, device.path))
    return NodeReport(
        name=node.name,
        host=node.host,
        zone=node.zone,
        state=outcome.state,
        message=_short(outcome.message),
        devices=tuple(devices[:DEVICES_SHOWN]),
        capacity=capacity_of(outcome.total, outcome.used),
    )


def _approval(work: Work) -> Verdict | None:
    if not work.waiting:
        return None
    steps = sentences(work.unapproved)
    rest = len(steps) - _STEPS_SHOWN
    listed = "; ".join(steps[:_STEPS_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")
    return Verdict(True, "StepsWait", f"`qm approve` lets these go on: {listed}")


def _optional(conditions: tuple[Condition, ...], type: str, verdict: Verdict | None) -> tuple[Condition, ...]:
    if verdict is None:
        return remove_condition(conditions, type)
    return with_condition(conditions, type, verdict)


def with_condition(
    conditions: tuple[Condition, ...], type: str, verdict: Verdict, generation: int | None = None
) -> tuple[Condition, ...]:
    return set_condition(
        conditions,
        type=type,
        status=verdict.holds,
        reason=verdict.reason,
        message=verdict.message,
        generation=generation,
    )


def _short(text: str) -> str:
    return text if len(text) <= SENTENCE_LIMIT else f"{text[: SENTENCE_LIMIT - 1]}…"
