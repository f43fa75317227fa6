"""What is wrong with a field of an object."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

type Path = tuple[str | int, ...]
type Problems = Iterator[Problem]

_MOST_LISTED: Final = 12


class Kind(StrEnum):
    """TYPE: a value of another type than the field's. UNKNOWN: no such field. DUPLICATE: a key that a map has twice.
    MISSING: a required field is not there. VALUE: a value that is not allowed. CLEAR: an API server refuses it, but
    what is meant is clear, so that it is planned and noted.
    """

    TYPE = "type"
    UNKNOWN = "unknown"
    DUPLICATE = "duplicate"
    MISSING = "missing"
    VALUE = "value"
    CLEAR = "clear"


class Problem(msgspec.Struct, frozen=True):
    """``path``: of the field; ``text``: what is wrong with it, to follow the path."""

    kind: Kind
    path: Path
    text: str

    def __str__(self) -> str:
        return f"{path_text(self.path)}: {self.text}" if self.path else self.text

    def below(self, path: Path) -> "Problem":
        """The same problem in an object that is at ``path`` of another."""
        return Problem(self.kind, (*path, *self.path), self.text)


def path_text(path: Path) -> str:
    """``spec.containers[0].resources``; keys that are no identifiers stand in brackets."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("_", "").replace("$", "").isalnum() or not text:
            text += f".{part}" if text else part
        else:
            text += f"[{part}]"
    return text


def unknown_field(path: Path, known: Iterable[str]) -> Problem:
    names = sorted(known)
    similar = nearest(str(path[-1]), names)
    hint = f", did you mean {similar}?" if similar else ""
    if not similar and names:
        hint = f"; allowed are {', '.join(names)}" if len(names) <= _MOST_LISTED else ""
    return Problem(Kind.UNKNOWN, path, f"unknown field{hint}")


def missing(path: Path, why: str = "it is required") -> Problem:
    return Problem(Kind.MISSING, path, f"is missing: {why}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The name that was probably meant; "" if none is similar."""
    import difflib  # Slow to import, and rarely needed.

    spelled = {candidate.lower(): candidate for candidate in known}
    similar = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    return spelled[similar[0]] if similar else ""
