"""What a host that asks for a volume is answered. Pure.

A refusal is for good: whoever asked goes away with it, and a wish that nobody waits for any more must not hold a volume
later. What was granted stays granted while the claim has the volume, whatever else changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from quartermaster.provisioning.binding import why_classless
from quartermaster.provisioning.intent import record_of
from quartermaster.provisioning.protocol import (
    BOUND,
    LOST,
    PROVISIONED,
    PROVISIONED_BY,
    SELECTED_NODE,
    find_condition,
    is_deleting,
    mounts_of,
    refers_to,
    type_of,
    waits_for_consumer,
)
from quartermaster.provisioning.topology import hosts_named, reachable
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from quartermaster.resources.mounts import ENDING, GRANTED, REFUSED, WAITING, Mount

_SHARED = ("ReadWriteMany", "ReadOnlyMany")


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """One wish, and all that its answer depends on."""

    mount: Mount
    host: str  # from the name, which is bound to the key; not what the wish says of itself
    labels: Mapping[str, str]  # of the host
    namespace: str  # whose clusters are served here
    claim: PersistentVolumeClaim | None = None
    storage_class: StorageClass | None = None
    classes: Sequence[StorageClass] = ()  # all that there are
    volume: PersistentVolume | None = None  # the one that the claim names


class Answer(msgspec.Struct, frozen=True):
    state: str
    why: str
    volume: str = ""  # on which the mount is to be written down before this is said
    consumer: bool = False  # the claim waits for its first consumer: the host is it


def answer(situation: Situation) -> Answer:
    mount, claim, status = situation.mount, situation.claim, situation.mount.status
    if status.state == REFUSED:
        return Answer(REFUSED, status.message)
    held = status.volume if status.state in (GRANTED, ENDING) else ""
    over = _over(mount, claim, held)
    if claim is None or over:
        return Answer(ENDING, over, held) if held else Answer(REFUSED, over)
    if held:
        return Answer(GRANTED, "", held)
    if claim.status.phase != BOUND or situation.volume is None:
        return _wait(claim, situation)
    why = _why_not_this(claim, situation.volume) or _why_not_here(situation, situation.volume)
    return Answer(REFUSED, why) if why else Answer(GRANTED, "", situation.volume.metadata.name)


def _over(mount: Mount, claim: PersistentVolumeClaim | None, held: str) -> str:
    """Why there is nothing to grant, or no more; "" if there is."""
    named = mount.spec.claim
    if claim is None:
        return f"there is no claim {named}"
    if is_deleting(claim):
        return f"the claim {named} is being deleted"
    if claim.status.phase == LOST:
        return f"the volume of the claim {named} is lost"
    return f"the claim {named} has another volume by now" if held not in ("", claim.spec.volume_name) else ""


def _wait(claim: PersistentVolumeClaim, situation: Situation) -> Answer:
    """A class that is missing may come with its cluster: that is waited for, too."""
    selected = claim.metadata.annotations.get(SELECTED_NODE, "")
    consumer = waits_for_consumer(situation.storage_class) and not selected and not claim.spec.volume_name
    condition = find_condition(claim.status.conditions, PROVISIONED)
    classless = why_classless(claim, situation.classes) if situation.storage_class is None else ""
    made = f"its volume is being made{f' on {selected}' if selected else ''}"
    return Answer(WAITING, condition.message if condition is not None else classless or made, consumer=consumer)


def _why_not_this(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str:
    maker = volume.metadata.annotations.get(PROVISIONED_BY, "")
    if not type_of(maker):
        return f"its volume was made by {maker or 'nobody that is known'}, and only those of Quartermaster are mounted"
    if not refers_to(volume, claim):
        return f"the volume {volume.metadata.name} is not its own"
    return f"its volume {volume.metadata.name} is being deleted" if is_deleting(volume) else ""


def _why_not_here(situation: Situation, volume: PersistentVolume) -> str:
    record, name = record_of(volume), situation.mount.spec.claim.name
    if record is not None and record.cluster.namespace != situation.namespace:
        return f"its volume is of a storage cluster of the namespace {record.cluster.namespace}, and not of this host's"
    if not reachable(volume, situation.labels):
        hosts = ", ".join(hosts_named(volume)) or "other hosts"
        return f"its volume is on {hosts}; run the same command on {hosts}"
    elsewhere = [other for other in mounts_of(volume) if other != situation.host]
    if elsewhere and not any(mode in _SHARED for mode in volume.spec.access_modes):
        return (
            f"it is mounted on {', '.join(elsewhere)}, and its access mode allows one host only; "
            f"`qm volume unmount {name}` there releases it"
        )
    return ""


def type_asked(
    claim: PersistentVolumeClaim, storage_class: StorageClass | None, volume: PersistentVolume | None
) -> str:
    """The storage system of ours that the wish is about; "" while that is not known, or where it is another's."""
    if volume is not None:
        return type_of(volume.metadata.annotations.get(PROVISIONED_BY, ""))
    return type_of(storage_class.provisioner) if storage_class is not None and not claim.spec.volume_name else ""


def paths_on(mounts: Iterable[Mount], host: str, volume: str, *, without: str = "") -> tuple[str, ...]:
    """Where the host has the volume, by its wishes; `without` is the name of one that no longer counts."""
    return tuple(
        sorted(
            {
                mount.spec.path
                for mount in mounts
                if kind_of(Mount).host_of(mount.metadata.name) == host
                and mount.status.volume == volume
                and mount.metadata.name != without
                and not is_deleting(mount)
            }
        )
    )
