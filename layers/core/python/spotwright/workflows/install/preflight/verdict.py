"""How a check of the preflight ends."""

import msgspec


class Works(msgspec.Struct, frozen=True):
    """It is as it must be."""

    message: str


class Problem(msgspec.Struct, frozen=True):
    """A deployment would fail, or not do its work; the sentence has the next step."""

    message: str


class Caution(msgspec.Struct, frozen=True):
    """It works, and will not for long; the sentence has the next step."""

    message: str


class NotChecked(msgspec.Struct, frozen=True):
    """It is not known whether it is as it must be."""

    reason: str


type Verdict = Works | Caution | Problem | NotChecked
