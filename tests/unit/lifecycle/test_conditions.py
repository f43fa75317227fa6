"""Conditions: what changes, when its time changes, and what Ready says of the others."""

from datetime import UTC, datetime, timedelta

from spotwright.lifecycle.conditions import NODECLAIM_CONDITIONS, conditions_to_write
from spotwright.lifecycle.steps import (
    ConditionChange,
    false_condition,
    transition_events,
    true_condition,
    unknown_condition,
)
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, find_condition

BORN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = BORN + timedelta(minutes=1)
ABOUT = ObjectMeta("claim", generation=1, creation_timestamp=BORN)


def settled(
    *changes: ConditionChange, before: tuple[Condition, ...] = (), now: datetime = NOW
) -> tuple[Condition, ...]:
    written = conditions_to_write(ABOUT, before, changes, dependents=NODECLAIM_CONDITIONS, now=now)
    kept = tuple(condition for condition in before if condition.type not in {new.type for new in written})
    return (*kept, *written)


def status(conditions: tuple[Condition, ...], kind: str) -> str:
    condition = find_condition(conditions, kind)
    return f"{condition.status} {condition.reason}" if condition else "absent"


def test_dependents_begin_unknown_at_the_objects_creation() -> None:
    first = find_condition(settled(), "Launched")
    assert first == Condition(
        "Launched", "Unknown", "AwaitingReconciliation", "object is awaiting reconciliation", BORN, 1
    )


def test_ready_waits_for_all_and_names_those_it_waits_for() -> None:
    ready = find_condition(settled(true_condition("Launched")), "Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("Unknown", "ReconcilingDependents")
    assert ready.message == "Registered=Unknown, Initialized=Unknown"


def test_ready_is_false_as_soon_as_one_is() -> None:
    assert status(
        settled(true_condition("Launched"), false_condition("Registered", "MultipleNodesFound")), "Ready"
    ) == ("False UnhealthyDependents")


def test_ready_is_true_when_all_are() -> None:
    assert status(settled(*map(true_condition, NODECLAIM_CONDITIONS)), "Ready") == "True Ready"


def test_time_moves_with_the_status_only() -> None:
    before = settled(unknown_condition("Launched", "LaunchFailed", "one"))
    again = settled(
        unknown_condition("Launched", "LaunchFailed", "another"), before=before, now=NOW + timedelta(hours=1)
    )
    first, second = find_condition(before, "Launched"), find_condition(again, "Launched")
    assert first is not None
    assert second is not None
    assert (second.message, second.last_transition_time) == ("another", first.last_transition_time)
    done = find_condition(settled(true_condition("Launched"), before=again, now=NOW + timedelta(hours=2)), "Launched")
    assert done is not None
    assert done.last_transition_time == NOW + timedelta(hours=2)


def test_nothing_is_written_when_nothing_changes() -> None:
    before = settled(true_condition("Launched"))
    assert (
        conditions_to_write(
            ABOUT, before, [true_condition("Launched")], dependents=NODECLAIM_CONDITIONS, now=NOW + timedelta(days=1)
        )
        == ()
    )


def test_a_dependent_of_an_older_generation_counts_as_unknown() -> None:
    before = settled(*map(true_condition, NODECLAIM_CONDITIONS))
    newer = ObjectMeta("pool", generation=2, creation_timestamp=BORN)
    (ready,) = conditions_to_write(newer, before, [], dependents=NODECLAIM_CONDITIONS, now=NOW)
    assert (ready.type, ready.status) == ("Ready", "Unknown")


def test_every_change_of_status_is_an_event_in_karpenters_words() -> None:
    before = settled(true_condition("Launched"))
    written = conditions_to_write(
        ABOUT, before, [true_condition("Registered")], dependents=NODECLAIM_CONDITIONS, now=NOW
    )
    assert [(event.type, event.reason, event.message) for event in transition_events(before, written)] == [
        (
            "Normal",
            "Registered",
            "Status condition transitioned, Type: Registered, Status: Unknown -> True, Reason: Registered",
        )
    ]
