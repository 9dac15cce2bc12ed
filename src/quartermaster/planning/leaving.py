"""How a node goes: first what it holds, then its service, then the node itself. Each step waits for the one before."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from quartermaster.planning.cluster import ABANDON, DRAIN, Desired, NodeOutcome, NodeView
from quartermaster.planning.outcomes import DRAINED, DRAINING, giving_up, leaving_of

LEAVING = "Leaving"  # the condition of a node that is to go, or may not

_NAMED = 3


class Departure(msgspec.Struct, frozen=True):
    outcome: NodeOutcome
    assignments: tuple[Desired, ...] = ()
    gone: bool = False  # nothing of it is left, or somebody gave it up


def leave(
    node: NodeView, agent: str, instance: str = "", volumes: Sequence[str] = (), *, moves: bool = False
) -> Departure | None:
    """What becomes of a node that is to go; None for one that stays.

    `volumes` are those that still need it. `moves`: whether the storage system is taking them elsewhere by itself.
    """
    if node.leaving not in (DRAIN, ABANDON):
        return None
    report = node.report(agent, instance)
    why = "the node is leaving the cluster"
    take_off = (Desired(node.host, agent, None, instance, why=why),) if report is not None else ()
    if node.leaving == ABANDON:
        said = f"given up with host {node.host}" if node.host else "given up"
        return Departure(NodeOutcome(DRAINED, said), take_off, gone=True)
    if volumes:
        silent = "" if node.healthy else f"; host {node.host} is silent or gone: {giving_up(node.name)}"
        return Departure(NodeOutcome(DRAINING, _holds(volumes, moves=moves) + silent))
    return Departure(leaving_of(node, report), take_off, gone=report is None)


def _holds(volumes: Sequence[str], *, moves: bool) -> str:
    rest = len(volumes) - _NAMED
    named = ", ".join(volumes[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    count = "a volume" if len(volumes) == 1 else f"{len(volumes)} volumes"
    if moves:
        return f"{count} are moving to other nodes: {named}"
    return f"it holds {count} that cannot move: {named}; delete their claims, or copy what is in them elsewhere first"
