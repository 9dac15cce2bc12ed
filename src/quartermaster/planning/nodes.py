"""Which nodes something may be put on, and how to spread it over zones.

A node is known by (name, uid): one that was made anew under the old name is another. Everything is ordered by name, so
that the same nodes always give the same choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop

import msgspec

from quartermaster.resources.agility import NodeSelectorTerm, PoolToleration
from quartermaster.resources.kubernetes.core import Node, Taint
from quartermaster.resources.marks import HOSTNAME_LABEL, ZONE_LABEL

_EVICTING = ("NoSchedule", "NoExecute")


class NodeFacts(msgspec.Struct, frozen=True, gc=False):
    """What matters of a Node. `ready` and `cordoned` matter for new choices only."""

    name: str
    uid: str
    hostname: str
    zone: str
    ready: bool
    cordoned: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...] = ()


def facts_of(node: Node) -> NodeFacts:
    metadata = node.metadata
    return NodeFacts(
        name=metadata.name,
        uid=metadata.uid,
        hostname=metadata.labels.get(HOSTNAME_LABEL, metadata.name),
        zone=metadata.labels.get(ZONE_LABEL, ""),
        ready=any(c.type == "Ready" and c.status == "True" for c in node.status.conditions),
        cordoned=node.spec.unschedulable or metadata.deletion_timestamp is not None,
        labels=metadata.labels,
        annotations=metadata.annotations,
        taints=tuple(taint for taint in node.spec.taints if taint.effect in _EVICTING),
    )


def fits(terms: Sequence[NodeSelectorTerm], labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """Any one of the terms, all of what it says; no terms fit every node."""
    return not terms or any(_fits_term(term, labels, annotations) for term in terms)


def _fits_term(term: NodeSelectorTerm, labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    for key, value in term.match_labels.items():
        if labels.get(key) != value:
            return False
    for key, value in term.match_annotations.items():
        if annotations.get(key) != value:
            return False
    return all(requirement.matches(labels) for requirement in term.match_expressions)


def untolerated(node: NodeFacts, tolerations: Sequence[PoolToleration]) -> Taint | None:
    """The first taint that keeps new Pods from the node."""
    return next((taint for taint in node.taints if not any(_tolerates(t, taint) for t in tolerations)), None)


def _tolerates(toleration: PoolToleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.key == taint.key and toleration.value == taint.value


# A node that may be chosen: its name, its zone, and its weight; the more, the better. There are very many of them.
Candidate = tuple[str, str, int]


def spread(candidates: Iterable[Candidate], taken_zones: Iterable[str], want: int) -> tuple[str, ...]:
    """The names of up to `want` candidates: the emptiest zone first, in it the greatest weight, then the name.

    `taken_zones` are the zones of what is there already. Between zones that are equally empty the better candidate
    decides, so that a zone without use for us is not preferred because of its name.
    """
    used: dict[str, int] = {}
    for zone in taken_zones:
        used[zone] = used.get(zone, 0) + 1
    # A heap per zone: of ten thousand candidates three are wanted, and to sort them all takes longer.
    zones: dict[str, list[tuple[int, str]]] = {}
    for name, zone, weight in candidates:
        zones.setdefault(zone, []).append((-weight, name))
    for ranked in zones.values():
        heapify(ranked)
    chosen: list[str] = []
    while len(chosen) < want and zones:
        zone = min(zones, key=lambda z: (used.get(z, 0), zones[z][0]))
        chosen.append(heappop(zones[zone])[1])
        used[zone] = used.get(zone, 0) + 1
        if not zones[zone]:
            del zones[zone]
    return tuple(chosen)
