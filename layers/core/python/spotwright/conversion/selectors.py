"""v1alpha1's selectors, maps of tags with a few special keys, as v1's lists of terms.

A value with commas matches any of its parts (EC2 filters), so that a map may become several terms; ``*`` is any value.
"""

from collections.abc import Iterable
from itertools import product
from math import prod
from typing import Final

from spotwright.conversion import Json
from spotwright.conversion.remarks import refuse

_IDS: Final = ("aws-ids", "aws::ids")
_NAME: Final = "aws::name"
_OWNERS: Final = "aws::owners"
# v1's limit for a list of terms.
_MAX_TERMS: Final = 30


def selector_terms(selector: Json, path: str) -> list[Json]:
    """Terms of ``id`` or ``tags``; raises ConversionError."""
    values = _values(selector, path)
    return _id_terms(values, path) or [{"tags": tags} for tags in _tag_combinations(values, values)]


def ami_terms(selector: Json, path: str) -> list[Json]:
    """Terms of ``id``, or of ``name``, ``owner`` and ``tags``; raises ConversionError."""
    values = _values(selector, path)
    if set(values) == {_OWNERS}:
        refuse(path, selector, f"says only who owns the images: add {_NAME} or tags")
    owners = [{"owner": value} for value in values.get(_OWNERS, ())] or [{}]
    names = [{"name": value} for value in values.get(_NAME, ())] or [{}]
    tag_terms = [{"tags": tags} if tags else {} for tags in _tag_combinations(values, set(values) - {_NAME, _OWNERS})]
    return _id_terms(values, path) or [owner | name | tags for owner, name, tags in product(owners, names, tag_terms)]


def _values(selector: Json, path: str) -> dict[str, list[str]]:
    """The values of each key, at least one."""
    values_by_key = {key: [part.strip() for part in value.split(",")] for key, value in selector.items()}
    for key, values in values_by_key.items():
        if not key or not all(values):
            refuse(f"{path}[{key}]", selector[key], "is empty, in part at least: name a value, or * for any")
    if not values_by_key:
        refuse(path, selector, "selects nothing: it needs a tag or aws::ids")
    if (count := prod(map(len, values_by_key.values()))) > _MAX_TERMS:
        refuse(path, selector, f"would be {count} terms: v1 takes {_MAX_TERMS}")
    return values_by_key


def _id_terms(values: dict[str, list[str]], path: str) -> list[Json]:
    keys = [key for key in _IDS if key in values]
    if keys and len(values) > 1:
        refuse(path, sorted(values), f"cannot be combined: {keys[0]} stands alone, in v1alpha1 and in v1")
    return [{"id": value} for key in keys for value in values[key]]


def _tag_combinations(values: dict[str, list[str]], keys: Iterable[str]) -> list[dict[str, str]]:
    """Sets of tags for all combinations of the values of the keys."""
    names = [key for key in values if key in keys]
    return [dict(zip(names, combination, strict=True)) for combination in product(*(values[name] for name in names))]
