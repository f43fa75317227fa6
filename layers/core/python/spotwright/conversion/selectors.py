"""v1alpha1's selectors, maps of tags with a few special keys, as v1's lists of terms.

Values with commas mean any of several (EC2 filters), so one map may become several terms; ``*`` is any value in both.
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
# What a list of terms may hold in v1.
_MOST_TERMS: Final = 30


def selector_terms(selector: Json, path: str) -> list[Json]:
    """Terms of ``id`` or ``tags``; raises ConversionError."""
    given = _values(selector, path)
    return _ids(given, path) or [{"tags": tags} for tags in _tags(given, given)]


def ami_terms(selector: Json, path: str) -> list[Json]:
    """Terms of ``id``, or of ``name``, ``owner`` and ``tags``; raises ConversionError."""
    given = _values(selector, path)
    if set(given) == {_OWNERS}:
        refuse(path, selector, f"says only who owns the images: add {_NAME} or tags")
    owners = [{"owner": one} for one in given.get(_OWNERS, ())] or [{}]
    names = [{"name": one} for one in given.get(_NAME, ())] or [{}]
    tagged = [{"tags": tags} if tags else {} for tags in _tags(given, set(given) - {_NAME, _OWNERS})]
    return _ids(given, path) or [owner | name | tags for owner, name, tags in product(owners, names, tagged)]


def _values(selector: Json, path: str) -> dict[str, list[str]]:
    """The values of each key, at least one."""
    found = {key: [one.strip() for one in value.split(",")] for key, value in selector.items()}
    for key, values in found.items():
        if not key or not all(values):
            refuse(f"{path}[{key}]", selector[key], "is empty, in part at least: name a value, or * for any")
    if not found:
        refuse(path, selector, "selects nothing: it needs a tag or aws::ids")
    if (count := prod(map(len, found.values()))) > _MOST_TERMS:
        refuse(path, selector, f"would be {count} terms: v1 takes {_MOST_TERMS}")
    return found


def _ids(given: dict[str, list[str]], path: str) -> list[Json]:
    keys = [key for key in _IDS if key in given]
    if keys and len(given) > 1:
        refuse(path, sorted(given), f"cannot be combined: {keys[0]} stands alone, in v1alpha1 and in v1")
    return [{"id": one} for key in keys for one in given[key]]


def _tags(given: dict[str, list[str]], keys: Iterable[str]) -> list[dict[str, str]]:
    """One set of tags for each way to take one value of every key."""
    names = [key for key in given if key in keys]
    return [dict(zip(names, chosen, strict=True)) for chosen in product(*(given[name] for name in names))]
