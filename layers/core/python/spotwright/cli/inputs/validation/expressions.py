"""The rules of CustomResourceDefinitions (``x-kubernetes-validations``), evaluated for a value.

Beyond ``aws.kubelet.cel``: fields and items of objects, ``has``, the macros ``all``, ``exists`` and ``filter``, and a
few functions of strings. Rules that compare with an object's former state are left out.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from spotwright.aws.kubelet.cel import Node, Parser, Variables
from spotwright.aws.kubelet.cel_values import ExpressionError, Value, check_bool
from spotwright.cli.inputs.validation.problems import Kind, Path, Problem, Problems, nearest
from spotwright.cli.inputs.validation.schema import Schema
from spotwright.model import labels
from spotwright.model.quoting import quote

_OLD: Final = "oldSelf"
_METHODS: Final[Mapping[str, Callable[..., Value]]] = {
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "split": lambda text, separator: tuple(text.split(separator)),
    "lowerAscii": lambda text: text.lower(),
}
_MACROS: Final = ("all", "exists", "filter")


def broken_rules(value: Any, schema: Schema, path: Path) -> Problems:
    """The rules of a schema that a valid value of it breaks."""
    for rule in schema["x-kubernetes-validations"]:
        if _OLD not in rule["rule"] and not _holds(rule["rule"], value):
            shown = f"{quote(value)}: " if isinstance(value, str) else ""
            yield Problem(Kind.VALUE, path, f"{shown}{rule['message']}{_similar_label(value)}")


def _similar_label(value: Any) -> str:
    """The well-known label that was probably meant by a key, or by a key of labels."""
    keys = [value] if isinstance(value, str) else list(value) if isinstance(value, dict) else []
    for key in keys:
        if "/" in key and key not in labels.WELL_KNOWN and key != labels.HOSTNAME:
            similar = nearest(key, labels.WELL_KNOWN - {labels.NODEPOOL})
            return f", did you mean {similar}?" if similar else ""
    return ""


def _holds(rule: str, value: Any) -> bool:
    try:
        return check_bool(_parse(rule)({"self": _as_value(value)}), "rule")
    except ExpressionError:
        return False


@cache
def _parse(rule: str) -> Node:
    return _RuleParser(rule).whole()


class _Field:
    """A field of an object."""

    def __init__(self, node: Node, name: str) -> None:
        self._node = node
        self._name = name

    def __call__(self, variables: Variables) -> Value:
        container = self._node(variables)
        if not isinstance(container, Mapping) or self._name not in container:
            raise ExpressionError(f"no field {self._name}")
        value: Value = _as_value(container[self._name])
        return value

    def is_set(self, variables: Variables) -> bool:
        container = self._node(variables)
        return isinstance(container, Mapping) and container.get(self._name) is not None


class _RuleParser(Parser):
    def _member(self) -> Node:
        node = self._primary()
        while self._peek() in (".", "["):
            if self._next() == "[":
                node = _item(node, self._ternary())
                self._expect("]")
            else:
                node = self._selected(node, self._next())
        return node

    def _selected(self, node: Node, name: str) -> Node:
        if self._peek() != "(":
            return _Field(node, name)
        if name in _MACROS:
            return self._macro(node, name)
        if name not in _METHODS:
            return self._method(node, name)
        self._next()
        arguments = self._arguments(")")
        function = _METHODS[name]

        def evaluate(variables: Variables) -> Value:
            texts = [node(variables), *(argument(variables) for argument in arguments)]
            if not all(isinstance(text, str) for text in texts):
                raise ExpressionError(f"{name} of what is not text")
            return function(*texts)

        return evaluate

    def _macro(self, node: Node, name: str) -> Node:
        self._expect("(")
        variable = self._next()
        self._expect(",")
        test = self._ternary()
        self._expect(")")

        def evaluate(variables: Variables) -> Value:
            several = node(variables)
            items = tuple(several) if isinstance(several, Mapping | tuple) else ()
            found = [item for item in items if test({**variables, variable: _as_value(item)}) is True]
            return tuple(found) if name == "filter" else bool(found) if name == "exists" else len(found) == len(items)

        return evaluate

    def _named(self, name: str) -> Node:
        if name != "has" or self._peek() != "(":
            return super()._named(name)
        self._next()
        (field,) = self._arguments(")")
        if not isinstance(field, _Field):
            raise ExpressionError("has() takes a field")
        return field.is_set


def _item(node: Node, index: Node) -> Node:
    def evaluate(variables: Variables) -> Value:
        container, key = node(variables), index(variables)
        if isinstance(container, tuple) and isinstance(key, int) and 0 <= key < len(container):
            return container[key]
        if isinstance(container, Mapping) and isinstance(key, str) and key in container:
            return container[key]
        raise ExpressionError("no such item")

    return evaluate


def _as_value(value: Any) -> Any:
    """JSON as a value of expressions, whose lists are tuples."""
    return tuple(value) if isinstance(value, list) else value
