"""A stand-in for the node disk manager: what is attached to a node shows up as a BlockDevice there."""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from quartermaster.engine import DONE, Request, Result, Scope
from quartermaster.hooks.conformance.hands import LOST_ANNOTATION
from quartermaster.resources import Node, ObjectMeta, PersistentVolume, VolumeAttachment
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.openebs import (
    ACTIVE,
    INACTIVE,
    OPENEBS_NAMESPACE,
    UNCLAIMED,
    BlockDevice,
    BlockDeviceSpec,
    BlockDeviceStatus,
    DeviceCapacity,
    DeviceDetails,
    DeviceLinks,
    NodeAttributes,
)
from quartermaster.resources.quantity import Amount
from quartermaster.support.errors import AlreadyExistsError, NotFoundError
from tests.cstor.standins.disks import ATTACHER

SCAN_S = 5.0  # what is not there is looked for again and again


def device_name(handle: str) -> str:
    return f"blockdevice-{hashlib.md5(handle.encode(), usedforsecurity=False).hexdigest()}"


class NodeDiskManager:
    """One request per volume: is it attached somewhere, and is it there?"""

    def __init__(self, scope: Scope, refused: list[str]) -> None:
        self._store = scope.store
        self._refused = refused
        self._volumes = scope.caches.of(PersistentVolume)
        self._attachments = scope.caches.of(VolumeAttachment)

    async def reconcile(self, request: Request) -> Result:
        volume = self._volumes.get(request)
        if volume is None or volume.spec.csi is None or volume.spec.csi.driver != ATTACHER:
            await self._forget(request)
            return DONE
        handle = volume.spec.csi.volume_handle
        node = await self._attached_to(request.name)
        present = node is not None and LOST_ANNOTATION not in volume.metadata.annotations
        again = DONE if present else Result(requeue_after_s=SCAN_S)
        name = device_name(handle)
        try:
            device = await self._store.get(BlockDevice, name, OPENEBS_NAMESPACE)
        except NotFoundError:
            if not present:
                return again
            device = None
        if device is None:
            assert node is not None
            try:
                await self._store.create(self._seen(name, volume, node))
            except AlreadyExistsError:
                return Result(requeue_after_s=0.1)
            return DONE
        wanted = device
        if present:
            assert node is not None
            seen = self._seen(name, volume, node)
            wanted = replace(
                device,
                metadata=replace(device.metadata, labels={**device.metadata.labels, **seen.metadata.labels}),
                spec=replace(seen.spec, claim_ref=device.spec.claim_ref, filesystem=device.spec.filesystem),
            )
        state = ACTIVE if present else INACTIVE
        wanted = replace(wanted, status=replace(device.status, state=state))
        if wanted != device:
            await self._store.update(wanted)
        return again

    async def _attached_to(self, volume: str) -> Node | None:
        for attachment in self._attachments.list():
            spec = attachment.spec
            if spec.source.persistent_volume_name == volume and attachment.status.attached:
                try:
                    return await self._store.get(Node, spec.node_name)
                except NotFoundError:
                    return None
        return None

    def _seen(self, name: str, volume: PersistentVolume, node: Node) -> BlockDevice:
        assert volume.spec.csi is not None
        handle = volume.spec.csi.volume_handle
        links = (f"/dev/disk/by-id/scsi-0EXAMPLE_{handle}", f"/dev/disk/by-id/{handle}")
        hostname = node.metadata.labels.get(HOSTNAME_LABEL, node.metadata.name)
        return BlockDevice(
            metadata=ObjectMeta(
                name=name,
                namespace=OPENEBS_NAMESPACE,
                labels={HOSTNAME_LABEL: hostname, "ndm.io/managed": "true", "ndm.io/blockdevice-type": "blockdevice"},
            ),
            spec=BlockDeviceSpec(
                path=f"/dev/{handle}",
                capacity=DeviceCapacity(storage=Amount.of(volume.spec.capacity["storage"]).bytes),
                details=DeviceDetails(device_type="disk", drive_type="HDD", serial=handle),
                devlinks=(DeviceLinks(kind="by-id", links=links),),
                node_attributes=NodeAttributes(node_name=node.metadata.name),
                partitioned="No",
            ),
            status=BlockDeviceStatus(claim_state=UNCLAIMED, state=ACTIVE),
        )

    async def _forget(self, gone: Request) -> None:
        """A volume that does not exist any more has no device. One that is claimed was taken from its pool."""
        name = device_name(gone.name.replace("pvc-", "disk-", 1))
        try:
            device = await self._store.get(BlockDevice, name, OPENEBS_NAMESPACE)
        except NotFoundError:
            return
        if device.status.claim_state == UNCLAIMED:
            await self._store.delete(BlockDevice, name, OPENEBS_NAMESPACE)
        elif device.status.state != INACTIVE:
            self._refused.append(f"the volume of {name} was deleted while a pool has it")
            await self._store.update(replace(device, status=replace(device.status, state=INACTIVE)))


def volumes_of_attachment(attachment: VolumeAttachment) -> list[Request]:
    name = attachment.spec.source.persistent_volume_name
    return [Request("", name)] if name else []


def volumes_of_device(device: BlockDevice) -> list[Request]:
    handle = device.spec.details.serial
    return [Request("", handle.replace("disk-", "pvc-", 1))] if handle.startswith("disk-") else []
