"""Nodes and their pods are chosen together, by what each pod is worth, where that finds what other ways do not.

Where pods that need hosts of their own decide how many nodes there are, nodes are small and have few pods, and the
sizes of nodes say little of what fits on them. And where many nodes have pods of a few classes, a node with room for
one pod more pays only when many of them are bought, which replacing a few nodes at a time does not find: four pods of
28 GiB and a small one on a node of 16 cpu, in place of two pods on each of two nodes of 8 cpu.

Then patterns (the pods of one node) are generated: the linear program of those there are says what a pod of each class
is worth; a pattern whose pods are worth more than its node joins them, until there is none (in papers: column
generation, of Gilmore and Gomory). Patterns that the program has whole nodes of are bought, else one of the largest
fraction, and the program is solved again for the pods that are left.
"""

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import Final

from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.packing.bins import CPU_DIMENSION, MEMORY_DIMENSION, Bin
from spotwright.scheduling.packing.pattern_program import PatternProgram
from spotwright.scheduling.packing.problem import (
    PER_NODE_COST_PICOUSD_PER_HOUR,
    PackedNodes,
    Packing,
    PackingProblem,
    candidate_offerings,
    offerings_that_fit,
    offerings_up_to_size,
    size_bound_of,
)

# Fewer nodes can be replaced all at once, which finds more.
_FEW_NODES: Final = 12
# Hosts decide where one class needs this share of the nodes.
_SHARE_OF_NODES: Final = 0.5
# With more classes the program takes more of the work than it saves.
_MOST_CLASSES: Final = 40
# Of so few classes it takes little, and is tried whatever decides.
_FEW_CLASSES: Final = 12
# Of the units of work, generating patterns takes so much.
_SHARE_OF_BUDGET: Final = 3
# How often patterns are generated for all pods, and for those that are left; how many at a time at most.
_ROUNDS: Final = 30
_ROUNDS_OF_REST: Final = 4
_MOST_PATTERNS: Final = 12
# What a pod takes of a node: so much of it counts as cpu, the rest as memory, in turn.
_CPU_SHARES: Final = (0.5, 0.2, 0.8)
# A pattern must be worth so much more than its node.
_WORTHWHILE: Final = 1.0001
# Units of work for filling a node, and how many classes that were looked at are one more.
_UNITS_PER_FILLING: Final = 4
_CLASSES_PER_UNIT: Final = 1
# By how much a number of nodes may miss a whole number.
_TOLERANCE: Final = 1e-6


def pack_by_patterns(problem: PackingProblem, packing: Packing, size_bound: int, budget: int) -> Packing | None:
    """Another packing of the pods of a packing, with pods left where it found no node for them or the budget ended.

    None where that is not likely to find cheaper nodes, and where the packing leaves pods. Nodes are at most as large
    as the largest there is, or as ``size_bound``, in millicores.
    """
    if budget <= 0 or any(packing.unpacked) or not _is_promising(problem, packing):
        return None
    return _PatternPacking(problem, packing, size_bound, budget).pack()


def _is_promising(problem: PackingProblem, packing: Packing) -> bool:
    """Whether there are many nodes and few classes, or hosts decide."""
    node_count = sum(packed_nodes.node_count for packed_nodes in packing.nodes)
    pods = _count_pods(packing)
    if node_count <= _FEW_NODES or not 1 < len(pods) <= _MOST_CLASSES:
        return False
    hosts = [count / cap for j, count in pods.items() if (cap := _max_per_host(problem, j))]
    return len(pods) <= _FEW_CLASSES or max(hosts, default=0) >= _SHARE_OF_NODES * node_count


def _count_pods(packing: Packing) -> Counter[int]:
    """Pods by class."""
    pods = Counter[int]()
    for packed_nodes in packing.nodes:
        for j, count in packed_nodes.pod_counts.items():
            pods[j] += count * packed_nodes.node_count
    return pods


def _max_per_host(problem: PackingProblem, j: int) -> int:
    host_constraint = problem.host_constraints[j]
    return host_constraint.max_per_host if host_constraint is not None else 0


