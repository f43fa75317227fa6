"""The Condition element: operators, `IfExists`, `ForAllValues:`, `ForAnyValue:`, `Null`.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html. An operator
that is not known here raises UnknownOperator: a condition that is not understood must not pass silently.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

# Condition keys in lower case -> their values (several for set-valued keys).
type Context = Mapping[str, tuple[str, ...]]


class UnknownOperator(Exception):
    """A condition operator this evaluator does not implement."""


def holds(condition: Mapping[str, Mapping[str, Any]], context: Context) -> bool:
    """Whether every operator block holds; keys and operators are ANDed, values ORed."""
    return all(
        _test(operator, key.lower(), _values(expected), context)
        for operator, tests in condition.items()
        for key, expected in tests.items()
    )


def _test(operator: str, key: str, expected: Sequence[str], context: Context) -> bool:
    quantifier, _, name = operator.rpartition(":")
    actual = context.get(key)
    if name == "Null":
        return (actual is None) == (expected[0].lower() == "true")
    if name.endswith("IfExists"):
        if actual is None:
            return True
        name = name.removesuffix("IfExists")
    negated, match = _operator(name)

    def fits(value: str) -> bool:
        return any(match(value, pattern) for pattern in expected) != negated

    if quantifier == "ForAllValues":
        return all(fits(value) for value in actual or ())
    if quantifier == "ForAnyValue":
        return any(fits(value) for value in actual or ())
    if actual is None:
        return negated
    return all(fits(value) for value in actual) if negated else any(fits(value) for value in actual)


def _operator(name: str) -> tuple[bool, Callable[[str, str], bool]]:
    """(whether negated, comparison of an actual value with an expected one)."""
    if name in _NEGATED:
        return True, _OPERATORS[_NEGATED[name]]
    if name not in _OPERATORS:
        raise UnknownOperator(name)
    return False, _OPERATORS[name]


def _values(expected: Any) -> list[str]:
    items = expected if isinstance(expected, list) else [expected]
    return ["true" if item is True else "false" if item is False else str(item) for item in items]


def _like(value: str, pattern: str) -> bool:
    return bool(_glob(pattern).fullmatch(value))


@lru_cache(maxsize=4096)
def _glob(pattern: str) -> re.Pattern[str]:
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in pattern)
    return re.compile("".join(parts), re.DOTALL)


def _when(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()


_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda value, expected: value == expected,
    "StringEqualsIgnoreCase": lambda value, expected: value.lower() == expected.lower(),
    "StringLike": _like,
    "ArnEquals": _like,
    "ArnLike": _like,
    "Bool": lambda value, expected: value.lower() == expected.lower(),
    "NumericEquals": lambda value, expected: float(value) == float(expected),
    "NumericLessThan": lambda value, expected: float(value) < float(expected),
    "NumericLessThanEquals": lambda value, expected: float(value) <= float(expected),
    "NumericGreaterThan": lambda value, expected: float(value) > float(expected),
    "NumericGreaterThanEquals": lambda value, expected: float(value) >= float(expected),
    "DateLessThan": lambda value, expected: _when(value) < _when(expected),
    "DateLessThanEquals": lambda value, expected: _when(value) <= _when(expected),
    "DateGreaterThan": lambda value, expected: _when(value) > _when(expected),
    "DateGreaterThanEquals": lambda value, expected: _when(value) >= _when(expected),
}
_NEGATED = {
    "StringNotEquals": "StringEquals",
    "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
    "StringNotLike": "StringLike",
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
    "NumericNotEquals": "NumericEquals",
}
