"""What people and hardware do while leader and agents work: declare, change and delete; plug, pull and scribble."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from msgspec.structs import replace

from quartermaster.provisioning.protocol import SELECTED_NODE
from quartermaster.resources.kubernetes.volumes import (
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    VolumeResourceRequirements,
)
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.storage import StorageNode, StorageNodeSpec
from quartermaster.stores import modify
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import entropy
from quartermaster.support.errors import StoreError
from quartermaster.testing.simulation import record

from .hosts import OFFERED, WitnessedMachine, free_paths
from .invariants import NAMESPACE

TYPE = "local"
CLAIMS = ("claim-a", "claim-b", "claim-c")
Action = Callable[[], Coroutine[Any, Any, None]]


class Administrator:
    def __init__(self, store: ObjectStore, machines: Mapping[str, WitnessedMachine]) -> None:
        self.done: dict[str, int] = {}
        self._store = store
        self._machines = machines

    async def work(self, mean_gap_s: float, enough: asyncio.Event) -> None:
        """Do something now and then."""
        source = entropy.source()
        actions: tuple[Action, ...] = (
            self._declare,
            self._declare,
            self._redeclare,
            self._consent,
            self._undeclare,
            self._claim,
            self._claim,
            self._unclaim,
            self._plug,
            self._pull,
            self._swap,
            self._scribble,
            self._unmount,
        )
        while not enough.is_set():
            await asyncio.sleep(source.expovariate(1 / mean_gap_s))
            action = source.choice(actions)
            name = action.__name__.strip("_")
            try:
                async with asyncio.timeout(5):
                    await action()
                self.done[name] = self.done.get(name, 0) + 1
            except (StoreError, TimeoutError) as error:
                record("gave up", name, type(error).__name__)

    async def _declare(self) -> None:
        host = self._host()
        spec = StorageNodeSpec(type=TYPE, node_selector={HOSTNAME_LABEL: host}, **self._offer(host))
        await self._store.create(StorageNode(metadata=ObjectMeta(name=f"node-{host}", namespace=NAMESPACE), spec=spec))

    async def _redeclare(self) -> None:
        host = self._host()
        offer = self._offer(host)
        await self._change_node(
            host, lambda spec: replace(spec, **{"devices": (), "directories": (), "use_all_devices": None, **offer})
        )

    async def _consent(self) -> None:
        host = self._host()
        holding = [disk.serial for disk in self._machines[host].storage.values() if disk.signatures]
        if holding:
            serial = entropy.source().choice(holding)
            await self._change_node(
                host, lambda spec: replace(spec, wipe=tuple({**dict.fromkeys(spec.wipe), serial: None}))
            )

    async def _undeclare(self) -> None:
        await self._store.delete(StorageNode, f"node-{self._host()}", NAMESPACE)

    async def _claim(self) -> None:
        size = entropy.source().choice(("1Gi", "2Gi", "100Gi"))
        await self._store.create(claim(entropy.source().choice(CLAIMS), size, self._host()))

    async def _unclaim(self) -> None:
        await self._store.delete(PersistentVolumeClaim, entropy.source().choice(CLAIMS), NAMESPACE)

    async def _plug(self) -> None:
        machine = self._machines[self._host()]
        path = next((path for path in free_paths() if path not in machine.disks), "")
        if path and len(machine.storage) < 4:
            machine.plug(path.removeprefix("/dev/"))

    async def _pull(self) -> None:
        machine = self._machines[self._host()]
        if machine.storage:
            machine.pull(entropy.source().choice(list(machine.storage)))

    async def _swap(self) -> None:
        """Another disk, blank, where one was: a path is no identity."""
        machine = self._machines[self._host()]
        if machine.storage:
            path = entropy.source().choice(list(machine.storage))
            machine.pull(path)
            machine.plug(path.removeprefix("/dev/"))

    async def _scribble(self) -> None:
        machine = self._machines[self._host()]
        blank = [path for path, disk in machine.storage.items() if not disk.signatures]
        if blank:
            machine.scribble(entropy.source().choice(blank))

    async def _unmount(self) -> None:
        """As after a start of the host at which its disk was not found; or it is mounted again."""
        offered = [machine for machine in self._machines.values() if machine.is_offered]
        machine = entropy.source().choice(offered or list(self._machines.values()))
        if offered and entropy.source().random() < 0.7:
            machine.unmount_own()
        else:
            machine.mount_own()

    async def _change_node(self, host: str, change: Callable[[StorageNodeSpec], StorageNodeSpec]) -> None:
        await modify(
            self._store,
            StorageNode,
            f"node-{host}",
            NAMESPACE,
            lambda node: replace(node, spec=change(node.spec)),
        )

    def _offer(self, host: str) -> dict[str, Any]:
        offer: dict[str, Any] = entropy.source().choice(
            (
                {"devices": ("/dev/vdb",)},
                {"devices": ("/dev/vdb", "/dev/vdc")},
                {"use_all_devices": True},
                {"directories": (OFFERED,)},
            )
        )
        if "directories" in offer:
            # Who offers the bare place has offered that, and no disk that may be mounted there one day.
            self._machines[host].mount_own()
        return offer

    def _host(self) -> str:
        return entropy.source().choice(list(self._machines))


def claim(name: str, size: str, host: str) -> PersistentVolumeClaim:
    """Of a class that waits for a consumer, who is on that host."""
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, annotations={SELECTED_NODE: host}),
        spec=PersistentVolumeClaimSpec(
            access_modes=("ReadWriteOnce",),
            storage_class_name=f"{NAMESPACE}-{TYPE}-default",
            resources=VolumeResourceRequirements(requests={"storage": size}),
        ),
    )
