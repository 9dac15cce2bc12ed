"""Conditions: a list that is a map by type, in which times move only when a status does."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from quartermaster.resources.model import Condition
from quartermaster.support import clock


def find_condition(conditions: Iterable[Condition], type: str) -> Condition | None:
    for condition in conditions:
        if condition.type == type:
            return condition
    return None


def is_true(conditions: Iterable[Condition], type: str) -> bool:
    found = find_condition(conditions, type)
    return found is not None and found.status == "True"


def set_condition(
    conditions: tuple[Condition, ...],
    *,
    type: str,
    status: bool | str,
    reason: str = "",
    message: str = "",
    generation: int | None = None,
    now: str = "",
) -> tuple[Condition, ...]:
    """The conditions with this one in its place. The very same tuple comes back when nothing changed.

    `status` is "True", "False", "Unknown" or a bool; `now` is the time to note, the clock's if "".
    """
    text = str(status)
    old = find_condition(conditions, type)
    wanted = Condition(
        type=type,
        status=text,
        reason=reason,
        message=message,
        observed_generation=generation,
        last_transition_time=old.last_transition_time if old is not None and old.status == text else None,
    )
    if old == wanted:
        return conditions
    if wanted.last_transition_time is None:
        wanted = msgspec.structs.replace(wanted, last_transition_time=now or clock.timestamp())
    if old is None:
        return (*conditions, wanted)
    return tuple(wanted if condition is old else condition for condition in conditions)


def remove_condition(conditions: tuple[Condition, ...], type: str) -> tuple[Condition, ...]:
    kept = tuple(condition for condition in conditions if condition.type != type)
    return kept if len(kept) != len(conditions) else conditions
