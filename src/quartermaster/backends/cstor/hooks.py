"""The hooks of this backend: what each watches, and by which keys an object finds those whom it concerns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quartermaster.backends.cstor import config_hook, plan_hook, set_hook, storage_hook
from quartermaster.backends.cstor.hook import AttachmentRule, Hook, Look
from quartermaster.backends.cstor.names import (
    CONFIG_ANNOTATION,
    CONFIG_UID_LABEL,
    STORAGE_UID_LABEL,
    attachment_name,
    openebs_namespace,
    pool_cluster_name,
)
from quartermaster.backends.cstor.set_hook import set_of
from quartermaster.planning.nodes import facts_of
from quartermaster.resources.agility import (
    CLASS_ANNOTATION,
    GROUP,
    STORAGE_UID_ANNOTATION,
    CStorClusterConfig,
    CStorClusterPlan,
    CStorClusterStorageSet,
    Storage,
)
from quartermaster.resources.kubernetes.core import Node
from quartermaster.resources.kubernetes.volumes import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import Object
from quartermaster.resources.openebs import (
    POOL_CLUSTER_LABEL,
    POOL_INSTANCE_LABEL,
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorVolumeReplica,
)

# On a VolumeAttachment, which as an object of the whole cluster has no owner: it stays until its Storage has seen that
# the volume is detached.
ATTACHMENT_FINALIZER = f"{GROUP}/volumeattachment"


def _place(obj: Object) -> Iterable[str]:
    return (f"{obj.metadata.namespace}/{obj.metadata.name}",)


def _name(obj: Object) -> Iterable[str]:
    return (obj.metadata.name,)


def _config_of(obj: Object) -> Iterable[str]:
    name = obj.metadata.annotations.get(CONFIG_ANNOTATION)
    return (f"{obj.metadata.namespace}/{name}",) if name else ()


def _pool_cluster_of_config(config: CStorClusterConfig) -> Iterable[str]:
    return (f"{openebs_namespace(config)}/{pool_cluster_name(config)}",)


def _pool_cluster_of(obj: Object) -> Iterable[str]:
    name = obj.metadata.labels.get(POOL_CLUSTER_LABEL)
    return (f"{obj.metadata.namespace}/{name}",) if name else ()


def _pool_cluster_name(config: CStorClusterConfig) -> Iterable[str]:
    return (pool_cluster_name(config),)


def _pool_cluster_of_replica(replica: CStorVolumeReplica) -> Iterable[str]:
    """OpenEBS calls an instance by its pool cluster and four letters more."""
    instance = replica.metadata.labels.get(POOL_INSTANCE_LABEL, "")
    return (instance.rpartition("-")[0],) if instance else ()


def _nodes_of_config(config: CStorClusterConfig) -> Iterable[str]:
    """One label of each term is enough to tell nodes that it cannot mean; without one it may mean any."""
    allowed = config.spec.allowed_nodes
    terms = (*allowed.node_selector_terms, *allowed.selector_terms) if allowed is not None else ()
    pairs = [min(term.match_labels.items()) for term in terms if term.match_labels]
    return [f"{name}={value}" for name, value in pairs] if pairs and len(pairs) == len(terms) else ("*",)


def _node_keys(node: Node) -> Iterable[str]:
    return ("*", *(f"{name}={value}" for name, value in node.metadata.labels.items()))


def _wakers_of_config(config: CStorClusterConfig) -> Iterable[str]:
    keys = [f"config/{config.metadata.uid}"]
    if config.spec.disk_config is not None and config.spec.disk_config.local is not None:
        keys.append("free")
    return keys


def _woken_by_device(device: BlockDevice) -> Iterable[str]:
    owner = device.metadata.labels.get(CONFIG_UID_LABEL)
    return (f"config/{owner}",) if owner else ("free",)


def _never(_old: Any, _new: Any) -> bool:
    return False


def _node_matters(old: Node | None, new: Node | None) -> bool:
    """Heartbeats do not."""
    return old is None or new is None or facts_of(old) != facts_of(new)


def _device_matters(old: BlockDevice | None, new: BlockDevice | None) -> bool:
    if old is None or new is None:
        return True
    return (old.spec, old.status, old.metadata.labels, old.metadata.deletion_timestamp) != (
        new.spec,
        new.status,
        new.metadata.labels,
        new.metadata.deletion_timestamp,
    )


def _declaration_matters(old: Object | None, new: Object | None) -> bool:
    """What a hook writes to the status of its own object is no reason to call it again."""
    if old is None or new is None:
        return True
    before, after = old.metadata, new.metadata
    return (before.generation, before.deletion_timestamp, before.annotations) != (
        after.generation,
        after.deletion_timestamp,
        after.annotations,
    )


def _standing(obj: Object) -> tuple[object, ...]:
    """All but the status."""
    meta = obj.metadata
    return meta.generation, meta.deletion_timestamp, meta.labels, meta.annotations, meta.owner_references


def _beyond_status_matters(old: Object | None, new: Object | None) -> bool:
    return old is None or new is None or _standing(old) != _standing(new)


def _phase_matters(old: Any, new: Any) -> bool:
    return _beyond_status_matters(old, new) or old.status.phase != new.status.phase


def _disk_matters(old: Storage | None, new: Storage | None) -> bool:
    """What a config reads of a Storage. The way there has many steps, which concern the Storage alone."""
    if old is None or new is None or _standing(old) != _standing(new):
        return True
    before, after = old.status, new.status
    return (before.block_device, before.reachable_from) != (after.block_device, after.reachable_from)


def _effect_matters(old: CStorClusterConfig | None, new: CStorClusterConfig | None) -> bool:
    if old is None or new is None or old.status.effective != new.status.effective:
        return True
    return old.metadata.deletion_timestamp != new.metadata.deletion_timestamp


def _device_keys_of_storage(storage: Storage) -> Iterable[str]:
    keys = [f"node/{storage.spec.node_name}"]
    if storage.status.block_device:
        keys.append(f"device/{storage.status.block_device}")
    return keys


def _device_keys(device: BlockDevice) -> Iterable[str]:
    hosts = {device.spec.node_attributes.node_name: None, device.metadata.labels.get(HOSTNAME_LABEL, ""): None}
    return (*(f"node/{host}" for host in hosts if host), f"device/{device.metadata.name}")


def _node_of_storage(storage: Storage) -> Iterable[str]:
    return (storage.spec.node_name,)


def _claim_of_volume(volume: PersistentVolume) -> Iterable[str]:
    claim = volume.spec.claim_ref
    return (f"{claim.namespace}/{claim.name}",) if claim is not None else ()


def _attachment_of_storage(storage: Storage) -> Iterable[str]:
    return (attachment_name(storage.metadata.namespace, storage.metadata.name),)


def _class_of_storage(storage: Storage) -> Iterable[str]:
    name = storage.metadata.annotations.get(CLASS_ANNOTATION)
    return (name,) if name else ()


def _claim_keys_of_storage(storage: Storage) -> Iterable[str]:
    keys = [f"uid/{storage.metadata.uid}"]
    if storage.status.block_device:
        keys.append(f"device/{storage.status.block_device}")
    return keys


def _claim_keys(claim: BlockDeviceClaim) -> Iterable[str]:
    keys = [f"device/{claim.spec.block_device_name}"]
    if (uid := claim.metadata.annotations.get(STORAGE_UID_ANNOTATION)) is not None:
        keys.append(f"uid/{uid}")
    return keys


def _set_of_storage(storage: Storage) -> Iterable[str]:
    name = set_of(storage)
    return (f"{storage.metadata.namespace}/{name}",) if name else ()


def _look_at_pool_cluster(config: CStorClusterConfig) -> Look:
    return Look(namespace=openebs_namespace(config), name=pool_cluster_name(config))


def _look_at_its_objects(config: CStorClusterConfig) -> Look:
    """Instances and claims on devices, by the label that OpenEBS gives them."""
    return Look(namespace=openebs_namespace(config), labels={POOL_CLUSTER_LABEL: pool_cluster_name(config)})


def _look_at_replicas(config: CStorClusterConfig) -> Look:
    """All of them: they bear the name of their instance, and one that is not known yet may be among them."""
    return Look(namespace=openebs_namespace(config))


def _look_at_devices(config: CStorClusterConfig) -> Look:
    return Look(namespace=openebs_namespace(config), labels={CONFIG_UID_LABEL: config.metadata.uid})


def _look_at_nodes(_: CStorClusterConfig) -> Look:
    """All of them: that one is gone or lost its label is why a pool goes."""
    return Look()


def _look_at_namesake(obj: Object) -> Look:
    return Look(namespace=obj.metadata.namespace, name=obj.metadata.name)


def _look_at_plan(storage_set: CStorClusterStorageSet) -> Look | None:
    name = storage_set.metadata.annotations.get(CONFIG_ANNOTATION)
    return Look(namespace=storage_set.metadata.namespace, name=name) if name else None


def _look_at_set(storage: Storage) -> Look | None:
    name = set_of(storage)
    return Look(namespace=storage.metadata.namespace, name=name) if name else None


def _look_at_device(storage: Storage) -> Look:
    return Look(labels={STORAGE_UID_LABEL: storage.metadata.uid})


CONFIG_HOOK = Hook(
    name="cstorclusterconfig",
    watch=CStorClusterConfig,
    matters=_declaration_matters,
    attachments=(
        AttachmentRule(
            kind=CStorClusterPlan,
            access="own",
            keys_of_watch=_place,
            keys_of_object=_place,
            matters=_beyond_status_matters,
        ),
        AttachmentRule(
            kind=CStorClusterStorageSet,
            keys_of_watch=_place,
            keys_of_object=_config_of,
            matters=_beyond_status_matters,
        ),
        AttachmentRule(kind=Storage, keys_of_watch=_place, keys_of_object=_config_of, matters=_disk_matters),
        AttachmentRule(
            kind=CStorPoolCluster,
            access="own",
            keys_of_watch=_pool_cluster_of_config,
            keys_of_object=_place,
            confirm=_look_at_pool_cluster,
        ),
        AttachmentRule(
            kind=CStorPoolInstance,
            keys_of_watch=_pool_cluster_of_config,
            keys_of_object=_pool_cluster_of,
            confirm=_look_at_its_objects,
        ),
        AttachmentRule(
            kind=CStorVolumeReplica,
            keys_of_watch=_pool_cluster_name,
            keys_of_object=_pool_cluster_of_replica,
            confirm=_look_at_replicas,
        ),
        AttachmentRule(
            kind=BlockDeviceClaim,
            keys_of_watch=_pool_cluster_of_config,
            keys_of_object=_pool_cluster_of,
            confirm=_look_at_its_objects,
        ),
        # Every node and every device may have to be looked at; only these call for it.
        AttachmentRule(
            kind=Node,
            indexed=True,
            keys_of_watch=_nodes_of_config,
            keys_of_object=_node_keys,
            matters=_node_matters,
        ),
        AttachmentRule(kind=Node, indexed=True, matters=_never, confirm=_look_at_nodes),
        AttachmentRule(
            kind=BlockDevice,
            access="update",
            indexed=True,
            keys_of_watch=_wakers_of_config,
            keys_of_object=_woken_by_device,
            matters=_device_matters,
            confirm=_look_at_devices,
        ),
        AttachmentRule(kind=BlockDevice, access="update", indexed=True, matters=_never),
    ),
    sync=config_hook.sync,
    finalize=config_hook.finalize,
)

PLAN_HOOK = Hook(
    name="cstorclusterplan",
    watch=CStorClusterPlan,
    matters=_declaration_matters,
    attachments=(
        AttachmentRule(
            kind=CStorClusterConfig,
            keys_of_watch=_place,
            keys_of_object=_place,
            matters=_effect_matters,
            confirm=_look_at_namesake,
        ),
        AttachmentRule(
            kind=CStorClusterStorageSet,
            access="own",
            keys_of_watch=_place,
            keys_of_object=_config_of,
            matters=_phase_matters,
        ),
    ),
    sync=plan_hook.sync,
    finalize=plan_hook.finalize,
)

SET_HOOK = Hook(
    name="cstorclusterstorageset",
    watch=CStorClusterStorageSet,
    matters=_declaration_matters,
    attachments=(
        AttachmentRule(
            kind=CStorClusterPlan,
            keys_of_watch=_config_of,
            keys_of_object=_place,
            matters=_declaration_matters,
            confirm=_look_at_plan,
        ),
        AttachmentRule(
            kind=Storage,
            access="own",
            keys_of_watch=_place,
            keys_of_object=_set_of_storage,
            matters=_phase_matters,
        ),
    ),
    sync=set_hook.sync,
    finalize=set_hook.finalize,
)

STORAGE_HOOK = Hook(
    name="storage",
    watch=Storage,
    matters=_declaration_matters,
    attachments=(
        AttachmentRule(
            kind=CStorClusterStorageSet,
            keys_of_watch=_set_of_storage,
            keys_of_object=_place,
            matters=_declaration_matters,
            confirm=_look_at_set,
        ),
        AttachmentRule(kind=PersistentVolumeClaim, access="own", keys_of_watch=_place, keys_of_object=_place),
        AttachmentRule(kind=PersistentVolume, keys_of_watch=_place, keys_of_object=_claim_of_volume),
        AttachmentRule(
            kind=VolumeAttachment,
            access="own",
            keys_of_watch=_attachment_of_storage,
            keys_of_object=_name,
            finalizer=ATTACHMENT_FINALIZER,
        ),
        AttachmentRule(kind=StorageClass, keys_of_watch=_class_of_storage, keys_of_object=_name),
        AttachmentRule(kind=BlockDeviceClaim, keys_of_watch=_claim_keys_of_storage, keys_of_object=_claim_keys),
        AttachmentRule(
            kind=Node, indexed=True, keys_of_watch=_node_of_storage, keys_of_object=_name, matters=_node_matters
        ),
        AttachmentRule(
            kind=BlockDevice,
            access="update",
            indexed=True,
            keys_of_watch=_device_keys_of_storage,
            keys_of_object=_device_keys,
            matters=_device_matters,
            confirm=_look_at_device,
        ),
    ),
    sync=storage_hook.sync,
    finalize=storage_hook.finalize,
)

HOOKS: tuple[Hook, ...] = (CONFIG_HOOK, PLAN_HOOK, SET_HOOK, STORAGE_HOOK)
