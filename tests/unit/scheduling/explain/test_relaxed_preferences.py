"""What pods would rather have: kept while it can be, and named where it was given up."""

from spotwright.model import labels
from spotwright.model.kubernetes.pod_constraints import (
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement
from tests.unit.scheduling.builders import planned, pod, pods, pool, zone_is

SOFT = Taint("slow", "PreferNoSchedule")


class TestPreferences:
    def test_a_soft_taint_is_avoided_while_there_is_another_pool(self) -> None:
        slow = pool("a-slow", taints=(SOFT,), weight=50)
        assert [new_node.nodepool for new_node in planned(pod(), pools=[slow, pool("z")]).new_nodes] == ["z"]
        assert [new_node.nodepool for new_node in planned(pod(), pools=[slow]).new_nodes] == ["a-slow"]

    def test_the_heaviest_preference_that_can_be_met_is_met(self) -> None:
        wishes = ((100, (zone_is("nowhere"),)), (50, (zone_is("z2"),)), (1, (zone_is("z1"),)))
        (new_node,) = planned(pod(preferred_node_affinity=wishes)).new_nodes
        assert new_node.zones == ("z2",)

    def test_the_first_alternative_that_works_is_taken(self) -> None:
        (new_node,) = planned(pod(node_affinity=((zone_is("nowhere"),), (zone_is("z3"),), (zone_is("z1"),)))).new_nodes
        assert new_node.zones == ("z3",)


class TestGivenUp:
    def test_wishes_that_were_not_met_are_named_with_their_pods(self) -> None:
        wish = (1, (NodeSelectorRequirement(labels.ARCH, "In", ("arm64",)),))
        (new_node,) = planned(*pods(2, preferred_node_affinity=(wish,))).new_nodes
        assert new_node.relaxed_preferences == ("node preference kubernetes.io/arch In [arm64] (2 pods)",)

    def test_a_spread_that_gave_way_and_taints_that_were_suffered(self) -> None:
        web = (NodeSelectorRequirement("app", "In", ("web",)),)
        soft = TopologySpreadConstraint(labels.ZONE, 1, web, do_not_schedule=False)
        away = WeightedPodAffinityTerm(5, PodAffinityTerm(labels.HOSTNAME, web, ("default",)))
        waiting = pods(
            2, labels={"app": "web"}, topology_spread_constraints=(soft,), preferred_pod_anti_affinity=(away,)
        )
        one_zone = [pool("default", zone_is("z1"), taints=(SOFT,))]
        (new_node,) = planned(*waiting, pools=one_zone).new_nodes
        assert new_node.relaxed_preferences == (
            "ScheduleAnyway spread over zones (2 pods)",
            "keeping away from PreferNoSchedule taints (2 pods)",
            "preferred pod anti-affinity over hosts (2 pods)",
        )

    def test_a_wish_that_was_met_is_not_named(self) -> None:
        (new_node,) = planned(pod(preferred_node_affinity=((1, (zone_is("z2"),)),))).new_nodes
        assert (new_node.relaxed_preferences, new_node.zones) == ((), ("z2",))
