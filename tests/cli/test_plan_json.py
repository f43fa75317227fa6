"""The JSON of a plan: as docs/plan.schema.json states it, whatever was planned."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from spotwright.cli import main
from spotwright.cli.text.plan_json import SCHEMA, plan_document
from spotwright.cli.text.plan_report import PlanReport
from spotwright.cli.text.workloads import Workloads
from spotwright.model.snapshot import Snapshot
from tests.property.plans import LAWS, clusters, planned

ROOT = Path(__file__).parents[2]
SCHEMA_FILE = ROOT / "docs" / "plan.schema.json"
PAGE = ROOT / "docs" / "plan-json.md"
VALIDATOR = Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))
INPUTS = sorted(
    [*(ROOT / "examples").glob("*.yaml"), *(ROOT / "tests" / "scenarios" / "reasons").glob("*.yaml")],
)


def check(document: Any) -> None:
    assert [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(document)] == []


@pytest.mark.parametrize("file", INPUTS, ids=lambda path: path.stem)
def test_what_is_printed_meets_the_schema(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-o", "json", "--validate=warn", str(file)]) == 0
    document = json.loads(capsys.readouterr().out)
    check(document)
    assert document["catalog"]["source"] in ("us-east-1, built in", "ap-northeast-2, built in")
    assert len(document["catalog"]["digest"]) == 16


@LAWS
@given(clusters)
def test_every_plan_meets_the_schema_and_counts_every_pod_once(cluster: Snapshot) -> None:
    document = plan_document(PlanReport(planned(cluster), Workloads(cluster.pods)))
    check(msgspec.json.decode(msgspec.json.encode(document)))
    workloads = document["workloads"]
    assert sorted(pod for workload in workloads for pod in workload["pods"]) == sorted(pod.key for pod in cluster.pods)
    for fate in ("podsOnNewNodes", "podsOnExistingNodes", "unschedulable", "ignored"):
        assert sum(workload[fate] for workload in workloads) == document["summary"][fate]


def test_the_schema_number_is_that_of_the_schema() -> None:
    assert json.loads(SCHEMA_FILE.read_text())["properties"]["schema"] == {"const": SCHEMA}


def test_every_field_is_described() -> None:
    page = PAGE.read_text()
    assert [name for name in sorted(_field_names(json.loads(SCHEMA_FILE.read_text()))) if f"`{name}`" not in page] == []


def _field_names(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set[str]().union(*map(_field_names, schema))
    if not isinstance(schema, dict):
        return set()
    names = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    return names.union(*map(_field_names, schema.values()))


def test_yaml_says_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    import yaml

    file = str(ROOT / "examples" / "planner.yaml")
    assert main(["plan", "-o", "json", file]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert main(["plan", "-o", "yaml", file]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == as_json
