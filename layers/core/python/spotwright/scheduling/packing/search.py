"""Which nodes to make for some classes of pods: the cheapest complete set that a bounded search finds."""

import sys
from collections.abc import Sequence
from typing import Final

from spotwright.model import resources
from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.packing.exact import pack_exactly
from spotwright.scheduling.packing.greedy import GreedyPacker
from spotwright.scheduling.packing.merging import merge_nodes
from spotwright.scheduling.packing.problem import Packing, PackingProblem, RemainingLimits, candidate_offerings

# Bounds on node size in millicores. One node of 48 cpu is a loss most clusters bear; larger ones must be cheaper.
NODE_SIZE_BOUNDS_MILLICORES: Final = (48_000, 96_000, 24_000, 12_000)


def find_cheapest_packing(
    problem: PackingProblem, counts: Sequence[int], allowance: RemainingLimits, budget: int
) -> Packing:
    """The least-cost packing where the pods are few enough for it; else the cheapest over the bounds on node size.

    All bounds but the first are tried only while the budget lasts, and only if their fractional cost is lower.
    """
    exact = pack_exactly(problem, counts, allowance, max(NODE_SIZE_BOUNDS_MILLICORES), budget)
    if exact is not None:
        return exact
    first, *others = NODE_SIZE_BOUNDS_MILLICORES
    best = GreedyPacker(problem, counts, allowance, candidate_offerings(problem, counts, allowance, first)).pack()
    for size in others:
        if best.work_units < budget:
            packer = GreedyPacker(problem, counts, allowance, candidate_offerings(problem, counts, allowance, size))
            if any(best.unpacked) or packer.fractional_cost() < best.cost(problem.offering_index):
                best = _better(best, packer.pack(), problem)
    if any(best.unpacked) and any(resources.NODES in left for left in allowance.by_template):
        packer = GreedyPacker(problem, counts, allowance, _roomiest(problem, counts, allowance))
        best = _better(best, packer.pack(), problem)
    merge_nodes(problem, best, first)
    return best


def _better(packing: Packing, other_packing: Packing, problem: PackingProblem) -> Packing:
    """The packing that leaves fewer pods, or else the cheaper; with the work of both."""
    best = min(packing, other_packing, key=lambda either: (sum(either.unpacked), either.cost(problem.offering_index)))
    best.work_units = packing.work_units + other_packing.work_units
    return best


def _roomiest(problem: PackingProblem, counts: Sequence[int], allowance: RemainingLimits) -> list[int]:
    """Shapes than which none has more room: where nodes are counted, a few large ones hold more pods."""
    every = candidate_offerings(problem, counts, allowance, sys.maxsize)
    rooms = {problem.offering_index.pool_type_of[choice].free_capacity for choice in every}
    most = {room for room in rooms if not any(vector != room and _covers(vector, room) for vector in rooms)}
    return [choice for choice in every if problem.offering_index.pool_type_of[choice].free_capacity in most]


def _covers(vector: Vector, other_vector: Vector) -> bool:
    return all(more >= less for more, less in zip(vector, other_vector, strict=True))
