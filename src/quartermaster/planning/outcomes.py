"""What a node is found to be, in the words that all storage systems use for it."""

from __future__ import annotations

from typing import Any

from quartermaster.planning.cluster import ABANDON, DRAIN, MAINTENANCE, NodeOutcome, NodeView, Report
from quartermaster.resources.orchestration import FAILED as REPORT_FAILED
from quartermaster.resources.orchestration import RUNNING

PENDING = "Pending"
DEPLOYING = "Deploying"
READY = "Ready"
DEGRADED = "Degraded"
DRAINING = "Draining"
DRAINED = "Drained"
FAILED = "Failed"
MAINTENANCE_STATE = "Maintenance"


def outcome_of(node: NodeView, agent: str, config: dict[str, Any] | None, instance: str = "") -> NodeOutcome:
    """How far a node is whose `agent` is to make `config` true; a storage system adds its own knowledge to it."""
    report = node.report(agent, instance)
    if node.leaving in (DRAIN, ABANDON):
        return leaving_of(node, report)
    if node.wrong is not None:
        return NodeOutcome(FAILED, node.wrong.message)
    if not node.healthy:
        silent = f"host {node.host} has been silent for too long"
        silent += f"; {node.held.message}" if node.held is not None else ""
        return NodeOutcome(DEGRADED if report is not None and report.done else PENDING, silent)
    if node.leaving == MAINTENANCE:
        return NodeOutcome(MAINTENANCE_STATE, "in maintenance: `qm node maintenance --end` ends it")
    if report is None or report.absent or report.desired != config:
        return NodeOutcome(DEPLOYING, f"{agent} is to be configured on host {node.host}")
    return _reported(node, agent, report)


def _reported(node: NodeView, agent: str, report: Report) -> NodeOutcome:
    status = report.status
    if not report.current:
        return NodeOutcome(DEPLOYING, f"waiting for the agent on host {node.host}")
    if status.state == REPORT_FAILED:
        return NodeOutcome(FAILED, status.message or f"{agent} failed on host {node.host}")
    if not report.done:
        waits = status.message or f"{agent} is being configured on host {node.host}"
        return NodeOutcome(
            DEPLOYING, waits if status.state == RUNNING else f"waiting for the agent on host {node.host}"
        )
    if node.held is not None:
        return NodeOutcome(READY, f"cannot be removed: {node.held.message}")
    if node.complaint is not None:
        return NodeOutcome(READY, node.complaint.message)
    return NodeOutcome(READY)


def giving_up(node: str) -> str:
    """What to do about a node that is to go and whose host does not answer."""
    return f"`qm up` on it starts its agent, `qm node remove {node} --lost` gives up what was on it"


def waiting_for_host(node: NodeView) -> str:
    """Why a node that is to go stays while its host does not answer."""
    return f"waiting for host {node.host}, which is silent or gone; {giving_up(node.name)}"


def leaving_of(node: NodeView, report: Report | None) -> NodeOutcome:
    """A node that is to go: gone when its host has nothing of it any more."""
    if report is None:
        return NodeOutcome(DRAINED, "nothing of it is left on its host")
    if report.absent and report.current and report.status.state == REPORT_FAILED:
        return NodeOutcome(DRAINING, report.status.message)
    if not node.healthy:
        return NodeOutcome(DRAINING, waiting_for_host(node))
    return NodeOutcome(DRAINING, f"{report.agent} is being taken off host {node.host}")
