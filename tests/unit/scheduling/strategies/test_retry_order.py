"""No pod is unschedulable only because other pods came first: it, or a pod its affinity names, then comes first."""

from spotwright.model import labels
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm, TopologySpreadConstraint
from spotwright.model.requirements import NodeSelectorRequirement
from tests.unit.scheduling.builders import (
    LARGE,
    MEDIUM,
    SMALL,
    instance,
    node,
    planned,
    pod,
    pods,
    pool,
    shown,
    why,
    zone_is,
)

WEB = (NodeSelectorRequirement("app", "In", ("web",)),)
IN_ZONE = PodAffinityTerm(labels.ZONE, WEB, ("default",))
ON_HOST = PodAffinityTerm(labels.HOSTNAME, WEB, ("default",))


def test_a_pod_goes_where_pods_with_affinity_to_it_can_follow() -> None:
    web = pods(3, "web", 1, labels={"app": "web"})
    follower = pod("follower", node_selector={labels.ZONE: "z2"}, pod_affinity=(IN_ZONE,))
    plan = planned(*web, follower)
    assert not why(plan)
    assert any("default/follower" in new_node.pods and new_node.zones == ("z2",) for new_node in plan.new_nodes)


def test_a_pod_goes_onto_the_instance_type_that_a_pod_with_affinity_to_it_needs() -> None:
    web = pod("web", 1, labels={"app": "web"})
    follower = pod("follower", node_selector={labels.ARCH: "arm64"}, pod_affinity=(ON_HOST,))
    plan = planned(web, follower, types=(SMALL, instance("arm", 4, 8, 0.3, labels={labels.ARCH: "arm64"})))
    assert not why(plan)
    assert [new_node.instance_types for new_node in plan.new_nodes] == [("arm",)]


def test_a_preference_the_planner_added_is_not_reported() -> None:
    web = pod("web", 1, labels={"app": "web"}, node_affinity=((zone_is("z1"),),))
    follower = pod("follower", node_selector={labels.ZONE: "z2"}, pod_affinity=(IN_ZONE,))
    plan = planned(web, follower)
    assert list(why(plan)) == ["default/follower"]
    assert not any(new_node.relaxed_preferences for new_node in plan.new_nodes)


def test_a_zone_is_left_to_a_pod_with_anti_affinity_that_can_use_no_other() -> None:
    web = pod("web", 2, labels={"app": "web"}, node_affinity=((zone_is("z1", "z2"),),))
    loner = pod("loner", node_selector={labels.ZONE: "z1"}, pod_anti_affinity=(IN_ZONE,))
    plan = planned(web, loner)
    assert not why(plan)
    assert sorted(new_node.zones for new_node in plan.new_nodes) == [("z1",), ("z2",)]


def test_a_limit_is_left_to_pods_that_have_no_other_pool() -> None:
    special = pool("special", labels={"kind": "special"}, limits={"cpu": "8"}, weight=10)
    bound = pods(4, "bound", 1, node_selector={"kind": "special"})
    plan = planned(*pods(4, "free", 2), *bound, pools=(special, pool("plain")), types=(LARGE,))
    assert not why(plan)


def test_existing_nodes_take_as_many_pods_as_possible() -> None:
    plan = planned(pod("big", 2), *pods(4, "small", 0.5), nodes=(node("n1", 2),), pools=())
    assert list(why(plan)) == ["default/big"]


def test_priority_counts_for_more_than_the_number_of_pods() -> None:
    plan = planned(pod("big", 2, priority=5), *pods(4, "small", 0.5), nodes=(node("n1", 2),), pools=())
    assert "default/big" not in why(plan)


def test_a_preference_that_no_node_meets_is_relaxed_before_any_pod_is_packed() -> None:
    nowhere = ((1, (NodeSelectorRequirement("example.com/none", "In", ("x",)),)),)
    plan = planned(pod("dreamer", 3, preferred_node_affinity=nowhere), pod("other", 1), types=(SMALL, MEDIUM))
    assert shown(plan) == ["medium x 2"]
    assert plan.new_nodes[0].relaxed_preferences == ("node preference example.com/none In [x] (1 pod)",)


def test_small_pods_do_not_keep_a_large_pod_off_an_existing_node() -> None:
    """A large and a small pod fill the node; the other large and the other small pod fit on a small node."""
    plan = planned(*pods(2, "large", 1, "3Gi"), *pods(2, "small", 0.5, "1Gi"), nodes=(node("n1", 2, "4Gi"),))
    assert shown(plan) == ["small x 2"]


def test_of_equal_pods_the_last_by_name_is_unschedulable() -> None:
    few = pool("few", limits={"nodes": "2"})
    waiting = (*pods(1, "a", 0.05), *pods(2, "b", 0.05), *pods(5, "c", 3, "64Mi"))
    assert list(why(planned(*waiting, pools=(few,)))) == ["default/c-4"]


def test_under_a_limit_on_nodes_few_large_nodes_hold_all_pods() -> None:
    """A medium and a small node are cheaper, and full before the last pod."""
    few = pool("few", limits={"nodes": "2"})
    plan = planned(*pods(6, "p", 1, "64Mi"), pod("last", 0.05, "64Mi"), pools=(few,), types=(SMALL, MEDIUM, LARGE))
    assert not why(plan)


def test_pods_that_spread_get_a_pod_their_affinity_names_in_each_zone() -> None:
    web = pods(6, "web", 1, labels={"app": "web"})
    own = (NodeSelectorRequirement("app", "In", ("follower",)),)
    spread = TopologySpreadConstraint(labels.ZONE, 1, own)
    followers = pods(
        6, "follower", labels={"app": "follower"}, pod_affinity=(IN_ZONE,), topology_spread_constraints=(spread,)
    )
    plan = planned(*web, *followers)
    assert not why(plan)
