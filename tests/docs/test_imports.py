"""Tests stand alone: what several of them need lives in a module without tests, beside them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def imported(source: str) -> Iterator[str]:
    """Dotted names that a module imports, at any depth, with what it takes from them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{name.name}" for name in node.names)


def borrowed(source: str) -> list[str]:
    """Imports out of modules with tests."""
    return [name for name in imported(source) if any(part.startswith("test_") for part in name.split("."))]


def test_nothing_is_imported_from_a_module_with_tests() -> None:
    found = {str(path.relative_to(ROOT)): borrowed(path.read_text()) for path in (ROOT / "tests").rglob("*.py")}
    assert len(found) > 100
    assert {path: names for path, names in found.items() if names} == {}


LINES = (
    "from tests.a.test_b import c",
    "from tests.a import test_b",
    "import tests.a.test_b",
    "from . import test_b",
)


@pytest.mark.parametrize("line", LINES)
def test_every_way_of_importing_is_seen(line: str) -> None:
    assert borrowed(f"def f():\n    {line}\n")
