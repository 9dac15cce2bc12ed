"""Verdicts on a cluster that storage systems share; each names the nodes or volumes that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quartermaster.planning.cluster import ClusterView, NodeOutcome, Verdict
from quartermaster.planning.outcomes import DEGRADED, DEPLOYING, DRAINED, MAINTENANCE_STATE, READY

_NAMED = 3
# These are in the state that somebody wants them in.
_WANTED = (READY, DRAINED, MAINTENANCE_STATE)


def enough_nodes_ready(outcomes: Mapping[str, NodeOutcome], least: int = 1) -> Verdict:
    ready = sum(outcome.state == READY for outcome in outcomes.values())
    if ready >= least:
        return Verdict(True, "Ready", f"{ready} nodes are ready" if ready != 1 else "one node is ready")
    wanted = "at least one is needed" if least == 1 else f"at least {least} are needed"
    are = "is" if ready == 1 else "are"
    return Verdict(False, "TooFewNodes", f"{ready} of {len(outcomes)} nodes {are} ready, {wanted}")


def enough_nodes_serve(view: ClusterView, outcomes: Mapping[str, NodeOutcome], least: int = 1) -> Verdict:
    """As above for a cluster that is ONLINE already: a node that lacks one of its disks still serves, and so does one
    whose configuration is being changed.
    """
    serving = sum(node.healthy and _serves(outcomes[node.name]) for node in view.nodes)
    if serving >= least:
        return Verdict(True, "Usable", f"{serving} nodes serve" if serving != 1 else "one node serves")
    serve = "serves" if serving == 1 else "serve"
    return Verdict(False, "TooFewNodes", f"{serving} of {len(outcomes)} nodes {serve}, at least {least} must")


def _serves(outcome: NodeOutcome) -> bool:
    return outcome.state in (READY, DEGRADED) or (outcome.state == DEPLOYING and outcome.total > 0)


def volumes_usable(view: ClusterView, least_hosts: int = 1) -> Verdict:
    """Whether every volume has as many living hosts as it needs."""
    living = {node.host for node in view.nodes if node.host and node.healthy}
    dead = [volume.title for volume in view.volumes if sum(host in living for host in volume.hosts) < least_hosts]
    if not dead:
        return Verdict(True, "Usable", "every volume can be used")
    message = f"{len(dead)} of {len(view.volumes)} volumes cannot be used, their hosts are silent: {_named(dead)}"
    return Verdict(False, "VolumesUnusable", message)


def something_missing(view: ClusterView, outcomes: Mapping[str, NodeOutcome]) -> Verdict:
    """Holds, as `Degraded` does, when a volume cannot be used or a node is not as it should be."""
    usable = volumes_usable(view)
    if not usable.holds:
        return Verdict(True, usable.reason, usable.message)
    return _nodes_missing(outcomes)


def _nodes_missing(outcomes: Mapping[str, NodeOutcome]) -> Verdict:
    missing = [name for name, outcome in sorted(outcomes.items()) if outcome.state not in _WANTED]
    if not missing:
        return Verdict(False, "Complete", "nothing is missing")
    first = outcomes[missing[0]]
    reason = "NodesSilent" if first.state == DEGRADED else "NodesNotReady"
    why = f"; {missing[0]}: {first.message}" if first.message else ""
    are = "is" if len(missing) == 1 else "are"
    return Verdict(True, reason, f"{len(missing)} of {len(outcomes)} nodes {are} not ready: {_named(missing)}{why}")


def _named(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
