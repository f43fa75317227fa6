"""Random values of any type that msgspec describes: whatever a codec may be given, and every field that comes later.

Drawn from a ``Random`` instead of from Hypothesis, which takes a hundred times as long for values of so many fields.
"""

import functools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
from msgspec import inspect

# Few texts and numbers, so that some are equal.
TEXTS = ("", "a", "b", "karpenter.sh/nodepool", "ünïcödé ✓ \U0001f680", "\x00", "x" * 300)
INTEGERS = (0, 1, 7, -1, 2**31, 2**63 - 1, -(2**63))

_type_info: Callable[[object], Any] = functools.cache(inspect.type_info)

type Overrides = Mapping[tuple[type, str], Callable[[Random], object]]


def draw[Value](random: Random, kind: type[Value], overrides: Overrides | None = None) -> Value:
    """A value of a type. ``overrides``: (Struct, field) → what draws the values of that field."""
    value: Value = _draw(random, _type_info(kind), overrides or {})
    return value


def _draw(random: Random, kind: Any, overrides: Overrides) -> Any:
    match kind:
        case inspect.StructType():
            return kind.cls(**{field.name: _draw_field(random, kind.cls, field, overrides) for field in kind.fields})
        case inspect.VarTupleType():
            return tuple(_several(random, kind.item_type, overrides))
        case inspect.FrozenSetType():
            return frozenset(_several(random, kind.item_type, overrides))
        case inspect.TupleType():
            return tuple(_draw(random, item, overrides) for item in kind.item_types)
        case inspect.DictType():
            keys = _several(random, kind.key_type, overrides)
            return {key: _draw(random, kind.value_type, overrides) for key in keys}
        case inspect.UnionType():
            return _draw(random, random.choice(kind.types), overrides)
    return _SCALARS[type(kind)](random)


def _several(random: Random, kind: Any, overrides: Overrides) -> list[Any]:
    return [_draw(random, kind, overrides) for _ in range(random.randrange(3))]


def _draw_field(random: Random, cls: type, field: inspect.Field, overrides: Overrides) -> Any:
    """A field's default about as often as any other value: objects are mostly empty."""
    if (cls, field.name) in overrides:
        return overrides[cls, field.name](random)
    if field.default is not msgspec.NODEFAULT and random.random() < 0.5:
        return field.default
    return _draw(random, field.type, overrides)


def _datetime(random: Random) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=random.choice((0, 1, 10**9, 86_400 * 10**9)))


_SCALARS: Mapping[type, Callable[[Random], object]] = {
    inspect.StrType: lambda random: random.choice(TEXTS),
    inspect.IntType: lambda random: random.choice(INTEGERS),
    inspect.BoolType: lambda random: random.random() < 0.5,
    inspect.NoneType: lambda random: None,
    inspect.DateTimeType: _datetime,
    # ``object``: what JSON may hold.
    inspect.CustomType: lambda random: random.choice((*TEXTS, *INTEGERS, True, [], ["a"])),
}
