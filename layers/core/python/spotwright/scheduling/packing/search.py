"""Which new nodes hold some classes of pods: the cheapest packing that a bounded search finds."""

import sys
from collections.abc import Sequence
from typing import Final

from spotwright.model import resources
from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.packing.column_generation import pack_by_patterns
from spotwright.scheduling.packing.exact import pack_exactly
from spotwright.scheduling.packing.greedy import GreedyPacker
from spotwright.scheduling.packing.nodes_first import replace_nodes
from spotwright.scheduling.packing.problem import (
    PackedNodes,
    Packing,
    PackingProblem,
    RemainingLimits,
    candidate_offerings,
    connected_classes,
)

# Bounds on node size in millicores. Most clusters can bear the loss of a node of 48 cpu; larger nodes must be cheaper.
NODE_SIZE_BOUNDS_MILLICORES: Final = (48_000, 96_000, 24_000, 12_000)

# Units of work for making a packing and for replacing its nodes, together: half a second of a processor. Replacing gets
# a quarter of them at least, and at most so many for each pod; of more pods, so many times fewer.
_UNITS: Final = 110_000
_LEAST_SHARE: Final = 4
_REPLACEMENT_UNITS_PER_POD: Final = 2500
_REPLACEMENT_PODS: Final = 400


def find_cheapest_packing(
    problem: PackingProblem, counts: Sequence[int], limits: RemainingLimits, budget: int
) -> Packing:
    """The exact packing where the pods are few enough for it; else the cheapest greedy packing over all size bounds.

    From the exact packing, pods change their classes where the problem lets them and that makes nodes cheaper. After
    the first, a size bound is tried only while the budget lasts, and only if its fractional cost is lower.
    """
    exact = _pack_parts_exactly(problem, counts, limits, budget)
    if exact is not None:
        if problem.exchanges:
            exact.is_cheapest = False
            replace_nodes(problem, exact, max(NODE_SIZE_BOUNDS_MILLICORES), min(budget, _replacement_budget(exact)))
        return exact
    first_bound, *further_bounds = NODE_SIZE_BOUNDS_MILLICORES
    best = GreedyPacker(problem, counts, limits, candidate_offerings(problem, counts, limits, first_bound)).pack()
    for size_bound in further_bounds:
        if best.work_units < budget:
            packer = GreedyPacker(problem, counts, limits, candidate_offerings(problem, counts, limits, size_bound))
            if any(best.unpacked) or packer.fractional_cost() < best.cost(problem.offering_index):
                best = _better(best, packer.pack(), problem)
    if any(best.unpacked) and any(limits.by_template):
        offerings = (
            _largest_offerings(problem, counts, limits)
            if any(resources.NODES in left for left in limits.by_template)
            else candidate_offerings(problem, counts, limits, sys.maxsize)
        )
        best = _better(best, GreedyPacker(problem, counts, limits, offerings).pack(), problem)
    replacement_budget = min(budget, _replacement_budget(best))
    by_patterns = pack_by_patterns(problem, best, first_bound, replacement_budget)
    if by_patterns is not None:
        best = _better(best, by_patterns, problem)
        replacement_budget -= by_patterns.work_units
    replace_nodes(problem, best, first_bound, replacement_budget)
    return best


def _pack_parts_exactly(
    problem: PackingProblem, counts: Sequence[int], limits: RemainingLimits, budget: int
) -> Packing | None:
    """The cheapest packing where no pod changes its class, each part of the classes that share offerings on its own.

    None where some part has too many pods for that, or a class no offerings. The part with the most pods comes first.
    """
    if any(count and not problem.offerings[j] for j, count in enumerate(counts)):
        return None
    parts = connected_classes([offerings if counts[j] else 0 for j, offerings in enumerate(problem.offerings)])
    nodes, left, work_units, is_cheapest = list[PackedNodes](), limits, 0, True
    for part in sorted(parts, key=lambda part: -sum(counts[j] for j in part)):
        part_counts = [count if j in part else 0 for j, count in enumerate(counts)]
        size_bound = max(NODE_SIZE_BOUNDS_MILLICORES)
        exact = pack_exactly(problem, part_counts, left, size_bound, budget - work_units)
        if exact is None:
            return None
        nodes += exact.nodes
        left, work_units = exact.limits, work_units + exact.work_units
        is_cheapest = is_cheapest and exact.is_cheapest
    packing = Packing(nodes, [0] * len(counts), left, work_units)
    packing.is_cheapest = is_cheapest
    return packing if nodes else None


def _replacement_budget(packing: Packing) -> int:
    """Units of work for replacing nodes: what making the packing left; of many pods a small share of the work."""
    pod_count = sum(sum(packed_nodes.pod_counts.values()) * packed_nodes.node_count for packed_nodes in packing.nodes)
    most = min(_REPLACEMENT_UNITS_PER_POD * pod_count, max(_UNITS - packing.work_units, _UNITS // _LEAST_SHARE))
    return most * _REPLACEMENT_PODS // max(pod_count, _REPLACEMENT_PODS)


def _better(packing: Packing, other_packing: Packing, problem: PackingProblem) -> Packing:
    """The packing that leaves fewer pods, or else the cheaper, with the units of work of both."""
    best = min(packing, other_packing, key=lambda either: (sum(either.unpacked), either.cost(problem.offering_index)))
    best.work_units = packing.work_units + other_packing.work_units
    return best


def _largest_offerings(problem: PackingProblem, counts: Sequence[int], limits: RemainingLimits) -> list[int]:
    """Offerings with the most free capacity: where the number of nodes is limited, a few large nodes hold more pods."""
    candidates = candidate_offerings(problem, counts, limits, sys.maxsize)
    capacity_of = {offering: problem.offering_index.pool_type_of[offering].free_capacity for offering in candidates}
    capacities = set(capacity_of.values())
    largest = {
        capacity
        for capacity in capacities
        if not any(larger != capacity and _covers(larger, capacity) for larger in capacities)
    }
    return [offering for offering in candidates if capacity_of[offering] in largest]


def _covers(capacity: Vector, other_capacity: Vector) -> bool:
    return all(amount >= other_amount for amount, other_amount in zip(capacity, other_capacity, strict=True))
