"""One node is added to a cluster of N hosts: what does the leader write, what do agents run, how long does it plan?

The operator is the real one. The hosts are one task that reports success for every assignment, as their agents would,
and counts how often it was asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from bench.orchestration.counts import Counts, Part
from bench.report import Bar, Plot, Table, show
from bench.running import require, say
from quartermaster.backends.base import Backend, RefreshEvent
from quartermaster.backends.registry import installed_backends
from quartermaster.engine.cache import Cache
from quartermaster.engine.election import Election
from quartermaster.engine.runtime import Runtime
from quartermaster.operators.cluster import READS, ClusterManager
from quartermaster.operators.ledger import Ledger
from quartermaster.operators.views import ClusterViews
from quartermaster.orchestration.leader import Orchestrator
from quartermaster.orchestration.timings import Timings
from quartermaster.planning.cluster import ClusterPlan, ClusterView
from quartermaster.resources.devices import Device
from quartermaster.resources.kubernetes.core import Event, Lease
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import Object, ObjectMeta
from quartermaster.resources.orchestration import (
    SUCCEEDED,
    Assignment,
    AssignmentStatus,
    Host,
    HostSpec,
    HostStatus,
    Inventory,
)
from quartermaster.resources.storage import StorageNode, StorageNodeSpec
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.tasks import TaskGroup

NAMESPACE = "default"
PLANNING_S = 1.0
PATIENCE_S = 1_800.0
QUIET_S = 3.0  # longer than the debounce and a refresh together
GIB = 1 << 30


class Added(msgspec.Struct, frozen=True):
    """What adding one node took."""

    hosts: int
    writes: int
    runs: int
    first_s: float  # planning of the first refresh, when nothing is known yet
    planning_s: float  # of the slowest refresh: gathering and planning
    refresh_s: float  # of the slowest: that, and writing
    settled_s: float


class CountingStore(ObjectStore):
    """The leader's own; heartbeats, leases and Events are not counted."""

    writes = 0

    def _count(self, kind: type[Object] | Object) -> None:
        if not issubclass(kind if isinstance(kind, type) else type(kind), Lease | Event):
            self.writes += 1

    async def create(self, obj: Any, **options: Any) -> Any:
        self._count(obj)
        return await super().create(obj, **options)

    async def update(self, obj: Any, **options: Any) -> Any:
        self._count(obj)
        return await super().update(obj, **options)

    async def update_status(self, obj: Any, **options: Any) -> Any:
        self._count(obj)
        return await super().update_status(obj, **options)

    async def delete(self, kind: Any, *arguments: Any, **options: Any) -> Any:
        self._count(kind)
        return await super().delete(kind, *arguments, **options)


class Clock:
    """How long the slowest refresh took: until it was planned, and until all was written; and the first of all."""

    began = 0.0
    first_s = 0.0
    planning_s = 0.0
    refresh_s = 0.0

    @classmethod
    def reset(cls) -> None:
        cls.planning_s = cls.refresh_s = 0.0


class TimedManager(ClusterManager):
    async def handle_refresh(self, event: RefreshEvent) -> float | None:
        Clock.began = time.perf_counter()
        try:
            return await super().handle_refresh(event)
        finally:
            Clock.refresh_s = max(Clock.refresh_s, time.perf_counter() - Clock.began)


