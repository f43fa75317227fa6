"""Limits of NodePools are part of the problem: fewest pods left, then the least price; minValues hold within them."""

from datetime import timedelta

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import TopologySpreadConstraint
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Settings
from tests.unit.scheduling.builders import (
    GIB,
    NOW,
    amounts,
    instance,
    node,
    planned,
    pod,
    pods,
    pool,
    reserving,
    shown,
    why,
    zone_is,
)

FAMILY = labels.INSTANCE_PREFIX + "instance-family"


def of_family(family: str, cpu: int, price: float) -> InstanceType:
    return instance(f"{family}.{cpu}", cpu, 2 * cpu, price, labels={FAMILY: family})


def families(least: int) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(FAMILY, "Exists", min_values=least)


# A core of the cheap type is not allocatable: the large type wastes less of a limit, and costs more per core.
CHEAP = msgspec.structs.replace(instance("cheap", 2, 8, 0.05), capacity=amounts(3, "8Gi"))
DENSE = instance("dense", 8, 32, 0.80)


def test_a_limit_is_not_used_up_by_cheap_nodes_that_waste_it() -> None:
    """Two cheap nodes are all that the limit allows, and hold four pods."""
    limited = pool(limits={"cpu": "8"})
    plan = planned(*pods(8, cpu=1), pools=(limited,), types=(CHEAP, DENSE))
    assert not why(plan)
    assert shown(plan) == ["dense x 8"]
    assert shown(planned(*pods(8, cpu=1), types=(CHEAP, DENSE))) == ["cheap x 2"] * 4


def test_a_limit_that_the_cheapest_plan_keeps_changes_nothing() -> None:
    waiting = pods(8, cpu=1)
    plan = planned(*waiting, pools=(pool(limits={"cpu": "12"}),), types=(CHEAP, DENSE))
    assert shown(plan) == shown(planned(*waiting, types=(CHEAP, DENSE)))


def test_a_pod_that_fits_on_no_type_takes_nothing_of_a_limit() -> None:
    waiting = pods(8, cpu=1)
    plan = planned(*waiting, pod("huge", cpu=100), pools=(pool(limits={"cpu": "12"}),), types=(CHEAP, DENSE))
    assert set(why(plan)) == {"default/huge"}
    assert shown(plan) == shown(planned(*waiting, types=(CHEAP, DENSE)))


def test_of_more_pods_than_a_limit_has_room_for_as_many_are_placed_as_fit() -> None:
    plan = planned(*pods(20, cpu=1), pools=(pool(limits={"cpu": "16"}),), types=(CHEAP, DENSE))
    assert len(why(plan)) == 4
    assert shown(plan) == ["dense x 8"] * 2


def test_pods_that_are_small_for_one_of_two_pools_come_first_there() -> None:
    """For the pool without a limit of memory the pods of little cpu are small, however much memory they ask for."""
    waiting = (*pods(3, "cores", 7, "64Mi"), *pods(3, "memory", "50m", "14Gi"))
    light = pool("light", weight=1, limits={"cpu": "8"})
    both = planned(*waiting, pools=(pool("heavy", weight=10, limits={"cpu": "0", "memory": "0"}), light))
    assert shown(both) == shown(planned(*waiting, pools=(light,))) == ["fat x 1", "fat x 2"]


def test_pods_of_different_zones_share_a_limit() -> None:
    limited = pool(limits={"cpu": "16"})
    waiting = [one for zone in ("z1", "z2") for one in pods(8, f"in-{zone}", 1, node_affinity=((zone_is(zone),),))]
    assert not why(planned(*waiting, pools=(limited,), types=(CHEAP, DENSE)))


def test_small_pods_are_not_left_for_large_ones() -> None:
    plan = planned(*pods(2, "large", 4), *pods(8, "small", 0.5), pools=(pool(limits={"cpu": "4"}),))
    assert set(why(plan)) == {"default/large-0", "default/large-1"}


