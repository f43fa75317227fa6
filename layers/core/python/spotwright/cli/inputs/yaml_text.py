"""YAML as ``kubectl`` reads it: with positions, and with the types that its values have in JSON.

Source: sigs.k8s.io/yaml and its YAML 1.1 resolver (go-yaml v2). Different from PyYAML's: dates and ``1:30`` are text,
``y`` and ``n`` are true and false, and keys are text.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from spotwright.cli.inputs.nesting import MOST_NESTED, deepest_brackets

if TYPE_CHECKING:
    _Base = yaml.SafeLoader
else:
    _Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

type Path = tuple[str | int, ...]

_STR: Final = "tag:yaml.org,2002:str"
_PLAIN: Final = "plain"
_MERGE: Final = "<<"
_CONSTANTS: Final[dict[str, bool | float | None]] = (
    dict.fromkeys(("", "~", "null", "Null", "NULL"))
    | dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True)
    | dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False)
    | dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan"))
    | dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf"))
    | dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf"))
)
_INTEGER: Final = re.compile(r"[-+]?(?:0[bB][01]+|0[oO]?[0-7]+|0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_DEEP_BLOCKS: Final = re.compile(rf"(?:[-?:][ \t]+){{{MOST_NESTED}}}|^[ ]{{{MOST_NESTED}}}", re.MULTILINE)
# A text whose aliases stand for more than this is refused, as kubectl does.
_MOST_ALIASED: Final = 200_000


class YamlError(ValueError):
    """A text that is not YAML, or that cannot be JSON. ``line``: from 1, 0 = unknown."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class YamlDocument(NamedTuple):
    """A document as JSON value. ``duplicates``: the paths of keys that a map has twice; the last counts."""

    value: Any
    duplicates: tuple[Path, ...] = ()


def read_yaml(text: str) -> Iterator[YamlDocument]:
    """The documents of a text, one after the other. Raises YamlError."""
    for node in _nodes(text):
        yield _Reader().read(node)


@lru_cache(maxsize=4)
def syntax_trees(text: str) -> "tuple[yaml.Node, ...]":
    """The documents with the positions of everything in them; empty for a text that cannot be read."""
    try:
        return tuple(_nodes(text))
    except YamlError:
        return ()


