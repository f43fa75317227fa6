"""Which nodes to make for some classes of pods: the cheapest complete set that a bounded search finds."""

import sys
from collections.abc import Sequence
from typing import Final

from spotwright.model import resources
from spotwright.scheduling.building import Build
from spotwright.scheduling.exact import exact
from spotwright.scheduling.improving import improve
from spotwright.scheduling.market import Vector
from spotwright.scheduling.packing import CPU
from spotwright.scheduling.problem import Allowance, Answer, Problem, shapes

# Bounds on node size in millicores. One node of 48 cpu is a loss most clusters bear; larger ones must be cheaper.
SIZES: Final = (48_000, 96_000, 24_000, 12_000)
# While no more than this share of the budget is spent, another bound is tried, though it may take more than is left.
_BUILDING: Final = 0.6
# Nodes are so much larger than they would be if all were equal.
_ROOMY: Final = 1.5


def cheapest(problem: Problem, counts: Sequence[int], allowance: Allowance, budget: int) -> Answer:
    """The best answer of all, for few pods; else the best over the bounds on node size, and what can be saved on it.

    All but the first answer is searched for only while the budget lasts.
    """
    answer = exact(problem, counts, allowance, max(SIZES), budget)
    if answer is not None:
        return answer
    first, *others = _ordered(problem, counts)
    best = _built(problem, counts, allowance, first)
    units = best.units
    for size in others:
        if units + best.units > budget and units > _BUILDING * budget:
            break
        other = _built(problem, counts, allowance, size)
        units += other.units
        if _better(other, best, problem):
            best = other
    if any(best.left) and any(resources.NODES in left for left in allowance.left):
        other = Build(problem, counts, allowance, _roomiest(problem, counts, allowance)).answer()
        units += other.units
        if _better(other, best, problem):
            best = other
    best.units = units + improve(problem, best, budget - units)
    return best


def _roomiest(problem: Problem, counts: Sequence[int], allowance: Allowance) -> list[int]:
    """Shapes than which none has more room: where nodes are counted, a few large ones hold more pods."""
    every = shapes(problem, counts, allowance, sys.maxsize)
    rooms = {problem.market.goods_of[choice].room for choice in every}
    most = {room for room in rooms if not any(one != room and _covers(one, room) for one in rooms)}
    return [choice for choice in every if problem.market.goods_of[choice].room in most]


def _covers(one: Vector, other: Vector) -> bool:
    return all(more >= less for more, less in zip(one, other, strict=True))


def _ordered(problem: Problem, counts: Sequence[int]) -> list[int]:
    """The bounds on node size, the most promising first.

    Where hosts may hold few pods of a class, there will be many nodes: then the pods decide how large they are.
    """
    hosts = max(
        (count / bond.most for count, bond in zip(counts, problem.bonds, strict=True) if bond and bond.most),
        default=0,
    )
    cores = sum(count * size[CPU] for count, size in zip(counts, problem.items.sizes, strict=True))
    first = next((size for size in sorted(SIZES) if size * hosts >= _ROOMY * cores), SIZES[0])
    return sorted(SIZES, key=lambda size: size != first) if first < SIZES[0] else list(SIZES)


def _built(problem: Problem, counts: Sequence[int], allowance: Allowance, size: int) -> Answer:
    return Build(problem, counts, allowance, shapes(problem, counts, allowance, size)).answer()


def _better(one: Answer, other: Answer, problem: Problem) -> bool:
    if sum(one.left) != sum(other.left):
        return sum(one.left) < sum(other.left)
    return one.cost(problem.market) < other.cost(problem.market)
