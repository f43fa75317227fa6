"""How deep the values of a text are nested: reading them takes a stack, which ends the process when it is used up."""

import re
from typing import Final

MOST_NESTED: Final = 200
_BRACKETS: Final = re.compile(r"[\[\]{}]")


def deepest_brackets(text: str) -> int:
    """How deep brackets are nested, those in quoted texts among them: never less than the values are."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
