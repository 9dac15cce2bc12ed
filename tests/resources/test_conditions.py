"""A condition's time moves only when its status does."""

from quartermaster.resources.conditions import find_condition, is_true, remove_condition, set_condition
from quartermaster.resources.model import Condition

NOON = "2024-05-01T12:00:00Z"
LATER = "2024-05-01T13:00:00Z"
READY = set_condition((), type="Ready", status=True, reason="Fine", message="all is well", generation=1, now=NOON)


def test_a_new_condition_is_appended_with_its_time() -> None:
    assert (
        Condition(
            type="Ready",
            status="True",
            reason="Fine",
            message="all is well",
            observed_generation=1,
            last_transition_time=NOON,
        ),
    ) == READY


def test_nothing_changed_gives_the_very_same_tuple() -> None:
    again = set_condition(
        READY, type="Ready", status="True", reason="Fine", message="all is well", generation=1, now=LATER
    )
    assert again is READY


def test_another_reason_keeps_the_time() -> None:
    (condition,) = set_condition(READY, type="Ready", status=True, reason="Better", generation=2, now=LATER)
    assert condition.last_transition_time == NOON
    assert condition.reason == "Better"
    assert condition.observed_generation == 2


def test_another_status_takes_the_new_time_and_keeps_the_place() -> None:
    both = set_condition(READY, type="Degraded", status=False, now=NOON)
    changed = set_condition(both, type="Ready", status=False, reason="Broken", now=LATER)
    assert [condition.type for condition in changed] == ["Ready", "Degraded"]
    assert changed[0].last_transition_time == LATER
    assert changed[1] is both[1]


def test_conditions_are_found_and_removed_by_type() -> None:
    assert is_true(READY, "Ready")
    assert not is_true(READY, "Degraded")
    assert find_condition(READY, "Degraded") is None
    assert remove_condition(READY, "Ready") == ()
    assert remove_condition(READY, "Degraded") is READY
