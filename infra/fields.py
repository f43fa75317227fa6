"""Reads one object of the context field by field, and says precisely what is wrong with it."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from spotwright.model.quoting import quote

Choice = TypeVar("Choice", str, int)

# windowsNodeRoles is no misspelt nodeRoles.
_ALIKE = 0.75


class ConfigError(Exception):
    """The context cannot be deployed; the message names field, value and what is allowed."""


def show(value: object) -> str:
    """A value of cdk.json as messages show it."""
    return "nothing" if value is None else quote(value)


class Fields:
    """The fields of one object that are not read yet.

    Every reader raises ConfigError for a value that is not allowed; `refuse_unknown_keys` for keys nobody read,
    since a misspelt setting that is silently ignored is worse than none.
    """

    def __init__(self, value: object, path: str) -> None:
        self.path = path
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path}: got {show(value)}, allowed: an object")
        self._values = dict(value)
        self._known: list[str] = []

    def required_text(self, key: str, pattern: str, allowed: str) -> str:
        return self._matching(key, self._take(key), pattern, allowed)

    def text(self, key: str, pattern: str, allowed: str, default: str) -> str:
        return self._matching(key, self._take(key, default), pattern, allowed)

    def optional_text(self, key: str, pattern: str, allowed: str) -> str | None:
        value = self._take(key)
        return None if value is None else self._matching(key, value, pattern, allowed)

    def texts(self, key: str, pattern: str, allowed: str, at_least: int = 0) -> tuple[str, ...]:
        """A list of texts without repetition; absent counts as empty."""
        values = self._take(key, [])
        if not isinstance(values, Sequence) or isinstance(values, str) or len(values) < at_least:
            raise self.refusal(key, values, f"a list of {allowed}")
        texts = tuple(self._matching(f"{key}[{i}]", value, pattern, allowed) for i, value in enumerate(values))
        if len(set(texts)) < len(texts):
            raise self.refusal(key, values, "each value once")
        return texts

    def text_map(self, key: str, names: str, allowed: str, known: Iterable[str] = ()) -> dict[str, str]:
        """A map of texts; absent counts as empty. Numbers are given as texts, as an environment holds them.

        ``known``: names that one which is not allowed may have been meant as.
        """
        inner = self.nested(key)
        if inner is None:
            return {}
        for name in inner._values:
            if not isinstance(name, str) or not re.fullmatch(names, name):
                raise self.refusal(key, name, f"{_meant(name, known)}{allowed}")
        return {name: inner._matching(name, value, ".*", _as_text(value)) for name, value in inner._values.items()}

    def choice(self, key: str, choices: Sequence[Choice], default: Choice) -> Choice:
        value = self._take(key, default)
        if isinstance(value, bool) or value not in choices:
            raise self.refusal(key, value, _listed(choices))
        return choices[choices.index(value)]

    def integer(self, key: str, allowed: range, default: int) -> int:
        value = self._take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
            raise self.refusal(key, value, f"a whole number from {allowed[0]} to {allowed[-1]}")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self.refusal(key, value, "true or false")
        return value

    def nested(self, key: str) -> "Fields | None":
        value = self._take(key)
        return None if value is None else Fields(value, self._at(key))

    def nested_list(self, key: str, most: int) -> tuple["Fields", ...]:
        """A list of one up to `most` objects."""
        values = self._take(key)
        if not isinstance(values, Sequence) or isinstance(values, str) or not 1 <= len(values) <= most:
            raise self.refusal(key, values, f"a list of 1 to {most} objects")
        return tuple(Fields(value, f"{self._at(key)}[{i}]") for i, value in enumerate(values))

    def refuse_unknown_keys(self, elsewhere: Mapping[str, str] | None = None) -> None:
        """``elsewhere``: keys that are known in another place, with the place in words."""
        for key, value in self._values.items():
            place = (elsewhere or {}).get(str(key), "")
            meant = f"it belongs {place}; " if place else _meant(key, self._known)
            raise ConfigError(
                f"{self._at(key)}: got {show(value)}, {meant}allowed here: {_listed(sorted(self._known))}"
            )

    def refusal(self, key: str, value: object, allowed: str) -> ConfigError:
        meant = "" if value else self._misspelt(key)
        return ConfigError(f"{self._at(key)}: got {show(value)}, allowed: {allowed}{meant}")

    def _misspelt(self, key: str) -> str:
        """A key that nobody has read, where it is as good as the one that is missing."""
        near = difflib.get_close_matches(key, map(str, self._values), n=1, cutoff=_ALIKE)
        return f"; {self._at(near[0])} is there, did you mean {key}?" if near else ""

    def _take(self, key: str, default: object = None) -> object:
        self._known.append(key)
        value = self._values.pop(key, None)
        return default if value is None else value

    def _at(self, key: object) -> str:
        return f"{self.path}.{key}" if self.path else str(key)

    def _matching(self, key: str, value: object, pattern: str, allowed: str) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise self.refusal(key, value, allowed)
        return value


def _meant(word: object, known: Iterable[str]) -> str:
    """The known word that is most like it, as a question; "" = none is."""
    near = difflib.get_close_matches(str(word), tuple(known), n=1)
    return f"did you mean {near[0]}? " if near else ""


def _as_text(value: object) -> str:
    """What is allowed where a number, or true, was given for a text."""
    return f'a text: "{show(value)}"' if isinstance(value, (bool, int, float)) else "a text"


def _listed(choices: Iterable[object]) -> str:
    return ", ".join(str(choice) for choice in choices)
