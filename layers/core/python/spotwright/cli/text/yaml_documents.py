"""Kubernetes objects as YAML that people read and every tool reads alike."""

import re
from collections.abc import Iterable
from typing import Any, Final, TextIO

import yaml

# Texts that some reader of YAML takes for a number or a truth value although PyYAML does not: 1e3, 0o7, 0b1, y.
_AMBIGUOUS: Final = re.compile(r"[-+.]?[0-9][-+.:_0-9A-Fa-foxOX]*|[yYnN]|[-+]?\.?(?i:inf|nan)")


class _Plain(yaml.SafeDumper):
    """Writes every value out: anchors do not survive every tool."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else '"' if _AMBIGUOUS.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Plain.add_representer(str, _text)


def write_yaml(documents: Iterable[dict[str, Any]], out: TextIO) -> None:
    """One document after the other, fields in the order they have."""
    yaml.dump_all(documents, out, Dumper=_Plain, sort_keys=False, width=120)
