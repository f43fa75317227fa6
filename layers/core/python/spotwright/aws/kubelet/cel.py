"""Arithmetic that an EC2NodeClass may state instead of an amount, evaluated for an instance type.

The part of the Common Expression Language (https://github.com/google/cel-spec) that amounts need: integers, doubles,
strings, lists; ``+ - * / %``, comparisons, ``&& || !``, ``? :``, ``in``; ``min``, ``max``, ``int``, ``double``,
``size``, and ``startsWith``, ``endsWith``, ``contains`` of a string. As there, integers have 64 bits, division of
integers cuts towards zero, and integers and doubles do not mix. Macros and everything else are refused by name.
"""

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from spotwright.aws.kubelet import cel_values
from spotwright.aws.kubelet.cel_values import ExpressionError, Value
from spotwright.model.quoting import quote

type Variables = Mapping[str, Value]
type Node = Callable[[Variables], Value]

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|(?P<sign>&&|\|\||[=!<>]=|[-+*/%()<>!?:,.\[\]]))"
)
_ESCAPE: Final = re.compile(r"\\(.)")
_MAX_LENGTH: Final = 2000
_MAX_DEPTH: Final = 50
# Precedence of binary operators; `? :` has the least and is parsed apart.
_PRECEDENCE: Final = {
    "||": 1, "&&": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "in": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_METHODS: Final = ("startsWith", "endsWith", "contains", "size")
_FUNCTIONS: Final = ("min", "max", "int", "double", "size")
_LITERALS: Final = {"true": True, "false": False}


def evaluate(text: str, variables: Variables) -> int:
    """The result as an integer, a double cut towards zero; raises ExpressionError."""
    node = _parse(text)
    try:
        value = node(variables)
    except ExpressionError as error:
        raise ExpressionError(f"{quote(text)}: {error}") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionError(f"{quote(text)}: the result must be a number, found {cel_values.type_name(value)}")
    if not math.isfinite(value):
        raise ExpressionError(f"{quote(text)}: the result is not a finite number")
    return int(value)


@lru_cache(maxsize=256)
def _parse(text: str) -> Node:
    if len(text) > _MAX_LENGTH:
        raise ExpressionError(f"an expression of {len(text)} characters; at most {_MAX_LENGTH} are read")
    try:
        return Parser(text).whole()
    except ExpressionError as error:
        raise ExpressionError(f"{quote(text)}: {error}") from None


class Parser:
    """Turns the text into a function of its variables, operator by operator."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        node = self._ternary()
        if self._peek() != "":
            raise ExpressionError(f"unexpected {quote(self._peek())}")
        return node

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else ""

    def _expect(self, sign: str) -> None:
        token = self._next()
        if token != sign:
            raise ExpressionError(f"expected {quote(sign)}, found {_describe_token(token)}")

    def _ternary(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ExpressionError(f"nested more than {_MAX_DEPTH} deep")
        condition = self._binary(1)
        if self._peek() == "?":
            self._next()
            first = self._ternary()
            self._expect(":")
            condition = _conditional(condition, first, self._ternary())
        self._depth -= 1
        return condition

    def _binary(self, least: int) -> Node:
        left = self._unary()
        while _PRECEDENCE.get(self._peek(), 0) >= least:
            sign = self._next()
            left = _binary_operation(sign, left, self._binary(_PRECEDENCE[sign] + 1))
        return left

    def _unary(self) -> Node:
        signs = []
        while self._peek() in ("-", "!"):
            signs.append(self._next())
        node = self._member()
        for sign in reversed(signs):
            node = _negate(sign, node)
        return node

    def _member(self) -> Node:
        node = self._primary()
        while self._peek() == ".":
            self._next()
            node = self._method(node, self._next())
        return node

    def _method(self, node: Node, name: str) -> Node:
        if name not in _METHODS:
            raise ExpressionError(f"unknown method {quote(name)}; known are {', '.join(_METHODS)}")
        self._expect("(")
        return _call(name, (node, *self._arguments(")")))

    def _primary(self) -> Node:
        token = self._next()
        if token == "(":
            node = self._ternary()
            self._expect(")")
            return node
        if token == "[":
            return _list(self._arguments("]"))
        if token[:1] in ("'", '"'):
            return _constant(_ESCAPE.sub(r"\1", token[1:-1]))
        if token[:1].isdigit() or (token[:1] == "." and len(token) > 1):
            return _constant(_number(token))
        if token in _LITERALS:
            return _constant(_LITERALS[token])
        if not re.fullmatch(r"[A-Za-z_]\w*", token):
            raise ExpressionError(f"expected a value, found {_describe_token(token)}")
        return self._named(token)

    def _named(self, name: str) -> Node:
        if self._peek() != "(":
            return _variable(name)
        self._next()
        if name not in _FUNCTIONS:
            raise ExpressionError(f"unknown function {quote(name)}; known are {', '.join(_FUNCTIONS)}")
        return _call(name, self._arguments(")"))

    def _arguments(self, end: str) -> tuple[Node, ...]:
        nodes: list[Node] = []
        while self._peek() != end:
            if nodes:
                self._expect(",")
            nodes.append(self._ternary())
        self._next()
        return tuple(nodes)


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None:
            raise ExpressionError(f"cannot read {quote(text[at:].strip()[:20])}")
        tokens.append(token[0].strip())
        at = token.end()
    return tokens


def _describe_token(token: str) -> str:
    return quote(token) if token else "the end"


def _number(token: str) -> Value:
    if token.isdigit():
        return cel_values.check_int64(int(token))
    return float(token)


def _constant(value: Value) -> Node:
    return lambda _: value


def _variable(name: str) -> Node:
    def read(variables: Variables) -> Value:
        if name not in variables:
            raise ExpressionError(f"unknown variable {quote(name)}; known are {', '.join(variables)}")
        return variables[name]

    return read


def _list(nodes: tuple[Node, ...]) -> Node:
    return lambda variables: tuple(node(variables) for node in nodes)


def _conditional(condition: Node, first: Node, second: Node) -> Node:
    return lambda variables: first(variables) if cel_values.check_bool(condition(variables), "?") else second(variables)


def _negate(sign: str, node: Node) -> Node:
    def negate(variables: Variables) -> Value:
        value = node(variables)
        if sign == "!":
            return not cel_values.check_bool(value, sign)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ExpressionError(f"- of {cel_values.type_name(value)}")
        return cel_values.check_int64(-value) if isinstance(value, int) else -value

    return negate


def _binary_operation(sign: str, left: Node, right: Node) -> Node:
    if sign == "&&":
        return lambda variables: cel_values.check_bool(left(variables), sign) and cel_values.check_bool(
            right(variables), sign
        )
    if sign == "||":
        return lambda variables: cel_values.check_bool(left(variables), sign) or cel_values.check_bool(
            right(variables), sign
        )
    return lambda variables: cel_values.apply_operator(sign, left(variables), right(variables))


def _call(name: str, nodes: tuple[Node, ...]) -> Node:
    return lambda variables: cel_values.call_function(name, tuple(node(variables) for node in nodes))
