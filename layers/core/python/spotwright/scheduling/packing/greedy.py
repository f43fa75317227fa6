"""One greedy construction: node after node, each the shape that packs most for its price."""

from collections.abc import Iterable, Sequence
from operator import mul
from typing import Final

from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.packing import fractional_lp
from spotwright.scheduling.packing.bins import CPU_DIMENSION, MEMORY_DIMENSION, PODS_DIMENSION, Bin, FillOrder, fill_bin
from spotwright.scheduling.packing.problem import (
    PER_NODE_COST_PICOUSD_PER_HOUR,
    PackedNodes,
    Packing,
    PackingProblem,
    RemainingLimits,
    offerings_that_fit,
)

# A shape that packs this share of what the best could is taken at once.
_GOOD_ENOUGH: Final = 0.99
# What setting up a shape costs in units, beside one for each class.
_NEW_LANES: Final = 8
# What it takes to work out what the pods left would cost without a node's.
_PRICING: Final = 10
# Lanes are cleared when one in so many of their classes has run out.
_STALE: Final = 8
# Pods with a bound per host go first when they need this share of the nodes that resources alone would need.
_URGENT: Final = 0.5


class GreedyPacker:
    """Packs with lookahead: what a node is worth depends on what it leaves to the next ones."""

    def __init__(
        self,
        problem: PackingProblem,
        counts: Sequence[int],
        allowance: RemainingLimits,
        offerings: Sequence[int],
    ) -> None:
        self.problem = problem
        self.offering_index = problem.offering_index
        self.items = problem.items
        self.unpacked = list(counts)
        self.limits = allowance.copy()
        self.fill_orders: dict[int, FillOrder] = {}
        # How many classes have run out, and how many had when a shape's lanes were last cleared of them.
        self.empty = 0
        self.cleared: dict[int, int] = {}
        self.open = allowance.allowed_offerings(problem.offering_index)
        self.work_units = 0
        self.demand = self._demanded(range(len(self.unpacked)))
        self.caps = [
            (j, bond.max_per_host)
            for j, bond in enumerate(problem.host_constraints)
            if bond is not None and bond.max_per_host
        ]
        self.awaited: dict[int, float] = {}
        self._look_again()
        self._offer(offerings)

    def pack(self) -> Packing:
        nodes: list[PackedNodes] = []
        while any(self.unpacked) and self.offerings:
            packed_nodes = self._best_node()
            if packed_nodes is None:
                break
            if self._commit(packed_nodes):
                nodes.append(packed_nodes)
            else:
                self._offer([i for i in self.offerings if self.limits.max_nodes(self.offering_index, i, 1)])
        return Packing(nodes, self.unpacked, self.limits, self.work_units)

    def fractional_cost(self) -> float:
        """What the pods cost on these offerings if pods and nodes could be divided; no packing costs less."""
        return self.fractional_packing.cost([*self.demand, self._hosts()])

    def _offer(self, offerings: Sequence[int]) -> None:
        """Use these offerings. Those that differ in their zone alone are one kind: one of each kind is tried."""
        kinds: dict[tuple[int, int], list[int]] = {}
        self.offerings = offerings
        for i in offerings:
            kinds.setdefault((id(self.offering_index.pool_type_of[i]), self.offering_index.prices[i]), []).append(i)
        self.kinds = list(kinds.values())
        self.mask = sum(1 << i for i in offerings)
        # Zones seldom differ in either.
        self.offered = list(
            dict.fromkeys((self.offering_index.pool_type_of[i].free_capacity, self._price(i)) for i in offerings)
        )
        self.widest, self.most = self._widest()
        self.fractional_packing = fractional_lp.FractionalPacking(
            [*self.demand, self._hosts()],
            [(*room, 1) for room, _ in self.offered],
            [price for _, price in self.offered],
        )

    def _await_zones(self) -> None:
        """``awaited``: what the pods are worth that may go to some offerings only, by the offerings open to them."""
        partly = (mask for mask in self.asked if mask & self.mask and self.mask & ~mask)
        self.awaited = {mask: self._worth_of(mask) for mask in partly}

    def _worth_of(self, mask: int) -> float:
        """What the pods are worth that may go to these choices; where only hosts are scarce, how many pods wait."""
        worth: float = sum(map(mul, self.fractional_packing.shadow_prices, self.asked[mask]))
        return worth + self.asked[mask][PODS_DIMENSION]

    def _most_awaited(self, shapes: Sequence[int]) -> int:
        """Of the shapes of one kind, the one that most waits for; the first of several."""
        if len(shapes) == 1 or not self.awaited:
            return shapes[0]
        return max(shapes, key=lambda i: sum([worth for mask, worth in self.awaited.items() if mask >> i & 1]))

    def _forget_empty(self) -> None:
        """Once half of the classes are placed, lanes without them are quicker."""
        if sum(map(bool, self.unpacked)) * 2 < self.alive:
            self._look_again()

    def _look_again(self) -> None:
        """Which classes are in play, and which of them may go where; those that go to the same places together."""
        self.fill_orders.clear()
        alike: dict[int, list[int]] = {}
        for j, mask in enumerate(self.problem.offerings):
            if self.unpacked[j]:
                alike.setdefault(mask, []).append(j)
        self.alike = sorted(alike.items())
        self.asked = {mask: self._demanded(ours) for mask, ours in self.alike}
        self.alive = sum(map(bool, self.unpacked))

    def _widest(self) -> tuple[int, int]:
        """The class that needs most hosts, and how many of it one may hold; (-1, 1) if hosts hold any number."""
        _, j, most = max(
            ((self.unpacked[j] / most, -j, most) for j, most in self.caps if self.unpacked[j]), default=(0, 1, 1)
        )
        return -j, most

    def _appraise(self) -> None:
        """What the pods left are worth, and which nodes they need.

        ``fractional_packing``: of their resources, and at last the hosts; ``needed``: nodes by room and price.
        """
        self.fractional_packing.solve([*self.demand, self._hosts()])
        self.needed = {self.offered[k]: nodes for k, nodes in self.fractional_packing.node_counts.items()}

    def _needed(self, choice: int) -> float:
        """How many nodes like this one the cheapest mixture for the pods left has."""
        return self.needed.get((self.offering_index.pool_type_of[choice].free_capacity, self._price(choice)), 0.0)

    def _hosts(self) -> int:
        """How many hosts the class needs that needs most."""
        return -(-self.unpacked[self.widest] // self.most) if self.widest >= 0 else 0

    def _demanded(self, classes: Iterable[int]) -> list[int]:
        """What the pods of these classes that are left ask for together."""
        demand = [0] * len(self.offering_index.dimensions)
        for j in classes:
            for d, amount in self.problem.items.needs[j]:
                demand[d] += amount * self.unpacked[j]
        return demand

    def _price(self, choice: int) -> float:
        return float(self.offering_index.prices[choice] + PER_NODE_COST_PICOUSD_PER_HOUR)

    def _bound(self, choice: int) -> float:
        room = self.offering_index.pool_type_of[choice].free_capacity
        packs: float = sum(map(mul, self.fractional_packing.shadow_prices, (*room, 1)))
        return packs / self._price(choice)

    def _best_node(self) -> PackedNodes | None:
        """The node that packs most for its price; None when nothing fits any more."""
        self._forget_empty()
        self.widest, self.most = self._widest()
        self._appraise()
        if len(self.kinds) < len(self.offerings):
            self._await_zones()
        ranked = sorted(((self._bound(kind[0]), -place) for place, kind in enumerate(self.kinds)), reverse=True)
        enough = ranked[0][0] * _GOOD_ENOUGH
        best, best_node = 0.0, None
        for bound, place in ranked:
            if bound <= best or best >= enough:
                break
            offering = self._most_awaited(self.kinds[-place])
            node = self._filled(offering)
            if node.counts and self._keeps_enough(node, offering):
                value = self._packed(node, offering)
                if value > best:
                    best, best_node = value, PackedNodes(offering, 1, node.counts)
        return best_node

    def _keeps_enough(self, node: Bin, choice: int) -> bool:
        """False when the pods leave fewer kinds of instances than the NodePool's minValues ask."""
        template = self.offering_index.pool_type_of[choice].template_index
        if not self.offering_index.min_values[template]:
            return True
        return bool(offerings_that_fit(self.problem, node.counts, self.offering_index.offerings_of_template[template]))

    def _packed(self, node: Bin, choice: int) -> float:
        """What a node's pods are worth for its price: by how much it lowers the least cost of the pods left."""
        room = self.offering_index.pool_type_of[choice].free_capacity
        used = [r - f for r, f in zip(room, node.free_capacity, strict=True)]
        hosts = min(node.counts.get(self.widest, 0) / self.most, 1)
        # While the pods left need more such nodes, they are worth the same after it as before.
        if self._needed(choice) < 1:
            before = [*self.demand, self._hosts()]
            after = [amount - packed for amount, packed in zip(before, (*used, hosts), strict=True)]
            self.work_units += _PRICING
            saved = self.fractional_packing.cost(before) - self.fractional_packing.cost(after)
            if saved > 0:
                return saved / self._price(choice)
        worth = self.fractional_packing.shadow_prices
        value = sum(map(mul, worth, used)) + worth[-1] * hosts
        return (value or float(sum(node.counts.values()))) / self._price(choice)

    def _filled(self, choice: int) -> Bin:
        lanes = self.fill_orders.get(choice)
        goods = self.offering_index.pool_type_of[choice]
        if lanes is not None and (self.empty - self.cleared[choice]) * _STALE > self.alive:
            lanes.drop_empty_classes(self.unpacked)
            self.cleared[choice] = self.empty
        if lanes is None:
            self.cleared[choice] = self.empty
            takes = {j for mask, ours in self.alike if mask >> choice & 1 for j in ours if self.unpacked[j]}
            lanes = self.fill_orders[choice] = FillOrder(
                self.items, goods.free_capacity, takes, self._first(goods.free_capacity)
            )
            self.work_units += _NEW_LANES + self.alive
        node = Bin(goods.free_capacity, self.problem.bin_constraints(choice))
        self.work_units += fill_bin(node, lanes, self.items, self.unpacked)
        return node

    def _first(self, room: Vector) -> list[int]:
        """Classes of which a host may hold so few that they decide how many nodes there will be."""
        if not self.caps:
            return []
        nodes = max(self.demand[d] / room[d] for d in (CPU_DIMENSION, MEMORY_DIMENSION) if room[d])
        urgent = [(-self.unpacked[j] / most, j) for j, most in self.caps if self.unpacked[j] >= _URGENT * most * nodes]
        return [j for _, j in sorted(urgent)]

    def _commit(self, batch: PackedNodes) -> bool:
        """Make the node as often as its pods last and limits allow, as the cheapest choice that does."""
        batch.offering = self._smallest(batch)
        times = min(self.unpacked[j] // count for j, count in batch.pod_counts.items())
        times = self.limits.max_nodes(self.offering_index, batch.offering, times)
        if times:
            batch.node_count = times
            self.limits.spend(self.offering_index, batch.offering, times)
            for j, count in batch.pod_counts.items():
                self.unpacked[j] -= count * times
                self.empty += not self.unpacked[j]
                asked = self.asked[self.problem.offerings[j]]
                for d, amount in self.problem.items.needs[j]:
                    self.demand[d] -= amount * count * times
                    asked[d] -= amount * count * times
        return times > 0

    def _smallest(self, batch: PackedNodes) -> int:
        """The cheapest choice that holds the pods and counts no more against the limits."""
        cheaper = self.open & ((1 << batch.offering) - 1)
        for choice in iterate_bits(offerings_that_fit(self.problem, batch.pod_counts, cheaper)):
            if self._counts_no_more(choice, batch.offering):
                return choice
        return batch.offering

    def _counts_no_more(self, choice: int, other: int) -> bool:
        pool_type, theirs = self.offering_index.pool_type_of[choice], self.offering_index.pool_type_of[other]
        limited = self.limits.by_template[pool_type.template_index]
        if self.offering_index.reservation_ids[choice] or (
            limited and pool_type.template_index != theirs.template_index
        ):
            return self.limits.max_nodes(self.offering_index, choice, 1) > 0
        return all(
            pool_type.instance_type.capacity.get(name, 0) <= theirs.instance_type.capacity.get(name, 0)
            for name in limited
        )
