"""A packing of least cost, for pods so few or so equal that every way to divide them among nodes can be compared.

A price that falls, or an instance type that is added, then never makes a plan dearer; a greedy search cannot promise
that.
"""

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import prod
from operator import or_
from typing import Final

from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.packing.problem import (
    PER_NODE_COST_PICOUSD_PER_HOUR,
    PackedNodes,
    Packing,
    PackingProblem,
    RemainingLimits,
    all_offerings_that_fit,
    offerings_that_fit,
    offerings_up_to_size,
    smallest_size,
)

# The most pod sets there may be, and the most ways to take one node's pods out of a set.
_MOST_SETS: Final = 1024
_MOST_WAYS: Final = 170_000
# Units of work for pricing a set, and how many compared ways are one unit.
_UNITS_PER_SET: Final = 4
_WAYS_PER_UNIT: Final = 16

type PodSet = tuple[int, ...]
"""How many pods of each class that has any, in the order of the classes."""


def pack_exactly(
    problem: PackingProblem, counts: Sequence[int], limits: RemainingLimits, size_bound: int, budget: int
) -> Packing | None:
    """The cheapest packing on nodes of up to ``size_bound`` millicores, larger only for a pod that fits on none.

    None where that would take more than ``budget`` units of work, where limits bind, and where a class may use reserved
    instances: only a search that adds node after node can count them.
    """
    classes = [j for j, count in enumerate(counts) if count]
    most = [counts[j] for j in classes]
    if not _is_small(most, budget) or any(
        problem.offerings[j] & problem.offering_index.reserved_offerings for j in classes
    ):
        return None
    all_sets = list(product(*(range(count + 1) for count in most)))
    offerings = _cheapest_offerings(problem, classes, all_sets, _offerings_by_size(problem, classes, size_bound))
    costs = _costs(problem, offerings)
    chosen_sets, ways = _solve(all_sets, costs)
    nodes = [
        PackedNodes(offerings[at], node_count, _pod_counts(classes, all_sets[at]))
        for at, node_count in sorted(Counter(chosen_sets).items())
    ]
    work_units = _UNITS_PER_SET * len(all_sets) + ways // _WAYS_PER_UNIT
    left = _limits_after(problem, limits, nodes)
    if not nodes or left is None:
        return None
    packing = Packing(nodes, [0] * len(counts), left, work_units)
    packing.is_cheapest = _is_cheapest(problem, classes, all_sets, offerings, sum(costs[at] for at in chosen_sets))
    return packing


def _costs(problem: PackingProblem, offerings: Sequence[int]) -> list[int]:
    """What a node of each offering costs; 0 for none."""
    prices = problem.offering_index.prices
    return [prices[offering] + PER_NODE_COST_PICOUSD_PER_HOUR if offering >= 0 else 0 for offering in offerings]


def _solve(all_sets: Sequence[PodSet], costs: Sequence[int]) -> tuple[list[int], int]:
    """The indices of the sets that are one node each; and how many ways were compared."""
    return _solve_single_class(costs) if len(all_sets[-1]) == 1 else _solve_classes(all_sets, costs)


def _is_cheapest(
    problem: PackingProblem, classes: Sequence[int], all_sets: Sequence[PodSet], offerings: Sequence[int], cost: int
) -> bool:
    """Whether the sets cost no less on any offerings: larger ones, and those that are for pods with special needs.

    ``offerings``: the cheapest of those that were allowed, by set.
    """
    everything = reduce(or_, [problem.offerings[j] for j in classes])
    # Offerings are numbered from the cheapest: where some set has another, it is cheaper, or the only one.
    cheapest = [
        next(iterate_bits(all_offerings_that_fit(problem, _pod_counts(classes, pod_set), everything)), -1)
        for pod_set in all_sets[1:]
    ]
    if cheapest == offerings[1:]:
        return True
    costs = _costs(problem, [-1, *cheapest])
    return sum(costs[at] for at in _solve(all_sets, costs)[0]) >= cost


