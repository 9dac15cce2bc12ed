"""Planning a cStor cluster among very many nodes and disks: from nothing, and after one change.

The worst cases are measured: existing disks, which have to be counted on each node, and a planned node that falls out,
so that another has to be found among all of them. First the hook alone, as a function; then the controller, with
everything in a store: from the write that changes the label of a planned node, or a disk of it, to the decision.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.engine.counts import Part
from bench.report import Bar, Table, percentile, show
from bench.running import require, say
from quartermaster.backends.cstor.hook import CREATED_FOR_ANNOTATION, Attachments, SyncRequest, SyncResponse
from quartermaster.backends.cstor.hooks import CONFIG_HOOK
from quartermaster.backends.cstor.inventory import Inventory
from quartermaster.engine import Runtime
from quartermaster.hooks import hook_controllers
from quartermaster.resources import CStorClusterConfig, CStorClusterPlan, Node, ObjectMeta, from_document
from quartermaster.resources.agility import (
    AllowedNodes,
    CStorClusterConfigSpec,
    DiskConfig,
    LocalDisks,
    NodeSelectorTerm,
    PoolConfig,
)
from quartermaster.resources.codec import encode
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.core import CoreCondition, NodeStatus
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.openebs import (
    ACTIVE,
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
from quartermaster.stores.kv.base import Put
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.modify import modify
from quartermaster.stores.objects import ObjectStore
from quartermaster.stores.objects.keys import object_key
from quartermaster.support.tasks import TaskGroup

PLAN_BAR_S, REPLAN_BAR_MS = 1.0, 50.0
DISKS = 10
NOW = "2020-01-01T00:00:00Z"
PATIENCE_S, SETTLES_S = 120.0, 0.2


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
            name=f"blockdevice-{number:06}",
            namespace=OPENEBS_NAMESPACE,
            uid=f"uid-device-{number}",
            labels={HOSTNAME_LABEL: host, "use": "pools"},
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


class Controlled:
    """The controller of the config hook on a store, its plan, and when it has decided."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.runtime = Runtime(store)
        self.plan: CStorClusterPlan | None = None
        self._made, self._decided = asyncio.Event(), asyncio.Event()
        for controller in hook_controllers([msgspec.structs.replace(CONFIG_HOOK, sync=self._sync)]):
            self.runtime.add(controller)
        self.runtime.caches.of(CStorClusterPlan).subscribe(self._note)

    def _sync(self, request: SyncRequest) -> SyncResponse:
        response = CONFIG_HOOK.sync(request)
        self._decided.set()
        return response

    def _note(self, _: CStorClusterPlan | None, new: CStorClusterPlan | None) -> None:
        self.plan = new
        self._made.set()

    async def decided_ms(self, change: Awaitable[object]) -> float:
        """From the write of a change to the decision what follows from it."""
        self._decided.clear()
        started = time.perf_counter()
        async with asyncio.timeout(PATIENCE_S):
            await change
            await self._decided.wait()
        taken_ms = (time.perf_counter() - started) * 1e3
        await asyncio.sleep(SETTLES_S)  # what it writes comes back, and may call for it once more
        return taken_ms

    async def planned(self) -> CStorClusterPlan:
        async with asyncio.timeout(PATIENCE_S):
            await self._made.wait()
        await asyncio.sleep(SETTLES_S)
        assert self.plan is not None
        return self.plan


@asynccontextmanager
async def controlled(objects: list[Node], devices: list[BlockDevice]) -> AsyncIterator[Controlled]:
    kv = MemoryKeyValue()
    store = ObjectStore(kv)
    for obj in (*objects, *devices):  # as they are, with their statuses, and without the work of admitting each
        key = object_key(kind_of(obj), obj.metadata.namespace, obj.metadata.name)
        await kv.transact([], [Put(key, encode(obj))])
    under = Controlled(store)
    async with TaskGroup() as group:
        running = group.start(under.runtime.run())
        await store.create(msgspec.structs.replace(a_config(), metadata=ObjectMeta(name="pools", namespace="openebs")))
        await under.planned()
        yield under
        under.runtime.stop()
        await running


async def controller_ms(nodes: list[Node], devices: list[BlockDevice], rounds: int) -> tuple[list[float], list[float]]:
    """What the controller takes after a planned node lost its label, and after a planned disk died."""
    label_ms, device_ms = [], []
    async with controlled(nodes, devices) as under:
        plan = await under.planned()
        for number in range(rounds):
            place = plan.spec.nodes[number % len(plan.spec.nodes)]
            known, disk = int(place.name.rpartition("-")[2]), place.block_devices[0]
            for allowed, state in ((False, INACTIVE), (True, ACTIVE)):
                labels = a_node(known, allowed=allowed).metadata.labels
                label_ms.append(await under.decided_ms(relabel(under.store, place.name, labels)))
                device_ms.append(await under.decided_ms(set_state(under.store, disk, state)))
    return label_ms, device_ms


async def relabel(store: ObjectStore, name: str, labels: dict[str, str]) -> None:
    def changed(node: Node) -> Node:
        return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels))

    await modify(store, Node, name, "", changed)


async def set_state(store: ObjectStore, name: str, state: str) -> None:
    def changed(device: BlockDevice) -> BlockDevice:
        return msgspec.structs.replace(device, status=msgspec.structs.replace(device.status, state=state))

    await modify(store, BlockDevice, name, OPENEBS_NAMESPACE, changed)


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
    say("planning: the controller, with everything in a store")
    whole_label_ms, whole_device_ms = await controller_ms(objects, devices, rounds)
    whole_s = indexed_s + first_ms / 1e3
    say(f"planning: {nodes:,} nodes, {len(devices):,} block devices: {whole_s:.2f} s from nothing")
    rows = (
        ("index of all nodes and devices, ms", show(indexed_s * 1e3)),
        ("first plan with it, ms", show(first_ms)),
        ("replanned, a planned node lost its label, ms", show(percentile(label_ms, 0.5))),
        ("replanned, a device of a planned node died, ms", show(percentile(device_ms, 0.5))),
        ("replanned, another node changed, ms", show(percentile(still_ms, 0.5))),
        ("controller, from the label's write to the decision, ms", show(percentile(whole_label_ms, 0.5))),
        ("controller, from the device's write to the decision, ms", show(percentile(whole_device_ms, 0.5))),
        ("memory of the index, MB", show(max(0.0, memory_mb() - before_mb))),
    )
    worst_ms = max(percentile(taken_ms, 0.95) for taken_ms in (whole_label_ms, whole_device_ms))
    return Part(
        bars=(
            Bar(f"plan for {nodes:,} nodes with {len(devices):,} devices", whole_s, "at most", PLAN_BAR_S, "s"),
            Bar("controller's replanning after one label or device, p95", worst_ms, "at most", REPLAN_BAR_MS, "ms"),
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
