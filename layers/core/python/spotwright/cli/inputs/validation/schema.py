"""Validates a value by an OpenAPI schema: of Kubernetes' own kinds, or of a CustomResourceDefinition."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from math import isfinite
from typing import Any, Final

from spotwright.cli.inputs.validation.problems import (
    Kind,
    Path,
    Problem,
    Problems,
    missing,
    nearest,
    unknown_field,
)
from spotwright.model import quantity
from spotwright.model.quoting import quote

type Schema = Mapping[str, Any]
# Checks of an object beyond its schema.
type Rule = Callable[[Any, Path], Problems]

_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_PRESERVED: Final = "x-kubernetes-preserve-unknown-fields"
_RULES: Final = "x-kubernetes-validations"
_TYPES: Final = {"object": dict, "array": list, "string": str, "boolean": bool}
_TYPE_NAMES: Final = {
    "object": "an object with fields",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
}
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/\r\n]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\s*")


class SchemaValidator:
    """``definitions``: what a ``$ref`` means. ``rules``: definition → checks beyond the schema of such a value, made
    where the schema holds. ``expressions``: evaluates the CEL rules of a schema.
    """

    def __init__(
        self,
        definitions: Mapping[str, Schema],
        rules: Mapping[str, Rule],
        expressions: Callable[[Any, Schema, Path], Problems],
    ) -> None:
        self._definitions = definitions
        self._rules = rules
        self._expressions = expressions

    def problems(self, value: Any, schema: Schema, path: Path) -> Problems:
        """Everything that is wrong with the value; nothing if it is valid."""
        name = schema.get("$ref")
        if name == _QUANTITY or schema.get("x-kubernetes-int-or-string"):
            yield from _quantity_problems(value, schema, path)
            return
        if name is None:
            yield from self._by_type(value, schema, path)
            return
        found = list(self._by_type(value, self._definitions[name], path))
        yield from found
        rule = self._rules.get(name)
        if rule is not None and not any(problem.kind is Kind.TYPE for problem in found):
            yield from rule(value, path)

    def _by_type(self, value: Any, schema: Schema, path: Path) -> Problems:
        kind = schema.get("type")
        if kind is None:
            return
        if schema.get("format") == "int-or-string":
            if not isinstance(value, str) and not (_is_integer(value) and -(2**31) <= value < 2**31):
                yield Problem(Kind.TYPE, path, f"{quote(value)} is neither a whole number of 32 bits nor text")
            return
        if not _is_of_type(value, kind):
            advice = _advice(value, schema) if kind == "string" and isinstance(value, bool | int | float) else ""
            yield Problem(Kind.TYPE, path, f"{quote(value)} is not {_TYPE_NAMES[kind]}{advice}")
            return
        found = list(self._inner(value, kind, schema, path))
        yield from found
        if _RULES in schema and not found:
            yield from self._expressions(value, schema, path)

    def _inner(self, value: Any, kind: str, schema: Schema, path: Path) -> Problems:
        match kind:
            case "object":
                yield from self._object(value, schema, path)
            case "array":
                yield from self._array(value, schema, path)
            case "string":
                yield from _text_problems(value, schema, path)
            case _:
                yield from _number_problems(value, schema, path)

    def _object(self, value: dict[str, Any], schema: Schema, path: Path) -> Problems:
        yield from _count_problems(len(value), "entries", schema, path)
        properties = schema.get("properties")
        inner = schema.get("additionalProperties")
        if isinstance(inner, Mapping):
            for key, item in value.items():
                if item is not None:
                    yield from self.problems(item, inner, (*path, key))
            return
        if properties is None:
            return
        for name in schema.get("required", ()):
            if value.get(name) is None and "default" not in properties[name]:
                yield missing((*path, name))
        for name, item in value.items():
            if name not in properties:
                if not schema.get(_PRESERVED):
                    yield unknown_field((*path, name), properties)
            elif item is not None:
                yield from self.problems(item, properties[name], (*path, name))

    def _array(self, value: list[Any], schema: Schema, path: Path) -> Problems:
        yield from _count_problems(len(value), "items", schema, path)
        items = schema["items"]
        for index, item in enumerate(value):
            # Of Kubernetes' own kinds, the API server reads null in a list as an empty value.
            is_null = item is None and bool(self._definitions)
            yield from self.problems(_empty(items, self._definitions) if is_null else item, items, (*path, index))
        yield from _repeated_items(value, schema, path)


def _advice(value: bool | float, schema: Schema) -> str:
    """What to write where text is expected; quotes alone do not help a duration without its unit."""
    pattern = schema.get("pattern")
    if not pattern or re.fullmatch(pattern, str(value)):
        return " (quote it)"
    return _duration_hint(str(value), pattern) or f" that matches the pattern {pattern}{_meaning(schema)}"


def _duration_hint(text: str, pattern: str) -> str:
    """What to write for a duration: a unit for a number alone, hours for days; "" for any other text or pattern."""
    number = re.fullmatch(r"([0-9]{1,9})(d?)", text)
    if number is None or not re.fullmatch(pattern, f"{number[1]}h"):
        return ""
    if number[2]:
        return f", did you mean {int(number[1]) * 24}h?"
    return f", a unit is missing, such as {text}s or {text}h"


def _empty(schema: Schema, definitions: Mapping[str, Schema]) -> Any:
    kind = definitions.get(schema.get("$ref", ""), schema).get("type")
    return {"object": {}, "array": [], "string": ""}.get(str(kind))


def _is_integer(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value) and value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_of_type(value: Any, kind: str) -> bool:
    if kind == "integer":
        return _is_integer(value)
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return isinstance(value, _TYPES[kind])


def _quantity_problems(value: Any, schema: Schema, path: Path) -> Problems:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        yield Problem(Kind.TYPE, path, f"{quote(value)} is not a quantity such as 2, 500m or 1.5Gi")
        return
    if "x-kubernetes-int-or-string" in schema and isinstance(value, float) and not value.is_integer():
        yield Problem(Kind.TYPE, path, f"{quote(value)} is neither a whole number nor text: quote it")
        return
    pattern = schema.get("pattern")
    if (isinstance(value, str) and pattern and not re.fullmatch(pattern, value)) or not _is_quantity(value):
        yield Problem(Kind.TYPE, path, f"{quote(value)} is not a quantity such as 2, 500m or 1.5Gi")


def _is_quantity(value: str | float) -> bool:
    try:
        quantity.parse(value)
    except quantity.QuantityError:
        return False
    return True


def _text_problems(value: str, schema: Schema, path: Path) -> Problems:
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        yield not_allowed(path, value, allowed)
        return
    yield from _count_problems(len(value), "characters", schema, path)
    pattern = schema.get("pattern")
    if pattern and not re.fullmatch(pattern, value):
        hint = f"{_meaning(schema)}{_duration_hint(value, pattern)}"
        yield Problem(Kind.VALUE, path, f"{quote(value)} does not match the pattern {pattern}{hint}")
    if schema.get("format") == "date-time" and not _is_time(value):
        yield Problem(Kind.TYPE, path, f"{quote(value)} is not a time such as 2026-01-01T12:00:00Z")
    if schema.get("format") == "byte" and not _BASE64.fullmatch(value):
        yield Problem(Kind.TYPE, path, "is not base64")


def not_allowed(path: Path, value: Any, allowed: "list[str] | tuple[str, ...]") -> Problem:
    """A value that is not one of those allowed, with the one that was probably meant."""
    similar = nearest(value, allowed) if isinstance(value, str) and len(allowed) > 1 else ""
    hint = f", did you mean {similar}?" if similar else ""
    return Problem(Kind.VALUE, path, f"{quote(value)} is not one of {', '.join(allowed)}{hint}")


def _meaning(schema: Schema) -> str:
    return f": {schema['description'].rstrip('.')}" if schema.get("description") else ""


def _is_time(value: str) -> bool:
    try:
        return bool(value) and "T" in value and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _number_problems(value: Any, schema: Schema, path: Path) -> Problems:
    if isinstance(value, bool):
        return
    size = {"int32": 2**31, "int64": 2**63}.get(schema.get("format", ""), 2**63)
    least, most = schema.get("minimum", -size), schema.get("maximum", size - 1)
    if schema.get("type") == "integer" and not least <= value <= most:
        kind = Kind.VALUE if -size <= value < size else Kind.TYPE
        if most == size - 1 and value < least:
            yield Problem(kind, path, f"{quote(value)} is less than {least}")
        else:
            yield Problem(kind, path, f"{quote(value)} is not between {least} and {most}")


_COUNTS: Final = {
    "entries": ("minProperties", "maxProperties"),
    "items": ("minItems", "maxItems"),
    "characters": ("minLength", "maxLength"),
}


def _count_problems(count: int, what: str, schema: Schema, path: Path) -> Problems:
    least, most = (schema.get(name) for name in _COUNTS[what])
    if least is not None and count < least:
        yield Problem(Kind.VALUE, path, f"has {count} {what}: at least {least} must be there")
    if most is not None and count > most:
        yield Problem(Kind.VALUE, path, f"has {count} {what}: at most {most} are allowed")


def _repeated_items(value: list[Any], schema: Schema, path: Path) -> Problems:
    """Items of a set, or of a list that is a map by keys of its items, that are there twice."""
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys", ())
    if kind not in ("set", "map"):
        return
    seen: list[Any] = []
    for index, item in enumerate(value):
        key = [item.get(name) for name in keys] if kind == "map" and isinstance(item, dict) else item
        if key in seen:
            yield Problem(Kind.VALUE, (*path, index), f"{quote(key)} is there already")
        seen.append(key)
