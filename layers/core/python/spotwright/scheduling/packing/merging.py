"""Replaces two nodes by one where that is cheaper: the last nodes of a greedy packing are often nearly empty.

A merged node is at most as large as the larger of the two nodes, or as the first size bound of the search.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Final

from spotwright.model import resources
from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.packing.problem import (
    PER_NODE_COST_PICOUSD_PER_HOUR,
    PackedNodes,
    Packing,
    PackingProblem,
    offerings_that_fit,
)

# So many of the least used nodes are tried in pairs.
_CANDIDATES: Final = 12
# Units of work for trying a pair.
_UNITS_PER_PAIR: Final = 20


def merge_nodes(problem: PackingProblem, packing: Packing, size_bound: int) -> None:
    """Merge the pair that saves most, until no pair saves anything. Changes the packing."""
    while merger := max(_mergers(problem, packing, size_bound), key=lambda merger: merger[0], default=None):
        _, pair, merged = merger
        for packed_nodes in pair:
            packed_nodes.node_count -= 1
            packing.limits.spend(problem.offering_index, packed_nodes.offering, -1)
        packing.limits.spend(problem.offering_index, merged.offering, 1)
        packing.nodes[:] = [packed_nodes for packed_nodes in (*packing.nodes, merged) if packed_nodes.node_count]


def _mergers(
    problem: PackingProblem, packing: Packing, size_bound: int
) -> Iterator[tuple[int, tuple[PackedNodes, PackedNodes], PackedNodes]]:
    """(picodollars per hour saved, the pair, the node that replaces it)."""
    offering_index = problem.offering_index
    least_used = sorted(packing.nodes, key=lambda packed_nodes: _used_share(problem, packed_nodes))[:_CANDIDATES]
    for pair in combinations(least_used, 2):
        packing.work_units += _UNITS_PER_PAIR
        pods = dict(Counter(pair[0].pod_counts) + Counter(pair[1].pod_counts))
        price = sum(
            offering_index.prices[packed_nodes.offering] + PER_NODE_COST_PICOUSD_PER_HOUR for packed_nodes in pair
        )
        offering = _cheapest_offering(problem, packing, pair, pods, price, size_bound)
        if offering >= 0:
            saved = price - offering_index.prices[offering] - PER_NODE_COST_PICOUSD_PER_HOUR
            yield saved, pair, PackedNodes(offering, 1, pods)


def _used_share(problem: PackingProblem, packed_nodes: PackedNodes) -> float:
    """The share of the node's tightest resource that its pods request."""
    free_capacity = problem.offering_index.pool_type_of[packed_nodes.offering].free_capacity
    used = [0] * len(free_capacity)
    for pod_class, count in packed_nodes.pod_counts.items():
        for dimension, amount in problem.items.needs[pod_class]:
            used[dimension] += amount * count
    return max(amount / free for amount, free in zip(used, free_capacity, strict=True) if free)


def _cheapest_offering(
    problem: PackingProblem,
    packing: Packing,
    pair: tuple[PackedNodes, PackedNodes],
    pods: dict[int, int],
    price: int,
    size_bound: int,
) -> int:
    """The cheapest offering below ``price`` that holds the pods, within size bound and limits; -1 if there is none."""
    offering_index = problem.offering_index
    size_bound = max(size_bound, *(_millicores(problem, packed_nodes.offering) for packed_nodes in pair))
    limits = packing.limits.copy()
    for packed_nodes in pair:
        limits.spend(offering_index, packed_nodes.offering, -1)
    for offering in iterate_bits(offerings_that_fit(problem, pods, offering_index.all_offerings)):
        if offering_index.prices[offering] + PER_NODE_COST_PICOUSD_PER_HOUR >= price:
            return -1
        if _millicores(problem, offering) <= size_bound and limits.max_nodes(offering_index, offering, 1):
            return offering
    return -1


def _millicores(problem: PackingProblem, offering: int) -> int:
    return problem.offering_index.pool_type_of[offering].instance_type.capacity.get(resources.CPU, 0)
