"""Where a plan says that no cheaper nodes exist, none do: compared with every way to share the pods among nodes."""

from functools import cache
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog, InstanceType, Offering
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import TopologySpreadConstraint
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.packing.problem import PER_NODE_COST_PICOUSD_PER_HOUR
from spotwright.scheduling.pod_planner import plan_pods
from tests.property.plans import LAWS
from tests.unit.scheduling.builders import TYPES, daemonset, instance, node, pod, pool, snapshot, zone_is

HUGE = instance("huge", 128, 256, 5.0)
GPU = instance("gpu", 8, 16, 0.5, capacity={"nvidia.com/gpu": 1})
ALL_TYPES = (*TYPES, HUGE, GPU)
SELECTORS: tuple[dict[str, str], ...] = (
    {},
    {},
    {labels.ZONE: "z2"},
    {labels.CAPACITY_TYPE: labels.ON_DEMAND},
    {labels.INSTANCE_TYPE: "gpu"},
)

percents = st.dictionaries(st.sampled_from([one.name for one in ALL_TYPES]), st.integers(3, 100))
# cpu, memory, how many, and which node selector.
groups = st.lists(
    st.tuples(
        st.sampled_from(("250m", "1", "1900m", "3", "7", "50")),
        st.sampled_from(("500Mi", "3Gi", "14Gi")),
        st.integers(1, 3),
        st.sampled_from(SELECTORS),
    ),
    min_size=1,
    max_size=3,
)


def pods_of(groups: list[tuple[str, str, int, dict[str, str]]]) -> list[Pod]:
    return [
        pod(f"app-{g}-{n}", cpu, memory, node_selector=selector)
        for g, (cpu, memory, count, selector) in enumerate(groups)
        for n in range(count)
    ]


def catalog_at(percent: dict[str, int]) -> tuple[InstanceType, ...]:
    return tuple(
        msgspec.structs.replace(
            one,
            offerings=tuple(
                msgspec.structs.replace(
                    offering, price_picousd_per_hour=offering.price_picousd_per_hour * percent.get(one.name, 100) // 100
                )
                for offering in one.offerings
            ),
        )
        for one in ALL_TYPES
    )


def least_cost(pods: list[Pod], types: tuple[InstanceType, ...]) -> int:
    """The least cost of nodes for the pods, of all ways to share them."""
    offered = [(one, offering) for one in types for offering in one.offerings]
    everything = (1 << len(pods)) - 1

    def node_cost(chosen: int) -> int | None:
        on_node = [one for number, one in enumerate(pods) if chosen >> number & 1]
        prices = [offering.price_picousd_per_hour for one, offering in offered if _holds(one, offering, on_node)]
        return min(prices) + PER_NODE_COST_PICOUSD_PER_HOUR if prices else None

    @cache
    def best(left: int) -> int | None:
        if not left:
            return 0
        first, costs = left & -left, list[int]()
        subset = left
        while subset:
            if (
                subset & first
                and (cost := node_cost(subset)) is not None
                and (rest := best(left & ~subset)) is not None
            ):
                costs.append(cost + rest)
            subset = (subset - 1) & left
        return min(costs, default=None)

    least = best(everything)
    assert least is not None
    return least


def _holds(one: InstanceType, offering: Offering, pods: list[Pod]) -> bool:
    stated = {
        labels.ZONE: offering.zone,
        labels.CAPACITY_TYPE: offering.capacity_type,
        labels.INSTANCE_TYPE: one.name,
    }
    return all(stated[key] == value for each in pods for key, value in each.node_selector.items()) and all(
        sum(each.requests.get(name, 0) for each in pods) <= one.capacity[name] for name in ("cpu", "memory", "pods")
    )