class _Shape:
    """A node that may be bought, in dollars; ``most``: how many pods of the classes that it may hold it holds alone;
    ``last_worth``: of its best pattern when it was last filled, for its price.
    """

    __slots__ = ("capacity", "last_worth", "most", "offering", "price")

    def __init__(self, offering: int, price: float, capacity: Vector, most: Mapping[int, int]) -> None:
        self.offering = offering
        self.price = price
        self.capacity = capacity
        self.most = most
        self.last_worth = inf


class _PatternPacking:
    """``_left``: pods without a node yet, by class; classes are numbered among those that have pods."""

    def __init__(self, problem: PackingProblem, packing: Packing, size_bound: int, budget: int) -> None:
        self._problem = problem
        self._offering_index = problem.offering_index
        self._budget = budget
        self._filling_units = 0
        self._limits = packing.limits.copy()
        for packed_nodes in packing.nodes:
            self._limits.spend(self._offering_index, packed_nodes.offering, -packed_nodes.node_count)
        pods = _count_pods(packing)
        self._classes = sorted(pods)
        self._left = [pods[j] for j in self._classes]
        size_bound = size_bound_of(self._offering_index, packing, size_bound)
        self._allowed = offerings_up_to_size(self._offering_index.by_capacity.by_millicores, size_bound)
        counts = [pods[j] for j in range(len(problem.offerings))]
        self._shapes = self._find_shapes(candidate_offerings(problem, counts, self._limits, size_bound))
        self._program = PatternProgram(len(self._classes))
        self._known = set[object]()
        numbers = {j: number for number, j in enumerate(self._classes)}
        for packed_nodes in packing.nodes:
            pattern = {numbers[j]: count for j, count in packed_nodes.pod_counts.items()}
            self._add(pattern, self._price(packed_nodes.offering))

    def _price(self, offering: int) -> float:
        return (self._offering_index.prices[offering] + PER_NODE_COST_PICOUSD_PER_HOUR) / PICOUSD

    def _find_shapes(self, candidates: list[int]) -> list[_Shape]:
        """Of candidates that differ in nothing the cheapest."""
        shapes: dict[object, _Shape] = {}
        for offering in candidates:
            capacity = self._offering_index.pool_type_of[offering].free_capacity
            most = {
                number: fitting for number in range(len(self._classes)) if (fitting := self._most(number, offering))
            }
            if most:
                shape = _Shape(offering, self._price(offering), capacity, most)
                shapes.setdefault((capacity, tuple(most)), shape)
        return list(shapes.values())

    def _most(self, number: int, offering: int) -> int:
        """How many pods of a class a node holds that holds no others."""
        j = self._classes[number]
        if not self._problem.offerings[j] >> offering & 1:
            return 0
        capacity = self._offering_index.pool_type_of[offering].free_capacity
        most = min([self._left[number], *(capacity[d] // amount for d, amount in self._problem.items.needs[j])])
        return min(most, _max_per_host(self._problem, j) or most)

    @property
    def _work_units(self) -> int:
        return self._filling_units + self._program.work_units

    def _add(self, pattern: Mapping[int, int], price: float) -> bool:
        """Add a pattern unless it is there."""
        key = tuple(sorted(pattern.items())), price
        is_new = key not in self._known
        if is_new:
            self._known.add(key)
            self._program.add(pattern, price)
        return is_new

    def pack(self) -> Packing:
        nodes = list[PackedNodes]()
        self._generate(_ROUNDS)
        while any(self._left) and self._work_units < self._budget:
            bought = self._buy()
            if bought is None:
                break
            nodes += bought
            self._generate(_ROUNDS_OF_REST)
        unpacked = [0] * len(self._problem.offerings)
        for number, j in enumerate(self._classes):
            unpacked[j] = self._left[number]
        return Packing(nodes, unpacked, self._limits, self._work_units)

    def _generate(self, rounds: int) -> None:
        """Solve for the pods that are left; while the share of the budget lasts, add patterns that are worth it."""
        self._program.solve(self._left)
        for _ in range(rounds):
            if self._work_units * _SHARE_OF_BUDGET >= self._budget or not self._add_patterns():
                return
            self._program.improve()

    def _add_patterns(self) -> bool:
        """Add some patterns that are worth more than their nodes; False where none was found.

        Types are tried first whose patterns were worth most for their price when they were last filled.
        """
        pod_prices, added = self._program.pod_prices(), 0
        for shape in sorted(self._shapes, key=lambda shape: -shape.last_worth):
            worth, pattern = self._best_pattern(shape, pod_prices)
            shape.last_worth = worth / shape.price
            if shape.last_worth > _WORTHWHILE:
                added += self._add(pattern, shape.price)
                if added >= _MOST_PATTERNS:
                    break
        return added > 0

    def _best_pattern(self, shape: _Shape, pod_prices: list[float]) -> tuple[float, dict[int, int]]:
        """The pods worth most of those that some ways of filling a node put on it, and what they are worth."""
        best, best_pattern = 0.0, dict[int, int]()
        for cpu_share in _CPU_SHARES:
            worth, pattern, at_most = self._fill(shape, pod_prices, cpu_share)
            if worth > best:
                best, best_pattern = worth, pattern
            if at_most <= shape.price * _WORTHWHILE:
                break
        return best, best_pattern

    def _fill(self, shape: _Shape, pod_prices: list[float], cpu_share: float) -> tuple[float, dict[int, int], float]:
        """Fill a node with the pods that are worth most for what they take of it; also what no pods exceed in worth."""
        sizes, needs, left = self._problem.items.sizes, self._problem.items.needs, self._left
        per_cpu = cpu_share / max(shape.capacity[CPU_DIMENSION], 1)
        per_memory = (1 - cpu_share) / max(shape.capacity[MEMORY_DIMENSION], 1)
        order = list[tuple[float, int, float]]()
        for number in shape.most:
            if left[number] and pod_prices[number] > 0:
                size = sizes[self._classes[number]]
                taken = size[CPU_DIMENSION] * per_cpu + size[MEMORY_DIMENSION] * per_memory + _TOLERANCE
                order.append((-pod_prices[number] / taken, number, taken))
        order.sort()
        self._filling_units += _UNITS_PER_FILLING + len(order) // _CLASSES_PER_UNIT
        node = Bin(shape.capacity, self._problem.bin_constraints(shape.offering))
        room, at_most, worth, pattern = 1.0 + _TOLERANCE * sum(left), 0.0, 0.0, dict[int, int]()
        for density, number, taken in order:
            most, j = min(shape.most[number], left[number]), self._classes[number]
            divided = min(most * taken, room)
            at_most -= density * divided
            room -= divided
            count = node.add(j, needs[j], most)
            if count:
                pattern[number] = count
                worth += count * pod_prices[number]
        return worth, pattern, at_most

    def _buy(self) -> list[PackedNodes] | None:
        """Buy the patterns that the program has whole nodes of, else a node of the largest fraction; None for none."""
        node_counts = self._program.node_counts()
        whole = {k: count for k, fraction in sorted(node_counts.items()) if (count := int(fraction + _TOLERANCE))}
        if not whole:
            whole = dict.fromkeys(sorted(node_counts, key=lambda k: (-node_counts[k], k))[:1], 1)
        nodes = list[PackedNodes]()
        for k, count in whole.items():
            for _ in range(count):
                pods = {number: min(n, self._left[number]) for number, n in self._program.patterns[k].items()}
                pods = {number: n for number, n in pods.items() if n}
                node = self._cheapest_node({self._classes[number]: n for number, n in pods.items()}) if pods else None
                if node is not None:
                    nodes.append(node)
                    for number, n in pods.items():
                        self._left[number] -= n
        return nodes or None

    def _cheapest_node(self, pods: dict[int, int]) -> PackedNodes | None:
        """The cheapest offering that holds the pods within the limits."""
        for offering in iterate_bits(offerings_that_fit(self._problem, pods, self._allowed)):
            if self._limits.max_nodes(self._offering_index, offering, 1):
                self._limits.spend(self._offering_index, offering, 1)
                return PackedNodes(offering, 1, pods)
        return None