def test_small_pods_come_first_where_the_limit_counts_nodes() -> None:
    """What pods request of a limit on nodes says nothing of their size."""
    waiting = (*pods(3, "large", 3), *pods(3, "small", 1))
    plan = planned(*waiting, nodes=(node("n", 4),), pools=(pool(limits={"nodes": "1"}),))
    assert set(why(plan)) == {f"default/large-{number}" for number in range(3)}


def test_pods_with_rules_do_not_make_the_last_node_small() -> None:
    """The second pod with a rule needs another zone; all others have room on one large node."""
    spread = TopologySpreadConstraint(labels.ZONE, 1, (NodeSelectorRequirement("app", "In", ("web",)),))
    ruled = pods(2, "ruled", 0.5, labels={"app": "web"}, topology_spread_constraints=(spread,))
    plan = planned(*ruled, *pods(10, "plain", 0.5), pools=(pool(limits={"nodes": "1"}),))
    assert shown(plan) == ["large x 11"]
    assert len(why(plan)) == 1


def test_a_large_pod_of_higher_priority_comes_before_many_small_ones() -> None:
    large = pods(1, "large", 4, priority=1)
    plan = planned(*large, *pods(8, "small", 0.5), pools=(pool(limits={"cpu": "4"}),))
    assert set(why(plan)) == {f"default/small-{number}" for number in range(8)}


TYPES = (of_family("a", 2, 0.1), of_family("b", 2, 0.2), of_family("c", 8, 0.9), of_family("d", 16, 1.7))


def test_minvalues_and_limits_hold_together() -> None:
    """Three families are to be listed, so a node counts the third smallest type, and the limit allows two nodes."""
    plan = planned(*pods(3, cpu=1.5), pools=(pool("default", families(3), limits={"cpu": "16"}),), types=TYPES)
    assert [new_node.instance_types for new_node in plan.new_nodes] == [("a.2", "b.2", "c.8")] * 2
    assert len(why(plan)) == 1


def test_a_node_whose_minvalues_exceed_the_limit_is_not_made() -> None:
    plan = planned(*pods(1, cpu=1.5), pools=(pool("default", families(3), limits={"cpu": "7"}),), types=TYPES)
    assert not plan.new_nodes
    assert len(why(plan)) == 1


def test_minvalues_that_need_not_be_kept_get_as_many_values_as_the_limit_allows() -> None:
    best_effort = Settings(min_values_policy="BestEffort")
    limited = pool("default", families(4), limits={"cpu": "8"})
    (new_node,) = planned(*pods(1, cpu=1.5), pools=(limited,), types=TYPES, settings=best_effort).new_nodes
    assert new_node.instance_types == ("a.2", "b.2", "c.8")
    assert [one.min_values for one in new_node.requirements if one.key == FAMILY] == [3]


def test_pods_that_may_use_few_families_get_no_node_that_breaks_minvalues() -> None:
    own = pods(1, "own", 1.5, node_affinity=((NodeSelectorRequirement(FAMILY, "In", ("a", "c")),),))
    limited = pool("default", families(2), limits={"cpu": "7"})
    plan = planned(*own, *pods(2, "any", 1.5), pools=(limited,), types=TYPES)
    assert set(why(plan)) == {"default/own-0"}
    assert {new_node.instance_types for new_node in plan.new_nodes} == {("a.2", "b.2")}


def test_the_lighter_pool_takes_what_the_limit_of_the_heavier_cannot_hold() -> None:
    heavy = pool("heavy", weight=10, limits={"cpu": "8", "memory": "100Gi"})
    plan = planned(*pods(20, cpu=1), pools=(heavy, pool("light")), types=(DENSE,))
    assert not why(plan)
    assert sorted((new_node.nodepool, len(new_node.pods)) for new_node in plan.new_nodes) == [
        ("heavy", 8),
        ("light", 4),
        ("light", 8),
    ]


def test_a_limit_on_memory_is_a_price_of_memory() -> None:
    lean = instance("lean", 4, 4, 0.5)
    wide = instance("wide", 4, 32, 0.3)
    plan = planned(*pods(8, cpu=1, memory="1Gi"), pools=(pool(limits={"memory": "8Gi"}),), types=(lean, wide))
    assert not why(plan)
    assert sum(GIB * 4 for _ in plan.new_nodes) == 8 * GIB


