"""What a plan says beside where pods go."""

import msgspec

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement
from tests.unit.scheduling.builders import (
    node,
    planned,
    pod,
    pods,
    pool,
)


def test_problems_of_pools_become_notes() -> None:
    plan = planned(pod(), pools=[pool(problems=("unknown field spec.limit, did you mean limits?",))])
    assert plan.notes == ("NodePool default: unknown field spec.limit, did you mean limits?",)


def test_the_work_is_counted_and_bounded() -> None:
    assert planned(*pods(50, cpu="300m")).work_units > 0


def test_what_cannot_be_read_stops_nothing_else() -> None:
    broken = msgspec.structs.replace(node("n1"), read_error="status.allocatable.cpu: '?'")
    claim = NodeClaim(ObjectMeta("c1"), NodeClassReference("", "", ""), read_error="spec.expireAfter: 'soon'")
    plan = planned(pod(), nodes=(broken, node("n2")), nodeclaims=(claim,))
    assert [(assignment.name, assignment.pods) for assignment in plan.existing_nodes] == [("n2", ("default/p",))]
    assert plan.read_errors == {"nodeclaims/c1": "spec.expireAfter: 'soon'", "nodes/n1": "status.allocatable.cpu: '?'"}
    assert "Node n1 takes no pods, for it cannot be read: status.allocatable.cpu: '?'" in plan.notes


def test_a_pool_that_selects_nothing_says_so_without_a_pod() -> None:
    plan = planned(pools=[pool("none", NodeSelectorRequirement(labels.ARCH, "In", ("arm64",))), pool("some")])
    assert list(plan.nodepools_without_offerings) == ["none"]
    assert (
        "filtered out all available instance types: none has kubernetes.io/arch In [arm64]"
        in plan.nodepools_without_offerings["none"]
    )
    assert plan.notes[0].startswith("NodePool none makes no nodes: the pool's requirements filtered out")