@LAWS
@given(groups, percents, st.sampled_from(({}, {"cpu": "1000"}, {"cpu": "8"}, {"nodes": "2"})))
@example([("7", "500Mi", 1, {})], {"gpu": 3}, {})
@example([("50", "500Mi", 2, {})], {}, {})
@example([("250m", "500Mi", 3, {}), ("3", "3Gi", 3, {})], {"huge": 3}, {"cpu": "1000"})
def test_where_no_cheaper_nodes_are_said_to_exist_none_do(
    groups: list[tuple[str, str, int, dict[str, str]]], percent: dict[str, int], limits: dict[str, str]
) -> None:
    pods, types = pods_of(groups), catalog_at(percent)
    plan = plan_pods(snapshot(*pods, pools=(pool("plain", limits=limits),)), Catalog({"": types}))
    placed = {key for new_node in plan.new_nodes for key in new_node.pods}
    cost = plan.price_picousd_per_hour + PER_NODE_COST_PICOUSD_PER_HOUR * len(plan.new_nodes)
    if plan.is_cheapest:
        assert cost == least_cost([one for one in pods if one.key in placed], types)


def is_cheapest(cluster: Snapshot, types: tuple[InstanceType, ...] = ALL_TYPES) -> bool:
    return plan_pods(cluster, Catalog({"": types})).is_cheapest


def test_it_is_said_of_few_pods_without_rules() -> None:
    pods = pods_of([("250m", "500Mi", 3, {}), ("3", "3Gi", 3, {})])
    assert is_cheapest(snapshot(*pods, pools=(pool("plain"),)))
    assert is_cheapest(snapshot(*pods, pools=(pool("plain", limits={"cpu": "1000"}),)))


def test_it_is_not_said_where_something_else_decides() -> None:
    few, plain = pods_of([("1", "500Mi", 3, {})]), pool("plain")
    assert not is_cheapest(snapshot(*few, pools=(plain, pool("heavy", weight=10))))
    assert not is_cheapest(snapshot(*few, pools=(pool("plain", limits={"cpu": "2"}),)))
    assert not is_cheapest(snapshot(*few, nodes=(node("n1", 2),), pools=(plain,)))
    mine = (NodeSelectorRequirement("app", "In", ("a",)),)
    spread = (TopologySpreadConstraint(labels.ZONE, 1, mine),)
    ruled = [pod(f"a-{n}", "1", labels={"app": "a"}, topology_spread_constraints=spread) for n in range(3)]
    assert not is_cheapest(snapshot(*ruled, pools=(plain,)))
    preferring = [pod(f"b-{n}", "1", preferred_node_affinity=((1, (zone_is("z2"),)),)) for n in range(2)]
    assert not is_cheapest(snapshot(*preferring, pools=(plain,)))


def test_it_is_not_said_where_a_daemonset_counts_on_nodes_on_which_it_does_not_run() -> None:
    """One of z1 counts on the nodes of all zones: without it a small node of z2 would have room for the pod."""
    few, plain = pods_of([("1900m", "500Mi", 1, {})]), pool("plain")

    def is_cheapest_beside(**fields: Any) -> bool:
        return is_cheapest(snapshot(*few, pools=(plain,), daemonsets=(daemonset(cpu="500m", **fields),)))

    assert is_cheapest_beside()
    assert is_cheapest_beside(node_selector={labels.ARCH: "amd64", labels.OS: "linux"})
    assert not is_cheapest_beside(node_selector={labels.ZONE: "z1"})
    spot = NodeSelectorRequirement(labels.CAPACITY_TYPE, "NotIn", (labels.SPOT,))
    assert not is_cheapest_beside(node_affinity=((spot,),))
    plain = pool("plain", NodeSelectorRequirement("team", "In", ("a", "b")))
    assert not is_cheapest_beside(node_selector={"team": "a"})


def test_it_is_not_said_where_a_node_for_special_needs_would_be_cheaper() -> None:
    cluster = snapshot(*pods_of([("7", "500Mi", 1, {})]), pools=(pool("plain"),))
    assert is_cheapest(cluster)
    assert not is_cheapest(cluster, catalog_at({"gpu": 3}))
