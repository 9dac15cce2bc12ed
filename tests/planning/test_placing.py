"""How much of a directory can be promised that others write to as well."""

from __future__ import annotations

from typing import Any

from quartermaster.planning.cluster import ClusterKey, ClusterView, NodeView, Report, Settings, Verdict, VolumeView
from quartermaster.planning.offering import BASE, plan_nodes
from quartermaster.planning.placing import Room, most_room, rooms_of
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import AssignmentStatus
from quartermaster.resources.storage import StorageNode, StorageNodeSpec

KEY = ClusterKey("default", "local", "default")
GIB = 1 << 30


def view(volumes: dict[str, int], **base: Any) -> ClusterView:
    config = {"devices": [], "directories": ["/srv"]}
    result = {"bases": [{"path": "/srv", **base}]}
    status = AssignmentStatus(state="succeeded", observed_generation=1, result=result)
    report = Report("local", "default", 1, config, absent=False, status=status)
    node = StorageNode(metadata=ObjectMeta(name="n1", namespace="default"), spec=StorageNodeSpec(type="local"))
    seen = NodeView(node, "h1", directories=("/srv",), reports=(report,))
    held = tuple(VolumeView(name, size, ("h1",), {BASE: "/srv"}) for name, size in volumes.items())
    return ClusterView(KEY, Settings(), (seen,), held)


def room(seen: ClusterView, without: str = "") -> int:
    (found,) = rooms_of(seen, "local", "default", without=without)
    return found.free // GIB


def test_what_others_have_taken_is_not_promised() -> None:
    seen = view({}, total=252 * GIB, free=43 * GIB, taken=209 * GIB)
    assert room(seen) == 43
    refused = most_room(rooms_of(seen, "local", "default"), 200 * GIB)
    assert isinstance(refused, Verdict)
    assert "200 GiB were asked for, and the most that is free is 43 GiB" in refused.message


def test_a_promise_counts_whether_or_not_its_volume_is_written_to_yet() -> None:
    assert room(view({"a": 40 * GIB}, total=252 * GIB, free=43 * GIB, taken=209 * GIB)) == 3
    assert room(view({"a": 40 * GIB}, total=252 * GIB, free=3 * GIB, taken=209 * GIB)) == 3


def test_no_more_is_promised_than_is_free_now() -> None:
    assert room(view({"a": 10 * GIB}, total=100 * GIB, free=5 * GIB, taken=0)) == 5


def test_a_volume_that_grows_may_keep_what_it_has() -> None:
    seen = view({"a": 10 * GIB}, total=100 * GIB, free=5 * GIB, taken=0)
    assert room(seen, without="a") == 15


def test_a_disk_of_our_own_has_what_was_not_promised() -> None:
    seen = view({"a": 10 * GIB}, total=100 * GIB)
    best = most_room(rooms_of(seen, "local", "default"), GIB)
    assert isinstance(best, Room)
    assert best.free == 90 * GIB


def test_a_disk_that_writers_have_filled_gets_no_volume() -> None:
    seen = view({"a": 10 * GIB}, total=100 * GIB, free=2 * GIB)
    assert room(seen) == 2
    refused = most_room(rooms_of(seen, "local", "default"), 20 * GIB)
    assert isinstance(refused, Verdict)
    assert "the most that is free is 2 GiB" in refused.message


def test_a_full_file_system_is_in_the_nodes_message_and_the_capacity_is_what_can_be_promised() -> None:
    outcome = plan_nodes(view({}, total=256 * GIB, free=2 * GIB, taken=254 * GIB), "local", "default").outcomes["n1"]
    assert (outcome.state, outcome.message) == ("Ready", "/srv is full: less than 4 GiB of 256 GiB is free")
    assert outcome.total == 2 * GIB
