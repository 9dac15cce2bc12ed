"""What a host declares by itself when it is all there is: a node with a directory, so that a claim has where to go."""

from __future__ import annotations

from pathlib import Path

from quartermaster.backends.registry import installed_backends
from quartermaster.operators.settings import HostSettings
from quartermaster.resources.kind import kind_of
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import Object, ObjectMeta
from quartermaster.resources.storage import StorageCluster, StorageClusterSpec, StorageNode, StorageNodeSpec
from quartermaster.stores.base import Store
from quartermaster.support.errors import AlreadyExistsError


async def declare_first_node(store: Store, settings: HostSettings, directory: Path) -> list[str]:
    """The titles of what was declared; nothing where somebody has declared a node already."""
    if (await store.list(StorageNode, settings.namespace, limit=1)).items:
        return []
    backend = next((one for one in installed_backends() if getattr(one, "stands_alone", False)), None)
    if backend is None:
        return []
    declared: list[Object] = []
    for obj in first_objects(backend.type, settings, directory):
        try:
            declared.append(await store.create(obj))
        except AlreadyExistsError:
            continue
    return [f"{kind_of(obj).singular}/{obj.metadata.name}" for obj in declared]


def first_objects(type: str, settings: HostSettings, directory: Path) -> tuple[StorageCluster, StorageNode]:
    """What the host was told to offer, else the directory."""
    wishes = settings.wishes
    node = StorageNodeSpec(type=type, node_selector={HOSTNAME_LABEL: settings.name}, directories=(str(directory),))
    if wishes is not None:
        node = StorageNodeSpec(
            type=type,
            node_selector=node.node_selector,
            devices=wishes.devices,
            directories=wishes.directories,
            device_filter=wishes.device_filter,
            use_all_devices=wishes.use_all_devices,
        )
    return (
        StorageCluster(
            metadata=ObjectMeta(name=type, namespace=settings.namespace),
            spec=StorageClusterSpec(type=type, default_class=True),
        ),
        StorageNode(metadata=ObjectMeta(name=settings.name, namespace=settings.namespace), spec=node),
    )
