"""Which pods need a node, and which are left alone."""

import pytest

from spotwright.model import labels
from spotwright.model.requirements import NodeSelectorRequirement
from tests.unit.scheduling.builders import (
    owned_by,
    planned,
    pod,
    why,
)


class TestCandidates:
    @pytest.mark.parametrize(
        ("waiting", "reason"),
        [
            (pod(owner_references=owned_by("DaemonSet")), "DaemonSet"),
            (pod(nominated_node_name="n1"), "nominatedNodeName"),
            (pod(unschedulable=False), "Unschedulable"),
            (pod(read_error="cpu: 'x' is not a quantity"), "cpu"),
            (pod(node_affinity=((NodeSelectorRequirement(labels.NODEPOOL, "DoesNotExist"),),)), labels.NODEPOOL),
            (pod(node_selector={labels.HOSTNAME: "n1"}), labels.HOSTNAME),
            (pod(node_selector={"karpenter.sh/other": "x"}), "karpenter.sh/other"),
            (pod(node_affinity=((NodeSelectorRequirement("a", "Gt", ("b",)),),)), "integer"),
            (pod(node_selector={labels.CAPACITY_TYPE: "bogus"}), "on-demand, reserved, spot"),
            (pod(node_selector={"bad key": "x"}), "bad key"),
        ],
    )
    def test_what_is_no_candidate_is_ignored_with_the_reason(self, waiting: object, reason: str) -> None:
        plan = planned(waiting)  # type: ignore[arg-type]
        assert plan.new_nodes == ()
        assert reason in "; ".join(plan.ignored_pods[0].reasons)

    def test_what_is_not_handled_is_refused_by_its_field(self) -> None:
        plan = planned(pod(unsupported_fields=("spec.resourceClaims",)))
        assert why(plan) == {"default/p": "spec.resourceClaims is not handled yet"}

    def test_finished_pods_are_nobody_s_concern(self) -> None:
        plan = planned(pod(phase="Succeeded"), pod("q", phase="Failed"))
        assert (plan.unschedulable_pods, plan.ignored_pods) == ((), ())
