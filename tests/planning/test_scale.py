"""10,000 nodes with 100,000 devices: planned whole, and told in a status that stays small.

How long that takes is measured by `make bench BENCH=orchestration`.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from quartermaster.backends.registry import backend_of
from quartermaster.operators.reporting import NODES_SHOWN, cluster_status, node_status
from quartermaster.planning.cluster import ClusterKey
from quartermaster.planning.gathering import Recall, Snapshot, views_of
from quartermaster.planning.health import HostState
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


class AllHealthy:
    def of(
        self, host: str, *, unhealthy_after_s: float | None = None, move_data_after_s: float | None = None
    ) -> HostState:
        return HostState()


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
def test_ten_thousand_nodes_are_planned_and_told_in_little() -> None:
    backend = backend_of("local")
    snapshot = Snapshot(
        namespace="storage", nodes=[node(n) for n in range(NODES)], hosts=[host(n) for n in range(NODES)]
    )
    first = backend.plan(views_of(snapshot, AllHealthy())[KEY])
    assert len(first.assignments) == NODES
    assignments = [done(one.agent, one.host, one.instance, one.config or {}) for one in first.assignments]
    snapshot = Snapshot(namespace="storage", nodes=snapshot.nodes, hosts=snapshot.hosts, assignments=assignments[1:])
    view = views_of(snapshot, AllHealthy())[KEY]
    plan = backend.plan(view)
    work = work_of(view, plan)
    standing = standing_of(view, plan)
    for one in view.nodes:
        node_status(one.node.status, one, plan.nodes[one.name], "default")
    told = cluster_status(StorageStatusStatus(), view, plan, standing, work)
    assert [step.what for step in work.steps] == ["set up local default on host h00000"]
    assert (told.node_count, told.ready_count, len(told.nodes)) == (NODES, NODES - 1, NODES_SHOWN)
    assert told.nodes[0].name == "n00000"
    status = StorageStatus(spec=StorageStatusSpec(type="local"), status=told)
    assert len(encode(status)) < 600_000


def test_of_a_cluster_in_which_one_host_changes_only_its_node_is_looked_at_anew() -> None:
    recall, nodes, hosts = Recall(), [node(n) for n in range(3)], [host(n) for n in range(3)]
    before = views_of(Snapshot(namespace="storage", nodes=nodes, hosts=hosts), AllHealthy(), recall=recall)[KEY]
    hosts[1] = replace(hosts[1], status=HostStatus(inventory=Inventory(devices=())))
    after = views_of(Snapshot(namespace="storage", nodes=nodes, hosts=hosts), AllHealthy(), recall=recall)[KEY]
    assert [now is then for now, then in zip(after.nodes, before.nodes, strict=True)] == [True, False, True]
    assert [len(one.devices) for one in after.nodes] == [DEVICES, 0, DEVICES]
