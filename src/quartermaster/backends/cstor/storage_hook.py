"""Storage: a claim, a volume, its attachment to the node, and the block device as which it shows up there.

    claim ─▶ bound ─▶ attachment ─▶ attached ─▶ device ─▶ active

A move takes the attachment away, waits until it is gone, and makes the new one. It is the set that moves its disks; a
node that somebody wrote into a Storage moves nothing, for a pool may be at work there. A Storage that is deleted goes
in the opposite order, after the pool has let go of its device: attachment, claim.
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
    POOL_CLUSTER_ANNOTATION,
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
    NODE_NAME_FIELD,
    STORAGE_UID_ANNOTATION,
    CStorClusterStorageSet,
    NodeRequirement,
    NodeSelectorTerm,
    Storage,
    StorageProgress,
)
from quartermaster.resources.codec import to_document
from quartermaster.resources.kubernetes.volumes import NodeSelectorTerm as VolumeNodeTerm
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

_WAITS_FOR_CONSUMER = "WaitForFirstConsumer"
_PATIENCE_S = 30.0
# A term that fits no node; no terms at all would fit every one.
_NOWHERE = NodeSelectorTerm(match_expressions=(NodeRequirement(key=NODE_NAME_FIELD, operator="In"),))


class Objects(msgspec.Struct, frozen=True):
    """What belongs to one Storage."""

    storage: Storage
    inventory: Inventory
    claim: PersistentVolumeClaim | None
    volume: PersistentVolume | None
    attachment: VolumeAttachment | None
    storage_class: StorageClass | None
    device_claims: tuple[BlockDeviceClaim, ...]
    owner: CStorClusterStorageSet | None = None
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
    if stage.reason == reasons.SETTINGS_MISSING:
        answer.keep(objects.claim)
        answer.keep(objects.attachment)
    else:
        answer.want(_claim_document(objects), objects.claim)
        if (wanted := _attachment_document(objects)) is not None:
            answer.want(wanted, objects.attachment)
        elif objects.attachment is not None and _why_attached(objects) is None:
            answer.drop(objects.attachment)
        else:
            answer.keep(objects.attachment)
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
        owner=found.get(CStorClusterStorageSet, namespace, set_of(storage)),
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
    if (why := _why_attached(objects)) is not None:
        return why
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


def _why_attached(objects: Objects) -> Stage | None:
    """Why an attachment that is not the one that is wished for stays all the same; None if it does not."""
    attachment, storage = objects.attachment, objects.storage
    if attachment is None or objects.in_place or attachment.metadata.deletion_timestamp is not None:
        return None
    there = attachment.spec.node_name
    device = _known_device(objects)
    if there == storage.spec.node_name or not set_of(storage):
        # Another volume, or a Storage of nobody's set: it may go when no pool has it.
        if device is None or not is_claimed(device):
            return None
        said = f"BlockDevice {device.metadata.name} is in use on node {there}, where its volume is attached"
        return Stage(reasons.ATTACHED, reasons.IN_USE, said)
    owner = objects.owner
    if owner is not None and owner.spec.node.name == storage.spec.node_name:
        return None
    said = f"CStorClusterStorageSet {set_of(storage)} does not have it on node {storage.spec.node_name}"
    return Stage(reasons.ATTACHED, reasons.OWNER_WANTS_IT, f"{said}: it stays attached to node {there}")


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
        said = f"BlockDevice {name} is claimed by {other}, and not for this cluster"
        return Stage(reasons.ATTACHED, reasons.IN_USE, said)
    return Stage(reasons.READY, reasons.DEVICE_ACTIVE, f"BlockDevice {name} is active on node {node}")


def _foreign_claim(objects: Objects) -> str | None:
    """The claim on the device, if it is not that of this cluster.

    One that is not to be seen yet may be anybody's; on a device that was ours before it is the pool's that takes it.
    """
    device, storage = objects.device, objects.storage
    if device is None or device.spec.claim_ref is None:
        return None
    name = device.spec.claim_ref.name
    claim = next((c for c in objects.device_claims if c.metadata.name == name), None)
    if claim is None:
        return None if storage.status.block_device == device.metadata.name else name
    annotations = storage.metadata.annotations
    cluster = annotations.get(POOL_CLUSTER_ANNOTATION) or annotations.get(CONFIG_ANNOTATION)
    return None if claim.metadata.labels.get(POOL_CLUSTER_LABEL) == cluster else name


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
    found = (_term_of(term) for term in affinity.required.node_selector_terms)
    return tuple(term for term in found if term is not None) or (_NOWHERE,)


def _term_of(term: VolumeNodeTerm) -> NodeSelectorTerm | None:
    """None where it fits no node: it says nothing, or something of a field that nodes do not have."""
    if any(field.key != NODE_NAME_FIELD for field in term.match_fields):
        return None
    requirements = tuple(
        NodeRequirement(key=e.key, operator=e.operator, values=e.values)
        for e in (*term.match_expressions, *term.match_fields)
    )
    return NodeSelectorTerm(match_expressions=requirements) if requirements else None


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

    It states no finalizer: the controller adds ours by the declaration of the hook. metac would replace the attacher's
    own by one that is stated here, and leaves what is being deleted alone, so ours would never come off.
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
    if (why := _held(objects)) is not None:
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


def _held(objects: Objects) -> Stage | None:
    """Why the disk must stay although its Storage was deleted."""
    storage = objects.storage
    device = objects.device or _known_device(objects)
    if device is not None and is_claimed(device):
        said = f"BlockDevice {device.metadata.name} is still claimed: it goes when its pool has let go of it"
        return Stage(reasons.DELETING, reasons.IN_USE, said)
    owner = objects.owner
    if owner is None or owner.metadata.deletion_timestamp is not None:
        return None
    if storage.metadata.name not in {name for name, _ in wanted_names(owner)}:
        return None
    said = f"CStorClusterStorageSet {owner.metadata.name} still wants it; annotate it with dao.mayadata.io/replace=true"
    return Stage(reasons.DELETING, reasons.OWNER_WANTS_IT, said)