def _pod_counts(classes: Sequence[int], pod_set: PodSet) -> dict[int, int]:
    return {j: count for j, count in zip(classes, pod_set, strict=True) if count}


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
    """True when so many pods per class can be packed exactly. The ways of a single class are few and do not count:
    a node that could take one pod more for the same cost is left out."""
    sets = prod(count + 1 for count in most)
    ways = prod((count + 1) * (count + 2) // 2 for count in most) if len(most) > 1 else 0
    work_units = _UNITS_PER_SET * sets + ways // _WAYS_PER_UNIT
    return bool(most) and sets <= _MOST_SETS and ways <= _MOST_WAYS and work_units <= budget


def _offerings_by_size(problem: PackingProblem, classes: Sequence[int], size_bound: int) -> int:
    """Offerings within the size bound; for a class that fits on none of them, those of the smallest size it fits on."""
    offering_index, allowed = problem.offering_index, 0
    by_millicores = offering_index.by_capacity.by_millicores
    for j in classes:
        fitting = problem.offerings[j] & offering_index.by_capacity.with_room(problem.items.sizes[j])
        fitting = fitting & offering_index.general_purpose or fitting
        smallest = smallest_size(by_millicores, fitting)
        allowed |= fitting & offerings_up_to_size(by_millicores, max(size_bound, smallest))
    return allowed


def _cheapest_offerings(
    problem: PackingProblem, classes: Sequence[int], all_sets: Sequence[PodSet], allowed: int
) -> list[int]:
    """The cheapest offering that holds each set; -1 for none. A set is tried only if all smaller ones have one."""
    strides = _strides(all_sets[-1])
    cheapest = [-1] * len(all_sets)
    for at, pod_set in enumerate(all_sets):
        subsets = [at - stride for stride, count in zip(strides, pod_set, strict=True) if count]
        if at and all(not subset or cheapest[subset] >= 0 for subset in subsets):
            fitting = offerings_that_fit(problem, _pod_counts(classes, pod_set), allowed)
            cheapest[at] = next(iterate_bits(fitting), -1)
    return cheapest


def _strides(most: PodSet) -> list[int]:
    """By class, the distance in the list of all sets between two sets that differ by one pod of the class."""
    return [prod(count + 1 for count in most[place + 1 :]) for place in range(len(most))]


def _solve_single_class(costs: Sequence[int]) -> tuple[list[int], int]:
    """How many pods of the only class go on each node; and how many ways were compared.

    A node that takes one pod more for the same cost replaces one that does not; the last node may get fewer pods.
    """
    last = len(costs) - 1
    full = [n for n in range(1, last + 1) if costs[n] and (n == last or costs[n + 1] != costs[n])]
    best = [(0, 0)]
    for count in range(1, last + 1):
        ways = [(costs[n] + best[max(count - n, 0)][0], n) for n in full]
        best.append(min(ways, default=(0, 0)))
    chosen_sets, left = list[int](), last
    while left and full:
        chosen_sets.append(min(best[left][1], left))
        left -= chosen_sets[-1]
    return chosen_sets, len(full) * last


def _solve_classes(all_sets: Sequence[PodSet], costs: Sequence[int]) -> tuple[list[int], int]:
    """The indices of the sets that are one node each; and how many ways were compared.

    Every set is divided into one node, which has a pod of the set's first class, and the best nodes for the rest.
    """
    strides, compared = _strides(all_sets[-1]), 0
    best = [(0, 0)]
    for at, pod_set in enumerate(all_sets[1:], 1):
        ways = [
            (costs[subset] + best[at - subset][0], subset) for subset in _subsets(pod_set, strides) if costs[subset]
        ]
        compared += len(ways)
        # The set of one pod that fits nowhere comes before all sets that include the pod.
        if not ways:
            return [], compared
        best.append(min(ways))
    chosen_sets, left = list[int](), len(all_sets) - 1
    while left:
        chosen_sets.append(best[left][1])
        left -= chosen_sets[-1]
    return chosen_sets, compared


def _subsets(pod_set: PodSet, strides: Sequence[int]) -> list[int]:
    """The indices of the subsets of a set that have a pod of its first class."""
    first = next(at for at, count in enumerate(pod_set) if count)
    subsets = [strides[first] * n for n in range(1, pod_set[first] + 1)]
    for count, stride in zip(pod_set[first + 1 :], strides[first + 1 :], strict=True):
        if count:
            subsets = [subset + more for subset in subsets for more in range(0, stride * count + 1, stride)]
    return subsets
