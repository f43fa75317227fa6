"""Validates a value by an OpenAPI schema, and prunes unknown fields with a remark.

Supports what ``manifests.crds.openapi`` writes, without CEL rules.
"""

import re
from typing import Any, Final

from spotwright.conversion.remarks import ConversionError, ObjectRemarks, refuse, refuse_missing
from spotwright.manifests.crds.openapi import QUANTITY, Schema
from spotwright.model import quantity

_KINDS: Final[dict[str, tuple[type, str]]] = {
    "object": (dict, "is not an object"),
    "array": (list, "is not a list"),
    "string": (str, "is not text"),
    "integer": (int, "is not a whole number"),
    "boolean": (bool, "is not true or false"),
}


def apply_schema(value: Any, schema: Schema, path: str, remarks: ObjectRemarks, owner: str) -> Any:
    """The value without null and unknown fields; unknown fields become remarks.

    ``owner``: version and kind of the schema, for messages. Raises ConversionError.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return _check_quantity(value, path)
    kind, complaint = _KINDS[schema["type"]]
    if not _is_of_type(value, kind):
        is_scalar = isinstance(value, bool | int | float)
        refuse(path, value, f"{complaint}: quote it" if kind is str and is_scalar else complaint)
    match schema["type"]:
        case "object":
            return _check_object(value, schema, path, remarks, owner)
        case "array":
            _check_count(len(value), "entries", schema.get("minItems"), schema.get("maxItems"), path)
            return [
                apply_schema(item, schema["items"], f"{path}[{index}]", remarks, owner)
                for index, item in enumerate(value)
            ]
        case "string":
            _check_text(value, schema, path)
        case "integer":
            _check_number(value, schema, path)
    return value


def _is_of_type(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _check_object(
    value: dict[Any, Any], schema: Schema, path: str, remarks: ObjectRemarks, owner: str
) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            refuse(path, key, "is not a name: quote it")
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    if (inner := schema.get("additionalProperties")) is not None:
        _check_count(len(value), "entries", None, schema.get("maxProperties"), path)
        return {key: apply_schema(item, inner, f"{path}[{key}]", remarks, owner) for key, item in value.items()}
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if value.get(name) is None:
            refuse_missing(f"{path}.{name}")
    kept = {}
    for name, item in value.items():
        if name in properties and item is not None:
            kept[name] = apply_schema(item, properties[name], f"{path}.{name}", remarks, owner)
        elif name not in properties:
            remarks.lost(f"{path}.{name}", f"{owner} has no such field{_suggestion(name, properties)}")
    return kept


def _suggestion(name: str, properties: Schema) -> str:
    import difflib  # Slow to import, and rarely needed.

    spelled = {name.lower(): name for name in properties}
    similar = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    return f"; did you mean {spelled[similar[0]]}?" if similar else ""


def _check_quantity(value: Any, path: str) -> int | str:
    if not _is_of_type(value, int) and not (isinstance(value, str) and re.fullmatch(QUANTITY, value)):
        refuse(path, value, "is not a quantity such as 2, '500m' or '1.5Gi'")
    try:
        quantity.parse(value)
    except quantity.QuantityError as error:
        raise ConversionError(f"{path}: {error}") from None
    checked: int | str = value
    return checked


def _check_text(value: str, schema: Schema, path: str) -> None:
    if value not in (allowed := schema.get("enum", (value,))):
        refuse(path, value, f"is not one of {', '.join(allowed)}")
    _check_count(len(value), "characters", schema.get("minLength"), schema.get("maxLength"), path)
    if (pattern := schema.get("pattern")) and not re.fullmatch(pattern, value):
        refuse(path, value, f"does not match the pattern {pattern}{_description(schema)}")


def _description(schema: Schema) -> str:
    return f": {schema['description'].rstrip('.')}" if schema.get("description") else ""


def _check_number(value: int, schema: Schema, path: str) -> None:
    least, most = schema.get("minimum", -(2**63)), schema.get("maximum", 2**63 - 1)
    if not least <= value <= most:
        refuse(path, value, f"is not between {least} and {most}")


def _check_count(count: int, what: str, least: int | None, most: int | None, path: str) -> None:
    if least is not None and count < least:
        refuse(path, count, f"{what}: at least {least} is asked for")
    if most is not None and count > most:
        refuse(path, count, f"{what}: at most {most} are allowed")
