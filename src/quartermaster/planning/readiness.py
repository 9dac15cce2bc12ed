"""ONLINE or OFFLINE, and why: an ordered chain of small rules, the first that speaks decides.

To enter ONLINE takes everything that the storage system requires. To stay takes that it can be used: quorum, and every
volume writable. What is missing in between is the `Degraded` condition.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from quartermaster.planning.cluster import ClusterPlan, ClusterView, Verdict
from quartermaster.planning.outcomes import READY

NO_NODES = "NoStorageNodes"
TOO_FEW_NODES = "TooFewNodes"


class Standing(msgspec.Struct, frozen=True):
    """What the StorageStatus says."""

    online: bool
    why: Verdict
    degraded: Verdict


Rule = Callable[[ClusterView, ClusterPlan], Verdict | None]


def standing_of(view: ClusterView, plan: ClusterPlan) -> Standing:
    for rule in RULES:
        verdict = rule(view, plan)
        if verdict is not None:
            degraded = plan.degraded if verdict.holds else Verdict(False, "Offline", "the cluster is OFFLINE")
            return Standing(verdict.holds, verdict, degraded)
    raise AssertionError("unreachable: the last rule always speaks")


def no_node_is_declared(view: ClusterView, _: ClusterPlan) -> Verdict | None:
    if view.nodes:
        return None
    return Verdict(
        False,
        NO_NODES,
        f"no storage nodes registered: waiting for a StorageNode of type {view.key.type}{_cluster(view)}",
    )


def an_online_cluster_can_no_longer_be_used(view: ClusterView, plan: ClusterPlan) -> Verdict | None:
    return plan.usable if view.online and not plan.usable.holds else None


def an_online_cluster_stays_so(view: ClusterView, plan: ClusterPlan) -> Verdict | None:
    return _online(plan) if view.online else None


def too_few_nodes_to_begin(view: ClusterView, plan: ClusterPlan) -> Verdict | None:
    """The number that a StorageCluster asks for; without one, what the storage system needs is in its own rule."""
    wanted, ready = view.settings.min_nodes or 0, ready_nodes(plan)
    if ready >= wanted:
        return None
    are = "is" if ready == 1 else "are"
    message = f"{ready} of {wanted} nodes that the StorageCluster asks for {are} ready{_first_trouble(plan)}"
    return Verdict(False, TOO_FEW_NODES, message)


def the_storage_system_is_not_ready(_: ClusterView, plan: ClusterPlan) -> Verdict | None:
    if plan.ready.holds:
        return None
    return msgspec.structs.replace(plan.ready, message=plan.ready.message + _first_trouble(plan))


def everything_is_there(_: ClusterView, plan: ClusterPlan) -> Verdict | None:
    return _online(plan)


RULES: tuple[Rule, ...] = (
    no_node_is_declared,
    an_online_cluster_can_no_longer_be_used,
    an_online_cluster_stays_so,
    too_few_nodes_to_begin,
    the_storage_system_is_not_ready,
    everything_is_there,
)


def ready_nodes(plan: ClusterPlan) -> int:
    return sum(outcome.state == READY for outcome in plan.nodes.values())


def _online(plan: ClusterPlan) -> Verdict:
    if plan.degraded.holds:
        return Verdict(True, plan.degraded.reason, plan.degraded.message)
    ready, total = ready_nodes(plan), len(plan.nodes)
    return Verdict(True, "Ready", _ready_of(ready, total))


def _ready_of(ready: int, total: int) -> str:
    if ready < total:
        return f"{ready} of {total} nodes {'is' if ready == 1 else 'are'} ready"
    return "the one node is ready" if total == 1 else f"all {total} nodes are ready"


def _first_trouble(plan: ClusterPlan) -> str:
    """The first node that is not ready, for somebody who reads only one line."""
    for name, outcome in sorted(plan.nodes.items()):
        if outcome.state != READY and outcome.message:
            return f"; {name}: {outcome.message}"
    return ""


def _cluster(view: ClusterView) -> str:
    return "" if view.key.name == "default" else f" for cluster {view.key.name}"
