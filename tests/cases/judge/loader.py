"""Reading a case as YAML 1.2 does: only true and false are booleans, so that the key `on` stays a word."""

import re
from pathlib import Path
from typing import Any

import yaml

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(_BASE):  # type: ignore[misc]
    """The safe loader without YAML 1.1's other booleans."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith(":bool")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))


def read(case: Path) -> dict[str, Any]:
    """The case file."""
    content = yaml.load(case.read_text(encoding="utf-8"), Loader)
    assert isinstance(content, dict)
    return content