def test_what_only_a_lighter_pool_limits_has_a_price_where_the_heavier_would_hold_all_pods() -> None:
    """Without limits all pods go to the heavier pool, whose limit has room for no node."""
    narrow = msgspec.structs.replace(instance("narrow", 2, 8, 0.05), capacity=amounts(2, "12Gi"))
    pools = (pool("heavy", weight=10, limits={"cpu": "1"}), pool("light", limits={"memory": "32Gi"}))
    plan = planned(*pods(8, cpu=1, memory="1Gi"), pools=pools, types=(narrow, DENSE))
    assert not why(plan)
    assert shown(plan) == ["dense x 8"]


def test_minvalues_hold_with_types_of_which_none_has_as_much_of_everything() -> None:
    """More memory here, more slots for pods there: what both have is what a node of the limit's size can hold."""
    roomy = instance("roomy.2", 2, 8, 0.1, labels={FAMILY: "roomy"}, capacity={"pods": 4})
    narrow = instance("narrow.2", 2, 6, 0.1, labels={FAMILY: "narrow"})
    larger = instance("larger.8", 8, 32, 0.4, labels={FAMILY: "larger"})
    limited = pool("default", families(2), limits={"cpu": "2"})
    plan = planned(*pods(4, cpu=0.5, memory="1Gi"), pools=(limited,), types=(roomy, narrow, larger))
    assert not why(plan)
    assert [new_node.instance_types for new_node in plan.new_nodes] == [("narrow.2", "roomy.2")]


def test_what_is_left_of_a_limit_buys_cheaper_types() -> None:
    """The limit has room for two dense nodes, or for one of them beside a wide node at half the price."""
    dense = instance("dense", 8, 8, 0.80)
    wide = instance("wide", 8, 16, 0.40)
    waiting = pods(2, cpu=7, memory="4Gi")
    plan = planned(*waiting, pools=(pool(limits={"memory": "24Gi"}),), types=(dense, wide))
    assert not why(plan)
    assert sorted(new_node.instance_types[0] for new_node in plan.new_nodes) == ["dense", "wide"]


def test_of_many_pods_small_ones_are_not_left_for_large_ones() -> None:
    large, small = pods(100, "large", 4), pods(450, "small", 0.5)
    plan = planned(*large, *small, pools=(pool(limits={"cpu": "225"}),))
    left = [key for key in why(plan) if key.startswith("default/small")]
    assert len(left) <= 0.01 * len(small)


def test_the_price_of_a_limit_does_not_keep_cheaper_types_away_from_what_is_left() -> None:
    """No price for memory buys the two wide nodes and no third: it is the rest of the limit that does."""
    dense = instance("dense", 8, 8, 0.80)
    wide = instance("wide", 8, 16, 0.40)
    waiting = pods(5, cpu=7, memory="4Gi")
    plan = planned(*waiting, pools=(pool(limits={"memory": "60Gi"}),), types=(dense, wide))
    assert shown(plan) == ["dense x 1"] * 3 + ["wide x 1"] * 2


def aged(waiting: Pod, minutes: int) -> Pod:
    created = msgspec.structs.replace(waiting.metadata, creation_timestamp=NOW - timedelta(minutes=minutes))
    return msgspec.structs.replace(waiting, metadata=created)


def test_an_older_pod_is_not_left_for_a_cheaper_node() -> None:
    """One node is allowed: a large one for the older pod or a small one for the younger."""
    old, young = aged(pod("old", 8), 60), aged(pod("young", 1), 1)
    plan = planned(young, old, pools=(pool(limits={"nodes": "1"}),))
    assert set(why(plan)) == {"default/young"}


def test_pods_that_cannot_share_the_last_node_come_in_the_order_of_age() -> None:
    """The oldest is neither among the smallest nor the largest."""
    waiting = [aged(pod(f"of-{cpu}", cpu), 60 if cpu == 7 else 1) for cpu in (5, 6, 7, 8)]
    plan = planned(*waiting, pools=(pool(limits={"nodes": "1"}),))
    assert set(why(plan)) == {f"default/of-{cpu}" for cpu in (5, 6, 8)}


