"""AWS's published resource schemas (bundled with cfn-lint): what a type's properties may be.

They decide which properties exist, which are required, and which cannot change without a replacement.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

type Schema = dict[str, Any]


class InvalidProperties(Exception):
    """The properties do not fit the type's schema; the text says where."""


@cache
def _folder() -> Path:
    """cfn-lint's data, found without importing cfn-lint (which takes seconds)."""
    spec = find_spec("cfnlint")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data" / "schemas"


@cache
def _index(region: str) -> dict[str, str]:
    return dict(json.loads((_folder() / "providers" / f"{region}.json").read_text(encoding="utf-8")))


@cache
def resource_schema(resource_type: str, region: str) -> Schema:
    """Raises KeyError for a type that AWS does not have in this region."""
    name = _index(region)[resource_type]
    return dict(json.loads((_folder() / "resources" / f"{name}.json").read_text(encoding="utf-8")))


def requires_replacement(resource_type: str, region: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the change touches a property that can be set only on creation."""
    paths = resource_schema(resource_type, region).get("createOnlyProperties", ())
    return any(_at(before, path) != _at(after, path) for path in paths)


def _at(properties: Any, path: str) -> Any:
    value = properties
    for name in path.removeprefix("/properties/").split("/"):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def validate_properties(resource_type: str, region: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties with texts turned into the numbers and booleans the schema asks for; raises InvalidProperties."""
    root = resource_schema(resource_type, region)
    value = _fit(properties, root, root, "")
    read_only = {path.removeprefix("/properties/") for path in root.get("readOnlyProperties", ())}
    for name in value.keys() & read_only:
        raise InvalidProperties(f"Encountered read-only property {name}")
    return dict(value)


def _fit(value: Any, rule: Schema, root: Schema, path: str) -> Any:
    rule = _followed(rule, root)
    kinds = _listed(rule.get("type", ()))
    if isinstance(value, Mapping) and ("properties" in rule or "object" in kinds):
        return _fit_object(value, rule, root, path)
    if isinstance(value, list) and "array" in kinds:
        return [_fit(item, rule.get("items", {}), root, f"{path}/{n}") for n, item in enumerate(value)]
    value = _converted(value, kinds)
    if kinds and not any(_is_kind(value, kind) for kind in kinds):
        raise InvalidProperties(f"#{path}: expected type: {' or '.join(kinds)}, found: {type(value).__name__}")
    _check_value(value, rule, path)
    return value


def _fit_object(value: Mapping[str, Any], rule: Schema, root: Schema, path: str) -> dict[str, Any]:
    known: Mapping[str, Schema] = rule.get("properties", {})
    missing = [name for name in rule.get("required", ()) if name not in value]
    if missing:
        raise InvalidProperties(f"#{path}: required key [{missing[0]}] not found")
    if known and rule.get("additionalProperties") is False and "patternProperties" not in rule:
        for name in value.keys() - known.keys():
            raise InvalidProperties(f"Encountered unsupported property {name}" + (f" at #{path}" if path else ""))
    return {name: _fit(item, known.get(name, {}), root, f"{path}/{name}") for name, item in value.items()}


def _followed(rule: Schema, root: Schema) -> Schema:
    while "$ref" in rule:
        target: Any = root
        for name in rule["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        rule = target
    return rule


def _converted(value: Any, kinds: list[str]) -> Any:
    """CloudFormation accepts texts for numbers and booleans, and the other way round."""
    match value:
        case "true" | "false" if "boolean" in kinds and "string" not in kinds:
            return value == "true"
        case str() if "string" not in kinds and kinds:
            for kind, number in (("integer", int), ("number", float)):
                if kind in kinds and re.fullmatch(r"-?\d+(\.\d+)?", value):
                    return number(value)
        case bool() if "string" in kinds and "boolean" not in kinds:
            return "true" if value else "false"
        case int() | float() if "string" in kinds and not {"integer", "number", "boolean"} & set(kinds):
            return str(value)
        case dict() if "string" in kinds and "object" not in kinds:
            return json.dumps(value)
    return value


def _is_kind(value: Any, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case _:
            return isinstance(value, Mapping)


def _check_value(value: Any, rule: Schema, path: str) -> None:
    allowed = rule.get("enum")
    if allowed is not None and value not in allowed:
        raise InvalidProperties(f"#{path}: {value!r} is not one of {allowed}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = rule.get("minimum", value), rule.get("maximum", value)
        if not low <= value <= high:
            raise InvalidProperties(f"#{path}: {value} is not between {low} and {high}")
    if isinstance(value, str) and len(value) > rule.get("maxLength", len(value)):
        raise InvalidProperties(f"#{path}: expected maxLength: {rule['maxLength']}, actual: {len(value)}")


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
