"""Values of expressions and what can be done with them, by the rules of the Common Expression Language.

Integers have 64 bits, division of integers cuts towards zero, and values of different kinds do not mix.
"""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from spotwright.model.quoting import quote

type Value = bool | int | float | str | tuple[Value, ...] | Mapping[str, Value]

_LARGEST: Final = 2**63


class ExpressionError(ValueError):
    """An expression that cannot be read, or that has no number as its result here; says why."""


def check_int64(number: int) -> int:
    if not -_LARGEST <= number < _LARGEST:
        raise ExpressionError("an integer beyond 64 bits")
    return number


def check_bool(value: Value, sign: str) -> bool:
    if not isinstance(value, bool):
        raise ExpressionError(f"{sign} takes true or false, not {type_name(value)}")
    return value


def apply_operator(sign: str, left: Value, right: Value) -> Value:
    if sign == "in":
        if not isinstance(right, tuple | Mapping):
            raise ExpressionError(f"in looks into a list, not into {type_name(right)}")
        return left in right
    if type_name(left) != type_name(right):
        raise ExpressionError(f"{type_name(left)} {sign} {type_name(right)}: the two do not mix")
    if sign in ("==", "!="):
        return (left == right) == (sign == "==")
    if isinstance(left, bool | tuple | Mapping):
        raise ExpressionError(f"{sign} does not take {type_name(left)}")
    if isinstance(left, str) and isinstance(right, str):
        return _compare(sign, left, right) if sign != "+" else left + right
    if isinstance(left, str) or isinstance(right, str | tuple | Mapping):
        raise ExpressionError(f"{sign} does not take {type_name(left)}")
    return _compare(sign, left, right) if sign[0] in "<>" else _calculate(sign, left, right)


def _compare[Ordered: (str, float)](sign: str, left: Ordered, right: Ordered) -> bool:
    match sign:
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
    raise ExpressionError(f"{sign} does not take strings")


_SIMPLE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _calculate(sign: str, left: float, right: float) -> Value:
    if isinstance(left, int) and isinstance(right, int):
        return check_int64(_calculate_integers(sign, left, right))
    if sign in _SIMPLE:
        result: float = _SIMPLE[sign](left, right)
        return result
    if sign == "/":
        return left / right if right else math.nan if left == 0 else math.copysign(math.inf, left)
    raise ExpressionError(f"{sign} does not take doubles")


def _calculate_integers(sign: str, left: int, right: int) -> int:
    if sign in _SIMPLE:
        result: int = _SIMPLE[sign](left, right)
        return result
    if right == 0:
        raise ExpressionError("division by zero")
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if sign == "/" else left - quotient * right


def call_function(name: str, arguments: tuple[Value, ...]) -> Value:
    match name, arguments:
        case (("min" | "max"), (_, *_)) if len({type_name(value) for value in arguments}) == 1:
            numbers = [value for value in arguments if isinstance(value, int | float) and not isinstance(value, bool)]
            if len(numbers) == len(arguments):
                return min(numbers) if name == "min" else max(numbers)
        case (("int" | "double"), (int() | float() | str() as one,)) if not isinstance(one, bool):
            return _convert(name, one)
        case "size", (str() | tuple() | Mapping() as one,):
            return len(one)
        case "startsWith", (str() as one, str() as part):
            return one.startswith(part)
        case "endsWith", (str() as one, str() as part):
            return one.endswith(part)
        case "contains", (str() as one, str() as part):
            return part in one
    given = ", ".join(type_name(value) for value in arguments) or "nothing"
    raise ExpressionError(f"{name} does not take {given}")


def _convert(name: str, value: float | str) -> Value:
    try:
        return check_int64(int(value)) if name == "int" else float(value)
    except (ValueError, OverflowError):
        raise ExpressionError(f"{name}({quote(value)}) is not a number that it can hold") from None


def type_name(value: Value) -> str:
    match value:
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a double"
        case str():
            return "a string"
        case Mapping():
            return "a map"
    return "a list"
