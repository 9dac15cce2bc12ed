"""A volume as it is published, what of a cluster is handed out, and when a volume is to be deleted. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from quartermaster.planning.cluster import ClusterKey, VolumeView
from quartermaster.provisioning.intent import Intent, Record, record_of, with_record
from quartermaster.provisioning.protocol import (
    DELETE,
    PROVISIONED_BY,
    RELEASED,
    VOLUME_FINALIZER,
    amount,
    capacity,
    is_deleting,
    mounts_of,
    with_annotations,
    with_finalizer,
    without_finalizer,
)
from quartermaster.resources.codec import from_document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import (
    CLUSTER_LABEL,
    DELETE_IN_USE,
    NAMESPACE_LABEL,
    TYPE_LABEL,
    VOLUME,
    provisioner_of,
)
from quartermaster.resources.model import Key


def persistent_volume(claim: PersistentVolumeClaim, intent: Intent, source: Mapping[str, Any]) -> PersistentVolume:
    """What is published. `source` is the storage system's own part of the spec."""
    key, volume = intent.cluster, intent.volume
    info = kind_of(PersistentVolumeClaim)
    metadata: dict[str, Any] = {
        "name": volume.name,
        "labels": {NAMESPACE_LABEL: key.namespace, TYPE_LABEL: key.type, CLUSTER_LABEL: key.name},
        "annotations": {PROVISIONED_BY: provisioner_of(key.type)},
    }
    spec: dict[str, Any] = {
        **source,
        "capacity": capacity(volume.size),
        "accessModes": list(claim.spec.access_modes),
        "claimRef": {
            "apiVersion": info.api_version,
            "kind": info.kind,
            "namespace": claim.metadata.namespace,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
        },
        "persistentVolumeReclaimPolicy": intent.reclaim_policy,
        "storageClassName": intent.class_name,
        "volumeMode": claim.spec.volume_mode or "Filesystem",
    }
    if intent.mount_options:
        spec["mountOptions"] = list(intent.mount_options)
    made = from_document(PersistentVolume, {"metadata": metadata, "spec": spec})
    made = with_record(made, Record(key, volume))
    return with_finalizer(made, VOLUME_FINALIZER) if intent.reclaim_policy == DELETE else made


def grown(volume: PersistentVolume, record: Record, size: int) -> PersistentVolume:
    larger = replace(record, volume=replace(record.volume, size=size))
    return with_record(replace(volume, spec=replace(volume.spec, capacity=capacity(size))), larger)


def handed_out(
    key: ClusterKey,
    volumes: Iterable[PersistentVolume],
    intents: Iterable[Intent],
    claims: Iterable[PersistentVolumeClaim] = (),
) -> tuple[VolumeView, ...]:
    """What of a cluster is taken: every volume, also a released one; every intent; and what volumes are growing to.

    `claims` are those that are growing.
    """
    growing = {claim.spec.volume_name: amount(claim.status.allocated_resources) for claim in claims}
    found: dict[str, VolumeView] = {}
    for intent in intents:
        if intent.cluster == key:
            volume = intent.volume
            found[volume.name] = VolumeView(
                volume.name, volume.size, volume.placement.hosts, dict(volume.placement.details)
            )
    for one in volumes:
        record = record_of(one)
        if record is None or record.cluster != key:
            continue
        volume = record.volume
        size = max(volume.size, growing.get(volume.name, 0))
        claim = str(Key(one.spec.claim_ref.namespace, one.spec.claim_ref.name)) if one.spec.claim_ref else ""
        details = dict(volume.placement.details)
        found[volume.name] = VolumeView(
            volume.name, size, volume.placement.hosts, details, claim, kept=not is_given_back(one)
        )
    return tuple(found[name] for name in sorted(found))


class Leave(msgspec.Struct, frozen=True):
    why: str


class Change(msgspec.Struct, frozen=True):
    """The volume is to be written like this."""

    volume: PersistentVolume
    why: str


class Keep(msgspec.Struct, frozen=True):
    """The volume is to be written like this, when what was begun of its deletion is taken back."""

    volume: PersistentVolume
    why: str


class Blocked(msgspec.Struct, frozen=True):
    why: str


class Remove(msgspec.Struct, frozen=True):
    record: Record
    why: str


Fate = Leave | Change | Keep | Blocked | Remove


def fate(volume: PersistentVolume, provisioners: Collection[str]) -> Fate:
    """What becomes of a volume. `provisioners` are ours."""
    if volume.metadata.annotations.get(PROVISIONED_BY) not in provisioners:
        return Leave("somebody else made it")
    policy = volume.spec.persistent_volume_reclaim_policy
    if policy != DELETE:
        # Whoever keeps the data may delete the object, and what he keeps is his.
        bare = without_finalizer(volume, VOLUME_FINALIZER)
        return Keep(bare, f"it is kept: {policy}") if bare != volume else Leave(f"it is kept: {policy}")
    if not is_deleting(volume) and VOLUME_FINALIZER not in volume.metadata.finalizers:
        return Change(with_finalizer(volume, VOLUME_FINALIZER), "nobody deletes it but we")
    if not is_given_back(volume) or VOLUME_FINALIZER not in volume.metadata.finalizers:
        return Leave("it is in use, or was deleted already")
    return _removal(volume)


def is_given_back(volume: PersistentVolume) -> bool:
    """Whether what is in it is not wanted any more."""
    return volume.status.phase == RELEASED and volume.spec.persistent_volume_reclaim_policy == DELETE


def _removal(volume: PersistentVolume) -> Fate:
    record = record_of(volume)
    if record is None:
        return Blocked(f"the annotation {VOLUME}, which says how it was made, is missing or cannot be read")
    mounted = where_mounted(volume)
    if mounted and not goes_in_use(volume):
        return Blocked(f"it is mounted: {mounted}; `qm volume unmount` releases it")
    return Remove(record, "its claim is gone and its policy is Delete")


def goes_in_use(volume: PersistentVolume) -> bool:
    """Whether somebody wants it deleted although it is used, by those who have it by the claim of that time."""
    reference = volume.spec.claim_ref
    return reference is not None and volume.metadata.annotations.get(DELETE_IN_USE) == reference.uid != ""


def going_in_use(volume: PersistentVolume) -> PersistentVolume:
    """With the word that it goes although it is used; one that has no claim is used by nobody."""
    reference = volume.spec.claim_ref
    return with_annotations(volume, {DELETE_IN_USE: reference.uid}) if reference is not None else volume


def where_mounted(volume: PersistentVolume) -> str:
    """For people; "" if nowhere."""
    return ", ".join(f"{host}:{path}" if host else path for host, paths in mounts_of(volume).items() for path in paths)
