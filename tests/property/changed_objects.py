"""Objects with every field that is read, and what becomes of them when a few fields are changed at random."""

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from bench.realistic_objects import listed_node, listed_pod

type Object = dict[str, Any]
type Place = tuple[str | int, ...]

TESTS: Final = Path(__file__).parents[1]
WHOLE: Final[list[Object]] = list(yaml.safe_load_all((TESTS / "manifests" / "whole_objects.yaml").read_text()))
EVERY_FIELD: Final[list[Object]] = yaml.safe_load((TESTS / "property" / "every_field.yaml").read_text())
LIVE: Final[list[Object]] = yaml.safe_load((TESTS / "property" / "live_objects.yaml").read_text())
REALISTIC: Final = [listed_pod(1) | {"kind": "Pod"}, listed_node(1) | {"kind": "Node"}]
OBJECTS: Final = [*WHOLE, *EVERY_FIELD, *LIVE, *REALISTIC]
WRONG: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 3, 2**31, 2**70, -(2**70), 1.5, 1e300, float("nan"), float("inf"), "", " ", "x", "-1",
    "1e9999", "9E", "10%", "x y", "é漢字\x00\U0001f600", "{{ .Values.x }}", "${ZONE}", "2026-99-99T00:00:00Z",
    "x" * 300, [], ["x"], [None], [[]], [{}], {}, {"x": "y"}, {"x": {}}, {"": None}, {"a/b/c": 1},
)  # fmt: skip


def of_kind(kind: str) -> list[Object]:
    """The objects of a kind. Templates of workloads are pods, too."""
    objects = [content for content in OBJECTS if content["kind"] == kind]
    if kind == "Pod":
        templates = [content["spec"].get("template") for content in OBJECTS if isinstance(content.get("spec"), dict)]
        objects += [template for template in templates if template and "containers" in template.get("spec", {})]
    return objects


def changed(content: Object, chance: random.Random) -> Object:
    content = copy.deepcopy(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        paths = [path for path in _places(content) if path]
        if not paths:
            break
        path = chance.choice(paths)
        inner: Any = content
        for key in path[:-1]:
            inner = inner[key]
        match chance.randrange(5):
            case 0:
                del inner[path[-1]]
            case 1 if isinstance(inner, dict):
                inner[_misspelt(str(path[-1]), chance)] = inner.pop(path[-1])
            case 2:
                _, other = chance.choice(list(_values(content)))
                inner[path[-1]] = copy.deepcopy(other)
            case _:
                inner[path[-1]] = copy.deepcopy(chance.choice(WRONG))
    return content


def _misspelt(name: str, chance: random.Random) -> str:
    at = chance.randrange(len(name) + 1)
    return chance.choice((name[:at] + name[at + 1 :], name[:at] + "x" + name[at:], name.lower(), name.upper()))


def _values(value: Any, path: Place = ()) -> Iterator[tuple[Place, Any]]:
    yield path, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from _values(below, (*path, key))


def _places(content: Object) -> Iterator[Place]:
    return (path for path, _ in _values(content))
