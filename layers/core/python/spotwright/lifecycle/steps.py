"""What a step in the life of a NodeClaim changes, as values that a workflow writes."""

from typing import Any

import msgspec

from spotwright.model.kubernetes.meta import Condition


class Event(msgspec.Struct, frozen=True):
    """An Event to record. ``type``: Normal | Warning."""

    type: str
    reason: str
    message: str


class ConditionChange(msgspec.Struct, frozen=True):
    """A condition as it should be; its transition time follows from the condition before."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class Deletion(msgspec.Struct, frozen=True):
    """The claim is to be deleted. ``reason``: as in Karpenter's disrupted metric; ``message``: a sentence."""

    reason: str
    message: str


class StepResult(msgspec.Struct, frozen=True):
    """Where a claim stands: conditions to write, events to record, status fields to set, a log line or ""."""

    condition_changes: tuple[ConditionChange, ...] = ()
    events: tuple[Event, ...] = ()
    status: dict[str, Any] = {}
    log: str = ""


def true_condition(kind: str, message: str = "") -> ConditionChange:
    """A condition that is True has its own type as reason."""
    return ConditionChange(kind, "True", kind, message)


def unknown_condition(kind: str, reason: str, message: str = "") -> ConditionChange:
    return ConditionChange(kind, "Unknown", reason, message or reason)


def false_condition(kind: str, reason: str, message: str = "") -> ConditionChange:
    return ConditionChange(kind, "False", reason, message or reason)


def normal_event(reason: str, message: str) -> Event:
    return Event("Normal", reason, message)


def warning_event(reason: str, message: str) -> Event:
    return Event("Warning", reason, message)


def transition_events(before: tuple[Condition, ...], written: tuple[Condition, ...]) -> tuple[Event, ...]:
    """One Event for each condition whose status changed; its reason is the condition's type."""
    statuses = {condition.type: condition.status for condition in before}
    events = []
    for condition in written:
        was = statuses.get(condition.type, "Unknown")
        if was != condition.status:
            text = f"Status condition transitioned, Type: {condition.type}, Status: {was} -> {condition.status}"
            text += f", Reason: {condition.reason}" + (f", Message: {condition.message}" if condition.message else "")
            events.append(normal_event(condition.type, text))
    return tuple(events)
