"""A "no" of the AWS part, or no answer at all, as values."""

import msgspec


class Refusal(msgspec.Struct, frozen=True):
    """Why something cannot be launched or resolved. ``reason``: one CamelCase word fit for a condition."""

    reason: str
    message: str


class Unanswered(msgspec.Struct, frozen=True):
    """Nobody could say: no "no", and nothing that was known before becomes wrong by it."""

    message: str
