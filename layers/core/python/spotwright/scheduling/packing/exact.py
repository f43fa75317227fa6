"""The cheapest nodes there are, for pods so few or so alike that every way to share them can be looked at.

Cheaper prices then never make a plan dearer, nor do more types on offer: a greedy search cannot promise that.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Final

from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.packing.problem import (
    PER_NODE_COST_PICOUSD_PER_HOUR,
    PackedNodes,
    Packing,
    PackingProblem,
    RemainingLimits,
    offerings_that_fit,
    offerings_up_to_size,
)

# So many different sets of pods; and so many ways to take one node's pods out of a set.
_MOST_SETS: Final = 1024
_MOST_WAYS: Final = 170_000
# Work in units: a set is priced; a few ways are compared.
_PRICED: Final = 4
_WAYS_A_UNIT: Final = 16

type Pods = tuple[int, ...]
"""Pods per class that has any, in the order of the classes."""


def pack_exactly(
    problem: PackingProblem, counts: Sequence[int], allowance: RemainingLimits, size: int, budget: int
) -> Packing | None:
    """The best answer with nodes of up to ``size`` millicores where possible; None where that takes too long.

    ``budget``: units of work that it may take at most.

    Where limits bind, and where instances are reserved, the search counts nodes one by one instead.
    """
    classes = [j for j, count in enumerate(counts) if count]
    most = [counts[j] for j in classes]
    if not _is_small(most, budget) or any(
        problem.offerings[j] & problem.offering_index.reserved_offerings for j in classes
    ):
        return None
    every = list(product(*(range(count + 1) for count in most)))
    choices = _choices(problem, classes, every, _allowed(problem, classes, size))
    costs = [
        problem.offering_index.prices[choice] + PER_NODE_COST_PICOUSD_PER_HOUR if choice >= 0 else 0
        for choice in choices
    ]
    made, ways = _alone(costs) if len(most) == 1 else _together(every, costs)
    batches = [
        PackedNodes(choices[place], copies, {j: count for j, count in zip(classes, every[place], strict=True) if count})
        for place, copies in sorted(Counter(made).items())
    ]
    units = _PRICED * len(every) + ways // _WAYS_A_UNIT
    limits = _limits_after(problem, allowance, batches)
    return Packing(batches, [0] * len(counts), limits, units) if batches and limits else None


def _limits_after(
    problem: PackingProblem, limits: RemainingLimits, nodes: Sequence[PackedNodes]
) -> RemainingLimits | None:
    """What the nodes leave of the limits; None where they exceed them."""
    left = limits.copy()
    for packed_nodes in nodes:
        offering, count = packed_nodes.offering, packed_nodes.node_count
        if left.max_nodes(problem.offering_index, offering, count) < count:
            return None
        left.spend(problem.offering_index, offering, count)
    return left


def _is_small(most: Sequence[int], budget: int) -> bool:
    """Of one class few of all ways are looked at: a node that could take one pod more for its cost is passed over."""
    sets = prod(count + 1 for count in most)
    ways = prod((count + 1) * (count + 2) // 2 for count in most) if len(most) > 1 else 0
    return bool(most) and sets <= _MOST_SETS and ways <= _MOST_WAYS and _PRICED * sets + ways // _WAYS_A_UNIT <= budget


def _allowed(problem: PackingProblem, classes: Sequence[int], size: int) -> int:
    """Choices of the usual sizes, and of the smallest that a class fits on."""
    market, found = problem.offering_index, 0
    for j in classes:
        fitting = problem.offerings[j] & market.by_capacity.with_room(problem.items.sizes[j])
        fitting = fitting & market.general_purpose or fitting
        cores = next((cores for cores, choices in market.by_capacity.by_millicores if choices & fitting), 0)
        found |= fitting & offerings_up_to_size(market.by_capacity.by_millicores, max(size, cores))
    return found


def _choices(problem: PackingProblem, classes: Sequence[int], every: Sequence[Pods], allowed: int) -> list[int]:
    """The cheapest choice that holds each set of pods; -1 for none. What does not hold fewer does not hold more."""
    steps = _steps(every[-1])
    found = [-1] * len(every)
    for place, pods in enumerate(every):
        fewer = [place - step for step, count in zip(steps, pods, strict=True) if count]
        if place and all(not one or found[one] >= 0 for one in fewer):
            taken = {j: count for j, count in zip(classes, pods, strict=True) if count}
            found[place] = next(iterate_bits(offerings_that_fit(problem, taken, allowed)), -1)
    return found


def _steps(most: Pods) -> list[int]:
    """How far apart, in the list of all sets, two sets are that differ in one pod of a class."""
    return [prod(count + 1 for count in most[place + 1 :]) for place in range(len(most))]


def _alone(costs: Sequence[int]) -> tuple[list[int], int]:
    """How many pods of the one class each node gets; and how many ways were looked at.

    A node that takes one pod more for the same cost is made in place of one that does not; at the end some are empty.
    """
    last = len(costs) - 1
    full = [n for n in range(1, last + 1) if costs[n] and (n == last or costs[n + 1] != costs[n])]
    best = [(0, 0)]
    for count in range(1, last + 1):
        ways = [(costs[n] + best[max(count - n, 0)][0], n) for n in full]
        best.append(min(ways, default=(0, 0)))
    made, left = list[int](), last
    while left and full:
        made.append(min(best[left][1], left))
        left -= made[-1]
    return made, len(full) * last


def _together(every: Sequence[Pods], costs: Sequence[int]) -> tuple[list[int], int]:
    """The places of the sets that are one node each; and how many ways were looked at.

    A set is one node, with some pods of the first class it has, and a smaller set.
    """
    steps, looked = _steps(every[-1]), 0
    best = [(0, 0)]
    for place, pods in enumerate(every[1:], 1):
        ways = [(costs[node] + best[place - node][0], node) for node in _nodes(pods, steps) if costs[node]]
        looked += len(ways)
        # A pod that fits nowhere is found out by its set alone, before any larger one.
        if not ways:
            return [], looked
        best.append(min(ways))
    made, left = list[int](), len(every) - 1
    while left:
        made.append(best[left][1])
        left -= made[-1]
    return made, looked


def _nodes(pods: Pods, steps: Sequence[int]) -> list[int]:
    """Places of the sets within a set that have a pod of its first class."""
    first = next(at for at, count in enumerate(pods) if count)
    found = [steps[first] * n for n in range(1, pods[first] + 1)]
    for count, step in zip(pods[first + 1 :], steps[first + 1 :], strict=True):
        if count:
            found = [one + more for one in found for more in range(0, step * count + 1, step)]
    return found
