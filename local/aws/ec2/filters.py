"""EC2's Filters: names ANDed, values ORed, `*` and `?` in values."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from local.aws.calls.request import AwsError


def apply_filters[T](
    items: Sequence[T],
    filters: Sequence[Mapping[str, Any]],
    *,
    values: Mapping[str, Callable[[T], object]],
    tags: Callable[[T], Mapping[str, str]] | None = None,
) -> list[T]:
    """The items every filter lets through. A filter that is neither in `values` nor about tags is refused."""
    kept = list(items)
    for wanted in filters:
        actual = _reader(wanted["Name"], values, tags)
        patterns = [_pattern(str(value)) for value in wanted.get("Values") or []]
        kept = [item for item in kept if any(p.fullmatch(v) for v in actual(item) for p in patterns)]
    return kept


def _reader[T](
    name: str,
    values: Mapping[str, Callable[[T], object]],
    tags: Callable[[T], Mapping[str, str]] | None,
) -> Callable[[T], list[str]]:
    """A function giving an item's texts for the filter `name`."""
    if tags is not None and name == "tag-key":
        return lambda item: list(tags(item))
    if tags is not None and name.startswith("tag:"):
        key = name.removeprefix("tag:")
        return lambda item: [tags(item)[key]] if key in tags(item) else []
    if name not in values:
        raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return lambda item: _texts(values[name](item))


def _texts(value: object) -> list[str]:
    match value:
        case None:
            return []
        case bool():
            return ["true" if value else "false"]
        case list() | tuple() | set() | frozenset():
            return [text for item in value for text in _texts(item)]
        case _:
            return [str(value)]


@lru_cache(maxsize=4096)
def _pattern(value: str) -> re.Pattern[str]:
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in value)
    return re.compile("".join(parts), re.DOTALL)