def test_of_equal_pods_the_youngest_are_left() -> None:
    """Ages do not make the nodes smaller: the pods are packed together on a large node, not each on its own."""
    types = (instance("two", 2, 8, 0.10), instance("eight", 8, 32, 0.20))
    waiting = [aged(waiting, number) for number, waiting in enumerate(pods(9, cpu=1))]
    plan = planned(*waiting, pools=(pool(limits={"cpu": "8"}),), types=types)
    assert shown(plan) == ["eight x 8"]
    assert set(why(plan)) == {"default/p-0"}


def test_preferences_do_not_leave_pods_that_the_limit_has_room_for() -> None:
    """A node in each zone that pods would rather spread over uses the limit up with what nodes waste."""
    anywhere = TopologySpreadConstraint(
        labels.ZONE, 1, (NodeSelectorRequirement("app", "In", ("web",)),), do_not_schedule=False
    )
    waiting = pods(8, "web", 1, labels={"app": "web"}, topology_spread_constraints=(anywhere,))
    plan = planned(*waiting, pools=(pool(limits={"cpu": "8"}),), types=(CHEAP, DENSE))
    assert not why(plan)
    assert shown(plan) == ["dense x 8"]
    assert all(new_node.relaxed_preferences for new_node in plan.new_nodes)


def test_preferences_are_kept_where_giving_them_up_places_no_more_pods() -> None:
    zones = ((1, (zone_is("z2"),)), (2, (zone_is("z1"),)))
    waiting = pods(5, cpu=2, preferred_node_affinity=zones)
    plan = planned(*waiting, pools=(pool(limits={"cpu": "8"}),), types=(DENSE,))
    assert len(why(plan)) == 1
    assert {new_node.zones for new_node in plan.new_nodes} == {("z1",)}


def test_without_preferences_all_terms_of_the_required_node_affinity_count() -> None:
    """Only nodes of the first term's zone are large enough to keep the limit."""
    large = instance("large", 8, 32, 0.80, zones=("z1",))
    terms = ((zone_is("z1"),), (zone_is("z2"),))
    preferred = ((1, (zone_is("z2"),)),)
    waiting = pods(8, cpu=1, node_affinity=terms, preferred_node_affinity=preferred)
    plan = planned(*waiting, pools=(pool(limits={"cpu": "8"}),), types=(CHEAP, large))
    assert shown(plan) == ["large x 8"]


def test_limits_that_surely_leave_pods_take_little_more_work() -> None:
    waiting = pods(30, cpu=1)
    within = planned(*waiting, pools=(pool(limits={"cpu": "8"}),))
    assert len(why(within)) == 22
    assert within.work_units < 10 * planned(*waiting).work_units


def test_what_is_reserved_is_left_where_it_would_use_a_limit_up_for_few_pods() -> None:
    """Two reserved nodes are all that the limit allows, and hold four pods."""
    limited, types = pool(limits={"cpu": "8"}), (reserving(CHEAP, 5), DENSE)
    plan = planned(*pods(8, cpu=1), pools=(limited,), types=types)
    assert not why(plan)
    assert shown(plan) == ["dense x 8"]


def test_what_is_reserved_is_used_within_a_limit_that_has_room_for_it() -> None:
    limited, types = pool(limits={"cpu": "12"}), (reserving(CHEAP, 1), DENSE)
    plan = planned(*pods(8, cpu=1), pools=(limited,), types=types)
    assert not why(plan)
    assert "reserved" in {each.capacity_type for each in plan.new_nodes}


def test_a_node_that_needs_several_types_counts_on_no_reservation() -> None:
    demanding = pool("default", families(2))
    types = (reserving(of_family("a", 4, 0.2), 5), of_family("b", 4, 0.3))
    plan = planned(*pods(2, cpu=1), pools=(demanding,), types=types)
    assert not why(plan)
    assert {len(each.instance_types) for each in plan.new_nodes} == {2}
