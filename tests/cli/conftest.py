"""``spotwright plan`` of manifests that a test writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from spotwright.cli import main


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """The plan of documents as JSON value."""

    def _planned(*documents: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
        file = tmp_path / "m.yaml"
        file.write_text("\n---\n".join(documents))
        assert main(["plan", str(file), "--output", "json", *options]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return _planned
