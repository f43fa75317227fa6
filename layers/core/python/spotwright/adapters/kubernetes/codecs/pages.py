"""A page of a list, from the API server's bytes straight into the model.

An object is first read as a Struct of Kubernetes' wire form that has only the fields which are used, so that nothing is
made of the others: they are most of an object. What does not have that form is read as any JSON and decoded as such,
which says what is wrong with it. One object that cannot be read costs no other object of its page.
"""

import json
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from spotwright.adapters.kubernetes.codecs.decode_errors import DECODE_ERRORS, DecodeError
from spotwright.adapters.kubernetes.codecs.objects import Json

# A Memo is emptied when it has so many values, and keeps none of a longer key: a process may decode for weeks.
MEMO_SIZE: Final = 5_000
LONGEST_KEY: Final = 8_192


class Page[Value](msgspec.Struct, frozen=True):
    """``next_page``: the token of the next page, "" = it is the last. ``resource_version``: of the list."""

    items: tuple[Value, ...]
    next_page: str
    resource_version: str


class _ListMeta(msgspec.Struct, frozen=True):
    resourceVersion: str | None = None
    next_page: str | None = msgspec.field(default=None, name="continue")


class _List[Item](msgspec.Struct, frozen=True):
    metadata: _ListMeta | None = None
    items: tuple[Item, ...] | None = None


class _Head(msgspec.Struct, frozen=True):
    metadata: _ListMeta | None = None


class ListDecoder[Value](Protocol):
    """Decodes the pages of a list that an API server wrote in one media type."""

    def next_page(self, content: bytes) -> str:
        """The token of the page after this one, sooner than its objects are decoded; "" = it is the last one, or one
        that is not read this way."""
        ...

    def page(self, content: bytes) -> Page[Value]:
        """Raises DecodeError for what is no list."""
        ...


class PageDecoder[Wire, Value]:
    """Decodes pages and single objects of a kind, from JSON (a ListDecoder). Equal parts of objects share one value, as
    long as it lives."""

    def __init__(self, wire: type[Wire], convert: Callable[[Wire], Value], decode: Callable[[Json], Value]) -> None:
        """``wire``: the fields that are used; ``convert``: makes a value of them, and raises one of DECODE_ERRORS for
        what it does not understand; ``decode``: reads any object, as the other decoders of this package."""
        self._convert, self._decode = convert, decode
        self._object = msgspec.json.Decoder(wire)
        self._page = msgspec.json.Decoder(_List[wire])  # type: ignore[valid-type]  # a type that is a value

    def next_page(self, content: bytes) -> str:
        try:
            head = _head.decode(content)
        except (msgspec.MsgspecError, UnicodeError):
            return ""
        return (head.metadata and head.metadata.next_page) or ""

    def page(self, content: bytes) -> Page[Value]:
        try:
            page = self._page.decode(content)
            values = tuple(map(self._convert, page.items or ()))
        except DECODE_ERRORS:
            return self._each(content)
        return _page(page.metadata, values)

    def object(self, content: bytes | msgspec.Raw) -> Value:
        """A single object. Raises DecodeError for what is no JSON object."""
        try:
            return self._convert(self._object.decode(content))
        except DECODE_ERRORS:
            return self._decode(_json_object(bytes(content)))

    def _each(self, content: bytes) -> Page[Value]:
        """The page, object by object."""
        try:
            raw_page = _raw_page.decode(content)
        except (msgspec.MsgspecError, UnicodeError):
            return self._any(content)
        return _page(raw_page.metadata, tuple(map(self.object, raw_page.items or ())))

    def _any(self, content: bytes) -> Page[Value]:
        """The page as JSON that Python's decoder alone reads, such as half of a surrogate pair."""
        page = _json_object(content)
        metadata, items = page.get("metadata") or {}, page.get("items") or []
        if not (
            isinstance(metadata, dict) and isinstance(items, list) and all(isinstance(item, dict) for item in items)
        ):
            raise _no_list(content)
        next_page, version = metadata.get("continue") or "", metadata.get("resourceVersion") or ""
        return Page(tuple(map(self._decode, items)), str(next_page), str(version))


_head: Final = msgspec.json.Decoder(_Head)
_raw_page: Final = msgspec.json.Decoder(_List[msgspec.Raw])


class Memo[Key: str | bytes, Value]:
    """Values by what they are made of: of equal keys only the first makes a value, which the others share."""

    def __init__(self, make: Callable[[Key], Value]) -> None:
        self._make, self._values = make, dict[Key, Value]()

    def __call__(self, key: Key) -> Value:
        value = self._values.get(key)
        if value is None:
            value = self._make(key)
            if len(self._values) >= MEMO_SIZE:
                self._values.clear()
            if len(key) <= LONGEST_KEY:
                self._values[key] = value
        return value


def _page[Value](metadata: _ListMeta | None, values: tuple[Value, ...]) -> Page[Value]:
    meta = metadata or _ListMeta()
    return Page(values, meta.next_page or "", meta.resourceVersion or "")


def _json_object(content: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(content)
    except ValueError:
        decoded = None
    if not isinstance(decoded, dict):
        raise _no_list(content)
    return decoded


def _no_list(content: bytes) -> DecodeError:
    return DecodeError(f"the answer is not a list of objects: {content[:100].decode(errors='replace')}")
