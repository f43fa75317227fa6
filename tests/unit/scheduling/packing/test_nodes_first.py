"""Nodes are replaced by cheaper ones that hold their pods, where nothing forbids it."""

from spotwright.model import resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.undetermined_labels import UndeterminedLabels
from spotwright.scheduling.packing.bins import Items
from spotwright.scheduling.packing.host_constraints import HostConstraint
from spotwright.scheduling.packing.nodes_first import replace_nodes
from spotwright.scheduling.packing.problem import PackedNodes, Packing, PackingProblem, RemainingLimits
from tests.unit.scheduling.builders import GIB, TYPES, pool, snapshot

SIZE_BOUND = 48_000
BUDGET = 20_000
ONE_PER_HOST = HostConstraint(selecting_terms=[0], term_caps=[(0, 1)], avoided_terms=[], host_ports=[])


def problem(host_constraint: HostConstraint | None = None) -> PackingProblem:
    """Pods of 100m and 256Mi, of one class."""
    templates, _ = build_templates(snapshot(pools=(pool(),)), Catalog({"": TYPES}))
    index = OfferingIndex(templates, (), (resources.CPU, resources.MEMORY, resources.PODS))
    keys = UndeterminedLabels(index, ())
    return PackingProblem(index, Items([(100, GIB // 4, 1)]), [index.all_offerings], [-1], keys, [host_constraint])


def two_nodes(limits: RemainingLimits | None = None) -> Packing:
    """One pod on each of two nodes of the cheapest offering."""
    nodes = [PackedNodes(0, 1, {0: 1}), PackedNodes(0, 1, {0: 1})]
    return Packing(nodes, [0], limits or RemainingLimits([{}], {}), 0)


def replaced(packing: Packing, host_constraint: HostConstraint | None = None) -> list[tuple[int, dict[int, int]]]:
    replace_nodes(problem(host_constraint), packing, SIZE_BOUND, BUDGET)
    return [(packed_nodes.node_count, packed_nodes.pod_counts) for packed_nodes in packing.nodes]


def test_two_pods_that_fit_on_one_node_get_one() -> None:
    packing = two_nodes()
    assert replaced(packing) == [(1, {0: 2})]
    assert packing.work_units > 0


def test_pods_that_may_not_share_a_host_keep_their_nodes() -> None:
    assert replaced(two_nodes(), ONE_PER_HOST) == [(2, {0: 1})]


def test_no_pod_of_equal_nodes_is_lost() -> None:
    packing = Packing([PackedNodes(0, 3, {0: 1}), PackedNodes(0, 1, {0: 2})], [0], RemainingLimits([{}], {}), 0)
    assert sum(count * pods[0] for count, pods in replaced(packing)) == 5


def test_the_limits_count_the_node_that_stays() -> None:
    cpu = problem().offering_index.pool_type_of[0].instance_type.capacity[resources.CPU]
    packing = two_nodes(RemainingLimits([{resources.CPU: 0, resources.NODES: 0}], {}))
    replaced(packing)
    assert packing.limits.by_template == [{resources.CPU: cpu, resources.NODES: 1}]


def cheapest_offering(cpu: int) -> int:
    pool_types = problem().offering_index.pool_type_of
    return next(n for n, pool_type in enumerate(pool_types) if pool_type.instance_type.capacity[resources.CPU] == cpu)


def nodes_after(*nodes: tuple[int, int], bound: int = SIZE_BOUND, limits: dict[str, int] | None = None) -> list[int]:
    """``nodes``: (cpu, pods). Pods per node afterwards."""
    packed = [PackedNodes(cheapest_offering(cpu), 1, {0: count}) for cpu, count in nodes]
    packing = Packing(packed, [0], RemainingLimits([limits or {}], {}), 0)
    replace_nodes(problem(), packing, bound, BUDGET)
    return sorted(n.pod_counts[0] for n in packing.nodes for _ in range(n.node_count))


def test_a_new_node_may_be_larger_up_to_the_bound() -> None:
    assert nodes_after((2000, 15), (2000, 15), bound=4000) == [30]
    assert nodes_after((2000, 15), (2000, 15), bound=3999) == [15, 15]


def test_a_new_node_may_be_as_large_as_the_larger_of_the_two() -> None:
    assert nodes_after((4000, 20), (2000, 10), bound=0) == [30]


def test_nodes_stay_where_one_would_be_dearer() -> None:
    assert nodes_after((4000, 32), (2000, 16)) == [16, 32]


def test_a_new_node_keeps_the_limits() -> None:
    assert nodes_after((2000, 15), (2000, 15), limits={resources.CPU: 0}) == [30]
    assert nodes_after((2000, 15), (2000, 15), limits={resources.CPU: -1}) == [15, 15]
