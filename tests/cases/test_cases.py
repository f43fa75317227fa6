"""Every case: the plan keeps what the case expects, and an independent judge finds no broken rule.

The judge shares no code with the planner. Cases under ``random`` and ``traps`` expect nothing but legality; the traps
are clusters in which a scheduler that keeps its counts carelessly breaks a rule. ``random/karpenter.json`` holds what
Karpenter's own scheduler (sigs.k8s.io/karpenter v1.14.1) decides: its cheapest of five runs, and whom it leaves.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spotwright.cli.inputs.catalog_file import read_catalog_file
from spotwright.cli.inputs.manifest_snapshot import decode_snapshot
from spotwright.cli.inputs.sources import read_documents
from spotwright.cli.text.plan_json import plan_to_json
from spotwright.cli.text.plan_report import PlanReport
from spotwright.model.ec2.instance_type import Catalog
from spotwright.scheduling.pod_planner import plan_pods
from tests.cases.judge.catalog import find_catalog
from tests.cases.judge.cluster import load
from tests.cases.judge.expectations import broken
from tests.cases.judge.loader import read
from tests.cases.judge.verdict import judge

HERE = Path(__file__).parent
CASES = sorted((HERE / "scheduling").glob("*.yaml"))
RANDOM = sorted((HERE / "random").glob("*.yaml"))
TRAPS = sorted((HERE / "traps").glob("*.yaml"))
PROFILES = sorted({case.stem.partition("-")[0] for case in RANDOM})


@cache
def catalog(path: Path) -> Catalog:
    return read_catalog_file(str(path))


@cache
def planned(case: Path) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """The case, its plan as other programs read it, and its catalog."""
    content = read(case)
    path = find_catalog(content["catalog"], case)
    plan = plan_pods(decode_snapshot(read_documents([str(case)])), catalog(path))
    return content, json.loads(plan_to_json(PlanReport(plan))), path


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_plan_keeps_what_the_case_expects(case: Path) -> None:
    content, made, path = planned(case)
    assert not list(broken(content, made, path))


@pytest.mark.parametrize("case", [*CASES, *RANDOM, *TRAPS], ids=lambda case: case.stem)
def test_no_rule_is_broken(case: Path) -> None:
    _, made, _ = planned(case)
    assert not judge(made, load(case)).violations


@pytest.mark.parametrize("profile", PROFILES)
def test_nodes_cost_no_more_than_karpenters(profile: str) -> None:
    """Together, over the cases of a profile in which both place the same pods."""
    peers, ours, theirs = json.loads((HERE / "random" / "karpenter.json").read_text()), 0.0, 0.0
    for case in RANDOM:
        _, made, _ = planned(case)
        peer = peers[case.stem]
        if case.stem.startswith(profile) and [one["pod"] for one in made["unschedulable"]] == peer["unschedulable"]:
            ours += made["pricePerHour"]
            theirs += peer["pricePerHour"]
    assert 0 < ours <= theirs


def test_there_are_cases() -> None:
    assert len(CASES) > 200
    assert len(RANDOM) > 50
    assert len(TRAPS) > 10
