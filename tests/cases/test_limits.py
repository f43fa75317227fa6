"""Cases near limits: plans break no rule, and leave no more pods than Karpenter's own scheduler does.

Where limits leave a spot node fewer than 15 types of more that would do, the plan says so.
``limits/karpenter.json`` holds how many pods Karpenter's scheduler (sigs.k8s.io/karpenter v1.14.1) leaves in each case.
"""

import json
import re
from pathlib import Path

import pytest

from spotwright.cli.inputs.catalog_file import read_catalog_file
from spotwright.cli.inputs.manifest_snapshot import decode_snapshot
from spotwright.cli.inputs.sources import read_documents
from spotwright.cli.text.plan_json import plan_to_json
from spotwright.cli.text.plan_report import PlanReport
from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.requirements import from_expressions
from spotwright.scheduling.capacity.limit_shares import MIN_SPOT_INSTANCE_TYPES
from spotwright.scheduling.inputs.nodeclaim_templates import can_meet
from spotwright.scheduling.plan import NewNode
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


def count_spot_types(node: NewNode, nodepool: NodePool, catalog: Catalog) -> int:
    """How many types that a NodePool allows are sold as spot and hold what is on a node."""
    requirements = from_expressions(nodepool.requirements)
    return sum(
        resources.fits(node.requests, instance_type.allocatable)
        and all(can_meet(instance_type.requirements.get(asked.key), asked) for asked in requirements)
        and any(offering.capacity_type == labels.SPOT and offering.available for offering in instance_type.offerings)
        for instance_type in catalog.instance_types("")
    )


@pytest.mark.parametrize("seed", range(1, 61))
def test_plans_near_limits_are_legal_and_leave_no_more_pods_than_karpenter(
    folder: Path, catalog: Catalog, seed: int
) -> None:
    case = limits_case(seed)
    file = folder / f"{case['name']}.yaml"
    file.write_text(text(case))
    snapshot = decode_snapshot(read_documents([str(file)]))
    plan = plan_pods(snapshot, catalog)
    assert not judge(json.loads(plan_to_json(PlanReport(plan))), load(file)).violations
    assert len(plan.unschedulable_pods) <= LEFT[case["name"]]
    pools = {nodepool.name: nodepool for nodepool in snapshot.nodepools}
    for node in plan.new_nodes:
        if node.capacity_type == labels.SPOT and len(node.instance_types) < MIN_SPOT_INSTANCE_TYPES:
            is_said = any(re.match(f"NodePool {node.nodepool}: .* new spot node", note) for note in plan.notes)
            assert is_said or len(node.instance_types) == count_spot_types(node, pools[node.nodepool], catalog)
