"""Very many configs through the whole chain on a store in memory: what one costs, and that the others do not matter.

Beside the controller, in the same process, act a CSI driver, the node disk manager and the cStor operators, each as
little as possible, and each only when the step before has come to be seen in a status. So every state is gone through,
as with real ones, which are slow, and the writes of the controller can be counted exactly.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from bench.engine.counts import Part
from bench.report import Bar, Table, show
from bench.running import require, say
from quartermaster.backends.cstor import HOOKS
from quartermaster.backends.cstor.names import STORAGE_ANNOTATION
from quartermaster.engine import DONE, Controller, Request, Result, Runtime, Scope, mapped
from quartermaster.hooks import hook_controllers
from quartermaster.hooks.watched import differ_in_words
from quartermaster.resources import (
    CStorClusterConfig,
    Node,
    ObjectMeta,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    Storage,
    StorageClass,
    VolumeAttachment,
)
from quartermaster.resources.agility import (
    AllowedNodes,
    CStorClusterConfigSpec,
    DiskConfig,
    ExternalProvisioner,
    NodeSelectorTerm,
)
from quartermaster.resources.codec import Document, to_document
from quartermaster.resources.conditions import is_true
from quartermaster.resources.kubernetes.core import CoreCondition, NodeStatus
from quartermaster.resources.kubernetes.volumes import (
    CSIPersistentVolumeSource,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    VolumeAttachmentStatus,
)
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import Key, Object
from quartermaster.resources.openebs import (
    ACTIVE,
    ONLINE,
    OPENEBS_NAMESPACE,
    POOL_CLUSTER_LABEL,
    UNCLAIMED,
    BlockDevice,
    BlockDeviceSpec,
    BlockDeviceStatus,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorPoolInstanceSpec,
    CStorPoolInstanceStatus,
    DeviceCapacity,
    DeviceDetails,
    NodeAttributes,
    PoolCapacity,
)
from quartermaster.stores.base import Store
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import AlreadyExistsError
from quartermaster.support.tasks import TaskGroup

DRIVER, CLASS, NAMESPACE = "disks.example.com", "fast", "agility"
POOLS, DISKS = 3, 2
FULL, QUICK = (10, 100, 1_000), (2, 5)
FLATNESS_BAR_PERCENT = 30.0
WRITES = ("create", "update", "update_status", "apply", "delete")
WORDS = "update_status of messages alone"
STEPS = "update_status within a state"
# Every pool that is ONLINE by itself, a plan that is seen before its owner says so, and claims that are not yet bound.
MOST_STEPS = POOLS + 1 + POOLS * DISKS
PATIENCE_S = 900.0
SILENCE_S = 1.0
SMALL, ROUNDS = 10, 3  # so few configs take less than a second: the median of several rounds

# What one config takes: every object, and every state that one of them goes through.
EXPECTED: dict[str, tuple[int, str]] = {
    "update CStorClusterConfig": (1, "its finalizer, before anything is made"),
    "create CStorClusterPlan": (1, "with the finalizer of its hook, as the sets and Storages"),
    "create CStorClusterStorageSet": (POOLS, "one for each pool"),
    "create Storage": (POOLS * DISKS, "one for each disk"),
    "create PersistentVolumeClaim": (POOLS * DISKS, "one for each disk"),
    "create VolumeAttachment": (POOLS * DISKS, "one for each disk, with its finalizer"),
    "apply BlockDevice": (POOLS * DISKS, "the labels that say whose disk it is"),
    "create CStorPoolCluster": (1, "with all pools, when all disks are there"),
    "update_status CStorClusterConfig": (4, "planned; all disks active; pool cluster applied; Ready"),
    "update_status CStorClusterPlan": (2, "Pending, Ready"),
    "update_status CStorClusterStorageSet": (2 * POOLS, "Pending, Ready"),
    "update_status Storage": (
        6 * POOLS * DISKS,
        "Pending; claim made; Bound; attachment made; Attached; Ready with its device",
    ),
}


class Outcome(msgspec.Struct, frozen=True):
    configs: int
    cpu_ms: float  # of each config
    wall_ms: float
    writes: dict[str, float]  # of each config, by what was written

    @property
    def total(self) -> float:
        return sum(self.writes.values())


class Counting:
    """A store that counts the writes that are made through it, and those of them that changed nothing.

    A status of which only messages changed is counted by itself, and so is one that is still in the same state (a pool
    more is ready): how often that is depends on how long others take.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last: dict[tuple[type[Object], Key], Object] = {}
        self.writes: Counter[str] = Counter()
        self.futile = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._counted(name, found) if name in WRITES else found

    def _counted(self, name: str, write: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(given: Any, *arguments: Any, **options: Any) -> Any:
            result = await write(given, *arguments, **options)
            if type(result).__name__ in ("Event", "Lease"):
                return result
            place = (type(result), result.key)
            before, self._last[place] = self._last.get(place), result
            self.writes[_name_of(name, before, result)] += 1
            if name.startswith("update"):
                self.futile += given.metadata.resource_version == result.metadata.resource_version
            elif name == "apply":
                self.futile += given["metadata"]["resourceVersion"] == result.metadata.resource_version
            return result

        return counted


def _name_of(write: str, before: Object | None, after: Object) -> str:
    if write == "update_status" and before is not None:
        if differ_in_words(before, after):
            return WORDS
        if _state_of(before) == _state_of(after):
            return STEPS
    return f"{write} {type(after).__name__}"


def _state_of(obj: Object) -> Document:
    """What its status says without words, reasons and sums, and without the volume, which a claim names before it is
    bound: whoever is slow sees both at once.
    """
    status = to_document(obj).get("status", {})
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    sums = dict.fromkeys(("message", "pools", "capacity", "usedCapacity", "persistentVolume"))
    return {**status, **sums, "conditions": conditions}


class Driver:
    """Calls `act` for an object of a kind, with the object in whose status the step before has to be seen."""

    def __init__(self, scope: Scope, role: Role) -> None:
        self._scope = scope
        self._role = role
        self._objects = scope.caches.of(role.kind)
        self._watched = scope.caches.of(role.watched)

    async def reconcile(self, request: Request) -> Result:
        obj = self._objects.get(request)
        watched = None if obj is None else self._watched.get(self._role.watched_of(obj))
        if watched is not None:
            try:
                await self._role.act(self._scope, obj, watched)
            except AlreadyExistsError:
                return DONE
        return DONE


class Role(msgspec.Struct, frozen=True):
    kind: type[Object]
    watched: type[Object]
    watched_of: Callable[[Any], Key]
    of_watched: Callable[[Any], Key]
    act: Callable[[Scope, Any, Any], Any]

    def controller(self) -> Controller[Any]:
        watch = mapped(self.watched, lambda watched: [self.of_watched(watched)])
        return Controller(
            f"driver-{self.kind.__name__}", self.kind, lambda scope: Driver(scope, self), watches=(watch,), workers=1
        )


async def bind(scope: Scope, claim: PersistentVolumeClaim, storage: Storage) -> None:
    if claim.spec.volume_name or not storage.status.persistent_volume_claim:
        return
    meta = claim.metadata
    name = f"pvc-{meta.uid}"
    source = CSIPersistentVolumeSource(driver=DRIVER, volume_handle=f"disk-{meta.uid}")
    reference = ObjectReference(name=meta.name, namespace=meta.namespace, uid=meta.uid)
    spec = PersistentVolumeSpec(csi=source, claim_ref=reference, capacity=claim.spec.resources.requests)
    await scope.store.create(PersistentVolume(metadata=ObjectMeta(name=name), spec=spec))
    # A Storage says which volume a claim names even before it is Bound: named last, it is seen once.
    bound = await scope.store.update_status(replace(claim, status=PersistentVolumeClaimStatus(phase="Bound")))
    await scope.store.update(replace(bound, spec=replace(bound.spec, volume_name=name)))


async def attach(scope: Scope, attachment: VolumeAttachment, storage: Storage) -> None:
    if not attachment.status.attached:
        if storage.status.volume_attachment:
            await scope.store.update_status(replace(attachment, status=VolumeAttachmentStatus(attached=True)))
        return
    if not storage.status.attached_to or storage.status.block_device:
        return
    handle = (attachment.spec.source.persistent_volume_name or "").replace("pvc-", "disk-", 1)
    host = attachment.spec.node_name
    device = BlockDevice(
        metadata=ObjectMeta(name=f"blockdevice-{handle}", namespace=OPENEBS_NAMESPACE, labels={HOSTNAME_LABEL: host}),
        spec=BlockDeviceSpec(
            path=f"/dev/{handle}",
            capacity=DeviceCapacity(storage=100 << 30),
            details=DeviceDetails(device_type="disk", drive_type="HDD", serial=handle),
            node_attributes=NodeAttributes(node_name=host),
        ),
        status=BlockDeviceStatus(claim_state=UNCLAIMED, state=ACTIVE),
    )
    await scope.store.create(device)


async def run_pools(scope: Scope, cluster: CStorPoolCluster, config: CStorClusterConfig) -> None:
    if not is_true(config.status.conditions, "PoolClusterApplied"):
        return
    for pool in cluster.spec.pools:
        host = pool.node_selector[HOSTNAME_LABEL]
        labels = {POOL_CLUSTER_LABEL: cluster.metadata.name, HOSTNAME_LABEL: host}
        spec = CStorPoolInstanceSpec(
            host_name=host, node_selector=pool.node_selector, data_raid_groups=pool.data_raid_groups
        )
        status = CStorPoolInstanceStatus(phase=ONLINE, capacity=PoolCapacity(used="1Gi", free="199Gi", total="200Gi"))
        name = f"{cluster.metadata.name}-{host}"
        metadata = ObjectMeta(name=name, namespace=cluster.metadata.namespace, labels=labels)
        await scope.store.create(CStorPoolInstance(metadata=metadata, spec=spec, status=status))


def _storage_of_attachment(attachment: VolumeAttachment) -> Key:
    namespace, _, name = attachment.metadata.annotations[STORAGE_ANNOTATION].partition("/")
    return Key(namespace, name)


ROLES = (
    Role(PersistentVolumeClaim, Storage, lambda claim: claim.key, lambda storage: storage.key, bind),
    Role(
        VolumeAttachment,
        Storage,
        _storage_of_attachment,
        lambda storage: Key("", storage.status.volume_attachment),
        attach,
    ),
    Role(
        CStorPoolCluster,
        CStorClusterConfig,
        lambda cluster: Key(NAMESPACE, cluster.metadata.name),
        lambda config: Key(OPENEBS_NAMESPACE, config.metadata.name),
        run_pools,
    ),
)


async def prepare(store: Store, configs: int) -> None:
    await store.create(StorageClass(metadata=ObjectMeta(name=CLASS), provisioner=DRIVER))
    ready = NodeStatus(conditions=(CoreCondition(type="Ready", status="True"),))
    for number in range(configs * POOLS):
        host = f"node-{number}"
        labels = {HOSTNAME_LABEL: host, "config": str(number // POOLS)}
        made = await store.create(Node(metadata=ObjectMeta(name=host, labels=labels)))
        await store.update_status(replace(made, status=ready))


def declared(number: int) -> CStorClusterConfig:
    return CStorClusterConfig(
        metadata=ObjectMeta(name=f"config-{number}", namespace=NAMESPACE),
        spec=CStorClusterConfigSpec(
            min_pool_count=POOLS,
            allowed_nodes=AllowedNodes(
                node_selector_terms=(NodeSelectorTerm(match_labels={"config": str(number)}),),
            ),
            disk_config=DiskConfig(
                min_count=DISKS,
                external_provisioner=ExternalProvisioner(csi_attacher_name=DRIVER, storage_class_name=CLASS),
            ),
        ),
    )


async def measure(configs: int) -> Outcome:
    store = ObjectStore(MemoryKeyValue(history_limit=10_000))
    await prepare(store, configs)
    counting: Any = Counting(store)
    runtimes = [Runtime(counting), Runtime(store)]
    for controller in hook_controllers(HOOKS):
        runtimes[0].add(controller)
    for role in ROLES:
        runtimes[1].add(role.controller())
    gc.collect()
    async with TaskGroup() as group:
        tasks = [group.start(runtime.run()) for runtime in runtimes]
        while any(runtime.not_ready() or not runtime.caches.all() for runtime in runtimes):
            await asyncio.sleep(0.01)
        counting.writes.clear()
        began, began_cpu = time.perf_counter(), time.process_time()
        ready: set[str] = set()
        done = asyncio.Event()

        def note(_: CStorClusterConfig | None, new: CStorClusterConfig | None) -> None:
            if new is not None and new.status.phase == "Ready":
                ready.add(new.metadata.name)
                if len(ready) == configs:
                    done.set()

        runtimes[0].caches.of(CStorClusterConfig).subscribe(note)
        for number in range(configs):
            await store.create(declared(number))
        async with asyncio.timeout(PATIENCE_S):
            await done.wait()
        cpu_s, wall_s = time.process_time() - began_cpu, time.perf_counter() - began
        await until_silent(counting)
        require(counting.futile == 0, f"{counting.futile} writes changed nothing")
        writes = {name: count / configs for name, count in sorted(counting.writes.items())}
        for runtime in runtimes:
            runtime.stop()
        for task in tasks:
            await task
    return Outcome(configs, cpu_s * 1e3 / configs, wall_s * 1e3 / configs, writes)


async def until_silent(counting: Counting) -> None:
    """What follows the last state is written some time later, on a busy machine much later."""
    before = -1
    async with asyncio.timeout(PATIENCE_S):
        while (now := sum(counting.writes.values())) != before:
            before = now
            await asyncio.sleep(SILENCE_S)


def check_writes(outcome: Outcome) -> None:
    made = {name: count for name, count in outcome.writes.items() if name not in (WORDS, STEPS)}
    wanted = {name: float(count) for name, (count, _) in EXPECTED.items()}
    wrong = {name: made.get(name, 0.0) for name in {**wanted, **made} if made.get(name) != wanted.get(name)}
    require(not wrong, f"among {outcome.configs:,} a config takes other writes than its objects and states: {wrong}")
    steps = outcome.writes.get(STEPS, 0.0)
    require(steps <= MOST_STEPS, f"among {outcome.configs:,} a config takes {steps} writes within its states")


async def median(configs: int) -> Outcome:
    rounds = [await measure(configs) for _ in range(ROUNDS if configs <= SMALL else 1)]
    for outcome in rounds:
        check_writes(outcome)
    return sorted(rounds, key=lambda outcome: outcome.cpu_ms)[len(rounds) // 2]


async def run(directory: Path, *, quick: bool) -> Part:  # noqa: ARG001 - as every part is called
    sizes = QUICK if quick else FULL
    await measure(sizes[0])  # what is compiled or filled on first use is not measured
    outcomes = []
    for size in sizes:
        outcomes.append(await median(size))
        say(f"{size} configs: {outcomes[-1].cpu_ms:.0f} ms of processor time each")
    first, last = outcomes[0], outcomes[-1]
    apart = (max(o.cpu_ms for o in outcomes) / min(o.cpu_ms for o in outcomes) - 1) * 100
    cost_rows = tuple((f"{o.configs:,}", show(o.cpu_ms), show(o.wall_ms), show(o.total)) for o in outcomes)
    return Part(
        plots=(),
        bars=(
            Bar(
                f"a config among {first.configs} and among {last.configs:,}: cost apart",
                apart,
                "at most",
                FLATNESS_BAR_PERCENT,
                "%",
            ),
        ),
        tables=(
            Table(
                f"Whole chain on memory: configs of {POOLS} pools with {DISKS} disks each",
                ("configs", "ms of processor time each", "ms each", "writes each"),
                cost_rows,
                note="processor time is that of the whole process, with the store and the drivers beside it",
            ),
            Table(
                "Writes of one config, from declared to Ready",
                ("write", "expected", *(f"among {outcome.configs:,}" for outcome in outcomes), "why"),
                (
                    *(
                        (name, show(count), *(show(outcome.writes[name]) for outcome in outcomes), why)
                        for name, (count, why) in EXPECTED.items()
                    ),
                    (WORDS, "", *(show(o.writes.get(WORDS, 0.0)) for o in outcomes), "a part is later by a second"),
                    (
                        STEPS,
                        f"≤ {MOST_STEPS}",
                        *(show(o.writes.get(STEPS, 0.0)) for o in outcomes),
                        "a pool is ready before the others; a plan is seen before its owner",
                    ),
                ),
                note="a bench whose counts are not exactly the expected ones fails; no write changed nothing",
            ),
        ),
    )
