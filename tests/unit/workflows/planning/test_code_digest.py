import ast
import shutil
from pathlib import Path

import pytest

import spotwright
from spotwright.workflows.planning import code_digest
from spotwright.workflows.planning.code_digest import digest_of_reached_code

PACKAGE = Path(spotwright.__file__).parent
DECIDE = "spotwright.decisions.decide"
EMPTINESS = "spotwright.disruption.emptiness"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    shutil.copytree(PACKAGE, tmp_path / "spotwright", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def _append(sources: Path, module: str, text: str) -> None:
    with (sources / "spotwright" / module).open("a") as file:
        file.write(text)


def test_a_module_that_a_reached_module_begins_to_import_counts(sources: Path) -> None:
    before = digest_of_reached_code(DECIDE, sources=sources)
    _append(sources, "scheduling/new_rule.py", "RULE = 1\n")
    assert digest_of_reached_code(DECIDE, sources=sources) == before
    _append(sources, "scheduling/pod_planner.py", "\nfrom spotwright.scheduling import new_rule\n")
    imported = digest_of_reached_code(DECIDE, sources=sources)
    _append(sources, "scheduling/new_rule.py", "RULE = 2\n")
    assert len({before, imported, digest_of_reached_code(DECIDE, sources=sources)}) == 3


@pytest.mark.parametrize(
    "text",
    [
        "def decide():\n    from spotwright.workflows.sweep.full import sweep\n",
        "from spotwright.workflows.sweep import (  # why\n    full as sweep,\n)\n",
        "import spotwright.workflows.sweep.full as sweep\n",
        "if True:\n\timport spotwright.workflows.sweep.full\n",
    ],
)
def test_every_way_to_import_a_module_is_followed(text: str, sources: Path) -> None:
    _append(sources, "decisions/decide.py", f"\n{text}")
    before = digest_of_reached_code(DECIDE, sources=sources)
    _append(sources, "workflows/sweep/full.py", "# changed\n")
    assert digest_of_reached_code(DECIDE, sources=sources) != before


@pytest.mark.parametrize("module", ["model/kubernetes/pod.py", "scheduling/packing/bins.py", "aws/__init__.py"])
def test_modules_of_nested_packages_and_the_packages_themselves_count(module: str, sources: Path) -> None:
    before = digest_of_reached_code(DECIDE, sources=sources)
    _append(sources, module, "# changed\n")
    assert digest_of_reached_code(DECIDE, sources=sources) != before


@pytest.mark.parametrize("module", ["workflows/sweep/full.py", "adapters/aws/clients.py", "cli/__main__.py"])
def test_modules_that_are_not_reached_do_not_count(module: str, sources: Path) -> None:
    before = digest_of_reached_code(DECIDE, sources=sources)
    _append(sources, module, "# changed\n")
    assert digest_of_reached_code(DECIDE, sources=sources) == before


def test_the_search_for_empty_nodes_counts_as_code_that_decides(sources: Path) -> None:
    assert code_digest.code_digest() == digest_of_reached_code(DECIDE, EMPTINESS)
    before = digest_of_reached_code(DECIDE, EMPTINESS, sources=sources)
    _append(sources, "disruption/emptiness.py", "# changed\n")
    assert digest_of_reached_code(DECIDE, EMPTINESS, sources=sources) != before


def test_modules_that_import_each_other_come_to_an_end(sources: Path) -> None:
    before = digest_of_reached_code(DECIDE, sources=sources)
    _append(sources, "model/quantity.py", "\ndef decide():\n    import spotwright.decisions.decide\n")
    assert digest_of_reached_code(DECIDE, sources=sources) != before


def test_no_import_of_the_package_is_missed() -> None:
    for file in PACKAGE.rglob("*.py"):
        source = file.read_text()
        assert set(code_digest._imported_names(source)) >= _names_by_parsing(source), file


def _names_by_parsing(source: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "a relative import is not followed"
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.partition(".")[0] == "spotwright"}
