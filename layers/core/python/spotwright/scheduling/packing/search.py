"""Which nodes to make for some classes of pods: the cheapest complete set that a bounded search finds."""

import sys
from collections.abc import Sequence
from typing import Final

from spotwright.model import resources
from spotwright.scheduling.offerings.offering_index import Vector
from spotwright.scheduling.packing.bins import CPU_DIMENSION
from spotwright.scheduling.packing.exact import pack_exactly
from spotwright.scheduling.packing.greedy import GreedyPacker
from spotwright.scheduling.packing.local_search import improve
from spotwright.scheduling.packing.problem import Packing, PackingProblem, RemainingLimits, candidate_offerings

# Bounds on node size in millicores. One node of 48 cpu is a loss most clusters bear; larger ones must be cheaper.
NODE_SIZE_BOUNDS_MILLICORES: Final = (48_000, 96_000, 24_000, 12_000)
# While no more than this share of the budget is spent, another bound is tried, though it may take more than is left.
_BUILDING: Final = 0.6
# Nodes are so much larger than they would be if all were equal.
_ROOMY: Final = 1.5


def find_cheapest_packing(
    problem: PackingProblem, counts: Sequence[int], allowance: RemainingLimits, budget: int
) -> Packing:
    """The best answer of all, for few pods; else the best over the bounds on node size, and what can be saved on it.

    All but the first answer is searched for only while the budget lasts.
    """
    answer = pack_exactly(problem, counts, allowance, max(NODE_SIZE_BOUNDS_MILLICORES), budget)
    if answer is not None:
        return answer
    first, *others = _ordered(problem, counts)
    best = _built(problem, counts, allowance, first)
    units = best.work_units
    for size in others:
        if units + best.work_units > budget and units > _BUILDING * budget:
            break
        other_packing = _built(problem, counts, allowance, size)
        units += other_packing.work_units
        if _better(other_packing, best, problem):
            best = other_packing
    if any(best.unpacked) and any(resources.NODES in left for left in allowance.by_template):
        other_packing = GreedyPacker(problem, counts, allowance, _roomiest(problem, counts, allowance)).pack()
        units += other_packing.work_units
        if _better(other_packing, best, problem):
            best = other_packing
    best.work_units = units + improve(problem, best, budget - units)
    return best


def _roomiest(problem: PackingProblem, counts: Sequence[int], allowance: RemainingLimits) -> list[int]:
    """Shapes than which none has more room: where nodes are counted, a few large ones hold more pods."""
    every = candidate_offerings(problem, counts, allowance, sys.maxsize)
    rooms = {problem.offering_index.pool_type_of[choice].free_capacity for choice in every}
    most = {room for room in rooms if not any(vector != room and _covers(vector, room) for vector in rooms)}
    return [choice for choice in every if problem.offering_index.pool_type_of[choice].free_capacity in most]


def _covers(vector: Vector, other_vector: Vector) -> bool:
    return all(more >= less for more, less in zip(vector, other_vector, strict=True))


def _ordered(problem: PackingProblem, counts: Sequence[int]) -> list[int]:
    """The bounds on node size, the most promising first.

    Where hosts may hold few pods of a class, there will be many nodes: then the pods decide how large they are.
    """
    hosts = max(
        (
            count / bond.max_per_host
            for count, bond in zip(counts, problem.host_constraints, strict=True)
            if bond and bond.max_per_host
        ),
        default=0,
    )
    cores = sum(count * size[CPU_DIMENSION] for count, size in zip(counts, problem.items.sizes, strict=True))
    first = next(
        (size for size in sorted(NODE_SIZE_BOUNDS_MILLICORES) if size * hosts >= _ROOMY * cores),
        NODE_SIZE_BOUNDS_MILLICORES[0],
    )
    return (
        sorted(NODE_SIZE_BOUNDS_MILLICORES, key=lambda size: size != first)
        if first < NODE_SIZE_BOUNDS_MILLICORES[0]
        else list(NODE_SIZE_BOUNDS_MILLICORES)
    )


def _built(problem: PackingProblem, counts: Sequence[int], allowance: RemainingLimits, size: int) -> Packing:
    return GreedyPacker(problem, counts, allowance, candidate_offerings(problem, counts, allowance, size)).pack()


def _better(packing: Packing, other_packing: Packing, problem: PackingProblem) -> bool:
    if sum(packing.unpacked) != sum(other_packing.unpacked):
        return sum(packing.unpacked) < sum(other_packing.unpacked)
    return packing.cost(problem.offering_index) < other_packing.cost(problem.offering_index)
