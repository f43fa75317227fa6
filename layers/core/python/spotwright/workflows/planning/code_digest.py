"""Which code decides: a digest of the modules that a module can reach, found by following its imports."""

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

_SOURCES: Final = Path(__file__).parents[3]
# Parsing what is reached takes 0.2 s of processor time, this pattern 5 ms. It may take a line of a docstring for an
# import. That it misses no import of this package is tested.
_IMPORT: Final = re.compile(r"^[ \t]*(?:from|import)[ \t]+(spotwright\b[^\n(]*(?:\([^)]*\))?)", re.MULTILINE)


@cache
def code_digest() -> str:
    """A digest of the code that a replay repeats: what ``decide`` and the search for empty nodes reach."""
    return digest_of_reached_code("spotwright.decisions.decide", "spotwright.disruption.emptiness")


def digest_of_reached_code(*modules: str, sources: Path = _SOURCES) -> str:
    """16 hexadecimal digits over these modules of ``sources/spotwright`` and all of its modules that they can import.

    Imports inside functions count, and so do the packages around a module. Libraries do not count.
    """
    digest = hashlib.sha256()
    for name, source in sorted(_reached_sources(modules, sources).items()):
        digest.update(name.encode() + b"\0" + source.encode() + b"\0")
    return digest.hexdigest()[:16]


def _reached_sources(modules: Iterable[str], sources: Path) -> dict[str, str]:
    """The name of every reached module → its source."""
    files = {_module_name(file.relative_to(sources)): file for file in (sources / "spotwright").rglob("*.py")}
    reached: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in files and name not in reached:
            reached[name] = files[name].read_text()
            waiting += (name.rpartition(".")[0], *_imported_names(reached[name]))
    return reached


def _module_name(file: Path) -> str:
    return ".".join(file.parent.parts if file.stem == "__init__" else file.with_suffix("").parts)


def _imported_names(source: str) -> Iterable[str]:
    """What the imports of a module may name: ``from package import name`` gives the package and ``package.name``."""
    for match in _IMPORT.finditer(source):
        module, *names = re.findall(r"[\w.]+", match[1])
        yield module
        yield from (f"{module}.{name}" for name in names)
