"""NodePools by weight and price, within their limits."""

import pytest

from spotwright.model import labels
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.kubernetes.taints import Taint, Toleration
from spotwright.model.requirements import NodeSelectorRequirement
from tests.unit.scheduling.builders import (
    node,
    planned,
    pod,
    pods,
    pool,
    why,
    zone_is,
)

ON_DEMAND = NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.ON_DEMAND,))


BATCH = Taint("dedicated", "NoSchedule", "batch")


class TestPools:
    def test_the_heavier_pool_is_used_while_it_can(self) -> None:
        heavy, light = pool("heavy", ON_DEMAND, weight=10), pool("light")
        assert {new_node.nodepool for new_node in planned(*pods(5, cpu=1), pools=[light, heavy]).new_nodes} == {"heavy"}

    def test_a_pod_of_a_heavier_pool_joins_a_node_that_a_lighter_one_makes_anyway(self) -> None:
        heavy, light = pool("heavy", weight=10, taints=(BATCH,)), pool("light")
        batch = pod("batch", cpu=1, memory="1Gi", tolerations=(Toleration("dedicated", "Exists"),))
        plan = planned(batch, pod("web", cpu=1, memory="1Gi"), pools=[heavy, light])
        assert [(new_node.nodepool, new_node.pods) for new_node in plan.new_nodes] == [
            ("light", ("default/batch", "default/web"))
        ]

    def test_among_equal_weights_the_price_decides(self) -> None:
        dear, cheap = (
            pool("a-dear", ON_DEMAND),
            pool("b-cheap", NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.SPOT,))),
        )
        assert {new_node.nodepool for new_node in planned(*pods(5, cpu=1), pools=[dear, cheap]).new_nodes} == {
            "b-cheap"
        }

    def test_the_lighter_pool_takes_what_the_limit_of_the_heavier_leaves(self) -> None:
        heavy = pool("heavy", weight=10, limits={"cpu": "4"})
        plan = planned(*pods(8, cpu=1, memory="1Gi"), pools=[heavy, pool("light")])
        assert plan.unschedulable_pods == ()
        assert {new_node.nodepool for new_node in plan.new_nodes} == {"heavy", "light"}

    def test_limits_hold_whichever_type_is_launched(self) -> None:
        plan = planned(*pods(10, cpu=1, memory="1Gi"), pools=[pool(limits={"cpu": "8"})])
        most = {"small": 2, "medium": 4, "large": 8, "fat": 4}
        assert sum(max(most[name] for name in new_node.instance_types) for new_node in plan.new_nodes) <= 8
        assert len(plan.unschedulable_pods) == 2
        assert "limit cpu 8 is used up by " in why(plan)[plan.unschedulable_pods[0].pod]

    def test_a_pool_far_from_its_limits_keeps_all_types(self) -> None:
        (new_node,) = planned(pod(), pools=[pool(limits={"cpu": "100"})]).new_nodes
        assert len(new_node.instance_types) == 4

    def test_nodes_there_are_count_against_the_limits(self) -> None:
        plan = planned(pod(cpu=3), pools=[pool(limits={"cpu": "6"})], nodes=(node("n1", cpu=4, taints=(BATCH,)),))
        assert plan.new_nodes == ()

    def test_the_number_of_nodes_is_limited(self) -> None:
        plan = planned(*pods(3, cpu=7), pools=[pool(limits={"nodes": "2"})])
        assert (len(plan.new_nodes), len(plan.unschedulable_pods)) == (2, 1)

    @pytest.mark.parametrize(
        ("closed", "reason"),
        [
            (pool(replicas=2), "static"),
            (pool(conditions=(Condition("Ready", "False", message="no subnets"),)), "not Ready: no subnets"),
            (
                pool("default", NodeSelectorRequirement("a", "In", ("1",)), labels={"a": "2"}),
                "label a=2 (spec.template.metadata.labels)",
            ),
            (pool("default", NodeSelectorRequirement("a", "Gt", ("x",))), "invalid"),
            (pool("default", zone_is("z9")), "z9"),
        ],
        ids=["static", "not ready", "contradiction", "invalid", "nowhere"],
    )
    def test_a_pool_that_makes_no_nodes_says_why_and_stops_no_other(self, closed: object, reason: str) -> None:
        plan = planned(pod(), pools=[closed])
        assert reason in why(plan)["default/p"]
        assert len(planned(pod(), pools=[closed, pool("other")]).new_nodes) == 1

    def test_a_node_carries_labels_and_taints_of_its_pool(self) -> None:
        own = pool("batch", NodeSelectorRequirement("rack", "In", ("r2", "r1")), labels={"team": "a"}, taints=(BATCH,))
        tolerant = pod(tolerations=(Toleration("dedicated", "Exists"),))
        (new_node,) = planned(tolerant, pools=[own]).new_nodes
        assert new_node.taints == (BATCH,)
        assert (new_node.labels["team"], new_node.labels[labels.NODEPOOL]) == ("a", "batch")
        assert new_node.labels["rack"] in ("r1", "r2")

    def test_pods_that_need_different_values_of_an_open_label_are_parted(self) -> None:
        racks = pool("default", NodeSelectorRequirement("rack", "Exists"))
        pod_of_r1, pod_of_r2 = pod("a", node_selector={"rack": "r1"}), pod("b", node_selector={"rack": "r2"})
        neither = pod("c", node_affinity=((NodeSelectorRequirement("rack", "NotIn", ("r1",)),),))
        plan = planned(pod_of_r1, pod_of_r2, neither, pools=[racks])
        assert {new_node.labels["rack"]: new_node.pods for new_node in plan.new_nodes} == {
            "r1": ("default/a",),
            "r2": ("default/b", "default/c"),
        }
