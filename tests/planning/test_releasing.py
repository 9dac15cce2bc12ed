"""Which disks a cluster remembers that it gave up."""

from __future__ import annotations

from typing import Any

from quartermaster.planning.cluster import Desired, NodeView, Report
from quartermaster.planning.releasing import MOST_BYTES, record_name, released_on, with_releases
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import AssignmentStatus
from quartermaster.resources.storage import StorageNode, StorageNodeSpec

BOTH = {"devices": [{"id": "A", "path": "/dev/vdb", "uuid": "u-a"}, {"id": "", "path": "/dev/vdc", "uuid": "u-c"}]}
ONE = {"devices": BOTH["devices"][:1]}


def seen(host: str, desired: dict[str, Any] | None) -> NodeView:
    report = Report("local", "default", 1, desired, desired is None, AssignmentStatus())
    node = StorageNode(metadata=ObjectMeta(name=host, namespace="default"), spec=StorageNodeSpec(type="local"))
    return NodeView(node, host, reports=(report,))


def asked(host: str, config: dict[str, Any] | None) -> Desired:
    return Desired(host, "local", config, "default")


def test_a_disk_is_remembered_before_it_is_given_up_and_by_its_path_where_it_has_no_identity() -> None:
    memory = with_releases({}, [seen("h1", BOTH)], [asked("h1", ONE)])
    assert released_on(memory[record_name("h1")]) == {"/dev/vdc": "u-c"}
    memory = with_releases({}, [seen("h1", BOTH)], [asked("h1", None)])
    assert released_on(memory[record_name("h1")]) == {"A": "u-a", "/dev/vdc": "u-c"}


def test_it_is_forgotten_when_its_assignment_names_it_again_and_not_before() -> None:
    memory = with_releases({}, [seen("h1", BOTH)], [asked("h1", ONE)])
    assert with_releases(memory, [seen("h1", ONE)], [asked("h1", BOTH)]) == memory
    assert with_releases(memory, [seen("h1", BOTH)], [asked("h1", BOTH)]) == {}


def test_with_nothing_given_up_nothing_is_remembered() -> None:
    assert with_releases({}, [seen("h1", ONE)], [asked("h1", BOTH)]) == {}


def test_what_does_not_fit_into_one_object_is_not_remembered_and_the_rest_is() -> None:
    many = {"devices": [{"id": f"disk-{one:05}", "path": "", "uuid": "u" * 36} for one in range(100)]}
    nodes = [seen(f"h{one:04}", many) for one in range(200)]
    memory = with_releases({}, nodes, [asked(node.host, None) for node in nodes])
    assert 0 < len(memory) < 200
    assert MOST_BYTES / 2 < sum(map(len, memory.values())) <= MOST_BYTES
