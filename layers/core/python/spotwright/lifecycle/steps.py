"""What a step of the life of a claim consists of, as values that a workflow carries out."""

from typing import Any

import msgspec

from spotwright.model.kubernetes.meta import Condition


class Note(msgspec.Struct, frozen=True):
    """An Event to record. ``type``: Normal | Warning."""

    type: str
    reason: str
    message: str


class Change(msgspec.Struct, frozen=True):
    """A condition as it should be; when it last changed follows from what it was."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class Delete(msgspec.Struct, frozen=True):
    """The claim is to be deleted. ``reason`` in the words of Karpenter's disrupted metric; ``why``: a sentence."""

    reason: str
    why: str


class Seen(msgspec.Struct, frozen=True):
    """Where a claim stands: conditions to write, events to record, status fields to set, a log line or ""."""

    changes: tuple[Change, ...] = ()
    notes: tuple[Note, ...] = ()
    status: dict[str, Any] = {}
    log: str = ""


def true(kind: str, message: str = "") -> Change:
    """A condition that is True has its own type as reason."""
    return Change(kind, "True", kind, message)


def unknown(kind: str, reason: str, message: str = "") -> Change:
    return Change(kind, "Unknown", reason, message or reason)


def false(kind: str, reason: str, message: str = "") -> Change:
    return Change(kind, "False", reason, message or reason)


def normal(reason: str, message: str) -> Note:
    return Note("Normal", reason, message)


def warning(reason: str, message: str) -> Note:
    return Note("Warning", reason, message)


def transitions(before: tuple[Condition, ...], written: tuple[Condition, ...]) -> tuple[Note, ...]:
    """One Event for each condition whose status changed; its reason is the condition's type."""
    statuses = {one.type: one.status for one in before}
    notes = []
    for one in written:
        was = statuses.get(one.type, "Unknown")
        if was != one.status:
            text = f"Status condition transitioned, Type: {one.type}, Status: {was} -> {one.status}"
            text += f", Reason: {one.reason}" + (f", Message: {one.message}" if one.message else "")
            notes.append(normal(one.type, text))
    return tuple(notes)
