"""The status of what lies between a config and its disks: a phase, a sentence, and one condition."""

from __future__ import annotations

import msgspec

from quartermaster.backends.cstor import reasons
from quartermaster.backends.cstor.hook import NORMAL, WARNING, Document, HookEvent
from quartermaster.backends.cstor.status import Finding, document_of, merged_conditions
from quartermaster.resources.agility import ProgressStatus, StorageProgress
from quartermaster.resources.conditions import find_condition
from quartermaster.resources.model import Object

# Reasons of a Storage that somebody has to look into.
_BAD = (
    reasons.CLAIM_LOST,
    reasons.CLASS_MISSING,
    reasons.SETTINGS_MISSING,
    reasons.NOT_A_CSI_VOLUME,
    reasons.ATTACH_FAILED,
    reasons.DEVICE_AMBIGUOUS,
    reasons.DEVICE_INACTIVE,
    reasons.IN_USE,
    reasons.OWNER_WANTS_IT,
)


class Stage(msgspec.Struct, frozen=True):
    """How far something is, and why no further. It is ready in the phase of that name only."""

    phase: str
    reason: str
    message: str = ""


def progress(old: ProgressStatus | StorageProgress, watch: Object, stage: Stage, now: str) -> Document:
    """The old status with what is known now."""
    generation = watch.metadata.generation
    finding = Finding(reasons.IS_READY, stage.phase == reasons.READY, stage.reason, stage.message)
    return document_of(
        msgspec.structs.replace(
            old,
            phase=stage.phase,
            message=stage.message,
            conditions=merged_conditions(old.conditions, [finding], generation=generation, now=now),
            observed_generation=generation or None,
        )
    )


def disks_stage(ready: int, wanted: int, what: str) -> Stage:
    """Of something that is ready when all of its parts are."""
    done = ready >= wanted
    reason = reasons.DISKS_ACTIVE if done else reasons.DISKS_PENDING
    return Stage(reasons.READY if done else reasons.PENDING, reason, f"{ready} of {wanted} {what}")


def event_of(old: ProgressStatus | StorageProgress, stage: Stage) -> tuple[HookEvent, ...]:
    """An Event when it has become ready, or when somebody has to look into it."""
    before = find_condition(old.conditions, reasons.IS_READY)
    if before is not None and before.reason == stage.reason:
        return ()
    if stage.reason in _BAD:
        return (HookEvent(WARNING, stage.reason, stage.message),)
    return (HookEvent(NORMAL, stage.reason, stage.message),) if stage.phase == reasons.READY else ()
