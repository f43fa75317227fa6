"""The hash of structured values that Karpenter's annotations hold, so that nodes taken over from it do not drift.

64-bit FNV-1 over a tree of records, maps, sets and scalars. Source: the algorithm of Go's hashstructure, format 2,
with slices as sets and zero values left out; checked against Karpenter's published expectations.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

_OFFSET: Final = 14695981039346656037
_PRIME: Final = 1099511628211
_MASK: Final = 2**64 - 1


class GoStruct(msgspec.Struct, frozen=True):
    """A Go struct: its type's name and its fields in declaration order. A field that is None is left out."""

    name: str
    fields: tuple[tuple[str, "GoValue"], ...]


class GoInt32(msgspec.Struct, frozen=True):
    """An integer of four bytes; a plain integer has eight."""

    number: int


class GoDuration(msgspec.Struct, frozen=True):
    """A time span as Go holds it: nanoseconds in 64 bits."""

    nanoseconds: int


class GoPointer(msgspec.Struct, frozen=True):
    """A value behind a Go pointer: hashed even when it is empty."""

    value: "GoValue"


type GoValue = (
    GoStruct | GoDuration | GoInt32 | GoPointer | Mapping[str, GoValue] | tuple[GoValue, ...] | str | bool | int | None
)


def hash_value(value: GoValue) -> int:
    """The hash of a value as an unsigned 64-bit number."""
    match value:
        case None:
            return _fnv(_number(0))
        case bool():
            return _fnv(b"\x01" if value else b"\x00")
        case int():
            return _fnv((value & _MASK).to_bytes(8, "little"))
        case str():
            return _fnv(value.encode())
        case GoInt32(number):
            return _fnv((number & (2**32 - 1)).to_bytes(4, "little"))
        case GoDuration(nanoseconds):
            return _fnv((nanoseconds & _MASK).to_bytes(8, "little"))
        case GoPointer(inner):
            return hash_value(inner)
        case GoStruct(name, fields):
            return _record(name, fields)
        case tuple():
            return _combine(hash_value(go_value) for go_value in value)
    return _finish(_combine(_pair(hash_value(key), hash_value(go_value)) for key, go_value in value.items()))


def _record(name: str, fields: tuple[tuple[str, GoValue], ...]) -> int:
    hashed = _fnv(name.encode())
    for field, value in fields:
        if value is not None and not _is_zero(value):
            hashed = _finish(hashed ^ _pair(_fnv(field.encode()), hash_value(value)))
    return hashed


def _is_zero(value: GoValue) -> bool:
    """Whether it is Go's zero value: an empty string, or a struct of zero values; a pointer never is."""
    match value:
        case str():
            return value == ""
        case GoStruct(_, fields):
            return all(go_value is None or _is_zero(go_value) for _, go_value in fields)
    return False


def _combine(hashes: Iterable[int]) -> int:
    mixed = 0
    for value_hash in hashes:
        mixed ^= value_hash
    return mixed


def _pair(first: int, second: int) -> int:
    return _fnv(_number(first) + _number(second))


def _finish(hashed: int) -> int:
    return _fnv(_number(hashed))


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _fnv(data: bytes) -> int:
    hashed = _OFFSET
    for byte in data:
        hashed = (hashed * _PRIME & _MASK) ^ byte
    return hashed
