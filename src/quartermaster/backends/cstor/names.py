"""What the objects of a cStor cluster are called, and the annotations by which they find one another.

Names are derived, never made up: a hook that is called twice, or again after its answer was lost, asks for the same
objects. A suffix comes from the uid of the config and the slot, and below a set from the set's own name; so an object
that was deleted behind our back comes back under its old name and is not made twice.
"""

from __future__ import annotations

import hashlib

from quartermaster.resources.agility import GROUP, CStorClusterConfig
from quartermaster.resources.model import Object
from quartermaster.resources.openebs import OPENEBS_NAMESPACE

SET_PREFIX = "ccplan-"
STORAGE_PREFIX = "ccsset-"
ATTACHMENT_PREFIX = "ccstor-"

# On everything below a config: its name; on what lies in another namespace, namespace/name.
CONFIG_ANNOTATION = f"{GROUP}/cstorclusterconfig"
SLOT_ANNOTATION = f"{GROUP}/slot"
ROLE_ANNOTATION = f"{GROUP}/role"
DISK_ANNOTATION = f"{GROUP}/disk"  # the place of a disk in its set
STORAGE_ANNOTATION = f"{GROUP}/storage"  # on a VolumeAttachment and a PVC: namespace/name of the Storage

# On a CStorPoolCluster: which fields of its pools' poolConfig the config has stated.
STATED_ANNOTATION = f"{GROUP}/stated-pool-config"

# On a BlockDevice.
CONFIG_UID_LABEL = f"{GROUP}/cstorclusterconfig-uid"  # this cluster has it or has chosen it
STORAGE_UID_LABEL = f"{GROUP}/storage-uid"  # it is the disk of this Storage

# What a user may write on a CStorClusterConfig …
OPENEBS_NAMESPACE_ANNOTATION = f"{GROUP}/openebs-namespace"
POOL_CLUSTER_ANNOTATION = f"{GROUP}/cstorpoolcluster"
# … and on a Storage: give this disk up for a new one.
REPLACE_ANNOTATION = f"{GROUP}/replace"
# Where a driver makes links that are not known here: what stands before the name of the volume.
LINK_PREFIX_ANNOTATION = f"{GROUP}/device-link-prefix"

SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"

_SUFFIX_LENGTH = 10
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: no words


def suffix(owner: str, *slot: object) -> str:
    """The same short text for the same owner and slot, always."""
    digest = hashlib.sha256("\0".join((owner, *map(str, slot))).encode()).digest()
    number = int.from_bytes(digest[:8], "big")
    letters = []
    for _ in range(_SUFFIX_LENGTH):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return "".join(letters)


def set_name(config_uid: str, slot: int, role: str) -> str:
    return SET_PREFIX + suffix(config_uid, slot, role)


def storage_name(set_name: str, disk: int, generation: int) -> str:
    """The disk of that place in the set; each time that it is replaced the generation rises."""
    return STORAGE_PREFIX + suffix(set_name, disk, generation)


def attachment_name(namespace: str, storage: str) -> str:
    """Not csi-…: the attach-detach controller takes such a one for its own and deletes it when it restarts."""
    return ATTACHMENT_PREFIX + suffix(namespace, storage)


def openebs_namespace(config: CStorClusterConfig) -> str:
    return config.metadata.annotations.get(OPENEBS_NAMESPACE_ANNOTATION) or OPENEBS_NAMESPACE


def pool_cluster_name(config: CStorClusterConfig) -> str:
    return config.metadata.annotations.get(POOL_CLUSTER_ANNOTATION) or config.metadata.name


def full_name(obj: Object) -> str:
    return f"{obj.metadata.namespace}/{obj.metadata.name}"
