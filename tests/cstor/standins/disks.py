"""Stand-ins for a CSI driver's external provisioner and attacher: claims become volumes, volumes come to nodes."""

from __future__ import annotations

from msgspec.structs import replace

from quartermaster.engine import DONE, Request, Result, Scope
from quartermaster.resources import (
    ObjectMeta,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from quartermaster.resources.kubernetes.volumes import (
    CSIPersistentVolumeSource,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    VolumeAttachmentStatus,
)
from quartermaster.support.errors import AlreadyExistsError, NotFoundError

PROVISIONER = ATTACHER = "disks.example.com"
IMMEDIATE, WAITING = "fast-disks", "local-disks"  # the names of the classes
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
ATTACHER_FINALIZER = "external-attacher/disks-example-com"


def storage_classes() -> tuple[StorageClass, StorageClass]:
    immediate = StorageClass(metadata=ObjectMeta(name=IMMEDIATE), provisioner=PROVISIONER)
    return immediate, replace(immediate, metadata=ObjectMeta(name=WAITING), volume_binding_mode="WaitForFirstConsumer")


class Provisioner:
    """Makes volumes for claims of its classes; binds them too where no kube-controller-manager does."""

    def __init__(self, scope: Scope, *, binds: bool) -> None:
        self._store = scope.store
        self._claims = scope.caches.of(PersistentVolumeClaim)
        self._classes = scope.caches.of(StorageClass)
        self._volumes = scope.caches.of(PersistentVolume)
        self._binds = binds

    async def reconcile(self, request: Request) -> Result:
        claim = self._claims.get(request)
        if claim is None:
            await self._delete_volumes_of(request)
            return DONE
        found = self._classes.get(Request("", claim.spec.storage_class_name or ""))
        if found is None:
            return Result(requeue_after_s=1.0)  # a cache that is late, or a class that is still to come
        if found.provisioner != PROVISIONER or claim.metadata.deletion_timestamp:
            return DONE
        node = claim.metadata.annotations.get(SELECTED_NODE, "")
        if found.volume_binding_mode == "WaitForFirstConsumer" and not node:
            return DONE
        volume = await self._volume_of(claim)
        if self._binds and claim.status.phase != "Bound":
            await self._bind(claim, volume)
        return DONE

    async def _volume_of(self, claim: PersistentVolumeClaim) -> PersistentVolume:
        name = f"pvc-{claim.metadata.uid}"
        try:
            return await self._store.get(PersistentVolume, name)
        except NotFoundError:
            pass
        spec = PersistentVolumeSpec(
            capacity=dict(claim.spec.resources.requests),
            access_modes=claim.spec.access_modes,
            volume_mode=claim.spec.volume_mode,
            storage_class_name=claim.spec.storage_class_name or "",
            persistent_volume_reclaim_policy="Delete",
            claim_ref=ObjectReference(
                kind="PersistentVolumeClaim",
                namespace=claim.metadata.namespace,
                name=claim.metadata.name,
                uid=claim.metadata.uid,
            ),
            csi=CSIPersistentVolumeSource(driver=PROVISIONER, volume_handle=f"disk-{claim.metadata.uid}"),
        )
        metadata = ObjectMeta(name=name, annotations={PROVISIONED_BY: PROVISIONER})
        try:
            return await self._store.create(PersistentVolume(metadata=metadata, spec=spec))
        except AlreadyExistsError:
            return await self._store.get(PersistentVolume, name)

    async def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        if claim.spec.volume_name != volume.metadata.name:
            claim = await self._store.update(replace(claim, spec=replace(claim.spec, volume_name=volume.metadata.name)))
        if volume.status.phase != "Bound":
            await self._store.update_status(replace(volume, status=PersistentVolumeStatus(phase="Bound")))
        status = PersistentVolumeClaimStatus(
            phase="Bound", capacity=dict(volume.spec.capacity), access_modes=volume.spec.access_modes
        )
        await self._store.update_status(replace(claim, status=status))

    async def _delete_volumes_of(self, gone: Request) -> None:
        for volume in self._volumes.list():
            claim = volume.spec.claim_ref
            ours = volume.metadata.annotations.get(PROVISIONED_BY) == PROVISIONER
            if ours and claim is not None and (claim.namespace, claim.name) == (gone.namespace, gone.name):
                await self._store.delete(PersistentVolume, volume.metadata.name)


def claims_of_volume(volume: PersistentVolume) -> list[Request]:
    claim = volume.spec.claim_ref
    return [Request(claim.namespace, claim.name)] if claim is not None else []


class Attacher:
    """Attaches what a VolumeAttachment asks for, and lets go when it is deleted."""

    def __init__(self, scope: Scope) -> None:
        self._store = scope.store
        self._attachments = scope.caches.of(VolumeAttachment)

    async def reconcile(self, request: Request) -> Result:
        attachment = self._attachments.get(request)
        if attachment is None or attachment.spec.attacher != ATTACHER:
            return DONE
        metadata = attachment.metadata
        if metadata.deletion_timestamp:
            if ATTACHER_FINALIZER in metadata.finalizers:
                if attachment.status.attached:
                    attachment = await self._store.update_status(replace(attachment, status=VolumeAttachmentStatus()))
                kept = tuple(name for name in attachment.metadata.finalizers if name != ATTACHER_FINALIZER)
                await self._store.update(replace(attachment, metadata=replace(attachment.metadata, finalizers=kept)))
            return DONE
        if ATTACHER_FINALIZER not in metadata.finalizers:
            finalizers = (*metadata.finalizers, ATTACHER_FINALIZER)
            attachment = await self._store.update(
                replace(attachment, metadata=replace(metadata, finalizers=finalizers))
            )
        if not attachment.status.attached:
            await self._store.update_status(replace(attachment, status=VolumeAttachmentStatus(attached=True)))
        return DONE
