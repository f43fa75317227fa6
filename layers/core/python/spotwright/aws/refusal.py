"""Why something cannot be resolved or launched, or that AWS did not answer, as values."""

import msgspec


class Refusal(msgspec.Struct, frozen=True):
    """Why something cannot be launched or resolved. ``reason``: one CamelCase word fit for a condition."""

    reason: str
    message: str


class Unanswered(msgspec.Struct, frozen=True):
    """AWS did not answer: what was resolved before stays as it is."""

    message: str
