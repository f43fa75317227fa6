"""Situations that people bring to a platform team, and every word ``spotwright plan`` answers.

``reasons/<situation>.yaml`` is what they applied, ``<situation>.txt`` the answer on the built-in catalog.
"""

from pathlib import Path

import pytest

from spotwright.cli import main
from spotwright.cli.inputs import builtin_regions

SITUATIONS = sorted((Path(__file__).parent / "reasons").glob("*.yaml"))


@pytest.mark.parametrize("given", SITUATIONS, ids=lambda path: path.stem)
def test_the_answer_is(given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(given)]) == 0
    said, _, assumed = capsys.readouterr().out.partition("\nAssumptions:\n")
    assert said == given.with_suffix(".txt").read_text()
    assert builtin_regions.describe(builtin_regions.DEFAULT_REGION) in assumed


def test_there_are_answers_to_all_that_is_asked_most() -> None:
    asked = {
        "architecture", "class-not-ready", "gpu", "limit", "min-values", "success", "taint", "too-large",
        "topology-spread", "volume-zone", "volumes", "wrong-zone", "many-pools", "contradiction", "misspelt-type",
        "label-not-set", "grouped-zones", "follower", "spot-and-on-demand",
        "min-values-limit", "limit-alternatives", "limit-preferences",
    }  # fmt: skip
    assert {situation.stem for situation in SITUATIONS} == asked
