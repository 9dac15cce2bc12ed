"""Where a volume may be, by the labels of hosts: the topologies of a class, and the node affinity of a volume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from quartermaster.planning.cluster import ClusterView
from quartermaster.resources.kubernetes.volumes import (
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    TopologySelectorTerm,
)
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.selectors import LabelSelectorRequirement

Labels = Mapping[str, str]


def within(view: ClusterView, topologies: Sequence[TopologySelectorTerm], labels: Mapping[str, Labels]) -> ClusterView:
    """The view with only those nodes whose hosts a class allows; none given allows all."""
    if not topologies:
        return view
    kept = tuple(node for node in view.nodes if _allows(topologies, labels_of(node.host, labels)))
    return replace(view, nodes=kept)


def labels_of(host: str, labels: Mapping[str, Labels]) -> Labels:
    """A host is at least known by its name."""
    return labels.get(host) or {HOSTNAME_LABEL: host}


def allowed(topologies: Sequence[TopologySelectorTerm]) -> str:
    """For people."""
    return " or ".join(
        " and ".join(f"{one.key} in ({', '.join(one.values)})" for one in term.match_label_expressions)
        for term in topologies
    )


def reachable(volume: PersistentVolume, labels: Labels) -> bool:
    """Whether a host with these labels may use the volume."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(_term_matches(term, labels) for term in affinity.required.node_selector_terms)


def hosts_named(volume: PersistentVolume) -> tuple[str, ...]:
    """The hosts that the volume's affinity names, for people."""
    affinity = volume.spec.node_affinity
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ()
    found: dict[str, None] = {}
    for term in terms:
        for one in term.match_expressions:
            if one.key == HOSTNAME_LABEL and one.operator == "In":
                found.update(dict.fromkeys(one.values))
    return tuple(found)


def _allows(topologies: Sequence[TopologySelectorTerm], labels: Labels) -> bool:
    return any(all(labels.get(one.key) in one.values for one in term.match_label_expressions) for term in topologies)


def _term_matches(term: NodeSelectorTerm, labels: Labels) -> bool:
    # As Kubernetes has it: a term without any requirement matches nothing.
    if not term.match_expressions and not term.match_fields:
        return False
    by_field = {"metadata.name": labels.get(HOSTNAME_LABEL, "")}
    return all(_holds(one, labels) for one in term.match_expressions) and all(
        _holds(one, by_field) for one in term.match_fields
    )


def _holds(one: NodeSelectorRequirement, labels: Labels) -> bool:
    return LabelSelectorRequirement(key=one.key, operator=one.operator, values=one.values).matches(labels)
