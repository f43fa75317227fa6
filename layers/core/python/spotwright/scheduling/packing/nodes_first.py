"""Makes a packing cheaper: first other nodes whose capacity in sum covers the pods, then the pods on them.

A greedy packing buys node after node, and its last nodes are often badly filled, or one of them too large. Here some of
the nodes, or all of few, are given up at once, and cheaper nodes that cover their pods in sum are tried until the pods
fit on them (``covers``, ``node_filling``).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, mul
from typing import Final

from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.packing import fractional_lp
from spotwright.scheduling.packing.bins import CPU_DIMENSION, MEMORY_DIMENSION
from spotwright.scheduling.packing.covers import CoverSearch, Shape
from spotwright.scheduling.packing.node_filling import NodeFilling
from spotwright.scheduling.packing.problem import (
    PER_NODE_COST_PICOUSD_PER_HOUR,
    PackedNodes,
    Packing,
    PackingProblem,
    RemainingLimits,
    candidate_offerings,
    offerings_that_fit,
    offerings_up_to_size,
    size_bound_of,
)
from spotwright.scheduling.packing.usable_room import UsableRoom

# So many nodes at most are replaced, those that waste most; so few all at once first.
_MOST_NODES: Final = 48
_ALL_AT_ONCE: Final = 12
# Nodes of a group that is replaced.
_GROUP_SIZES: Final = (2, 3, 4, 5, 6, 8)
# The search ends after so many groups in a row of which none got cheaper.
_PATIENCE: Final = 150
# A packing that costs so little more than its lower bound is left as it is.
_CLOSE_ENOUGH: Final = 1.001
# A group is tried so often: first with all shapes, then with this part of them, drawn anew each time.
_TRIES: Final = 6
_DRAWN_PERCENT: Final = 40
# Room beyond what the pods request, in turn: with more of it pods are easier to pack, with less nodes are cheaper.
_SLACKS: Final = (0.06, 0.02, 0.0)
_SLACKS_OF_ALL: Final = (0.1, 0.05, 0.025, 0.01, 0.0)
_SLACKS_WITH_EJECTIONS: Final = (0.02, 0.0)
# The most shapes to evaluate, and covers to pack, for one slack; of all nodes at once, so many times more shapes.
_MOST_EVALUATED: Final = 300
_MOST_PACKINGS: Final = 5
_EVALUATED_OF_ALL: Final = 2
# With half of the budget, the pods of packings that still cost so many times their lower bound eject others.
_FAR: Final = 1.03
_MOST_EJECTIONS: Final = 100
# How many sizes of pods are tried as parts of cpu, and of memory; by what factor a part must raise the lower bound;
# units of work that each takes.
_MOST_PARTS: Final = 4
_WORTHWHILE_PART: Final = 1.002
_UNITS_PER_PART: Final = 100
# So many candidates that were looked at are one unit of work; units of work for a class of a group, and for a shape
# that was evaluated.
_CANDIDATES_PER_UNIT: Final = 2
_UNITS_PER_CLASS: Final = 8
_UNITS_PER_SHAPE: Final = 2


class _Node:
    """``number``: its own; ``waste``: what its pods are worth less than it costs."""

    __slots__ = ("number", "offering", "pods", "waste")

    def __init__(self, number: int, offering: int, pods: dict[int, int], waste: float) -> None:
        self.number = number
        self.offering = offering
        self.pods = pods
        self.waste = waste


class _Draws:
    """Numbers that look random and are the same in every run (a linear congruential generator)."""

    def __init__(self) -> None:
        self._state = 1

    def below(self, bound: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self._state >> 33) * bound >> 31


def replace_nodes(problem: PackingProblem, packing: Packing, size_bound: int, budget: int) -> None:
    """Replace groups of nodes by cheaper nodes while the budget lasts. Changes the packing; its pods all stay packed.

    New nodes are at most as large as the largest there is, or as ``size_bound``, in millicores.
    """
    if packing.nodes and budget > 0:
        replacement = _Replacement(problem, packing, size_bound)
        replacement.run(budget)
        replacement.write_back()


class _Replacement:
    """``nodes``: those that may be replaced, ``kept``: all others; ``allowed``: offerings that are not too large;
    ``limits``: what the nodes leave of them; ``lower_bound``: the pods cost no less; ``shadow_prices``,
    ``lone_prices``: see ``CoverSearch``; ``surcharges``: what candidates cost beyond what their room is worth;
    ``too_small``: covers on which the pods of a group did not fit; ``most_ejections``: see ``NodeFilling``.
    """

    def __init__(self, problem: PackingProblem, packing: Packing, size_bound: int) -> None:
        self.problem = problem
        self.offering_index = problem.offering_index
        self.packing = packing
        self.limits = packing.limits.copy()
        self.work_units = 0
        self.draws = _Draws()
        self.too_small = set[object]()
        self.most_ejections = 0
        self.node_count = 0
        size_bound = size_bound_of(self.offering_index, packing, size_bound)
        self.allowed = offerings_up_to_size(self.offering_index.by_capacity.by_millicores, size_bound)
        pods, limits = Counter[int](), packing.limits.copy()
        for packed_nodes in packing.nodes:
            limits.spend(self.offering_index, packed_nodes.offering, -packed_nodes.node_count)
            for j, count in packed_nodes.pod_counts.items():
                pods[j] += count * packed_nodes.node_count
        counts = [pods[j] for j in range(len(problem.offerings))]
        self.pods = pods
        self.exchanges = () if any(packing.unpacked) else problem.exchanges
        any_classes = [exchange.any_class for exchange in self.exchanges]
        self.has_caps, self.host_offerings = self._find_host_offerings((*pods, *any_classes))
        for any_class in any_classes:
            counts[any_class] = 1
        self.candidates = candidate_offerings(problem, counts, limits, size_bound)
        self._candidates_in: dict[int, frozenset[int]] = {}
        self._with_room: dict[Vector, int] = {}
        self.parts: tuple[tuple[int, int], ...] = ()
        self.surcharges: dict[int, float] = {}
        released = self.release(pods)[0]
        self._find_prices(released, self.usable_room(pods | released))
        self._choose_nodes()

    def release(self, pods: Counter[int]) -> tuple[Counter[int], dict[int, dict[int, int]]]:
        """The pods, those that may be in any class of an exchange under the class that stands for any; and for each
        such class, how many of its pods each class of the exchange may take.
        """
        released, most = pods.copy(), dict[int, dict[int, int]]()
        for exchange in self.exchanges:
            leaving = {
                j: min(pods[j], max(self.pods[j] - fewest, 0)) for j, (fewest, _) in exchange.bounds.items() if pods[j]
            }
            free = {j: highest - self.pods[j] + leaving.get(j, 0) for j, (_, highest) in exchange.bounds.items()}
            if sum(leaving.values()) > 0 and any(room > leaving.get(j, 0) for j, room in free.items()):
                released.subtract(leaving)
                released[exchange.any_class] = sum(leaving.values())
                most[exchange.any_class] = free
        return +released, most

    def _find_host_offerings(self, pods: Iterable[int]) -> tuple[bool, int]:
        """Whether a host may hold few pods of some class, and the offerings open to such classes; without any, all."""
        offerings = 0
        for j in pods:
            host_constraint = self.problem.host_constraints[j]
            if host_constraint is not None and host_constraint.max_per_host:
                offerings |= self.problem.offerings[j]
        return bool(offerings), offerings or self.offering_index.all_offerings

    def candidates_in(self, offerings: int) -> frozenset[int]:
        """The candidates among these offerings."""
        if offerings not in self._candidates_in:
            self._candidates_in[offerings] = frozenset([k for k in self.candidates if offerings >> k & 1])
        return self._candidates_in[offerings]

    def usable_room(self, pods: Mapping[int, int]) -> UsableRoom:
        """``pods``: how many by class, of which a node holds some or all."""
        kinds = []
        for j, count in pods.items():
            host_constraint = self.problem.host_constraints[j]
            cap = host_constraint.max_per_host if host_constraint is not None else 0
            candidates = self.candidates_in(self.problem.offerings[j])
            kinds.append((self.problem.items.sizes[j], candidates, min(cap or count, count)))
        return UsableRoom(kinds)

    def _price(self, offering: int) -> int:
        return self.offering_index.prices[offering] + PER_NODE_COST_PICOUSD_PER_HOUR

    def _cost(self, nodes: Iterable[_Node]) -> int:
        return sum(self._price(node.offering) for node in nodes)

    def _room(self, offering: int, usable: UsableRoom) -> Vector:
        """Usable capacity, its whole parts, and one host if it may hold pods that need hosts of their own."""
        free_capacity = usable.of(offering, self.offering_index.pool_type_of[offering].free_capacity)
        return self._in_parts(offering, free_capacity)

    def _in_parts(self, offering: int, free_capacity: Vector) -> Vector:
        parts = [free_capacity[dimension] // part for dimension, part in self.parts]
        return (*free_capacity, *parts, self.host_offerings >> offering & 1)

    def _demand(self, pods: Mapping[int, int]) -> Vector:
        """What the pods request together, and the hosts that the class needs that needs most."""
        demand, hosts, parts = [0] * len(self.offering_index.dimensions), 0, self._parts_requested(pods)
        for j, count in pods.items():
            for d, amount in self.problem.items.needs[j]:
                demand[d] += amount * count
            host_constraint = self.problem.host_constraints[j]
            if host_constraint is not None and host_constraint.max_per_host:
                hosts = max(hosts, -(-count // host_constraint.max_per_host))
        return (*demand, *parts, hosts)

    def _parts_requested(self, pods: Mapping[int, int]) -> list[int]:
        sizes = self.problem.items.sizes
        return [
            sum([sizes[j][dimension] // part * count for j, count in pods.items()]) for dimension, part in self.parts
        ]

    def find_demands(self, pods: Mapping[int, int]) -> tuple[list[int], list[Vector]]:
        """The sets of offerings that some pods are limited to, and what these request; last that of all pods.

        Pods that are limited to offerings of which none is in two sets, as those of two zones, share no host.
        """
        offering_sets = self._find_offering_sets(pods)
        demands = [
            self._demand({j: count for j, count in pods.items() if not self.problem.offerings[j] & ~offerings})
            for offerings in offering_sets
        ]
        counted, hosts = 0, 0
        for offerings, demand in zip(offering_sets[:-1], demands, strict=False):
            if not offerings & counted:
                counted |= offerings
                hosts += demand[-1] if self.has_caps else 1
        demands[-1] = (*demands[-1][:-1], max(demands[-1][-1], hosts))
        return offering_sets, demands

    def _find_offering_sets(self, pods: Mapping[int, int]) -> list[int]:
        """Sets that differ only in offerings that are too small for a pod count as one; small sets come first."""
        offerings, sizes = self.problem.offerings, self.problem.items.sizes
        found: list[tuple[int, Vector]] = []
        for j in sorted(pods, key=lambda j: (offerings[j].bit_count(), offerings[j], j)):
            mask, size, others = offerings[j], sizes[j], list[tuple[int, Vector]]()
            for other, other_size in found:
                larger = tuple(map(max, size, other_size))
                if larger not in self._with_room:
                    self._with_room[larger] = self.offering_index.by_capacity.with_room(larger)
                room = self._with_room[larger]
                if mask & room == other & room:
                    mask, size = mask | other, larger
                else:
                    others.append((other, other_size))
            found = [*others, (mask, size)]
        union = 0
        for mask, _ in found:
            union |= mask
        return [*sorted({mask for mask, _ in found} - {union}, key=lambda mask: (mask.bit_count(), mask)), union]

    def _find_prices(self, pods: Mapping[int, int], usable: UsableRoom) -> None:
        """Find what these pods cost no less than, and the shadow prices of the whole demand, and of its cpu and its
        memory alone, for what is left of a demand.
        """
        pool_type_of = self.offering_index.pool_type_of
        free_capacities = [usable.of(offering, pool_type_of[offering].free_capacity) for offering in self.candidates]
        demand = self.find_demands(pods)[1][-1]
        self.lower_bound = self._cost_in_fractions(demand, free_capacities)
        if self.packing.cost(self.offering_index) > self.lower_bound * _CLOSE_ENOUGH:
            self._choose_parts(pods, demand, free_capacities)
        demand = (*demand[:-1], *self._parts_requested(pods), demand[-1])
        self.shadow_prices = self._shadow_prices(demand, free_capacities)
        self.lone_prices = list[tuple[int, float]]()
        for dimension in (CPU_DIMENSION, MEMORY_DIMENSION):
            alone = tuple([amount if d == dimension else 0 for d, amount in enumerate(demand)])
            self.lone_prices.append((dimension, self._shadow_prices(alone, free_capacities)[dimension]))
        for offering in self.candidates:
            room = self._in_parts(offering, pool_type_of[offering].free_capacity)
            self.surcharges[offering] = self._price(offering) - self.worth(room)

    def worth(self, amounts: Vector) -> float:
        """What amounts of a demand are worth at the shadow prices of the whole demand."""
        worth: float = sum(map(mul, amounts, self.shadow_prices))
        return worth

    def _choose_parts(self, pods: Mapping[int, int], demand: Vector, free_capacities: Sequence[Vector]) -> None:
        """Count cpu and memory also in whole parts of the size of some pod where that shows that the pods cost more.

        A node has no use for what it has beyond whole parts: of 7.9 cores, pods of 1 and 4 cores use 7. ``demand``,
        ``free_capacities``: without parts.
        """
        for dimension in (CPU_DIMENSION, MEMORY_DIMENSION):
            requested = Counter[int]()
            for j, count in pods.items():
                requested[self.problem.items.sizes[j][dimension]] += count * self.problem.items.sizes[j][dimension]
            before, least = self.parts, self.lower_bound * _WORTHWHILE_PART
            for part, _ in sorted(requested.items(), key=lambda item: (-item[1], item[0]))[:_MOST_PARTS]:
                tried, self.parts = self.parts, (*before, (dimension, part or 1))
                in_parts = (*demand[:-1], *self._parts_requested(pods), demand[-1])
                lower_bound = self._cost_in_fractions(in_parts, free_capacities)
                self.work_units += _UNITS_PER_PART
                if lower_bound > least:
                    self.lower_bound, least = lower_bound, lower_bound
                else:
                    self.parts = tried

    def _cost_in_fractions(self, demand: Vector, free_capacities: Sequence[Vector]) -> float:
        cost: float = sum(map(mul, demand, self._shadow_prices(demand, free_capacities)))
        return cost

    def _shadow_prices(self, demand: Vector, free_capacities: Sequence[Vector]) -> list[float]:
        """``free_capacities``: of the candidates, without parts."""
        rooms = map(self._in_parts, self.candidates, free_capacities)
        prices = map(float, map(self._price, self.candidates))
        return fractional_lp.compute_shadow_prices(demand, rooms, prices)

    def _choose_nodes(self) -> None:
        """Take the nodes that waste most."""
        self.nodes: list[_Node] = []
        self.kept: list[PackedNodes] = []
        ranked = [
            (-self._waste(packed_nodes.offering, packed_nodes.pod_counts), place)
            for place, packed_nodes in enumerate(self.packing.nodes)
        ]
        for _, place in sorted(ranked):
            packed_nodes = self.packing.nodes[place]
            taken = min(packed_nodes.node_count, _MOST_NODES - len(self.nodes))
            self.nodes += [self._new_node(packed_nodes.offering, packed_nodes.pod_counts) for _ in range(taken)]
            if taken < packed_nodes.node_count:
                left = packed_nodes.node_count - taken
                self.kept.append(PackedNodes(packed_nodes.offering, left, packed_nodes.pod_counts))

    def _waste(self, offering: int, pods: Mapping[int, int]) -> float:
        """By how much the price of a node exceeds what its pods are worth."""
        return self._price(offering) - self.worth(self._demand(pods))

    def _new_node(self, offering: int, pods: dict[int, int]) -> _Node:
        self.node_count += 1
        return _Node(self.node_count, offering, pods, self._waste(offering, pods))

    def run(self, budget: int) -> None:
        """Replace groups of nodes; where the packing is far from its bound, again with more effort for each cover."""
        half = budget // 2
        self._replace_groups(half)
        if not self._is_within(_FAR):
            self.most_ejections = _MOST_EJECTIONS
            self.too_small.clear()
        elif self.work_units < half:
            return
        self._replace_groups(budget)

    def _is_within(self, factor: float) -> bool:
        """Whether the packing costs at most so many times its lower bound."""
        kept_cost = sum(self._price(packed_nodes.offering) * packed_nodes.node_count for packed_nodes in self.kept)
        return kept_cost + self._cost(self.nodes) <= self.lower_bound * factor

    def _replace_groups(self, budget: int) -> None:
        failed, tries = 0, dict[frozenset[int], int]()
        while failed < _PATIENCE and self.work_units < budget:
            if not failed and self._is_within(_CLOSE_ENOUGH):
                break
            everything = not failed and len(self.nodes) <= _ALL_AT_ONCE
            group = self.nodes if everything else self._draw_group()
            key = frozenset(node.number for node in group)
            attempt = tries.get(key, 0)
            failed += 1
            self.work_units += 1
            if attempt < _TRIES:
                group_replacement = _GroupReplacement(self, group, budget - self.work_units)
                shapes = self._shapes(group_replacement, attempt)
                complete = group_replacement.search(shapes, everything)
                self.work_units += group_replacement.work_units
                tries[key] = _TRIES if complete and not attempt else attempt + 1
                if group_replacement.new_nodes:
                    failed = 0
                    self._replace(group, group_replacement.new_nodes)

    def _draw_group(self) -> list[_Node]:
        """Nodes of which most waste much, in the order of their numbers."""
        size = min(len(self.nodes), _GROUP_SIZES[self.draws.below(len(_GROUP_SIZES))])
        group: dict[int, _Node] = {}
        for _ in range(4 * size):
            pair = [self.nodes[self.draws.below(len(self.nodes))] for _ in range(2)]
            node = max(pair, key=attrgetter("waste", "number"))
            group[node.number] = node
            if len(group) == size:
                break
        return [group[number] for number in sorted(group)]

    def _shapes(self, group: "_GroupReplacement", attempt: int) -> list[Shape]:
        """Candidates that some of the pods may use; of those that differ in nothing the cheapest. Left out are those of
        which the group has no cheaper cover, since they cost too much beyond what all of their room is worth.
        """
        shapes: dict[object, Shape] = {}
        candidate_sets = [self.candidates_in(offerings) for offerings in group.offering_sets]
        self.work_units += len(self.candidates) // _CANDIDATES_PER_UNIT
        for offering in self.candidates:
            if (
                offering in candidate_sets[-1]
                and (not attempt or self.draws.below(100) < _DRAWN_PERCENT)
                and self.surcharges[offering] < group.gap
            ):
                rows = tuple([row for row, candidates in enumerate(candidate_sets) if offering in candidates])
                room = self._room(offering, group.usable)
                if (rows, room) not in shapes:
                    shapes[rows, room] = Shape(offering, self._price(offering), room, rows)
        self.work_units += group.usable.work_units
        return list(shapes.values())

    def _replace(self, group: Sequence[_Node], new_nodes: Sequence[tuple[int, dict[int, int]]]) -> None:
        replaced = {node.number for node in group}
        for node in group:
            self.pods.subtract(node.pods)
        for _, pods in new_nodes:
            self.pods.update(pods)
        self.nodes = [node for node in self.nodes if node.number not in replaced]
        for node in group:
            self.limits.spend(self.offering_index, node.offering, -1)
        for offering, pods in new_nodes:
            self.limits.spend(self.offering_index, offering, 1)
            self.nodes.append(self._new_node(offering, pods))

    def write_back(self) -> None:
        """Put the nodes into the packing."""
        nodes = (PackedNodes(node.offering, 1, node.pods) for node in self.nodes)
        equal_nodes: dict[object, PackedNodes] = {}
        for packed_nodes in (*self.kept, *nodes):
            key = packed_nodes.offering, tuple(sorted(packed_nodes.pod_counts.items()))
            if key in equal_nodes:
                equal_nodes[key].node_count += packed_nodes.node_count
            else:
                equal_nodes[key] = packed_nodes
        self.packing.nodes[:] = equal_nodes.values()
        self.packing.limits = self.limits
        self.packing.work_units += self.work_units


class _GroupReplacement:
    """Looks for cheaper nodes for the pods of a group of nodes.

    ``offering_sets``: see ``find_demands``; ``gap``: what the nodes cost beyond what their pods are worth;
    ``new_nodes``: the offering and the pods of each, if any were found.
    """

    def __init__(self, replacement: _Replacement, group: Sequence[_Node], budget: int) -> None:
        self._replacement = replacement
        self._budget = budget
        self._problem = replacement.problem
        self._pods = Counter[int]()
        self._limits = replacement.limits.copy()
        for node in group:
            self._pods.update(node.pods)
            self._limits.spend(replacement.offering_index, node.offering, -1)
        self._pods, self._most = replacement.release(self._pods)
        self._pods_key = (
            frozenset(self._pods.items()),
            frozenset([(j, frozenset(free.items())) for j, free in self._most.items()]),
        )
        self._below = replacement._cost(group)
        self._tried = set[tuple[int, ...]]()
        self.offering_sets, self._demands = replacement.find_demands(self._pods)
        self.gap = self._below - replacement.worth(self._demands[-1])
        self.usable = replacement.usable_room(self._pods)
        self.new_nodes: list[tuple[int, dict[int, int]]] = []
        self.work_units = _UNITS_PER_CLASS * len(self._pods)

    def search(self, shapes: Sequence[Shape], everything: bool) -> bool:
        """True when all covers of these shapes were tried."""
        replacement = self._replacement
        cover_search = CoverSearch(shapes, replacement.shadow_prices, replacement.lone_prices, self._below, self._pack)
        most_evaluated = _MOST_EVALUATED * (_EVALUATED_OF_ALL if everything else 1)
        complete, divisible = False, len(self._replacement.offering_index.dimensions)
        slacks_of_all = _SLACKS_WITH_EJECTIONS if self._replacement.most_ejections else _SLACKS_OF_ALL
        for slack in slacks_of_all if everything else _SLACKS:
            if self.work_units + _UNITS_PER_SHAPE * cover_search.evaluated >= self._budget:
                break
            rows = [
                (*(int(amount * (1 + slack)) for amount in amounts[:divisible]), *amounts[divisible:])
                for amounts in self._demands
            ]
            complete = cover_search.search(rows, most_evaluated, _MOST_PACKINGS)
        self.work_units += _UNITS_PER_SHAPE * cover_search.evaluated
        return complete

    def _pack(self, offerings: Sequence[int]) -> int | None:
        """What the nodes cost that these offerings become with the pods on them; None where they do not fit."""
        cover = tuple(sorted(offerings))
        if cover in self._tried or self.work_units >= self._budget:
            return None
        self._tried.add(cover)
        pods_by_node = self._fill(cover)
        new_nodes = self._cheapest_nodes([pods for pods in pods_by_node or () if pods])
        cost = sum(self._replacement._price(offering) for offering, _ in new_nodes)
        if not new_nodes or cost >= self._below:
            return None
        self.new_nodes, self._below = new_nodes, cost
        return cost

    def _fill(self, cover: tuple[int, ...]) -> list[dict[int, int]] | None:
        """The pods of each node of a cover; None where they do not fit. What did not fit is not tried again."""
        attempt = self._pods_key, cover
        if attempt in self._replacement.too_small:
            return None
        filling = NodeFilling(self._problem, self._pods, cover, self._most, self._replacement.most_ejections)
        pods_by_node = filling.fill()
        self.work_units += filling.work_units
        if pods_by_node is None:
            self._replacement.too_small.add(attempt)
        return pods_by_node

    def _cheapest_nodes(self, pods_by_node: Sequence[dict[int, int]]) -> list[tuple[int, dict[int, int]]]:
        """Each node as the cheapest offering that holds its pods within the limits; empty if there is none for one."""
        nodes, left = list[tuple[int, dict[int, int]]](), self._limits.copy()
        offering_index = self._problem.offering_index
        for pods in pods_by_node:
            fitting = iterate_bits(offerings_that_fit(self._problem, pods, self._replacement.allowed))
            offering = next((offering for offering in fitting if left.max_nodes(offering_index, offering, 1)), -1)
            if offering < 0:
                return []
            left.spend(offering_index, offering, 1)
            nodes.append((offering, pods))
        unpacked = any(self._replacement.packing.unpacked)
        return [] if unpacked and not _leaves_no_less(left, self._replacement.limits) else nodes


def _leaves_no_less(limits: RemainingLimits, before: RemainingLimits) -> bool:
    """True when no less is left of any limit or reservation than before: pods without a node need it."""
    return all(
        left[name] >= amount
        for left, left_before in zip(limits.by_template, before.by_template, strict=True)
        for name, amount in left_before.items()
    ) and all(limits.by_reservation[name] >= amount for name, amount in before.by_reservation.items())
