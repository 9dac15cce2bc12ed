"""Who was told of something, and what he says: found without a look at every node."""

from __future__ import annotations

from msgspec.structs import replace

from quartermaster.planning.cluster import ClusterKey, ClusterView, NodeView, Report, Settings
from quartermaster.resources import ObjectMeta, StorageNode
from quartermaster.resources.orchestration import AssignmentStatus
from quartermaster.resources.storage import StorageNodeSpec


def report(agent: str, instance: str) -> Report:
    return Report(agent, instance, 1, {}, False, AssignmentStatus())


def node(name: str, *reports: Report) -> NodeView:
    metadata = ObjectMeta(name=name, namespace="storage")
    return NodeView(StorageNode(metadata=metadata, spec=StorageNodeSpec("glusterfs")), host=name, reports=reports)


FIRST = node("h1", report("keeper", "a"), report("keeper", "b"), report("other", "a"))
SECOND = node("h2", report("keeper", "a"))
VIEW = ClusterView(ClusterKey("storage", "glusterfs", "default"), Settings(), (FIRST, SECOND))


def test_all_who_were_told_of_an_instance_are_found_in_the_order_of_nodes() -> None:
    assert VIEW.reports["keeper", "a"] == [(FIRST, FIRST.reports[0]), (SECOND, SECOND.reports[0])]
    assert VIEW.reports["keeper", "b"] == [(FIRST, FIRST.reports[1])]
    assert ("other", "b") not in VIEW.reports


def test_a_view_with_other_nodes_knows_nothing_of_the_reports_of_before() -> None:
    assert VIEW.reports
    assert replace(VIEW, nodes=()).reports == {}


def test_they_are_looked_up_once_and_no_part_of_what_a_view_is() -> None:
    fresh = replace(VIEW)
    assert VIEW.reports is VIEW.reports
    assert fresh == VIEW
