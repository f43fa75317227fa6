"""Remarks of a conversion: what is lost, what the user must do, and what else is worth knowing."""

from enum import StrEnum
from typing import Final, NoReturn

import msgspec

from spotwright.model.quoting import quote


class ConversionError(ValueError):
    """A field that cannot be converted; the message names field, value and what is allowed.

    ``origin``: which of the objects it is in, once that is known.
    """

    origin: int = -1


class Level(StrEnum):
    """LOST: v1 has no such field. TO_DO: the result does not work until the user does this. NOTE: good to know."""

    LOST = "lost"
    TO_DO = "to do"
    NOTE = "note"


class Remark(msgspec.Struct, frozen=True):
    """``path``: the field that the remark is about, "" = the whole object."""

    level: Level
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class ObjectRemarks:
    """Collects the remarks about an object. ``origin``: its index among the objects."""

    def __init__(self, origin: int) -> None:
        self.origin: Final = origin
        self.remarks: list[Remark] = []

    def lost(self, path: str, text: str) -> None:
        self.remarks.append(Remark(Level.LOST, path, text))

    def to_do(self, path: str, text: str) -> None:
        self.remarks.append(Remark(Level.TO_DO, path, text))

    def note(self, path: str, text: str) -> None:
        self.remarks.append(Remark(Level.NOTE, path, text))


def refuse(path: str, value: object, allowed: str) -> NoReturn:
    """Raise the error about a value."""
    raise ConversionError(f"{path}: {quote(value)} {allowed}")


def refuse_missing(path: str, why: str = "it is required") -> NoReturn:
    """Raise the error about a missing field."""
    raise ConversionError(f"{path} is missing: {why}")
