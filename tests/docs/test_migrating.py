"""docs/migrating.md shows what `spotwright convert` does."""

import io
import re
from pathlib import Path

import pytest

from spotwright.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "migrating.md").read_text()


def test_the_example_is_what_comes_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.setattr("sys.stdin", io.StringIO(before))
    assert main(["convert", "-"]) == 0
    assert capsys.readouterr().out == after


def test_its_commands_run(capsys: pytest.CaptureFixture[str]) -> None:
    (arguments,) = re.findall(r"\.venv/bin/spotwright convert (\S+) > new\.yaml", PAGE)
    assert main(["convert", str(ROOT / arguments)]) == 0
    assert "kind: NodePool" in capsys.readouterr().out


def test_the_readme_leads_to_the_page() -> None:
    assert "(docs/migrating.md)" in (ROOT / "README.md").read_text()
