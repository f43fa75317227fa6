"""Conditions as they are written: in which order a reader finds them."""

from datetime import UTC, datetime, timedelta

from spotwright.adapters.kubernetes.conditions import merge_conditions
from spotwright.model.kubernetes.meta import Condition

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def condition(type: str, seconds: int = 0) -> Condition:
    return Condition(type, "True", type, last_transition_time=NOW + timedelta(seconds=seconds))


def test_conditions_stand_in_the_order_in_which_they_came_and_ready_at_the_end() -> None:
    first = merge_conditions([], [condition("Initialized", 9), condition("Launched"), condition("Ready", 9)], now=NOW)
    after = merge_conditions(first, [condition("ConsistentStateFound", 9), condition("Registered", 5)], now=NOW)
    assert [found["type"] for found in after] == [
        "Launched", "Registered", "Initialized", "ConsistentStateFound", "Ready",
    ]  # fmt: skip


def test_conditions_in_another_order_that_do_not_change_are_not_written_again() -> None:
    before = merge_conditions([], [condition("Launched"), condition("Ready")], now=NOW)[::-1]
    assert merge_conditions(before, [condition("Launched")], now=NOW) == before
