"""Pods that need hosts of their own: nodes are chosen with the pods on them."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from spotwright.model import resources
from spotwright.model.ec2.instance_type import PICOUSD, Catalog
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.undetermined_labels import UndeterminedLabels
from spotwright.scheduling.packing.bins import Items
from spotwright.scheduling.packing.column_generation import pack_by_patterns
from spotwright.scheduling.packing.greedy import GreedyPacker
from spotwright.scheduling.packing.host_constraints import HostConstraint, fit_on_one_host
from spotwright.scheduling.packing.problem import (
    PackedNodes,
    Packing,
    PackingProblem,
    RemainingLimits,
    candidate_offerings,
)
from tests.unit.scheduling.builders import GIB, TYPES, instance, planned, pods, pool, snapshot

SIZE_BOUND = 48_000
BUDGET = 60_000
NO_LIMITS = RemainingLimits([{}], {})
Size = tuple[int, int, int]


def rule(term: int, cap: int) -> HostConstraint:
    return HostConstraint(selecting_terms=[term], term_caps=[(term, cap)], avoided_terms=[], host_ports=[])


def problem(sizes: list[Size], caps: list[int]) -> PackingProblem:
    """``caps``: how many pods of each class a host may hold, 0 = any number."""
    templates, _ = build_templates(snapshot(pools=(pool(),)), Catalog({"": TYPES}))
    index = OfferingIndex(templates, (), (resources.CPU, resources.MEMORY, resources.PODS))
    rules = [rule(j, cap) if cap else None for j, cap in enumerate(caps)]
    everywhere = [index.all_offerings] * len(sizes)
    return PackingProblem(index, Items(sizes), everywhere, [-1] * len(sizes), UndeterminedLabels(index, ()), rules)


def packed(packing_problem: PackingProblem, counts: list[int], limits: RemainingLimits = NO_LIMITS) -> Packing:
    offerings = candidate_offerings(packing_problem, counts, limits, SIZE_BOUND)
    return GreedyPacker(packing_problem, counts, limits, offerings).pack()


def pods_by_class(packing: Packing) -> Counter[int]:
    pods = Counter[int]()
    for packed_nodes in packing.nodes:
        for j, count in packed_nodes.pod_counts.items():
            pods[j] += count * packed_nodes.node_count
    return pods


MIB = 1 << 20
sizes = st.tuples(
    st.sampled_from((100, 400, 900, 1700)), st.sampled_from((64, 900, 3000)).map(lambda m: m * MIB), st.just(1)
)


@settings(max_examples=40)
@given(st.lists(st.tuples(sizes, st.integers(1, 9), st.sampled_from((0, 1, 2))), max_size=4), st.integers(13, 20))
def test_every_pod_has_a_node_that_may_hold_it(classes: list[tuple[Size, int, int]], hosts: int) -> None:
    apart = ((500, 600 * MIB, 1), hosts, 1)
    packing_problem = problem([size for size, _, _ in (apart, *classes)], [cap for _, _, cap in (apart, *classes)])
    counts = [count for _, count, _ in (apart, *classes)]
    by_patterns = pack_by_patterns(packing_problem, packed(packing_problem, counts), SIZE_BOUND, BUDGET)
    if by_patterns is None:
        return
    assert not any(by_patterns.unpacked)
    assert by_patterns.work_units > 0
    assert pods_by_class(by_patterns) == dict(enumerate(counts))
    for packed_nodes in by_patterns.nodes:
        capacity = packing_problem.offering_index.pool_type_of[packed_nodes.offering].free_capacity
        for d, amount in enumerate(capacity):
            used = sum(packing_problem.items.sizes[j][d] * count for j, count in packed_nodes.pod_counts.items())
            assert used <= amount
        assert fit_on_one_host(packing_problem.host_constraints, packed_nodes.pod_counts)


def alone(packing_problem: PackingProblem, counts: list[int], limits: RemainingLimits = NO_LIMITS) -> Packing:
    """Every pod on a node of its own of the cheapest type."""
    left = limits.copy()
    for count in counts:
        left.spend(packing_problem.offering_index, 0, count)
    return Packing([PackedNodes(0, count, {j: 1}) for j, count in enumerate(counts)], [0] * len(counts), left, 0)


LARGE_AND_SMALL: list[Size] = [(1_500, GIB, 1), (500, GIB, 1)]


def test_small_pods_join_those_that_need_hosts_of_their_own() -> None:
    packing_problem = problem(LARGE_AND_SMALL, [1, 0])
    by_patterns = pack_by_patterns(packing_problem, alone(packing_problem, [14, 14]), SIZE_BOUND, BUDGET)
    assert by_patterns is not None
    assert [packed_nodes.pod_counts for packed_nodes in by_patterns.nodes] == [{0: 1, 1: 1}] * 14


# More classes than are tried whatever decides.
MANY: list[Size] = [(1_500, GIB, 1), (500, GIB, 1), *((100 + number, GIB, 1) for number in range(12))]


def test_pods_of_many_classes_without_rules_are_left_to_other_searches() -> None:
    packing_problem = problem(MANY, [0] * len(MANY))
    counts = [14, 14, *(1 for _ in MANY[2:])]
    assert pack_by_patterns(packing_problem, alone(packing_problem, counts), SIZE_BOUND, BUDGET) is None


def test_hosts_do_not_decide_where_others_need_most_nodes() -> None:
    packing_problem = problem(MANY, [1, *(0 for _ in MANY[1:])])
    counts = [3, 28, *(1 for _ in MANY[2:])]
    assert pack_by_patterns(packing_problem, alone(packing_problem, counts), SIZE_BOUND, BUDGET) is None


def test_room_for_one_pod_more_on_many_nodes_pays_though_a_few_of_them_save_nothing() -> None:
    """A node of 16 cpu costs as much as two of 8 cpu, and holds one small pod beside their four large ones."""
    sold = (
        instance("r.xlarge", 4, 29, 0.25), instance("r.2xlarge", 8, 58, 0.5), instance("r.4xlarge", 16, 116, 1.0),
        instance("m.large", 2, 7, 0.094), instance("m.xlarge", 4, 14, 0.188), instance("m.4xlarge", 16, 58, 0.75),
    )  # fmt: skip
    bought = planned(*pods(300, "large", 3.5, "28Gi"), *pods(300, "small", 0.9, "3100Mi"), types=sold)
    assert not bought.unschedulable_pods
    # By hand: 75 r.4xlarge, which hold 4 large pods and a small one each, and m.4xlarge with 17 of the other 225.
    assert bought.price_picousd_per_hour <= (75 + 14 * 0.75) * PICOUSD


def test_limits_count_what_the_nodes_leave() -> None:
    packing_problem = problem(LARGE_AND_SMALL, [1, 0])
    limits = RemainingLimits([{resources.NODES: 30, resources.CPU: 60_000}], {})
    by_patterns = pack_by_patterns(packing_problem, alone(packing_problem, [14, 14], limits), SIZE_BOUND, BUDGET)
    assert by_patterns is not None
    assert by_patterns.limits.by_template == [{resources.NODES: 16, resources.CPU: 32_000}]


def test_pods_are_left_where_the_budget_ends() -> None:
    packing_problem = problem(LARGE_AND_SMALL, [1, 0])
    by_patterns = pack_by_patterns(packing_problem, alone(packing_problem, [14, 14]), SIZE_BOUND, 1)
    assert by_patterns is not None
    assert sum(by_patterns.unpacked) + sum(pods_by_class(by_patterns).values()) == 28
