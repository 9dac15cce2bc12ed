"""The StorageClass through which volumes of a cluster are asked for.

It appears when the cluster first comes ONLINE and goes with the cluster. A class of that name that is not ours is left
alone. What cannot be changed in a class is changed by making it anew; volumes and claims do not notice.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from quartermaster.planning.cluster import ClusterKey, Settings, VolumeClass
from quartermaster.resources import marks
from quartermaster.resources.kubernetes.volumes import StorageClass
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores.base import Store
from quartermaster.support.errors import AlreadyExistsError, NotFoundError

_OWN_DEFAULT = f"{marks.DOMAIN}/default-class"


def is_ours(found: StorageClass, key: ClusterKey) -> bool:
    labels = found.metadata.labels
    return (labels.get(marks.NAMESPACE_LABEL), labels.get(marks.TYPE_LABEL), labels.get(marks.CLUSTER_LABEL)) == (
        key.namespace,
        key.type,
        key.name,
    )


def wanted_class(
    key: ClusterKey, wanted: VolumeClass, settings: Settings, old: StorageClass | None = None
) -> StorageClass:
    """What others added to the class stays."""
    metadata = old.metadata if old is not None else ObjectMeta(name=key.class_name)
    labels = {
        marks.NAMESPACE_LABEL: key.namespace,
        marks.TYPE_LABEL: key.type,
        marks.CLUSTER_LABEL: key.name,
        marks.MANAGED_BY_LABEL: marks.MANAGED_BY,
    }
    base = old if old is not None else StorageClass(provisioner=marks.provisioner_of(key.type), reclaim_policy="Delete")
    return replace(
        base,
        metadata=replace(
            metadata,
            labels={**metadata.labels, **labels},
            annotations=_annotations(metadata.annotations, default=settings.default_class),
        ),
        provisioner=marks.provisioner_of(key.type),
        parameters={"namespace": key.namespace, "cluster": key.name, **wanted.parameters},
        volume_binding_mode="WaitForFirstConsumer" if wanted.wait_for_consumer else "Immediate",
        allow_volume_expansion=wanted.expandable,
    )


def _annotations(old: dict[str, str], *, default: bool) -> dict[str, str]:
    if default:
        return {**old, marks.DEFAULT_CLASS: "true", _OWN_DEFAULT: "true"}
    if _OWN_DEFAULT not in old:
        return old
    return {name: text for name, text in old.items() if name not in (marks.DEFAULT_CLASS, _OWN_DEFAULT)}


async def ensure_class(
    store: Store, key: ClusterKey, wanted: VolumeClass, settings: Settings, known: StorageClass | None
) -> str:
    """Writes only what differs; the answer is what is in the way, or empty."""
    if known is not None:
        if not is_ours(known, key):
            return f"there is a StorageClass {key.class_name} that is not of this cluster: rename or delete it"
        fresh = wanted_class(key, wanted, settings, known)
        if fresh == known:
            return ""
        if not _fixed_differs(fresh, known):
            await store.update(fresh)
            return ""
        meta = known.metadata
        with suppress(NotFoundError):
            await store.delete(StorageClass, meta.name, uid=meta.uid, revision=meta.resource_version)
        metadata = ObjectMeta(name=meta.name, labels=fresh.metadata.labels, annotations=fresh.metadata.annotations)
        await store.create(replace(fresh, metadata=metadata))
        return ""
    try:
        await store.create(wanted_class(key, wanted, settings))
    except AlreadyExistsError:
        found = await store.get(StorageClass, key.class_name)
        if not is_ours(found, key):
            return f"there is a StorageClass {key.class_name} that is not of this cluster: rename or delete it"
    return ""


def _fixed_differs(one: StorageClass, other: StorageClass) -> bool:
    return (one.provisioner, one.parameters, one.volume_binding_mode) != (
        other.provisioner,
        other.parameters,
        other.volume_binding_mode,
    )


async def remove_class(store: Store, key: ClusterKey, known: StorageClass | None) -> None:
    if known is None or not is_ours(known, key):
        return
    with suppress(NotFoundError):
        await store.delete(StorageClass, known.metadata.name, uid=known.metadata.uid)
