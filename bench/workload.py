"""The job that every contender does: StorageNodes as a user declares them, and the status that each is to get."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from quartermaster.resources import Condition, ObjectMeta, StorageNode
from quartermaster.resources.codec import to_document
from quartermaster.resources.storage import GlusterFSNode, StorageNetwork, StorageNodeSpec, StorageNodeStatus
from quartermaster.stores.base import Store
from quartermaster.support.tasks import TaskGroup

STATE = "Ready"
STAMP = "bench.example.com/written-at"
_CREATORS = 16


def node(namespace: str, number: int, **annotations: str) -> StorageNode:
    name = f"node-{number:05}"
    return StorageNode(
        metadata=ObjectMeta(name=name, namespace=namespace, labels={"rack": str(number % 40)}, annotations=annotations),
        spec=StorageNodeSpec(
            type="glusterfs",
            node_selector={"kubernetes.io/hostname": name},
            storage_network=StorageNetwork(ips=(f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",)),
            devices=("/dev/vdb", "/dev/vdc"),
            glusterfs=GlusterFSNode(cluster="gluster1", zone=number % 3 + 1),
        ),
    )


def wanted_status(name: str, generation: int) -> StorageNodeStatus:
    ready = Condition(
        type="Ready",
        status="True",
        reason="DevicesInUse",
        message="both devices are bricks of gluster1",
        last_transition_time="2024-01-01T00:00:00Z",
        observed_generation=generation,
    )
    return StorageNodeStatus(
        conditions=(ready,), observed_generation=generation, state=STATE, host=name, cluster="gluster1"
    )


def with_status(obj: StorageNode) -> StorageNode:
    return replace(obj, status=wanted_status(obj.metadata.name, obj.metadata.generation))


def status_document(name: str, generation: int) -> dict[str, Any]:
    """The same status for a contender that has no types."""
    obj = replace(node("", 0), status=wanted_status(name, generation))
    status: dict[str, Any] = to_document(obj)["status"]
    return status


async def create_nodes(store: Store, namespace: str, count: int) -> None:
    """`count` nodes without a status, made by a few writers side by side."""
    numbers = iter(range(count))

    async def creator() -> None:
        for number in numbers:
            await store.create(node(namespace, number))

    async with TaskGroup() as group:
        for number in range(_CREATORS):
            group.start(creator(), name=f"creator-{number}")


async def count_written(store: Store, namespace: str) -> int:
    """How many nodes of the namespace have the status that they were to get."""
    page = await store.list(StorageNode, namespace)
    return sum(obj.status == with_status(obj).status for obj in page.items)