class TimedBackend:
    """A backend that takes the time from the event to its plan: gathering everything, and planning it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def plan(self, view: ClusterView) -> ClusterPlan:
        made = self._backend.plan(view)
        Clock.first_s = Clock.first_s or time.perf_counter() - Clock.began
        Clock.planning_s = max(Clock.planning_s, time.perf_counter() - Clock.began)
        return made


class Fleet:
    """All hosts but their leader."""

    def __init__(self, store: ObjectStore) -> None:
        self.runs = 0
        self._store = store
        self._todo: asyncio.Queue[Assignment] = asyncio.Queue(maxsize=200_000)

    async def work(self, assignments: Cache[Assignment]) -> None:
        def notice(_old: Assignment | None, new: Assignment | None) -> None:
            if new is not None and new.status.observed_generation != new.spec.generation:
                self._todo.put_nowait(new)

        assignments.subscribe(notice)
        while True:
            one = await self._todo.get()
            self.runs += 1
            path = f"/srv/{one.spec.host}"
            result = {"bases": [{"path": path, "total": 100 * GIB}], "wiped": [], "failed": {}}
            status = AssignmentStatus(state=SUCCEEDED, observed_generation=one.spec.generation, result=result)
            await self._store.update_status(replace(one, status=status))


async def run(_directory: Path, counts: Counts) -> Part:
    found = [await measure(hosts, counts.devices) for hosts in counts.sizes]
    first, last = found[0], found[-1]
    for one in found:
        require(one.runs == first.runs, f"{one.runs} agent runs at {one.hosts} hosts, {first.runs} at {first.hosts}")
    bars = (
        Bar(
            f"leader's writes for a node added to {last.hosts:,} hosts",
            float(last.writes),
            "at most",
            float(first.writes),
            "writes",
            f"{first.writes} at {first.hosts} hosts; agent runs {first.runs} and {last.runs}",
        ),
        Bar(
            f"planning at {last.hosts:,} hosts, {last.hosts * counts.devices:,} devices",
            last.planning_s,
            "at most",
            PLANNING_S,
            "s",
            f"{show(1000 * first.planning_s)} ms at {first.hosts} hosts",
        ),
    )
    table = Table(
        "One node added to a cluster",
        (
            "hosts",
            "devices",
            "leader's writes",
            "agent runs",
            "first plan",
            "planning",
            "whole refresh",
            "until it is Ready",
        ),
        tuple(
            (
                f"{one.hosts:,}",
                f"{one.hosts * counts.devices:,}",
                str(one.writes),
                str(one.runs),
                f"{show(1000 * one.first_s)} ms",
                f"{show(1000 * one.planning_s)} ms",
                f"{show(1000 * one.refresh_s)} ms",
                f"{show(one.settled_s)} s",
            )
            for one in found
        ),
        note="planning is from the event to the plan of the whole cluster; a refresh also writes what differs. "
        "The first plan is that of a leader's term, for all hosts at once",
    )
    plot = Plot(
        "orchestration-growth",
        "Planning when one node is added",
        "ms",
        tuple(f"{one.hosts:,} hosts" for one in found),
        {"planning": tuple(1000 * one.planning_s for one in found)},
        limit=1000 * PLANNING_S,
        logarithmic=True,
    )
    return Part(bars, (table,), (plot,))


async def measure(hosts: int, devices: int) -> Added:
    kv = MemoryKeyValue()
    store, leaders = ObjectStore(kv, manager="bench"), CountingStore(kv, manager="quartermaster")
    say(f"{hosts:,} hosts are made")
    for number in range(hosts):
        await make_host(store, number, devices)
    fleet = Fleet(store)
    Clock.first_s = 0.0
    async with TaskGroup() as group:
        runtime = operator(leaders)
        assignments = runtime.caches.of(Assignment, NAMESPACE)
        nodes = runtime.caches.of(StorageNode, NAMESPACE)
        group.start(runtime.run())
        group.start(fleet.work(assignments))
        await until_ready(nodes, hosts)
        await until_quiet(leaders)
        writes, runs, began = leaders.writes, fleet.runs, time.perf_counter()
        Clock.reset()
        await make_host(store, hosts, devices)
        await until_ready(nodes, hosts + 1)
        settled_s = time.perf_counter() - began
        await until_quiet(leaders)
        added = Added(
            hosts=hosts,
            writes=leaders.writes - writes,
            runs=fleet.runs - runs,
            first_s=Clock.first_s,
            planning_s=Clock.planning_s,
            refresh_s=Clock.refresh_s,
            settled_s=settled_s,
        )
        group.cancel()
    await kv.close()
    return added


def operator(store: ObjectStore) -> Runtime:
    """The operator with its one manager, whose time is taken."""
    backends: Sequence[Any] = [TimedBackend(backend) for backend in installed_backends()]
    build = partial(TimedManager, namespace=NAMESPACE, backends=backends, ledger=Ledger(), views=ClusterViews())
    # Nothing that is awaited on a store in memory suspends, and ten thousand hosts and their leader share one loop.
    election = Election(store, name="leader", namespace=NAMESPACE, identity="bench", lease_s=3_600, retry_s=600.0)
    runtime = Runtime(store, election=election)
    # Hosts in this benchmark have no heartbeats, and must not fall silent while ten thousand of them are made.
    timings = Timings(debounce_s=0.2, unhealthy_after_s=86_400.0, move_data_after_s=86_400.0)
    runtime.add(Orchestrator([build], timings, namespace=NAMESPACE, reads=READS))
    return runtime


async def make_host(store: ObjectStore, number: int, devices: int) -> None:
    name = f"h{number:05}"
    meta = ObjectMeta(name=name, namespace=NAMESPACE, labels={HOSTNAME_LABEL: name})
    host = await store.create(Host(metadata=meta, spec=HostSpec(addresses=(f"10.{number >> 8}.{number & 255}.1",))))
    disks = tuple(
        Device(path=f"/dev/sd{chr(98 + disk)}", id=f"{name}-{disk}", size=1 << 40, state="Available")
        for disk in range(devices)
    )
    await store.update_status(replace(host, status=HostStatus(inventory=Inventory(devices=disks), state="Ready")))
    backend = next(one for one in installed_backends() if getattr(one, "stands_alone", False))
    spec = StorageNodeSpec(type=backend.type, node_selector={HOSTNAME_LABEL: name}, use_all_devices=True)
    await store.create(StorageNode(metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=spec))


async def until_ready(nodes: Cache[StorageNode], count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        ready = sum(node.status.state == "Ready" for node in nodes.list())
        if ready == count:
            return
        require(time.monotonic() < deadline, f"{ready} of {count} nodes are ready after {PATIENCE_S:.0f} s")
        await asyncio.sleep(0.2)


async def until_quiet(leaders: CountingStore) -> None:
    """Until it has written nothing for a while: when the last node is Ready, the leader may still be telling so."""
    deadline = time.monotonic() + PATIENCE_S
    before = -1
    while leaders.writes != before:
        require(time.monotonic() < deadline, f"the leader still writes after {PATIENCE_S:.0f} s")
        before = leaders.writes
        await asyncio.sleep(QUIET_S)
