"""What there is in the end, in a form in which two runs can be compared: everything but uids, times and versions.

How often a declaration was written (its generation) is a version too: of three disks that break at the same time the
controller may learn at once or one after the other.

Many names are derived from uids. Each object is given a name of its own kind instead (the disk 1 of the data set of
slot 2 of that config), and every uid and derived name is replaced by it wherever it stands, also inside of texts.
"""

from __future__ import annotations

import json
import re
from typing import Any

from quartermaster.backends.cstor.names import (
    CONFIG_ANNOTATION,
    DISK_ANNOTATION,
    ROLE_ANNOTATION,
    SLOT_ANNOTATION,
    storage_name,
)
from quartermaster.resources import (
    CStorClusterConfig,
    CStorClusterPlan,
    CStorClusterStorageSet,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Storage,
    VolumeAttachment,
    to_document,
)
from quartermaster.resources.model import Object
from quartermaster.resources.openebs import (
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorVolumeReplica,
)
from quartermaster.stores.base import Store

KINDS: tuple[type[Object], ...] = (
    Node,
    CStorClusterConfig,
    CStorClusterPlan,
    CStorClusterStorageSet,
    Storage,
    PersistentVolumeClaim,
    PersistentVolume,
    VolumeAttachment,
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorVolumeReplica,
)
GENERATIONS = 5  # of a disk that was replaced again and again
_OF_THE_STORE = ("uid", "resourceVersion", "generation", "managedFields", "selfLink")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DEVICE = re.compile(r"blockdevice-[0-9a-f]{32}")

Document = dict[str, Any]


async def final_state(store: Store) -> dict[str, Document]:
    """By kind and given name; what is there twice is there "again"."""
    objects = [obj for kind in KINDS for obj in (await store.list(kind)).items]
    given = given_names(objects)
    text = json.dumps([to_document(obj) for obj in objects])
    for old in sorted(given, key=len, reverse=True):
        text = text.replace(old, given[old])
    text = _DEVICE.sub("a device that is gone", _UID.sub("a uid that is gone", _TIME.sub("a time", text)))
    found: dict[str, Document] = {}
    for obj, document in zip(objects, json.loads(text), strict=True):
        name = f"{type(obj).__name__} {document['metadata']['name']}"
        while name in found:
            name += " again"
        found[name] = _comparable(document)
    return found


def given_names(objects: list[Object]) -> dict[str, str]:
    """By uid or derived name: what to call it."""
    given: dict[str, str] = {}
    for obj in objects:
        name = _given_name(obj, given)
        if isinstance(obj, CStorClusterStorageSet):
            for disk in range(obj.spec.disk.count + 1):
                for number in range(GENERATIONS):
                    given[storage_name(obj.metadata.name, disk, number)] = f"{name} disk {disk} number {number}"
        if name != obj.metadata.name:
            given[obj.metadata.name] = name
        given[obj.metadata.uid] = f"the uid of {type(obj).__name__} {name}"
    return given


def _given_name(obj: Object, given: dict[str, str]) -> str:
    annotations = obj.metadata.annotations
    if isinstance(obj, CStorClusterStorageSet):
        return f"{annotations[CONFIG_ANNOTATION]} slot {annotations[SLOT_ANNOTATION]} {annotations[ROLE_ANNOTATION]}"
    if isinstance(obj, Storage | PersistentVolumeClaim):
        return given.get(obj.metadata.name, f"a disk {annotations.get(DISK_ANNOTATION)} whose set is gone")
    if isinstance(obj, PersistentVolume) and obj.spec.claim_ref is not None:
        return f"volume of {given.get(obj.spec.claim_ref.uid, 'a claim that is gone')}"
    if isinstance(obj, VolumeAttachment):
        return f"attachment of {given[annotations['dao.mayadata.io/storage-uid']]}"
    if isinstance(obj, BlockDevice):
        serial = obj.spec.details.serial
        return f"device of {given.get(serial.removeprefix('disk-'), serial)}"
    if isinstance(obj, BlockDeviceClaim):
        return f"claim of {given.get(obj.spec.block_device_name, obj.spec.block_device_name)}"
    if isinstance(obj, CStorPoolInstance):
        return f"instance of {obj.metadata.owner_references[0].name} on {obj.spec.host_name}"
    return obj.metadata.name


def _comparable(document: Document) -> Document:
    for field in _OF_THE_STORE:
        document["metadata"].pop(field, None)
    document["metadata"]["finalizers"] = sorted(document["metadata"].get("finalizers", ()))
    status = document.get("status", {})
    if "conditions" in status:
        # That a trouble was seen before it was over depends on when somebody looked.
        lasting = [c for c in status["conditions"] if (c["status"], c.get("reason")) != ("False", "NothingHeld")]
        status["conditions"] = [_any_order(c) for c in sorted(lasting, key=lambda c: str(c["type"]))]
    if "missingDevices" in status:
        status["missingDevices"] = sorted(status["missingDevices"], key=lambda device: str(device["name"]))
    if status:
        document["status"] = _any_order(status)
    return document


def _any_order(said: Document) -> Document:
    """A message that lists things does so by their names, which are derived."""
    kept = {name: value for name, value in said.items() if name != "observedGeneration"}
    return {**kept, "message": sorted(re.split(r"[ ,;:]+", said.get("message", "")))}
