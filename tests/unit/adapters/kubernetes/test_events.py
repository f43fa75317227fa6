"""Recording Events: what a process remembers of the Events that it recorded."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from spotwright.adapters.kubernetes import events as kubernetes_events
from spotwright.adapters.kubernetes.events import EventRecorder
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.errors import Unavailable
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.telemetry import events

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE = ObjectMeta("node-1", uid="uid-1")


class FakeTransport:
    """Counts the requests, of which the first ``failures`` fail."""

    def __init__(self, failures: int = 0) -> None:
        self.requests, self._failures = 0, failures
        self.names: list[str] = []

    def call(self, method: str, path: str, *, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.requests += 1
        self.names.append(body["metadata"]["name"])
        if self.requests <= self._failures:
            raise Unavailable("no answer")
        return {}


def record(recorder: EventRecorder, message: str, after: timedelta = timedelta()) -> None:
    recorder.record("nodes", NODE, events.FAILED_DRAINING(reason=message), now=NOW + after)


def test_an_event_that_failed_to_be_recorded_is_recorded_at_its_repeat() -> None:
    transport = FakeTransport(failures=1)
    recorder = EventRecorder(cast("Transport", transport))
    for _ in range(3):
        record(recorder, "a")
    assert transport.requests == 2


def test_an_event_is_recorded_again_after_the_time_of_its_row() -> None:
    transport = FakeTransport()
    recorder = EventRecorder(cast("Transport", transport))
    for after in (timedelta(), events.FAILED_DRAINING.repeat_after):
        record(recorder, "a", after)
    assert transport.requests == 2


def test_events_that_may_be_repeated_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_events, "FORGET_AT", 20)
    recorder = EventRecorder(cast("Transport", FakeTransport()))
    for minute in range(100):
        record(recorder, f"message {minute}", timedelta(minutes=minute))
    assert len(recorder._silent_until) <= 20


def test_what_happens_in_the_same_second_is_listed_in_the_order_of_a_life() -> None:
    """Events are listed by name, and kubectl keeps that order where times are equal."""
    transport = FakeTransport()
    recorder = EventRecorder(cast("Transport", transport))
    life = (
        *("Launched", "Registered", "Initialized", "Ready", "Consolidatable", "Drifted", "DisruptionReason"),
        *("Drained", "VolumesDetached", "InstanceTerminating"),
    )
    for type in life:
        transition = events.CONDITION_TRANSITIONED(type=type, before="Unknown", status="True", reason=type, details="")
        recorder.record("nodeclaims", NODE, transition, now=NOW)
    recorder.record("nodeclaims", NODE, events.FINALIZED(finalizer="karpenter.sh/termination"), now=NOW)
    assert transport.names == sorted(transport.names)


@pytest.mark.parametrize("name", ["x" * 253, "x" * 233 + "-" + "y" * 19, "x" * 234 + "." + "y" * 18])
def test_the_event_of_an_object_with_the_longest_name_has_a_name_that_is_allowed(name: str) -> None:
    transport = FakeTransport()
    recorder = EventRecorder(cast("Transport", transport))
    recorder.record("pods", ObjectMeta(name, "default", uid="u"), events.EVICTED(reason="Drifted"), now=NOW)
    (event,) = transport.names
    assert len(event) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", event)
