"""Conditions as they are written: in which order a reader finds them, and that those of others stay."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from spotwright.adapters.kubernetes.conditions import merge_conditions, write_conditions
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.model.kubernetes.meta import Condition, ObjectMeta

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


def test_conditions_of_others_stay_as_they_are() -> None:
    """A NodeClaim's condition may have an empty reason; which one it should have, only its writer knows."""
    claim = ObjectMeta("web-1", uid="uid-1", resource_version="7")
    others = Condition("example.com/Patched", "True", "", "", NOW)
    patched: list[dict[str, Any]] = []

    class Api:
        def call(self, method: str, path: str, *, body: dict[str, Any], content_type: str) -> dict[str, Any]:
            assert (method, path) == ("PATCH", "/claims/web-1/status")
            patched.append(body)
            return body

    api = cast("Transport", Api())
    write_conditions(api, "/claims/web-1", claim, [condition("Launched", 9)], seen={}, now=NOW, known=[others])
    (body,) = patched
    assert [found["reason"] for found in body["status"]["conditions"]] == ["", "Launched"]
