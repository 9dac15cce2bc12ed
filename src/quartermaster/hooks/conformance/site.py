"""An installation as one scenario sees it: the config that it declares, what comes of it, and waiting for that.

Objects, and nothing else: whatever runs behind them is tested as its users would use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec.structs import replace

from quartermaster.resources import (
    CStorClusterConfig,
    CStorClusterPlan,
    CStorClusterStorageSet,
    ObjectMeta,
    Storage,
)
from quartermaster.resources.agility import (
    PLAN_UID_ANNOTATION,
    STORAGE_SET_UID_ANNOTATION,
    AllowedNodes,
    CStorClusterConfigSpec,
    DiskConfig,
    ExternalProvisioner,
    NodeSelectorTerm,
    PoolConfig,
)
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import Object
from quartermaster.resources.openebs import (
    OPENEBS_NAMESPACE,
    POOL_CLUSTER_LABEL,
    CStorPoolCluster,
    CStorPoolInstance,
)
from quartermaster.resources.references import owner_reference
from quartermaster.stores.base import Store
from quartermaster.stores.modify import modify
from quartermaster.support.errors import NotFoundError, QuartermasterError

Found = TypeVar("Found")

NODE_LABEL = "conformance.dao.mayadata.io/scenario"  # on what a scenario uses or made: which one
# The longer something takes, the more seldom one looks: the installation has better things to do than to answer.
_SOON_S, _SELDOM_S, _SHARE = 0.05, 1.0, 0.1


class ScenarioFailedError(QuartermasterError):
    """What a scenario waited for did not come, or what must not happen did."""


class ScenarioSkippedError(QuartermasterError):
    """A scenario cannot be driven here; the message says why."""


class Site:
    """One scenario's view of an installation; `name` is the prefix of all that it makes."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        namespace: str,
        provisioner: ExternalProvisioner,
        timeout_s: float = 600.0,
        openebs: str = OPENEBS_NAMESPACE,
        rehearsal: bool = True,
        owner: Object | None = None,
    ) -> None:
        self.store = store
        self.name = name
        self.namespace = namespace
        self.openebs = openebs
        self.timeout_s = timeout_s
        self.rehearsal = rehearsal
        self._provisioner = provisioner
        self._owner = owner  # what is declared goes when that is deleted, also if nobody is left to clean up
        self._deadline_s: float | None = None  # of the loop's clock
        self._nodes: dict[str, str] = {}  # the scenario's word for a node → its name

    def config(
        self,
        *,
        least: int | None = 3,
        most: int | None = None,
        disks: int | None = None,
        raid: str = "",
        capacity: str | None = "10Gi",
        lost_after_s: int = 0,
        pool: PoolConfig | None = None,
        terms: tuple[NodeSelectorTerm, ...] | None = None,
    ) -> CStorClusterConfig:
        """Of the nodes of this scenario, unless other terms are given."""
        own = NodeSelectorTerm(match_labels={NODE_LABEL: self.name})
        owners = () if self._owner is None else (owner_reference(self._owner, block_deletion=False),)
        return CStorClusterConfig(
            metadata=ObjectMeta(name=self.name, namespace=self.namespace, owner_references=owners),
            spec=CStorClusterConfigSpec(
                min_pool_count=least,
                max_pool_count=most,
                allowed_nodes=AllowedNodes(node_selector_terms=(own,) if terms is None else terms),
                disk_config=DiskConfig(
                    min_count=disks,
                    min_capacity=capacity,
                    external_provisioner=self._provisioner,
                    lost_after_seconds=lost_after_s,
                ),
                pool_config=replace(pool or PoolConfig(), raid_type=raid) if raid or pool else None,
            ),
        )

    async def create(self, config: CStorClusterConfig) -> CStorClusterConfig:
        return await self.store.create(config)

    async def change(self, change: Callable[[CStorClusterConfigSpec], CStorClusterConfigSpec]) -> CStorClusterConfig:
        return await modify(
            self.store,
            CStorClusterConfig,
            self.name,
            self.namespace,
            lambda found: replace(found, spec=change(found.spec)),
        )

    async def read(self) -> CStorClusterConfig:
        return await self.store.get(CStorClusterConfig, self.name, self.namespace)

    async def plan(self) -> CStorClusterPlan:
        return await self.store.get(CStorClusterPlan, self.name, self.namespace)

    async def planned_nodes(self) -> tuple[str, ...]:
        return tuple(node.name for node in (await self.plan()).spec.nodes)

    async def pool_cluster(self) -> CStorPoolCluster:
        return await self.store.get(CStorPoolCluster, self.name, self.openebs)

    async def hosts_of_pools(self) -> tuple[str, ...]:
        return tuple(pool.node_selector.get(HOSTNAME_LABEL, "") for pool in (await self.pool_cluster()).spec.pools)

    async def groups_of_pools(self) -> tuple[tuple[tuple[str, ...], ...], ...]:
        """Per pool, per group, the names of the devices."""
        return tuple(
            tuple(tuple(device.block_device_name for device in group.block_devices) for group in pool.data_raid_groups)
            for pool in (await self.pool_cluster()).spec.pools
        )

    async def instances(self) -> tuple[CStorPoolInstance, ...]:
        """By host."""
        page = await self.store.list(CStorPoolInstance, self.openebs, labels=f"{POOL_CLUSTER_LABEL}={self.name}")
        return tuple(sorted(page.items, key=lambda instance: instance.spec.host_name))

    async def storages(self) -> tuple[Storage, ...]:
        """The disks of this scenario's cluster, which are those of its storage sets."""
        plan_uid = (await self.plan()).metadata.uid
        sets = (await self.store.list(CStorClusterStorageSet, self.namespace)).items
        own = {found.metadata.uid for found in sets if found.metadata.annotations.get(PLAN_UID_ANNOTATION) == plan_uid}
        storages = (await self.store.list(Storage, self.namespace)).items
        return tuple(
            storage for storage in storages if storage.metadata.annotations.get(STORAGE_SET_UID_ANNOTATION) in own
        )

    async def volume_of_device(self, device: str) -> str:
        """The PersistentVolume behind a device."""
        for storage in await self.storages():
            if storage.status.block_device == device:
                return storage.status.persistent_volume
        raise ScenarioFailedError(f"cannot find the volume of {device}: no Storage names it")

    def use_node(self, word: str, name: str) -> None:
        """From now on the scenario's word for a node means this one."""
        self._nodes[word] = name

    def node(self, word: str) -> str:
        return self._nodes[word]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self._nodes.values())

    async def delete(self) -> None:
        """Ask for the end of the cluster."""
        await self.store.delete(CStorClusterConfig, self.name, self.namespace)

    async def gone(self, kind: type[Object], name: str, namespace: str) -> bool:
        try:
            await self.store.get(kind, name, namespace)
        except NotFoundError:
            return True
        return False

    async def phase(self, *wanted: str) -> CStorClusterConfig:
        """Wait until the cluster says one of these phases of what is declared now."""
        generation = (await self.read()).metadata.generation

        async def look() -> CStorClusterConfig | None:
            found = await self.read()
            seen = found.status.observed_generation
            return found if found.status.phase in wanted and (seen or 0) >= generation else None

        return await self.eventually(look, f"phase {' or '.join(wanted)}")

    async def condition(self, type_: str, status: str = "True") -> str:
        """Wait for a condition; its message."""

        async def look() -> str | None:
            for found in (await self.read()).status.conditions:
                if found.type == type_ and found.status == status:
                    return found.message or found.reason
            return None

        return await self.eventually(look, f"condition {type_}={status}")

    def allow(self, timeout_s: float) -> None:
        """From now on everything together may take so long; before, each wait had its own time."""
        self.timeout_s = timeout_s
        self._deadline_s = asyncio.get_running_loop().time() + timeout_s

    async def eventually(self, look: Callable[[], Awaitable[Found | None]], what: str) -> Found:
        """What `look` finds, as soon as it is something. An object that is not there yet is waited for."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        deadline = started + self.timeout_s if self._deadline_s is None else self._deadline_s
        while True:
            try:
                if found := await look():
                    return found
            except NotFoundError:
                pass
            if loop.time() >= deadline:
                raise ScenarioFailedError(f"cannot go on: no {what} within {self.timeout_s:g} s{await self._seen()}")
            await asyncio.sleep(min(max(_SOON_S, _SHARE * (loop.time() - started)), _SELDOM_S))

    async def _seen(self) -> str:
        try:
            status = (await self.read()).status
        except NotFoundError:
            return "; the config is gone"
        wrong = "; ".join(f"{one.type}={one.status} {one.reason}" for one in status.conditions)
        return f"; the phase is {status.phase or 'not set'}: {status.message} ({wrong})"


def require(holds: bool, otherwise: str) -> None:
    """What a scenario asserts."""
    if not holds:
        raise ScenarioFailedError(otherwise)
