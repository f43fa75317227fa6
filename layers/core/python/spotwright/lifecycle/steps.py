"""What a step in the life of a NodeClaim changes, as values that a workflow writes."""

from typing import Any

import msgspec

from spotwright.model.kubernetes.meta import Condition
from spotwright.telemetry import events
from spotwright.telemetry.rows import Event, LogLine


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
    """Where a claim stands: conditions to write, events to record, status fields to set, the line to log."""

    condition_changes: tuple[ConditionChange, ...] = ()
    events: tuple[Event, ...] = ()
    status: dict[str, Any] = {}
    log: LogLine | None = None


def true_condition(kind: str, message: str = "") -> ConditionChange:
    """A condition that is True has its own type as reason."""
    return ConditionChange(kind, "True", kind, message)


def unknown_condition(kind: str, reason: str, message: str = "") -> ConditionChange:
    return ConditionChange(kind, "Unknown", reason, message or reason)


def false_condition(kind: str, reason: str, message: str = "") -> ConditionChange:
    return ConditionChange(kind, "False", reason, message or reason)


def transition_events(before: tuple[Condition, ...], written: tuple[Condition, ...]) -> tuple[Event, ...]:
    """One Event for each condition whose status changed; its reason is the condition's type."""
    statuses = {condition.type: condition.status for condition in before}
    return tuple(
        events.CONDITION_TRANSITIONED(
            type=condition.type,
            before=status,
            status=condition.status,
            reason=condition.reason,
            details=f", Message: {condition.message}" if condition.message else "",
        )
        for condition in written
        if (status := statuses.get(condition.type, "Unknown")) != condition.status
    )
