"""Cases near limits: plans break no rule, and leave no more pods than Karpenter's own scheduler does.

``limits/karpenter.json`` holds how many pods Karpenter's scheduler (sigs.k8s.io/karpenter v1.14.1) leaves in each case.
"""

import json
from pathlib import Path

import pytest

from spotwright.cli.inputs.catalog_file import read_catalog_file
from spotwright.cli.inputs.documents import read_documents
from spotwright.cli.inputs.manifest_snapshot import decode_snapshot
from spotwright.cli.text.plan_json import plan_to_json
from spotwright.cli.text.plan_report import PlanReport
from spotwright.model.ec2.instance_type import Catalog
from spotwright.scheduling.pod_planner import plan_pods
from tests.cases.generator.limits import CATALOG, limits_case
from tests.cases.generator.writing import text
from tests.cases.judge.cluster import load
from tests.cases.judge.verdict import judge

HERE = Path(__file__).parent
LEFT: dict[str, int] = json.loads((HERE / "limits" / "karpenter.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for cases, with a catalog of the families c, m, r and t."""
    made = tmp_path_factory.mktemp("limits")
    parts = [json.loads((HERE / "catalogs" / f"aws-us-east-1-{part}.json").read_text()) for part in ("cmr", "t")]
    types = [instance_type for part in parts for instance_type in part["instanceTypes"]]
    (made / "catalogs").mkdir()
    (made / "catalogs" / f"{CATALOG}.json").write_text(json.dumps({"instanceTypes": types}))
    return made


@pytest.fixture(scope="module")
def catalog(folder: Path) -> Catalog:
    return read_catalog_file(str(folder / "catalogs" / f"{CATALOG}.json"))


@pytest.mark.parametrize("seed", range(1, 61))
def test_plans_near_limits_are_legal_and_leave_no_more_pods_than_karpenter(
    folder: Path, catalog: Catalog, seed: int
) -> None:
    case = limits_case(seed)
    file = folder / f"{case['name']}.yaml"
    file.write_text(text(case))
    plan = plan_pods(decode_snapshot(read_documents([str(file)])), catalog)
    assert not judge(json.loads(plan_to_json(PlanReport(plan))), load(file)).violations
    assert len(plan.unschedulable_pods) <= LEFT[case["name"]]
