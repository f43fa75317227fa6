"""What was measured is known again wherever the checkout lies."""

import json
from pathlib import Path

from bench.planner.record import Record
from bench.planner.runs import Outcome

OUTCOME = Outcome(1.0, 1.0, 1.0, 1, 1, 0, 1, peak_mb=1)


def problem(folder: Path, catalog: str) -> Path:
    folder.mkdir()
    (folder / "types.json").write_text(catalog)
    file = folder / "problem.json"
    file.write_text(json.dumps({"catalog": str(folder / "types.json"), "pods": []}))
    return file


def is_known(record: Record, problem: Path) -> bool:
    asked: list[Path] = []

    def measure() -> Outcome:
        asked.append(problem)
        return OUTCOME

    record.outcome((), problem, "ours", measure)
    return not asked


def test_of_a_catalog_counts_what_is_in_it_not_where_it_lies(tmp_path: Path) -> None:
    """An outcome holds for the same problem in another folder, and for no other catalog."""
    record = Record(tmp_path / "outcomes.jsonl")
    assert not is_known(record, problem(tmp_path / "one", "{}"))
    assert is_known(record, problem(tmp_path / "other", "{}"))
    assert not is_known(record, problem(tmp_path / "changed", "[]"))
