"""Kubernetes objects as YAML that all YAML parsers read in the same way."""

import re
from collections.abc import Iterable
from typing import Any, Final, TextIO

import yaml

# Texts that some YAML parser, other than PyYAML, takes for a number or a boolean: 1e3, 0o7, 0b1, y.
_AMBIGUOUS: Final = re.compile(r"[-+.]?[0-9][-+.:_0-9A-Fa-foxOX]*|[yYnN]|[-+]?\.?(?i:inf|nan)")


class _Dumper(yaml.SafeDumper):
    """Writes no anchors, which some tools do not support."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else '"' if _AMBIGUOUS.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def write_yaml(documents: Iterable[dict[str, Any]], out: TextIO) -> None:
    """Writes the documents with their fields in order."""
    yaml.dump_all(documents, out, Dumper=_Dumper, sort_keys=False, width=120)