def line_of(tree: "yaml.Node", path: Path) -> int:
    """The line, from 1, of the value at a path, or of what is nearest above it; of a map's value: of its key."""
    line = tree.start_mark.line + 1
    node: Any = tree
    for part in path:
        if isinstance(node, yaml.MappingNode):
            found = next((entry for entry in reversed(node.value) if _key_text(entry[0]) == part), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


class _Composer(_Base):
    """Composes nodes; the tag of an unquoted scalar is ``_PLAIN``, what it means is decided later."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return _PLAIN if implicit[0] else _STR
        return ""


def _check_nesting(text: str) -> None:
    """Raises YamlError for a text that is nested too deeply. Only a text that may be is parsed for it."""
    if deepest_brackets(text) <= MOST_NESTED and not _DEEP_BLOCKS.search(text):
        return
    depth = 0
    for event in yaml.parse(text, Loader=_Composer):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_NESTED:
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise YamlError(f"it is nested more than {MOST_NESTED} levels deep", line)


def _explain(problem: str, text: str, mark: "yaml.Mark | None") -> str:
    """What the parser says, in plainer words for what is met most: a tab, and text that must be quoted."""
    if mark is None or "cannot start any token" not in problem:
        return problem
    lines = text.split("\n")
    character = lines[mark.line][mark.column : mark.column + 1] if mark.line < len(lines) else ""
    if character == "\t":
        return "it is indented by a tab, where YAML takes spaces only"
    return f"text that begins with {character} must be quoted" if character.isprintable() and character else problem


def _nodes(text: str) -> "Iterator[yaml.Node]":
    composer = None
    try:
        _check_nesting(text)
        composer = _Composer(text)
        while composer.check_node():
            node = composer.get_node()
            if node is not None:
                yield node
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise YamlError(_explain(problem, text, mark), mark.line + 1 if mark else 0) from None
    except UnicodeEncodeError:
        raise YamlError("it is not UTF-8") from None
    finally:
        if composer is not None:
            composer.dispose()


class _Reader:
    """Turns the nodes of a document into values, and notes duplicate keys."""

    def __init__(self) -> None:
        self._duplicates: list[yaml.Node] = []
        self._values: dict[int, Any] = {}
        self._aliased = 0

    def read(self, root: "yaml.Node") -> YamlDocument:
        try:
            value = self._value(root)
        except RecursionError:
            raise YamlError("it is nested too deeply, or in itself", root.start_mark.line + 1) from None
        if not self._duplicates:
            return YamlDocument(value)
        keys = {id(node) for node in self._duplicates}
        return YamlDocument(value, tuple(_paths(root, keys, ())))

    def _value(self, node: Any) -> Any:
        if type(node) is yaml.ScalarNode:
            return _scalar(node.value) if node.tag == _PLAIN else _tagged(node)
        known = self._values.get(id(node))
        if known is not None:
            self._aliased += len(known)
            if self._aliased > _MOST_ALIASED:
                raise YamlError("its aliases stand for too many values", node.start_mark.line + 1)
            return known
        if type(node) is yaml.SequenceNode:
            value: Any = [self._value(item) for item in node.value]
        else:
            value = self._map(node)
        if value:
            self._values[id(node)] = value
        return value

    def _map(self, node: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _key(key_node)
            if key == _MERGE and key_node.tag == _PLAIN:
                merged = self._merged(value_node) | merged
                continue
            if key in values:
                self._duplicates.append(key_node)
            values[key] = self._value(value_node)
        return merged | values if merged else values

    def _merged(self, node: Any) -> dict[str, Any]:
        value = self._value(node)
        merged: dict[str, Any] = {}
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise YamlError("<< takes a map, or a list of maps", node.start_mark.line + 1)
            merged = source | merged
        return merged


def _paths(node: Any, keys: set[int], path: Path) -> Iterator[Path]:
    """The path of each of these key nodes."""
    if type(node) is yaml.SequenceNode:
        for index, item in enumerate(node.value):
            yield from _paths(item, keys, (*path, index))
    elif type(node) is yaml.MappingNode:
        for key_node, value_node in node.value:
            here = (*path, _key_text(key_node))
            if id(key_node) in keys:
                yield here
            yield from _paths(value_node, keys, here)


def _key(node: Any) -> str:
    if type(node) is not yaml.ScalarNode:
        raise YamlError(
            "a key is a map or a list, not text (a template, with {{ }}, must be rendered first)",
            node.start_mark.line + 1,
        )
    return _key_text(node)


def _key_text(node: Any) -> str:
    if type(node) is not yaml.ScalarNode:
        return ""
    value = _scalar(node.value) if node.tag == _PLAIN else node.value
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tagged(node: Any) -> Any:
    """A quoted scalar, or an unquoted scalar with a tag."""
    name = node.tag.removeprefix("tag:yaml.org,2002:")
    return _scalar(node.value) if name in ("int", "float", "bool", "null") else node.value


@lru_cache(maxsize=8192)
def _scalar(text: str) -> Any:
    """What an unquoted scalar means."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "+-.0123456789":
        return text
    plain = text.replace("_", "")
    if _INTEGER.fullmatch(plain):
        return _integer(plain)
    return float(plain) if _FLOAT.fullmatch(plain) else text


def _integer(text: str) -> int | float:
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.removeprefix("+"))
    base = {"0x": 16, "0b": 2, "0o": 8}.get(digits[:2].lower(), 8 if digits[0] == "0" and len(digits) > 1 else 10)
    if base == 8 and digits[1] not in "oO":
        digits = digits[1:]
    elif base != 10:
        digits = digits[2:]
    if len(digits) > 400:
        return float("inf")
    number = sign * int(digits, base)
    return number if -(2**63) <= number < 2**64 else float(number)
