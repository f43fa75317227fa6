"""Label selectors as kubectl takes them, with the comparisons of node affinity: ``a=b,c!=d,e in (f,g),!h,cpu>4``."""

import difflib
import re
from collections.abc import Collection, Iterator
from typing import Final

from spotwright.cli import InputError
from spotwright.model.requirements import (
    NodeSelectorRequirement,
    Operator,
    RequirementError,
    Requirements,
    from_expressions,
)

_SYNTAX: Final = (
    "expected key=value, key!=value, key in (a,b), key notin (a,b), key, !key, key>1, key>=1, key<9 or key<=9"
)
_KEY: Final = r"[A-Za-z0-9][A-Za-z0-9._/-]*"
_OF_SET: Final = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_OF_VALUE: Final = re.compile(rf"({_KEY})\s*(!=|==|=|>=|<=|>|<)\s*(\S*)")
_OF_KEY: Final = re.compile(rf"(!?)\s*({_KEY})")
_OPERATORS: Final = {
    "in": Operator.IN, "notin": Operator.NOT_IN, "=": Operator.IN, "==": Operator.IN, "!=": Operator.NOT_IN,
    ">": Operator.GT, ">=": Operator.GTE, "<": Operator.LT, "<=": Operator.LTE,
}  # fmt: skip


def parse_label_selector(text: str, known_keys: Collection[str]) -> Requirements:
    """What a selector asks for; raises InputError.

    ``known_keys``: a key without a prefix stands for the only one of them that ends in it, such as ``instance-cpu``.
    """
    try:
        return from_expressions(_parse(part.strip(), text, known_keys) for part in _split(text))
    except RequirementError as error:
        raise InputError(f"-l {text}: {error}") from None


def _split(text: str) -> Iterator[str]:
    """The parts between commas that are not within parentheses."""
    yield from re.split(r",(?![^()]*\))", text)


def _parse(part: str, text: str, known_keys: Collection[str]) -> NodeSelectorRequirement:
    if match := _OF_SET.fullmatch(part):
        values = tuple(value.strip() for value in match[3].split(","))
        return NodeSelectorRequirement(full_label_key(match[1], known_keys), _OPERATORS[match[2]], values)
    if match := _OF_VALUE.fullmatch(part):
        return NodeSelectorRequirement(full_label_key(match[1], known_keys), _OPERATORS[match[2]], (match[3],))
    if match := _OF_KEY.fullmatch(part):
        operator = Operator.DOES_NOT_EXIST if match[1] else Operator.EXISTS
        return NodeSelectorRequirement(full_label_key(match[2], known_keys), operator)
    raise InputError(f"-l {text}: {part or 'nothing'} is no requirement: {_SYNTAX}")


def full_label_key(key: str, known_keys: Collection[str], option: str = "-l") -> str:
    """The label key that is meant; raises InputError for a label that no instance type has.

    A key without a prefix stands for the only known one that ends in it.
    """
    if key in known_keys:
        return key
    by_name = {known.rpartition("/")[2]: known for known in sorted(known_keys)}
    if key in by_name:
        return by_name[key]
    similar = difflib.get_close_matches(key, [*sorted(known_keys), *by_name], n=1)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    raise InputError(f"{option} {key}: no instance type has a label {key}{hint}")
