"""ARCHITECTURE.md leads to files that exist, in no more than three steps."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "layers/core/python"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
WHERE = PAGE.partition("## Where is …?")[2].partition("\n## ")[0]
QUESTIONS = dict(re.findall(r"^\| (.*\?) \| (.*) \|$", WHERE, re.M))


def files(answer: str) -> list[Path]:
    """The paths that an answer names; a path may leave out the package of the path before it."""
    found: list[Path] = []
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", answer):
        inside = name.startswith("spotwright/")
        found.append(LIBRARY / name if inside else found[-1].parents[1] / name)
    return found


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_answer_names_at_most_three_files_that_exist(question: str) -> None:
    paths = files(QUESTIONS[question])
    assert 1 <= len(paths) <= 3
    assert [path for path in paths if not path.exists()] == []


def test_every_folder_of_the_code_map_exists() -> None:
    table = PAGE.partition("## Code map")[2].partition("\n## ")[0]
    names = re.findall(
        r"`([\w/]+)`", "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    )
    folders = [
        ROOT / name if name.endswith("/") else LIBRARY / "spotwright" / name.removeprefix("spotwright/")
        for name in names
    ]
    assert len(folders) > 10
    assert [folder for folder in folders if not folder.is_dir()] == []
