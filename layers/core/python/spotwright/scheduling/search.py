"""Which nodes to make for some classes of pods: the cheapest complete set that a bounded search finds."""

from collections.abc import Sequence
from typing import Final

from spotwright.scheduling.building import Build
from spotwright.scheduling.improving import improve
from spotwright.scheduling.problem import Allowance, Answer, Problem, shapes

# Bounds on node size in millicores. One node of 48 cpu is a loss most clusters bear; larger ones must be cheaper.
SIZES: Final = (48_000, 96_000, 24_000, 12_000)


def cheapest(problem: Problem, counts: Sequence[int], allowance: Allowance, budget: int) -> Answer:
    """The best answer over the bounds on node size, and what can be saved on it; both while the budget lasts."""
    best = _built(problem, counts, allowance, SIZES[0])
    units = best.units
    for size in SIZES[1:]:
        if units + best.units > budget:
            break
        other = _built(problem, counts, allowance, size)
        units += other.units
        if _better(other, best, problem):
            best = other
    best.units = units + improve(problem, best, budget - units)
    return best


def _built(problem: Problem, counts: Sequence[int], allowance: Allowance, size: int) -> Answer:
    return Build(problem, counts, allowance, shapes(problem, counts, allowance, size)).answer()


def _better(one: Answer, other: Answer, problem: Problem) -> bool:
    if sum(one.left) != sum(other.left):
        return sum(one.left) < sum(other.left)
    return one.cost(problem.market) < other.cost(problem.market)
