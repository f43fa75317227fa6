"""docs/planner.md shows what `spotwright plan` prints, and names files and functions that are there."""

import re
from pathlib import Path

import pytest

from spotwright.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "planner.md").read_text()
SCHEDULING = ROOT / "layers" / "core" / "python" / "spotwright" / "scheduling"


def test_the_example_is_what_comes_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (file,) = re.findall(r"```sh\n\.venv/bin/spotwright plan (\S+)\n```", PAGE)
    assert main(["plan", file]) == 0
    assert f"```text\n{capsys.readouterr().out}```" in PAGE


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", PAGE))))
def test_a_file_it_names_is_there(path: str) -> None:
    candidates = (ROOT / path, SCHEDULING / path, SCHEDULING.parent / path, *SCHEDULING.glob(f"*/{path}"))
    assert any(candidate.is_file() for candidate in candidates)


@pytest.mark.parametrize(("path", "name"), re.findall(r"`([a-z_/]+\.py)`, `([A-Za-z_]+)`", PAGE))
def test_a_file_has_the_name_that_is_said_to_be_there(path: str, name: str) -> None:
    assert re.search(rf"\b{name}\b", (SCHEDULING / path).read_text())


def test_the_architecture_leads_to_the_page() -> None:
    assert "(docs/planner.md)" in (ROOT / "ARCHITECTURE.md").read_text()
