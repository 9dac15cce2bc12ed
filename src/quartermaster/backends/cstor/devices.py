"""Which block devices may be taken for a pool, and which one is the disk of a Storage.

A device is taken only if nobody else has a use for it: OpenEBS would accept one with an old ZFS label, but that may be
the pool of somebody else, and this is the place where data would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec

from quartermaster.backends.cstor.names import CONFIG_UID_LABEL, STORAGE_UID_LABEL
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.openebs import (
    ACTIVE,
    CLAIMED,
    DEVICE_TAG_LABEL,
    RELEASED,
    ZFS_MEMBER,
    BlockDevice,
)
from quartermaster.resources.selectors import LabelSelector

_TAKEN = (CLAIMED, RELEASED)
_FAST = ("SSD", "NVME")
_SLOW = "HDD"


class Criteria(msgspec.Struct, frozen=True):
    """What is wanted of a free device. `selector` is the JSON of a LabelSelector, b"" for any device."""

    namespace: str
    config_uid: str
    least_bytes: int = 0
    selector: bytes = b""
    tags: tuple[str, ...] = ()


def criteria_of(
    namespace: str, config_uid: str, least_bytes: int, selector: LabelSelector | None, tags: Iterable[str] = ()
) -> Criteria:
    encoded = msgspec.json.encode(selector) if selector else b""
    return Criteria(namespace, config_uid, least_bytes, encoded, tuple(tags))


def host_of(device: BlockDevice) -> str:
    """The host it is on, in the words of the label that OpenEBS compares."""
    return device.metadata.labels.get(HOSTNAME_LABEL) or device.spec.node_attributes.node_name


def is_active(device: BlockDevice | None) -> bool:
    return device is not None and device.status.state == ACTIVE and device.metadata.deletion_timestamp is None


def is_claimed(device: BlockDevice) -> bool:
    """By anybody; one that was released is still being cleaned."""
    return device.status.claim_state in _TAKEN or device.spec.claim_ref is not None


def is_free(device: BlockDevice, criteria: Criteria) -> bool:
    """Whether it may be taken for a pool of this cluster."""
    return freedom_of(criteria)(device)


@lru_cache(maxsize=1024)
def freedom_of(criteria: Criteria) -> Callable[[BlockDevice], bool]:
    """`is_free` for very many devices: what is the same for all of them is looked at once."""
    selector = msgspec.json.decode(criteria.selector, type=LabelSelector) if criteria.selector else LabelSelector()
    pairs, expressions = tuple(selector.match_labels.items()), selector.match_expressions
    least, uid, namespace, tags = criteria.least_bytes, criteria.config_uid, criteria.namespace, criteria.tags

    def test(device: BlockDevice) -> bool:
        status, spec, metadata = device.status, device.spec, device.metadata
        if status.state != ACTIVE or status.claim_state in _TAKEN or spec.claim_ref is not None:
            return False
        if spec.capacity.storage < least or spec.filesystem.fs_type or spec.filesystem.mount_point:
            return False
        labels = metadata.labels
        for key, value in pairs:
            if labels.get(key) != value:
                return False
        if STORAGE_UID_LABEL in labels or labels.get(CONFIG_UID_LABEL, uid) != uid:
            return False
        if metadata.namespace != namespace or metadata.deletion_timestamp is not None:
            return False
        allowed = DEVICE_TAG_LABEL not in labels or tag_is_allowed(labels[DEVICE_TAG_LABEL], tags)
        return allowed and all(requirement.matches(labels) for requirement in expressions)

    return test


def tag_is_allowed(tag: str | None, allowed: Iterable[str]) -> bool:
    """A device without a tag is for everybody, one with an empty tag for nobody."""
    return tag is None or (bool(tag.strip()) and tag in allowed)


def tags_of(annotation: str) -> tuple[str, ...]:
    """From "cstor, ssd"."""
    return tuple(filter(None, (tag.strip() for tag in annotation.split(","))))


def has_foreign_file_system(device: BlockDevice) -> bool:
    return device.spec.filesystem.fs_type not in ("", ZFS_MEMBER)


def is_fast(device: BlockDevice) -> bool:
    """An SSD, or one that says by its path or model that it is NVMe."""
    details = device.spec.details
    if details.drive_type.upper() in _FAST:
        return True
    return device.spec.path.startswith("/dev/nvme") and details.drive_type.upper() != _SLOW


def is_slow(device: BlockDevice) -> bool:
    return device.spec.details.drive_type.upper() == _SLOW
