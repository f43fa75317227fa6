"""Why an object cannot be read, in words for people who do not know the code."""

import re
from typing import Final

import msgspec

from spotwright.model import quantity, requirements

# What decoding raises when fields are not of their type, or nested more deeply than anything of ours is.
DECODE_ERRORS: Final = (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError)

_OTHER_TYPE: Final = "it is malformed: a field has a value of another type than it must have"
_WRONG_TYPE: Final = re.compile(
    r"Expected `(?P<wanted>[^`]+)`, got `(?P<found>[^`]+)`(?: - at `\$\.?(?P<path>[^`]+)`)?"
)
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>[^`]+)`(?: - at `\$\.?(?P<path>[^`]+)`)?")
_NO_ZONE: Final = re.compile(r"Expected `datetime` with a timezone component(?: - at `\$\.?(?P<path>[^`]+)`)?")
_TYPES: Final = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a map",
    "array": "a list",
    "null": "nothing",
}


class DecodeError(ValueError):
    """An object that cannot be read; the message names the field, its value and what is allowed."""


def describe_error(error: Exception) -> str:
    """Why an object cannot be read. ``error``: one of DECODE_ERRORS."""
    match error:
        case DecodeError() | quantity.QuantityError() | requirements.RequirementError():
            return str(error)
        case msgspec.ValidationError():
            return _describe_type(str(error))
        case KeyError():
            return f"it is malformed: field {error.args[0]} is missing"
        case RecursionError():
            return "it is malformed: it is nested too deeply"
        case OverflowError():
            return "it is malformed: a number is out of range"
        case UnicodeError():
            return "it is malformed: a text is not UTF-8"
    return _OTHER_TYPE


def _describe_type(message: str) -> str:
    if missing := _MISSING.match(message):
        return f"{_field_name('.'.join(filter(None, (missing['path'], missing['field']))))}: is missing"
    if no_zone := _NO_ZONE.match(message):
        return f"{_field_name(no_zone['path'] or '')}: must be a time with its zone, such as 2026-01-01T12:00:00Z"
    found = _WRONG_TYPE.match(message)
    if found is None:
        return _OTHER_TYPE
    field = _field_name(found["path"] or "")
    return f"{field + ': ' if field else ''}must be {_type_names(found['wanted'])}, found {_type_names(found['found'])}"


def _type_names(types: str) -> str:
    """``int | null`` in words."""
    names = [_TYPES.get(name.strip(), "a value of another type") for name in types.split("|")]
    return " or ".join(name for name in names if name != "nothing" or len(names) == 1)


def _field_name(path: str) -> str:
    """``node_selector[...]``, a field of the model, as manifests spell it."""
    return re.sub(r"_([a-z])", lambda letter: letter[1].upper(), path.replace("[...]", ""))
