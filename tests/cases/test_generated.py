"""Random cases that nobody has looked at: their plans break no rule either.

``python -m bench.cases`` does the same for many more seeds and for thousands of pods.
"""

import json
from pathlib import Path

import pytest

from spotwright.cli.inputs.catalog_file import read_catalog_file
from spotwright.cli.inputs.manifest_snapshot import decode_snapshot
from spotwright.cli.inputs.sources import read_documents
from spotwright.cli.text.plan_json import plan_to_json
from spotwright.cli.text.plan_report import PlanReport
from spotwright.scheduling.pod_planner import plan_pods
from tests.cases.generator.draft import PROFILES
from tests.cases.generator.writing import case, small, text
from tests.cases.judge.catalog import find_catalog
from tests.cases.judge.cluster import load
from tests.cases.judge.loader import read
from tests.cases.judge.verdict import judge

HERE = Path(__file__).parent
SEEDS = (101, 102)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", SEEDS)
def test_plans_of_random_cases_break_no_rule(tmp_path: Path, profile: str, seed: int) -> None:
    file = tmp_path / f"{profile}-{seed}.yaml"
    file.write_text(text(case(seed, profile, 40)))
    (tmp_path / "catalogs").symlink_to(HERE / "catalogs")
    content = read(file)
    catalog = read_catalog_file(str(find_catalog(content["catalog"], file)))
    plan = plan_pods(decode_snapshot(read_documents([str(file)])), catalog)
    assert not judge(json.loads(plan_to_json(PlanReport(plan))), load(file)).violations


def test_equal_seeds_make_equal_cases() -> None:
    stored = HERE / "random" / "full-0003.yaml"
    assert small(3, "full", 60, kilobytes=40) == stored.read_text()
