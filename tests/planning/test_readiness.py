"""ONLINE and OFFLINE as a chain of rules."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from quartermaster.planning.cluster import (
    ClusterKey,
    ClusterPlan,
    ClusterView,
    NodeOutcome,
    NodeView,
    Settings,
    Verdict,
)
from quartermaster.planning.readiness import standing_of
from quartermaster.resources import ObjectMeta, StorageNode
from quartermaster.resources.storage import StorageNodeSpec

KEY = ClusterKey("storage", "glusterfs", "c1")
YES, NO = Verdict(True, "Yes", "yes"), Verdict(False, "No", "two of three are missing")
NODE = NodeView(node=StorageNode(metadata=ObjectMeta(name="n"), spec=StorageNodeSpec(type="glusterfs")), host="h")
VIEW = ClusterView(KEY, Settings(), (NODE,))
PLAN = ClusterPlan((), {"n": NodeOutcome("Ready")}, ready=YES, usable=YES, degraded=NO)


@pytest.mark.parametrize(
    ("online", "plan", "expected"),
    [
        (False, {}, (True, "Ready")),
        (False, {"ready": NO}, (False, "No")),
        (False, {"ready": NO, "usable": YES}, (False, "No")),
        (True, {"ready": NO}, (True, "Ready")),
        (True, {"ready": NO, "usable": NO}, (False, "No")),
        (True, {"degraded": YES}, (True, "Yes")),
    ],
)
def test_to_enter_takes_everything_and_to_stay_takes_that_it_can_be_used(
    online: bool, plan: dict[str, Any], expected: tuple[bool, str]
) -> None:
    standing = standing_of(replace(VIEW, online=online), replace(PLAN, **plan))
    assert (standing.online, standing.why.reason) == expected


def test_without_a_node_it_says_what_it_waits_for() -> None:
    standing = standing_of(replace(VIEW, nodes=()), replace(PLAN, nodes={}))
    wanted = "no storage nodes registered: waiting for a StorageNode of type glusterfs for cluster c1"
    assert standing.why == Verdict(False, "NoStorageNodes", wanted)


def test_a_storage_cluster_may_ask_for_more_nodes() -> None:
    view = replace(VIEW, settings=Settings(min_nodes=3))
    waiting = replace(PLAN, nodes={"n": NodeOutcome("Ready"), "m": NodeOutcome("Pending", "no host has joined yet")})
    standing = standing_of(view, waiting)
    assert not standing.online
    assert standing.why.message == "1 of 3 nodes that the StorageCluster asks for is ready; m: no host has joined yet"
    assert standing_of(replace(view, online=True), waiting).online


def test_an_offline_cluster_is_not_called_degraded() -> None:
    standing = standing_of(VIEW, replace(PLAN, ready=NO, degraded=YES))
    assert not standing.degraded.holds
