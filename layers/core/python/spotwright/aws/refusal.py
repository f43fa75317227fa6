"""A "no" of the AWS part, as a value."""

import msgspec


class Refusal(msgspec.Struct, frozen=True):
    """Why something cannot be launched or resolved. ``reason``: one CamelCase word fit for a condition."""

    reason: str
    message: str
