"""Which fields of the stored types hold something other than their default, by the name under which they are stored."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

type Field = tuple[type[msgspec.Struct], str]


def list_fields(roots: Iterable[type[msgspec.Struct]]) -> set[Field]:
    """Every field of these types, and of the types that their fields hold."""
    fields: set[Field] = set()
    visited: set[type] = set()
    waiting: list[Any] = list(inspect.multi_type_info(roots))
    while waiting:
        kind = waiting.pop()
        if not isinstance(kind, inspect.StructType):
            waiting += _parameters(kind)
        elif kind.cls not in visited:
            visited.add(kind.cls)
            fields |= {(kind.cls, field.encode_name) for field in kind.fields}
            waiting += (field.type for field in kind.fields)
    return fields


def _parameters(kind: Any) -> Iterator[Any]:
    """The types that a tuple, a dict or a union is made of."""
    for name in ("item_type", "key_type", "value_type"):
        if hasattr(kind, name):
            yield getattr(kind, name)
    for name in ("item_types", "types"):
        yield from getattr(kind, name, ())


def find_stated(value: object) -> set[Field]:
    """The fields in a value, and in everything that it holds, that differ from their defaults."""
    match value:
        case msgspec.Struct():
            fields = msgspec.structs.fields(type(value))
            stated = {(type(value), field.encode_name) for field in fields if _differs(value, field)}
            return stated.union(*(find_stated(getattr(value, field.name)) for field in fields))
        case Mapping():
            return set[Field]().union(*map(find_stated, value.values()))
        case tuple() | list() | frozenset():
            return set[Field]().union(*map(find_stated, value))
    return set()


def _differs(value: msgspec.Struct, field: msgspec.structs.FieldInfo) -> bool:
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return bool(getattr(value, field.name) != default)
