"""What an agent does about an assignment, and what it says of it: pure.

`triggered` it has seen it, `running` it is at it, then `succeeded` or `failed`. What was `running` when an agent died
is run again. What has succeeded is run again quietly, now and then: such a run should change nothing, and only a result
that differs is told.
"""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from quartermaster.resources.marks import OBSERVE_ONLY
from quartermaster.resources.orchestration import (
    FAILED,
    RUNNING,
    SUCCEEDED,
    TRIGGERED,
    Assignment,
    AssignmentStatus,
)

MESSAGE_LIMIT = 1024
NO_AGENT = "NoSuchAgent"  # why an assignment is refused
# In a result: in how many seconds the agent wants to look again, because something is on its way by itself.
AGAIN = "againSeconds"


class Run(msgspec.Struct, frozen=True):
    """Do it. A quiet run tells only what differs from what was told before."""

    action: Literal["configure", "destroy"]
    quiet: bool = False


class Refuse(msgspec.Struct, frozen=True):
    """Leave it alone, and say why; `tell`: in its status, too."""

    message: str
    tell: bool = True


def decide(
    assignment: Assignment, agents: Container[str], *, highest_epoch: int, last: AssignmentStatus | None
) -> Run | Refuse | None:
    """`last` is what this process said of it, which the cache may not show yet; None: nothing."""
    spec = assignment.spec
    if assignment.metadata.deletion_timestamp:
        return None
    if OBSERVE_ONLY in assignment.metadata.annotations:
        return Refuse("it was restored from a backup: a leader has to write it anew", tell=False)
    known = last if last is not None else assignment.status
    if spec.epoch < max(highest_epoch, known.epoch or 0):
        seen = max(highest_epoch, known.epoch or 0)
        return Refuse(f"epoch {spec.epoch} is over: epoch {seen} has been seen here", tell=False)
    if spec.agent not in agents:
        return Refuse(f'cannot do it: no agent named "{spec.agent}" is on this host; is its version too old?')
    current = known.observed_generation == spec.generation
    if spec.absent:
        return None if current and known.state == SUCCEEDED else Run("destroy", quiet=current and known.state == FAILED)
    return Run("configure", quiet=current and known.state in (SUCCEEDED, FAILED))


def triggered(assignment: Assignment) -> AssignmentStatus:
    spec = assignment.spec
    return AssignmentStatus(
        state=TRIGGERED,
        observed_generation=spec.generation,
        epoch=spec.epoch,
        # What was reported last is still what is there.
        result=assignment.status.result,
    )


def running(status: AssignmentStatus, *, now: str, message: str = "") -> AssignmentStatus:
    return replace(status, state=RUNNING, started=status.started or now, finished=None, message=message, reason="")


def succeeded(status: AssignmentStatus, result: dict[str, Any] | None, *, now: str) -> AssignmentStatus:
    """The very same status where it says so already, whatever the time."""
    if status.state == SUCCEEDED and status.result == result and not status.message:
        return status
    return replace(status, state=SUCCEEDED, message="", reason="", result=result, finished=now)


def failed(status: AssignmentStatus, message: str, *, now: str, reason: str = "") -> AssignmentStatus:
    text = message[:MESSAGE_LIMIT]
    if (status.state, status.message, status.reason) == (FAILED, text, reason):
        return status
    return replace(status, state=FAILED, message=text, reason=reason, finished=now)


def again_after_s(status: AssignmentStatus) -> float:
    """When a finished run is to be repeated, by its own word; infinite where it says nothing."""
    wanted = (status.result or {}).get(AGAIN)
    return max(0.5, float(wanted)) if isinstance(wanted, int | float) else math.inf
