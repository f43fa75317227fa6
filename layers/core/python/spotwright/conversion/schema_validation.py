"""A value read by a schema: what it means, what the schema has no word for, and what it must not hold.

Of OpenAPI it knows what ``manifests.schema`` writes, CEL rules aside.
"""

import re
from typing import Any, Final

from spotwright.conversion.remarks import ConversionError, ObjectRemarks, refuse, refuse_missing
from spotwright.manifests.crds.openapi import QUANTITY, Schema
from spotwright.model import quantity

_KINDS: Final[dict[str, tuple[type, str]]] = {
    "object": (dict, "is not an object"),
    "array": (list, "is not a list"),
    "string": (str, "is not text: quote it"),
    "integer": (int, "is not a whole number"),
    "boolean": (bool, "is not true or false"),
}


def apply_schema(value: Any, schema: Schema, path: str, remarks: ObjectRemarks, owner: str) -> Any:
    """The value without fields that are null or unknown; those that are unknown are told.

    ``owner``: whose schema it is, for people. Raises ConversionError.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return _quantity(value, path)
    kind, complaint = _KINDS[schema["type"]]
    if not _fits(value, kind):
        refuse(path, value, complaint)
    match schema["type"]:
        case "object":
            return _object(value, schema, path, remarks, owner)
        case "array":
            _within(len(value), "entries", schema.get("minItems"), schema.get("maxItems"), path)
            return [apply_schema(one, schema["items"], f"{path}[{at}]", remarks, owner) for at, one in enumerate(value)]
        case "string":
            _text(value, schema, path)
        case "integer":
            _number(value, schema, path)
    return value


def _fits(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _object(value: dict[Any, Any], schema: Schema, path: str, remarks: ObjectRemarks, owner: str) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            refuse(path, key, "is not a name: quote it")
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    if (inner := schema.get("additionalProperties")) is not None:
        _within(len(value), "entries", None, schema.get("maxProperties"), path)
        return {key: apply_schema(one, inner, f"{path}[{key}]", remarks, owner) for key, one in value.items()}
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if value.get(name) is None:
            refuse_missing(f"{path}.{name}")
    kept = {}
    for name, one in value.items():
        if name in properties and one is not None:
            kept[name] = apply_schema(one, properties[name], f"{path}.{name}", remarks, owner)
        elif name not in properties:
            remarks.lost(f"{path}.{name}", f"{owner} has no such field{_near(name, properties)}")
    return kept


def _near(name: str, properties: Schema) -> str:
    import difflib  # Slow to import, and seldom needed.

    spelled = {one.lower(): one for one in properties}
    near = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    return f"; did you mean {spelled[near[0]]}?" if near else ""


def _quantity(value: Any, path: str) -> int | str:
    if not _fits(value, int) and not (isinstance(value, str) and re.fullmatch(QUANTITY, value)):
        refuse(path, value, "is not a quantity such as 2, '500m' or '1.5Gi'")
    try:
        quantity.parse(value)
    except quantity.QuantityError as error:
        raise ConversionError(f"{path}: {error}") from None
    found: int | str = value
    return found


def _text(value: str, schema: Schema, path: str) -> None:
    if value not in (allowed := schema.get("enum", (value,))):
        refuse(path, value, f"is not one of {', '.join(allowed)}")
    _within(len(value), "characters", schema.get("minLength"), schema.get("maxLength"), path)
    if (pattern := schema.get("pattern")) and not re.fullmatch(pattern, value):
        refuse(path, value, f"is not spelled as v1 asks{_said(schema)} ({pattern})")


def _said(schema: Schema) -> str:
    return f": {schema['description'].rstrip('.')}" if schema.get("description") else ""


def _number(value: int, schema: Schema, path: str) -> None:
    least, most = schema.get("minimum", -(2**63)), schema.get("maximum", 2**63 - 1)
    if not least <= value <= most:
        refuse(path, value, f"is not between {least} and {most}")


def _within(count: int, what: str, least: int | None, most: int | None, path: str) -> None:
    if least is not None and count < least:
        refuse(path, count, f"{what}: at least {least} is asked for")
    if most is not None and count > most:
        refuse(path, count, f"{what}: at most {most} are allowed")
