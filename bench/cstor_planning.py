"""Planning a cStor cluster among very many nodes and disks: from nothing, and after one change.

The worst cases are measured: existing disks, which have to be counted on each node, and a planned node that falls out,
so that another has to be found among all of them.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.engine.counts import Part
from bench.report import Bar, Table, percentile, show
from bench.running import require, say
from quartermaster.backends.cstor.hook import CREATED_FOR_ANNOTATION, Attachments, SyncRequest, SyncResponse
from quartermaster.backends.cstor.hooks import CONFIG_HOOK
from quartermaster.backends.cstor.inventory import Inventory
from quartermaster.resources import CStorClusterConfig, CStorClusterPlan, Node, ObjectMeta, from_document
from quartermaster.resources.agility import (
    AllowedNodes,
    CStorClusterConfigSpec,
    DiskConfig,
    LocalDisks,
    NodeSelectorTerm,
    PoolConfig,
)
from quartermaster.resources.kubernetes.core import CoreCondition, NodeStatus
from quartermaster.resources.openebs import (
    ACTIVE,
    HOSTNAME_LABEL,
    INACTIVE,
    OPENEBS_NAMESPACE,
    UNCLAIMED,
    BlockDevice,
    BlockDeviceSpec,
    BlockDeviceStatus,
    DeviceCapacity,
    DeviceDetails,
    NodeAttributes,
)
from quartermaster.resources.selectors import LabelSelector

PLAN_BAR_S, REPLAN_BAR_MS = 1.0, 50.0
DISKS = 10
NOW = "2020-01-01T00:00:00Z"


def a_node(number: int, *, allowed: bool = True) -> Node:
    labels = {
        HOSTNAME_LABEL: f"node-{number:05}",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        "storage": "yes" if allowed else "no",
    }
    metadata = ObjectMeta(name=f"node-{number:05}", uid=f"uid-{number}", labels=labels)
    return Node(metadata=metadata, status=NodeStatus(conditions=(CoreCondition(type="Ready", status="True"),)))


def a_device(number: int, node: int, *, state: str = ACTIVE) -> BlockDevice:
    host = f"node-{node:05}"
    return BlockDevice(
        metadata=ObjectMeta(
            name=f"blockdevice-{number:06}", namespace=OPENEBS_NAMESPACE, labels={HOSTNAME_LABEL: host, "use": "pools"}
        ),
        spec=BlockDeviceSpec(
            path=f"/dev/{number}",
            capacity=DeviceCapacity(storage=200 << 30),
            details=DeviceDetails(drive_type="HDD"),
            node_attributes=NodeAttributes(node_name=host),
        ),
        status=BlockDeviceStatus(claim_state=UNCLAIMED, state=state),
    )


def a_config() -> CStorClusterConfig:
    local = LocalDisks(block_device_selector=LabelSelector(match_labels={"use": "pools"}))
    return CStorClusterConfig(
        metadata=ObjectMeta(name="pools", namespace=OPENEBS_NAMESPACE, uid="uid-config", generation=1),
        spec=CStorClusterConfigSpec(
            allowed_nodes=AllowedNodes(node_selector_terms=(NodeSelectorTerm(match_labels={"storage": "yes"}),)),
            disk_config=DiskConfig(local=local),
            pool_config=PoolConfig(raid_type="mirror"),
        ),
    )


class Planner:
    """The config hook as the controller in one process calls it."""

    def __init__(self, inventory: Inventory) -> None:
        self.config = a_config()
        self.inventory = inventory
        self.plan: CStorClusterPlan | None = None

    def call(self) -> SyncResponse:
        attachments = Attachments([self.plan] if self.plan is not None else [])
        request = SyncRequest(watch=self.config, attachments=attachments, now=NOW, inventory=self.inventory)
        return CONFIG_HOOK.sync(request)

    def keep(self, response: SyncResponse) -> list[str]:
        """As the store would: the plan is there from now on."""
        document = response.attachments[0]
        annotations = {**document["metadata"]["annotations"], CREATED_FOR_ANNOTATION: self.config.metadata.uid}
        metadata = {**document["metadata"], "uid": "uid-plan", "annotations": annotations}
        self.plan = from_document(CStorClusterPlan, {**document, "metadata": metadata})
        return [node.name for node in self.plan.spec.nodes]


def timed_ms(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def run(_directory: Path, *, quick: bool) -> Part:
    nodes, rounds = (200, 3) if quick else (10_000, 20)
    objects = [a_node(number) for number in range(nodes)]
    devices = [a_device(number, number % nodes) for number in range(nodes * DISKS)]
    before_mb = memory_mb()
    started = time.perf_counter()
    inventory = Inventory([*objects, *devices])
    indexed_s = time.perf_counter() - started
    planner = Planner(inventory)
    first_ms = timed_ms(planner.call)
    chosen = planner.keep(planner.call())
    require(len(chosen) == 3, f"3 nodes were to be chosen, not {chosen}")
    label_ms, device_ms, still_ms = _changes(planner, rounds)
    gc.collect()
    whole_s = indexed_s + first_ms / 1e3
    say(f"planning: {nodes:,} nodes, {len(devices):,} block devices: {whole_s:.2f} s from nothing")
    rows = (
        ("index of all nodes and devices, ms", show(indexed_s * 1e3)),
        ("first plan with it, ms", show(first_ms)),
        ("replanned, a planned node lost its label, ms", show(percentile(label_ms, 0.5))),
        ("replanned, a device of a planned node died, ms", show(percentile(device_ms, 0.5))),
        ("replanned, another node changed, ms", show(percentile(still_ms, 0.5))),
        ("memory of the index, MB", show(max(0.0, memory_mb() - before_mb))),
    )
    worst_ms = max(percentile(label_ms, 0.95), percentile(device_ms, 0.95))
    return Part(
        bars=(
            Bar(f"plan for {nodes:,} nodes with {len(devices):,} devices", whole_s, "at most", PLAN_BAR_S, "s"),
            Bar("replanning after one label or device, p95", worst_ms, "at most", REPLAN_BAR_MS, "ms"),
        ),
        tables=(Table(f"Planning: {nodes:,} nodes, {DISKS} disks each", ("figure", "value"), rows),),
        plots=(),
    )


def _changes(planner: Planner, rounds: int) -> tuple[list[float], list[float], list[float]]:
    label_ms, device_ms, still_ms = [], [], []
    for _ in range(rounds):
        assert planner.plan is not None
        lost = planner.plan.spec.nodes[0]
        number = int(lost.name.rpartition("-")[2])

        def change_label(number: int = number) -> None:
            planner.inventory.put(a_node(number, allowed=False))
            planner.keep(planner.call())

        label_ms.append(timed_ms(change_label))
        require(lost.name not in {node.name for node in planner.plan.spec.nodes}, f"{lost.name} is still planned")
        planner.inventory.put(a_node(number))
        chosen = planner.plan.spec.nodes[0]
        disk = planner.inventory.device(OPENEBS_NAMESPACE, chosen.block_devices[0])
        assert disk is not None

        def lose_disk(disk: BlockDevice = disk) -> None:
            status = msgspec.structs.replace(disk.status, state=INACTIVE)
            planner.inventory.put(msgspec.structs.replace(disk, status=status))
            planner.keep(planner.call())

        device_ms.append(timed_ms(lose_disk))
        planner.inventory.put(disk)
        still_ms.append(timed_ms(planner.call))
    return label_ms, device_ms, still_ms
