"""Storage: a claim, a volume, its attachment to the node, and the block device as which it shows up there.

    claim ─▶ bound ─▶ attachment ─▶ attached ─▶ device ─▶ active

A move takes the attachment away, waits until it is gone, and makes the new one. A Storage that is deleted goes in the
opposite order, after the pool has let go of its device: attachment, claim.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from quartermaster.backends.cstor import reasons
from quartermaster.backends.cstor.correlate import correlate, volume_of
from quartermaster.backends.cstor.decide import inventory_of
from quartermaster.backends.cstor.devices import is_active, is_claimed
from quartermaster.backends.cstor.documents import Answer, part_of
from quartermaster.backends.cstor.hook import Document, SyncRequest, SyncResponse
from quartermaster.backends.cstor.inventory import Inventory
from quartermaster.backends.cstor.names import (
    CONFIG_ANNOTATION,
    CONFIG_UID_LABEL,
    LINK_PREFIX_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    STORAGE_ANNOTATION,
    STORAGE_UID_LABEL,
    attachment_name,
    full_name,
)
from quartermaster.backends.cstor.progress import Stage, event_of, progress
from quartermaster.backends.cstor.set_hook import set_of, wanted_names
from quartermaster.resources.agility import (
    ATTACHER_ANNOTATION,
    CLASS_ANNOTATION,
    CONFIG_UID_ANNOTATION,
    STORAGE_UID_ANNOTATION,
    CStorClusterStorageSet,
    NodeSelectorTerm,
    Storage,
    StorageProgress,
)
from quartermaster.resources.codec import to_document
from quartermaster.resources.kubernetes.volumes import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    StorageClass,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
    VolumeResourceRequirements,
)
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.openebs import POOL_CLUSTER_LABEL, BlockDevice, BlockDeviceClaim
from quartermaster.resources.quantity import Amount
from quartermaster.resources.references import owner_reference
from quartermaster.resources.selectors import LabelSelectorRequirement

_WAITS_FOR_CONSUMER = "WaitForFirstConsumer"
_PATIENCE_S = 30.0


class Objects(msgspec.Struct, frozen=True):
    """What belongs to one Storage."""

    storage: Storage
    inventory: Inventory
    claim: PersistentVolumeClaim | None
    volume: PersistentVolume | None
    attachment: VolumeAttachment | None
    storage_class: StorageClass | None
    device_claims: tuple[BlockDeviceClaim, ...]
    device: BlockDevice | None = None
    rivals: tuple[str, ...] = ()

    @property
    def bound(self) -> bool:
        return self.claim is not None and self.claim.status.phase == "Bound" and bool(self.claim.spec.volume_name)

    @property
    def attached(self) -> bool:
        return self.attachment is not None and self.attachment.status.attached and self.in_place

    @property
    def in_place(self) -> bool:
        """Whether the attachment is that of this volume to this node."""
        attachment = self.attachment
        return (
            attachment is not None
            and attachment.metadata.deletion_timestamp is None
            and attachment.spec.node_name == self.storage.spec.node_name
            and attachment.spec.source.persistent_volume_name == self.volume_name
        )

    @property
    def volume_name(self) -> str:
        return self.claim.spec.volume_name if self.claim is not None else ""


def sync(request: SyncRequest) -> SyncResponse:
    objects = gather(request)
    storage = objects.storage
    answer = Answer(storage)
    stage = _stage(objects)
    if stage.reason != reasons.SETTINGS_MISSING:
        answer.want(_claim_document(objects), objects.claim)
        if (wanted := _attachment_document(objects)) is not None:
            answer.want(wanted, objects.attachment)
        elif objects.attachment is not None:
            answer.drop(objects.attachment)
    if objects.device is not None:
        answer.update([_labelled(objects.device, storage)])
    answer.update(_unlabelled(objects))
    return answer.response(
        status=_status(objects, stage, request.now),
        events=event_of(storage.status, stage),
        resync_after_s=0.0 if stage.phase == reasons.READY else _PATIENCE_S,
    )


def gather(request: SyncRequest) -> Objects:
    storage: Storage = request.watch
    found = request.attachments
    namespace, name = storage.metadata.namespace, storage.metadata.name
    inventory = request.inventory if request.inventory is not None else inventory_of(found)
    claim = found.get(PersistentVolumeClaim, namespace, name)
    volume = found.get(PersistentVolume, "", claim.spec.volume_name) if claim is not None else None
    objects = Objects(
        storage=storage,
        inventory=inventory,
        claim=claim,
        volume=volume,
        attachment=found.get(VolumeAttachment, "", attachment_name(namespace, name)),
        storage_class=found.get(StorageClass, "", storage.metadata.annotations.get(CLASS_ANNOTATION, "")),
        device_claims=found.of(BlockDeviceClaim),
    )
    return _with_device(objects)


def _with_device(objects: Objects) -> Objects:
    node = objects.inventory.node(objects.storage.spec.node_name)
    if objects.volume is None or node is None or not objects.attached:
        return objects
    prefix = objects.storage.metadata.annotations.get(LINK_PREFIX_ANNOTATION, "")
    volume = volume_of(objects.volume, objects.attachment, filter(None, (prefix,)))
    devices = objects.inventory.devices_on(node.hostname)
    found = correlate(objects.storage.metadata.uid, volume, devices, objects.device_claims)
    return msgspec.structs.replace(objects, device=found.device, rivals=found.rivals)


def _stage(objects: Objects) -> Stage:
    return _claim_stage(objects) or _attachment_stage(objects) or _device_stage(objects)


def _claim_stage(objects: Objects) -> Stage | None:
    annotations = objects.storage.metadata.annotations
    missing = [key for key in (ATTACHER_ANNOTATION, CLASS_ANNOTATION) if not annotations.get(key)]
    if missing:
        return Stage(reasons.PENDING, reasons.SETTINGS_MISSING, f"the annotation {missing[0]} is missing")
    claim = objects.claim
    if claim is not None and claim.status.phase == "Lost":
        said = f"claim {claim.metadata.name} has lost its volume {claim.spec.volume_name}"
        return Stage(reasons.PENDING, reasons.CLAIM_LOST, said)
    if not objects.bound or objects.volume is None:
        name = annotations[CLASS_ANNOTATION]
        if objects.storage_class is None and not objects.bound:
            return Stage(reasons.PENDING, reasons.CLASS_MISSING, f"there is no StorageClass {name}")
        return Stage(reasons.PENDING, reasons.CLAIM_PENDING, f"the claim waits for a volume of class {name}")
    if objects.volume.spec.csi is None:
        said = f"volume {objects.volume_name} is not from a CSI driver, so nobody can attach it"
        return Stage(reasons.BOUND, reasons.NOT_A_CSI_VOLUME, said)
    return None


def _attachment_stage(objects: Objects) -> Stage | None:
    attachment, node = objects.attachment, objects.storage.spec.node_name
    if attachment is not None and not objects.in_place:
        said = f"it is being detached from node {attachment.spec.node_name}"
        if (error := attachment.status.detach_error) is not None:
            said += f": {error.message}"
        return Stage(reasons.MOVING, reasons.DETACH_PENDING, said)
    if attachment is None and objects.inventory.node(node) is None:
        return Stage(reasons.BOUND, reasons.ATTACH_PENDING, f"node {node} is not there")
    if not objects.attached:
        error = attachment.status.attach_error if attachment is not None else None
        if error is not None:
            return Stage(reasons.BOUND, reasons.ATTACH_FAILED, f"it cannot be attached to node {node}: {error.message}")
        return Stage(reasons.BOUND, reasons.ATTACH_PENDING, f"it is being attached to node {node}")
    return None


def _device_stage(objects: Objects) -> Stage:
    node = objects.storage.spec.node_name
    if objects.device is None:
        if objects.rivals:
            said = f"{' and '.join(objects.rivals)} on node {node} answer to its name: none is taken"
            return Stage(reasons.ATTACHED, reasons.DEVICE_AMBIGUOUS, said)
        return Stage(reasons.ATTACHED, reasons.DEVICE_PENDING, f"no BlockDevice on node {node} answers to its name yet")
    name = objects.device.metadata.name
    if not is_active(objects.device):
        state = objects.device.status.state or "of no state"
        return Stage(reasons.ATTACHED, reasons.DEVICE_INACTIVE, f"BlockDevice {name} is {state}")
    if (other := _foreign_claim(objects)) is not None:
        return Stage(reasons.ATTACHED, reasons.IN_USE, f"BlockDevice {name} is claimed by {other}, who is not of cStor")
    return Stage(reasons.READY, reasons.DEVICE_ACTIVE, f"BlockDevice {name} is active on node {node}")


def _foreign_claim(objects: Objects) -> str | None:
    device = objects.device
    if device is None or device.spec.claim_ref is None:
        return None
    claim = next((c for c in objects.device_claims if c.metadata.name == device.spec.claim_ref.name), None)
    ours = claim is None or POOL_CLUSTER_LABEL in claim.metadata.labels
    return None if ours or claim is None else claim.metadata.name


def _status(objects: Objects, stage: Stage, now: str) -> Document:
    old = objects.storage.status
    device = objects.device
    known = device or _known_device(objects)
    return progress(
        msgspec.structs.replace(
            old,
            persistent_volume_claim=objects.claim.metadata.name if objects.claim is not None else "",
            persistent_volume=objects.volume_name,
            volume_attachment=objects.attachment.metadata.name if objects.attachment is not None else "",
            block_device=device.metadata.name if device is not None else old.block_device,
            block_device_state=device.status.state if device is not None else "",
            block_device_claimed=is_claimed(known) if known is not None else None,
            attached_to=objects.storage.spec.node_name if objects.attached else "",
            reachable_from=_reachable_from(objects.volume) if objects.volume is not None else old.reachable_from,
        ),
        objects.storage,
        stage,
        now,
    )


def _known_device(objects: Objects) -> BlockDevice | None:
    """The device that was found before, wherever it is now."""
    uid = objects.storage.metadata.uid
    config = objects.storage.metadata.annotations.get(CONFIG_UID_ANNOTATION, "")
    devices = objects.inventory.devices_of(config)
    return next((d for d in devices if d.metadata.labels.get(STORAGE_UID_LABEL) == uid), None)


def _reachable_from(volume: PersistentVolume) -> tuple[NodeSelectorTerm, ...]:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return ()
    terms = []
    for term in affinity.required.node_selector_terms:
        requirements = tuple(
            LabelSelectorRequirement(key=e.key, operator=e.operator, values=e.values) for e in term.match_expressions
        )
        terms.append(NodeSelectorTerm(match_expressions=requirements))
    return tuple(terms)


def _claim_document(objects: Objects) -> Document:
    storage, claim = objects.storage, objects.claim
    annotations = {
        STORAGE_UID_ANNOTATION: storage.metadata.uid,
        STORAGE_ANNOTATION: full_name(storage),
        CONFIG_ANNOTATION: storage.metadata.annotations.get(CONFIG_ANNOTATION, ""),
    }
    if (node := _selected_node(objects)) is not None:
        annotations[SELECTED_NODE_ANNOTATION] = node
    capacity = storage.spec.capacity
    if claim is not None:
        asked = claim.spec.resources.requests.get("storage", capacity)
        capacity = max(capacity, asked, key=Amount.of)  # a claim never shrinks
    return to_document(
        PersistentVolumeClaim(
            metadata=ObjectMeta(
                name=storage.metadata.name,
                namespace=storage.metadata.namespace,
                annotations=annotations,
                owner_references=(owner_reference(storage, block_deletion=False),),
            ),
            spec=PersistentVolumeClaimSpec(
                access_modes=("ReadWriteOnce",),
                volume_mode="Block",
                storage_class_name=storage.metadata.annotations[CLASS_ANNOTATION],
                resources=VolumeResourceRequirements(requests={"storage": capacity}),
            ),
        )
    )


def _selected_node(objects: Objects) -> str | None:
    """No Pod consumes the claim, so nobody else says where the volume is needed."""
    claim = objects.claim
    present = claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION) if claim is not None else None
    if objects.bound:
        return present
    waits = objects.storage_class is not None and objects.storage_class.volume_binding_mode == _WAITS_FOR_CONSUMER
    return objects.storage.spec.node_name if waits else None


def _attachment_document(objects: Objects) -> Document | None:
    """The attachment that should be; None while there should be none.

    It bears no finalizer of ours, the Storage does: metac replaces a list of finalizers by the one that it is told, and
    without the attacher's own a volume would be forgotten before it is detached.
    """
    storage = objects.storage
    if not objects.bound or objects.volume is None or objects.volume.spec.csi is None:
        return None
    if objects.attachment is not None:
        if not objects.in_place:
            return None
    elif objects.inventory.node(storage.spec.node_name) is None:
        return None
    return to_document(
        VolumeAttachment(
            metadata=ObjectMeta(
                name=attachment_name(storage.metadata.namespace, storage.metadata.name),
                annotations={STORAGE_UID_ANNOTATION: storage.metadata.uid, STORAGE_ANNOTATION: full_name(storage)},
            ),
            spec=VolumeAttachmentSpec(
                attacher=storage.metadata.annotations[ATTACHER_ANNOTATION],
                source=VolumeAttachmentSource(persistent_volume_name=objects.volume_name),
                node_name=storage.spec.node_name,
            ),
        )
    )


def _labelled(device: BlockDevice, storage: Storage) -> Document:
    config = storage.metadata.annotations.get(CONFIG_UID_ANNOTATION, "")
    return part_of(device, labels={STORAGE_UID_LABEL: storage.metadata.uid, CONFIG_UID_LABEL: config})


def _unlabelled(objects: Objects) -> Iterator[Document]:
    """A device that bears our label and is not the one that was found: it was taken for it once."""
    known = _known_device(objects)
    if known is not None and objects.device is not None and known.key != objects.device.key:
        yield part_of(known)


def finalize(request: SyncRequest) -> SyncResponse:
    objects = gather(request)
    storage = objects.storage
    if (why := _held(objects, request)) is not None:
        held = sync(request)
        # What is known of the disk is as in a sync; only how far it is differs.
        known = msgspec.convert(held.status, StorageProgress)
        known = msgspec.structs.replace(known, conditions=storage.status.conditions)
        status = progress(known, storage, why, request.now)
        return msgspec.structs.replace(held, status=status, resync_after_s=_PATIENCE_S)
    answer = Answer(storage)
    if objects.attachment is not None:
        answer.keep(objects.claim)
        answer.drop(objects.attachment)
        message = f"it is being detached from node {objects.attachment.spec.node_name}"
    elif objects.claim is not None:
        answer.drop(objects.claim)
        message = f"claim {objects.claim.metadata.name} is being deleted"
    else:
        if (device := _known_device(objects)) is not None:
            answer.update([part_of(device)])
        message = ""
    status = progress(storage.status, storage, Stage(reasons.DELETING, reasons.TEARING_DOWN, message), request.now)
    return answer.response(status=status, finalized=not message, resync_after_s=_PATIENCE_S if message else 0.0)


def _held(objects: Objects, request: SyncRequest) -> Stage | None:
    """Why the disk must stay although its Storage was deleted."""
    storage = objects.storage
    device = objects.device or _known_device(objects)
    if device is not None and is_claimed(device):
        said = f"BlockDevice {device.metadata.name} is still claimed: it goes when its pool has let go of it"
        return Stage(reasons.DELETING, reasons.IN_USE, said)
    owner = request.attachments.get(CStorClusterStorageSet, storage.metadata.namespace, set_of(storage))
    if owner is None or owner.metadata.deletion_timestamp is not None:
        return None
    if storage.metadata.name not in {name for name, _ in wanted_names(owner)}:
        return None
    said = f"CStorClusterStorageSet {owner.metadata.name} still wants it; annotate it with dao.mayadata.io/replace=true"
    return Stage(reasons.DELETING, reasons.OWNER_WANTS_IT, said)
