"""Which configs a change of a Node or a BlockDevice calls for, with the hooks of cStor as they are."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from quartermaster.backends.cstor.hooks import CONFIG_HOOK
from quartermaster.hooks import hook_controllers
from quartermaster.resources import CStorClusterConfig, Node, ObjectMeta
from quartermaster.resources.agility import (
    AllowedNodes,
    CStorClusterConfigSpec,
    DiskConfig,
    ExternalProvisioner,
    NodeSelectorTerm,
)
from quartermaster.resources.openebs import BlockDevice
from quartermaster.resources.selectors import LabelSelectorRequirement
from quartermaster.stores.base import Store
from quartermaster.testing.simulation import simulated

from .toy import memory_store, running

PROVISIONER = ExternalProvisioner(csi_attacher_name="csi.example.com", storage_class_name="fast")
ANY = NodeSelectorTerm(match_expressions=(LabelSelectorRequirement(key="rack", operator="Exists"),))


async def declare(store: Store, name: str, *terms: NodeSelectorTerm) -> None:
    spec = CStorClusterConfigSpec(
        allowed_nodes=AllowedNodes(node_selector_terms=terms), disk_config=DiskConfig(external_provisioner=PROVISIONER)
    )
    await store.create(CStorClusterConfig(metadata=ObjectMeta(name=name, namespace="default"), spec=spec))


def on_rack(rack: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_labels={"rack": rack})


class Called:
    """The hook, and the names of the objects that it was called for."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.hook = msgspec.structs.replace(CONFIG_HOOK, sync=self._sync)

    def _sync(self, request: Any) -> Any:
        self.names.append(request.watch.metadata.name)
        return CONFIG_HOOK.sync(request)

    async def by(self, change: Any) -> set[str]:
        await asyncio.sleep(5)
        self.names.clear()
        await change
        await asyncio.sleep(5)
        return set(self.names)


@pytest.mark.slow
@simulated(seeds=(1, 2))
async def test_a_node_calls_for_the_configs_that_may_mean_it_before_or_after() -> None:
    store, called = memory_store(), Called()
    await declare(store, "on-1", on_rack("1"))
    await declare(store, "on-2", on_rack("2"))
    await declare(store, "on-1-or-2", on_rack("1"), on_rack("2"))
    await declare(store, "on-any", ANY)
    await declare(store, "on-all")
    async with running(store, *hook_controllers([called.hook])):
        made = Node(metadata=ObjectMeta(name="a", labels={"rack": "1"}))
        always = {"on-any", "on-all"}
        assert await called.by(store.create(made)) == {"on-1", "on-1-or-2"} | always
        node = await store.get(Node, "a")
        moved = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels={"rack": "2"}))
        assert await called.by(store.update(moved)) == {"on-1", "on-2", "on-1-or-2"} | always
        assert await called.by(store.delete(Node, "a")) == {"on-2", "on-1-or-2"} | always


@simulated(seeds=(1,))
async def test_a_disk_that_nobody_has_calls_for_no_config_whose_disks_are_made_for_it() -> None:
    store, called = memory_store(), Called()
    await declare(store, "on-1", on_rack("1"))
    async with running(store, *hook_controllers([called.hook])):
        device = BlockDevice(metadata=ObjectMeta(name="d", namespace="openebs"))
        assert await called.by(store.create(device)) == set()
