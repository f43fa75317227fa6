"""Laws of limits: they hold whatever is launched, with minValues, and cost nothing where they bind nobody."""

from collections import Counter
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from tests.property.plans import LAWS, clusters, deployments, left, planned, unlimited
from tests.unit.scheduling.builders import TYPES, pool, reserving, snapshot

CAPACITY = {instance_type.name: instance_type.capacity for instance_type in TYPES}
HEAVY, LIGHT = "heavy", "light"

limited_clusters: st.SearchStrategy[Snapshot] = st.builds(
    lambda groups, cpu, memory, nodes, least: snapshot(
        *(pod for group in groups for pod in group),
        pools=(
            pool(
                "default",
                NodeSelectorRequirement(labels.INSTANCE_TYPE, "Exists", min_values=least),
                limits={"cpu": str(cpu), "memory": f"{memory}Gi", "nodes": str(nodes)},
            ),
        ),
    ),
    st.lists(deployments(), min_size=1, max_size=5, unique_by=lambda group: group[0].metadata.labels["app"]),
    st.integers(0, 40),
    st.integers(0, 80),
    st.integers(0, 8),
    st.sampled_from((None, None, 2, 3)),
)

two_limited_pools: st.SearchStrategy[Snapshot] = st.builds(
    lambda groups, heavy, light, memory: snapshot(
        *(pod for group in groups for pod in group),
        pools=(
            pool(HEAVY, weight=10, limits={"cpu": str(heavy), "memory": f"{memory}Gi"}),
            pool(LIGHT, weight=1, limits={"cpu": str(light)}),
        ),
    ),
    st.lists(deployments(), min_size=1, max_size=5, unique_by=lambda group: group[0].metadata.labels["app"]),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 80),
)


def counted(plan: Plan, nodepool: str) -> dict[str, int]:
    """What the new nodes of a pool count, each as the largest of the types it lists."""
    largest = [
        resources.maximum(CAPACITY[name] for name in node.instance_types) | {resources.NODES: 1}
        for node in plan.new_nodes
        if node.nodepool == nodepool
    ]
    return resources.add(*largest)


@LAWS
@given(st.one_of(clusters, limited_clusters))
def test_limits_hold_whatever_is_launched(cluster: Snapshot) -> None:
    plan = planned(cluster)
    for nodepool in cluster.nodepools:
        total = counted(plan, nodepool.name)
        assert all(total.get(name, 0) <= limit for name, limit in nodepool.limits.items())


@LAWS
@given(limited_clusters)
def test_minvalues_hold_within_limits(cluster: Snapshot) -> None:
    least = max(requirement.min_values or 1 for requirement in cluster.nodepools[0].requirements)
    assert all(len(node.instance_types) >= least for node in planned(cluster).new_nodes)


@LAWS
@given(clusters, st.sampled_from(("cpu", "memory", "nodes")))
def test_limits_that_bind_nobody_change_nothing(cluster: Snapshot, name: str) -> None:
    """The limits are exactly what the nodes of the plan without limits count, each as the type it was planned for."""
    free = unlimited(cluster)
    without = planned(free)
    used = {
        nodepool.name: sum(
            1 if name == resources.NODES else CAPACITY[node.instance_types[0]][name]
            for node in without.new_nodes
            if node.nodepool == nodepool.name
        )
        for nodepool in free.nodepools
    }
    pools = tuple(msgspec.structs.replace(nodepool, limits={name: used[nodepool.name]}) for nodepool in free.nodepools)
    within = planned(msgspec.structs.replace(free, nodepools=pools))
    assert [node.pods for node in within.new_nodes] == [node.pods for node in without.new_nodes]
    assert within.price_picousd_per_hour == without.price_picousd_per_hour


@LAWS
@given(limited_clusters, st.randoms(use_true_random=False))
def test_the_order_in_which_things_are_listed_means_nothing_within_limits(cluster: Snapshot, random: Random) -> None:
    """Which of equal nodes gets more types, and which of equal pods is left, are ties that the order must not break."""
    first = msgspec.structs.replace(
        cluster, nodepools=(*cluster.nodepools, pool("first", weight=10, limits={"cpu": "6"}), pool("same"))
    )
    mixed = {name: random.sample(getattr(first, name), len(getattr(first, name))) for name in ("pods", "nodepools")}
    other = msgspec.structs.replace(first, **{name: tuple(items) for name, items in mixed.items()})
    assert planned(other) == planned(first)


@LAWS
@given(limited_clusters)
def test_a_plan_within_limits_is_made_again_from_what_is_stored(cluster: Snapshot) -> None:
    stored = msgspec.json.decode(msgspec.json.encode(cluster), type=Snapshot)
    assert planned(stored) == planned(cluster)


@LAWS
@given(
    st.one_of(limited_clusters, two_limited_pools),
    st.lists(st.integers(1, 4), min_size=len(TYPES), max_size=len(TYPES)),
)
def test_reservations_keep_limits_and_minvalues_and_leave_no_more_pods(cluster: Snapshot, instances: list[int]) -> None:
    """Each type has a reservation of its own, of so many instances."""
    reserved = tuple(
        reserving(instance_type, count, f"cr-{instance_type.name}")
        for instance_type, count in zip(TYPES, instances, strict=True)
    )
    plan, without = planned(cluster, Catalog({"": reserved})), planned(cluster)
    assert left(plan).total() <= left(without).total()
    used = Counter(node.instance_types[0] for node in plan.new_nodes if node.capacity_type == labels.RESERVED)
    assert all(used[each.name] <= count for each, count in zip(TYPES, instances, strict=True))
    for nodepool in cluster.nodepools:
        total = counted(plan, nodepool.name)
        assert all(total.get(name, 0) <= limit for name, limit in nodepool.limits.items())
        least = max((requirement.min_values or 1 for requirement in nodepool.requirements), default=1)
        nodes = [node for node in plan.new_nodes if node.nodepool == nodepool.name]
        assert all(len(node.instance_types) >= least for node in nodes)


@settings(LAWS, derandomize=True)
@given(two_limited_pools)
def test_two_limited_pools_leave_no_more_pods_than_either_alone(cluster: Snapshot) -> None:
    """The same clusters in every run: the search is bounded, and in one of some hundred clusters a pod more is left."""
    both = planned(cluster)
    for nodepool in cluster.nodepools:
        alone = planned(msgspec.structs.replace(cluster, nodepools=(nodepool,)))
        assert len(both.unschedulable_pods) <= len(alone.unschedulable_pods)


@LAWS
@given(two_limited_pools)
def test_a_lighter_pool_gets_nodes_only_for_what_the_limits_of_the_heavier_have_no_room_for(cluster: Snapshot) -> None:
    """Nodes of the heavier pool count as the types they were planned for; what these leave holds no lighter node."""
    plan, heavy = planned(cluster), cluster.nodepools[0]
    used = resources.add(*(CAPACITY[node.instance_types[0]] for node in plan.new_nodes if node.nodepool == HEAVY))
    for node in plan.new_nodes:
        fitting = [
            instance_type.name
            for instance_type in TYPES
            if resources.fits(node.requests, instance_type.allocatable)
            and all(used.get(name, 0) + instance_type.capacity[name] <= limit for name, limit in heavy.limits.items())
        ]
        assert node.nodepool == HEAVY or not fitting
