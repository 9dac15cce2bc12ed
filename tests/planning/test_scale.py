"""10,000 nodes with 100,000 devices: planned in a second, and told in a status that stays small."""

from __future__ import annotations

import pytest

from quartermaster.backends.registry import backend_of
from quartermaster.operators.reporting import NODES_SHOWN, cluster_status, node_status
from quartermaster.planning.cluster import ClusterKey
from quartermaster.planning.gathering import AllHealthy, Snapshot, views_of
from quartermaster.planning.readiness import standing_of
from quartermaster.planning.steps import work_of
from quartermaster.resources import Assignment, ObjectMeta, StorageNode, encode
from quartermaster.resources.devices import Device
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.orchestration import (
    AssignmentSpec,
    AssignmentStatus,
    Host,
    HostSpec,
    HostStatus,
    Inventory,
    assignment_name,
)
from quartermaster.resources.storage import (
    StorageNetwork,
    StorageNodeSpec,
    StorageStatus,
    StorageStatusSpec,
    StorageStatusStatus,
)
from quartermaster.support import clock

KEY = ClusterKey("storage", "local", "default")
NODES, DEVICES = 10_000, 10


def address(number: int) -> str:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def host(number: int) -> Host:
    devices = tuple(
        Device(path=f"/dev/vd{chr(98 + one)}", id=f"serial-{number}-{one}", size=4 << 40, state="Available")
        for one in range(DEVICES)
    )
    return Host(
        metadata=ObjectMeta(name=f"h{number:05}", namespace="storage", labels={HOSTNAME_LABEL: f"h{number:05}"}),
        spec=HostSpec(addresses=(address(number),)),
        status=HostStatus(inventory=Inventory(devices=devices)),
    )


def node(number: int) -> StorageNode:
    return StorageNode(
        metadata=ObjectMeta(name=f"n{number:05}", namespace="storage"),
        spec=StorageNodeSpec(
            type="local",
            node_selector={HOSTNAME_LABEL: f"h{number:05}"},
            storage_network=StorageNetwork(ips=(address(number),)),
            use_all_devices=True,
        ),
    )


def done(agent: str, name: str, instance: str, config: dict[str, object]) -> Assignment:
    return Assignment(
        metadata=ObjectMeta(name=assignment_name(agent, name, instance), namespace="storage"),
        spec=AssignmentSpec(host=name, agent=agent, instance=instance, generation=1, desired=config),
        status=AssignmentStatus(
            state="succeeded", observed_generation=1, result={"bases": [{"path": "/x", "total": 4 << 40}]}
        ),
    )


@pytest.mark.slow
def test_ten_thousand_nodes_are_planned_within_a_second_and_told_in_little() -> None:
    backend = backend_of("local")
    snapshot = Snapshot(
        namespace="storage", nodes=[node(n) for n in range(NODES)], hosts=[host(n) for n in range(NODES)]
    )
    first = backend.plan(views_of(snapshot, AllHealthy())[KEY])
    assert len(first.assignments) == NODES
    assignments = [done(one.agent, one.host, one.instance, one.config or {}) for one in first.assignments]
    snapshot = Snapshot(namespace="storage", nodes=snapshot.nodes, hosts=snapshot.hosts, assignments=assignments[1:])
    began = clock.monotonic()
    view = views_of(snapshot, AllHealthy())[KEY]
    gathered = clock.monotonic()
    plan = backend.plan(view)
    planned = clock.monotonic()
    work = work_of(view, plan)
    standing = standing_of(view, plan)
    for one in view.nodes:
        node_status(one.node.status, one, plan.nodes[one.name], "default")
    told = cluster_status(StorageStatusStatus(), view, plan, standing, work)
    ended = clock.monotonic()
    figures = f"gathered {gathered - began:.2f} s, planned {planned - gathered:.2f} s, told {ended - planned:.2f} s"
    print(figures)
    assert [step.what for step in work.steps] == ["set up local default on host h00000"]
    assert (told.node_count, told.ready_count, len(told.nodes)) == (NODES, NODES - 1, NODES_SHOWN)
    assert told.nodes[0].name == "n00000"
    status = StorageStatus(spec=StorageStatusSpec(type="local"), status=told)
    assert len(encode(status)) < 600_000
    assert planned - gathered < 1.0, figures
    assert ended - began < 6.0, figures
