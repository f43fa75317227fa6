"""`kubectl explain` says something about every field, and before the fields inside it."""

from collections.abc import Iterator
from typing import Any

import pytest

from spotwright import manifests

DEFINITIONS = {definition["spec"]["names"]["kind"]: definition for definition in manifests.definitions()}


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from fields(schema[inner], f"{path}[]")


def fields_of(kind: str) -> dict[str, dict[str, Any]]:
    (version,) = DEFINITIONS[kind]["spec"]["versions"]
    return dict(fields(version["schema"]["openAPIV3Schema"]))


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_every_field_has_a_sentence(kind: str) -> None:
    """But metadata, of which the API server allows no description."""
    described = fields_of(kind)
    assert len(described) > 10
    assert [path for path, field in described.items() if not field.get("description")] == [".metadata"]
    assert [path for path, field in described.items() if not field.get("description", ".").endswith(".")] == []


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_the_sentence_stands_before_the_fields_it_is_about(kind: str) -> None:
    for path, field in fields_of(kind).items():
        names = list(field)
        for inner in {"properties", "items", "additionalProperties"} & set(names):
            assert names.index("description") < names.index(inner), path
