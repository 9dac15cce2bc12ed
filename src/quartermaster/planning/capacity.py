"""How much there is, and whether a node may take its room away.

What was in use must fit on the nodes that stay, and a twentieth of these must stay free: storage systems that are full
to the brim stop working, some of them for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from quartermaster.planning.cluster import ABANDON, DRAIN, NodeOutcome, NodeView, Verdict
from quartermaster.planning.outcomes import giving_up
from quartermaster.resources.quantity import Amount, of_bytes
from quartermaster.resources.storage import Capacity

MARGIN = 0.05
TOO_SMALL = "RemainingCapacityTooSmall"


def capacity_of(total: int, used: int) -> Capacity | None:
    """As it is written into a status; None where there is nothing."""
    if not total:
        return None
    whole = _round(total)
    return Capacity(total=of_bytes(whole), used=of_bytes(used), available=of_bytes(max(0, whole - used)))


def _round(total: int) -> int:
    """Down to whole mebibytes, which people can read; a disk has a few sectors more."""
    return total - total % (1 << 20) if total >= 1 << 30 else total


def total_of(outcomes: Iterable[NodeOutcome]) -> Capacity | None:
    listed = list(outcomes)
    return capacity_of(sum(one.total for one in listed), sum(one.used for one in listed))


def shown(count: int) -> str:
    """Bytes for people: three digits and a unit."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if value < 1000 or unit == "EiB":
            break
        value /= 1024
    return f"{value:.3g} {unit}"


def may_leave(nodes: Sequence[NodeView]) -> tuple[NodeView, ...]:
    """The same nodes; one whose data would not fit elsewhere stays, with the reason in `held`."""
    if not any(node.leaving == DRAIN for node in nodes):
        return tuple(nodes)
    refusal = _refusal(nodes)
    if refusal is None:
        return tuple(nodes)
    return tuple(
        msgspec.structs.replace(node, leaving="", held=_held(node, refusal))
        if node.leaving == DRAIN and _known(node)[1]
        else node
        for node in nodes
    )


def _held(node: NodeView, refusal: Verdict) -> Verdict:
    """Of a host that does not answer nothing can be moved, however much room there is."""
    if node.healthy:
        return refusal
    message = f"{refusal.message}; host {node.host} is silent or gone: {giving_up(node.name)}"
    return msgspec.structs.replace(refusal, message=message)


def _refusal(nodes: Sequence[NodeView]) -> Verdict | None:
    staying = [node for node in nodes if node.leaving not in (DRAIN, ABANDON) and node.wrong is None and not node.lost]
    moving = sum(_known(node)[1] for node in nodes if node.leaving == DRAIN)
    used = moving + sum(_known(node)[1] for node in staying)
    room = sum(_known(node)[0] for node in staying)
    if not moving or used <= room * (1 - MARGIN):
        return None
    message = (
        f"the remaining capacity would be too small: {shown(used)} are in use, and the nodes that stay have "
        f"{shown(room)}, of which {MARGIN:.0%} must stay free; add a node or delete volumes"
    )
    return Verdict(False, TOO_SMALL, message)


def _known(node: NodeView) -> tuple[int, int]:
    """(total, used) as the node's status has them."""
    capacity = node.node.status.capacity
    if capacity is None:
        return 0, 0
    return _bytes(capacity.total), _bytes(capacity.used)


def _bytes(quantity: str | int | None) -> int:
    return 0 if quantity is None else Amount.of(quantity).bytes
