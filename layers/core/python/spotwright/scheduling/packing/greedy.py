"""One greedy packing: node after node, each of the offering that packs most for its price."""

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

# An offering that packs this share of what the best could is taken at once.
_GOOD_ENOUGH: Final = 0.99
# Units of work for building a fill order, besides one for each class.
_UNITS_PER_FILL_ORDER: Final = 8
# Units of work for what the remaining pods would cost without a node's pods.
_UNITS_PER_LOOKAHEAD: Final = 10
# Empty classes are dropped from a fill order when they are one in so many of all classes.
_STALE: Final = 8
# Pods of which a host may hold few go first when they need this share of the nodes that resources alone would need.
_URGENT: Final = 0.5


class GreedyPacker:
    """Packs with lookahead: a node is worth what it saves on the nodes for the remaining pods.

    ``demand``: what the remaining pods request; ``demand_by_offerings``: the same by the offerings that pods may use;
    ``host_caps``: (class, pods of it that a host may hold); ``awaited_worth``: what pods are worth that may use only
    some of the offerings; ``cost_before``: what the remaining pods cost in fractions before the next node;
    ``empty_class_count``: how many classes have run out of pods.
    """

    def __init__(
        self, problem: PackingProblem, counts: Sequence[int], limits: RemainingLimits, offerings: Sequence[int]
    ) -> None:
        self.problem = problem
        self.offering_index = problem.offering_index
        self.unpacked = list(counts)
        self.limits = limits.copy()
        self.initially_allowed = limits.allowed_offerings(problem.offering_index)
        self.work_units = 0
        self.empty_class_count = 0
        self.host_caps = [
            (j, host_constraint.max_per_host)
            for j, host_constraint in enumerate(problem.host_constraints)
            if host_constraint is not None and host_constraint.max_per_host
        ]
        self.demand = self._demand_of(range(len(self.unpacked)))
        self.awaited_worth: dict[int, float] = {}
        self.fractional_nodes: dict[tuple[Vector, float], float] = {}
        self.cost_before = 0.0
        self._group_classes()
        self._set_offerings(offerings)

    def pack(self) -> Packing:
        nodes: list[PackedNodes] = []
        while any(self.unpacked) and self.offerings:
            packed_nodes = self._best_node()
            if packed_nodes is None:
                break
            if self._commit(packed_nodes):
                nodes.append(packed_nodes)
            else:
                self._set_offerings([i for i in self.offerings if self.limits.max_nodes(self.offering_index, i, 1)])
        return Packing(nodes, self.unpacked, self.limits, self.work_units)

    def fractional_cost(self) -> float:
        """What the pods cost on these offerings if pods and nodes could be divided; no packing costs less."""
        return self.fractional_packing.cost([*self.demand, self._hosts_needed()])

    def _set_offerings(self, offerings: Sequence[int]) -> None:
        """Use these offerings. Of offerings that differ only in their zone, a node is tried in one zone."""
        zonal_offerings: dict[tuple[int, int], list[int]] = {}
        self.offerings = offerings
        for i in offerings:
            key = id(self.offering_index.pool_type_of[i]), self.offering_index.prices[i]
            zonal_offerings.setdefault(key, []).append(i)
        self.zonal_offerings = list(zonal_offerings.values())
        self.offering_bits = sum(1 << i for i in offerings)
        # Zones seldom differ in either, and where they differ in the price the dearer one is no part of a solution.
        cheapest = fractional_lp.cheapest_by_capacity(map(self._capacity_and_price, offerings))
        self.capacities_and_prices = list(cheapest.items())
        self.most_limited_class, self.host_cap = self._class_needing_most_hosts()
        self.fractional_packing = fractional_lp.FractionalPacking(
            [*self.demand, self._hosts_needed()],
            [(*capacity, 1) for capacity, _ in self.capacities_and_prices],
            [price for _, price in self.capacities_and_prices],
        )

    def _group_classes(self) -> None:
        """Group the classes that have pods left by the offerings they may use."""
        self.fill_orders: dict[int, FillOrder] = {}
        self.empty_classes_at_build: dict[int, int] = {}
        classes_by_offerings: dict[int, list[int]] = {}
        for j, offerings in enumerate(self.problem.offerings):
            if self.unpacked[j]:
                classes_by_offerings.setdefault(offerings, []).append(j)
        self.classes_by_offerings = sorted(classes_by_offerings.items())
        self.demand_by_offerings = {
            offerings: self._demand_of(classes) for offerings, classes in self.classes_by_offerings
        }
        self.active_class_count = sum(map(bool, self.unpacked))

    def _drop_empty_classes(self) -> None:
        """Group the classes again once half of them are packed: fill orders without these are quicker."""
        if sum(map(bool, self.unpacked)) * 2 < self.active_class_count:
            self._group_classes()

    def _class_needing_most_hosts(self) -> tuple[int, int]:
        """The class that needs most hosts, and how many of its pods a host may hold; (-1, 1) if no class has a cap."""
        _, j, cap = max(
            ((self.unpacked[j] / cap, -j, cap) for j, cap in self.host_caps if self.unpacked[j]), default=(0, 1, 1)
        )
        return -j, cap

    def _hosts_needed(self) -> int:
        """How many hosts the class needs that needs most."""
        return -(-self.unpacked[self.most_limited_class] // self.host_cap) if self.most_limited_class >= 0 else 0

    def _demand_of(self, classes: Iterable[int]) -> list[int]:
        """What the remaining pods of these classes request together."""
        demand = [0] * len(self.offering_index.dimensions)
        for j in classes:
            for d, amount in self.problem.items.needs[j]:
                demand[d] += amount * self.unpacked[j]
        return demand

    def _price(self, offering: int) -> float:
        return float(self.offering_index.prices[offering] + PER_NODE_COST_PICOUSD_PER_HOUR)

    def _capacity_and_price(self, offering: int) -> tuple[Vector, float]:
        return self.offering_index.pool_type_of[offering].free_capacity, self._price(offering)

    def _solve_fractional(self) -> None:
        """Shadow prices for the remaining pods; last the price of a host. ``fractional_nodes``: nodes they need."""
        self.most_limited_class, self.host_cap = self._class_needing_most_hosts()
        demand = [*self.demand, self._hosts_needed()]
        self.fractional_packing.solve(demand)
        self.cost_before = self.fractional_packing.cost(demand)
        self.fractional_nodes = {
            self.capacities_and_prices[k]: node_count for k, node_count in self.fractional_packing.node_counts.items()
        }
        if len(self.zonal_offerings) < len(self.offerings):
            self._compute_awaited_worth()

    def _needed_nodes(self, offering: int) -> float:
        """How many nodes like this the fractional packing of the remaining pods has."""
        return self.fractional_nodes.get(self._capacity_and_price(offering), 0.0)

    def _compute_awaited_worth(self) -> None:
        """The worth of the pods that may use only some of the offerings, by the offerings they may use."""
        only_some = (
            offerings
            for offerings in self.demand_by_offerings
            if offerings & self.offering_bits and self.offering_bits & ~offerings
        )
        self.awaited_worth = {offerings: self._worth(self.demand_by_offerings[offerings]) for offerings in only_some}

    def _worth(self, demand: Sequence[int]) -> float:
        """The demand at shadow prices, plus the number of its pods, which decides where only hosts are scarce."""
        worth: float = sum(map(mul, self.fractional_packing.shadow_prices, demand))
        return worth + demand[PODS_DIMENSION]

    def _offering_for_most_pods(self, zonal_offerings: Sequence[int]) -> int:
        """Of offerings that differ only in their zone, the first for which the pods that may use it are worth most."""
        if len(zonal_offerings) == 1 or not self.awaited_worth:
            return zonal_offerings[0]
        return max(
            zonal_offerings,
            key=lambda i: sum([worth for offerings, worth in self.awaited_worth.items() if offerings >> i & 1]),
        )

    def _value_bound(self, offering: int) -> float:
        """What no node of this offering can exceed in worth of its pods per price."""
        capacity, price = self._capacity_and_price(offering)
        worth: float = sum(map(mul, self.fractional_packing.shadow_prices, (*capacity, 1)))
        return worth / price

    def _best_node(self) -> PackedNodes | None:
        """The node that packs most for its price; None when no node can take a pod."""
        self._drop_empty_classes()
        self._solve_fractional()
        ranked = sorted(
            ((self._value_bound(offerings[0]), -k) for k, offerings in enumerate(self.zonal_offerings)), reverse=True
        )
        enough = ranked[0][0] * _GOOD_ENOUGH
        best, best_node = 0.0, None
        for bound, k in ranked:
            if bound <= best or best >= enough:
                break
            offering = self._offering_for_most_pods(self.zonal_offerings[-k])
            node = self._fill_node(offering)
            if node.counts and self._meets_min_values(node, offering):
                value = self._value_per_price(node, offering, best)
                if value > best:
                    best, best_node = value, PackedNodes(offering, 1, node.counts)
        return best_node

    def _meets_min_values(self, node: Bin, offering: int) -> bool:
        """True when as many instance types hold the node's pods as the NodePool's minValues require."""
        template = self.offering_index.pool_type_of[offering].template_index
        if not self.offering_index.min_values[template]:
            return True
        return bool(offerings_that_fit(self.problem, node.counts, self.offering_index.offerings_of_template[template]))

    def _value_per_price(self, node: Bin, offering: int, least: float) -> float:
        """By how much the node lowers the fractional cost of the remaining pods, per unit of its price; where that is
        no more than ``least``, what it does not exceed."""
        capacity, price = self._capacity_and_price(offering)
        used = [total - free for total, free in zip(capacity, node.free_capacity, strict=True)]
        hosts = min(node.counts.get(self.most_limited_class, 0) / self.host_cap, 1)
        shadow_prices = self.fractional_packing.shadow_prices
        worth: float = sum(map(mul, shadow_prices, used)) + shadow_prices[-1] * hosts
        # At other prices for what is left, the node saves no more than its pods are worth at these.
        if 0 < worth <= least * price:
            return worth / price
        # While the remaining pods need more such nodes, the node does not change the shadow prices.
        if self._needed_nodes(offering) < 1:
            before = [*self.demand, self._hosts_needed()]
            after = [amount - packed for amount, packed in zip(before, (*used, hosts), strict=True)]
            self.work_units += _UNITS_PER_LOOKAHEAD
            saved = self.cost_before - self.fractional_packing.cost(after)
            if saved > 0:
                return saved / price
        return (worth or float(sum(node.counts.values()))) / price

    def _fill_node(self, offering: int) -> Bin:
        free_capacity = self.offering_index.pool_type_of[offering].free_capacity
        node = Bin(free_capacity, self.problem.bin_constraints(offering))
        order = self._fill_order(offering, free_capacity)
        self.work_units += fill_bin(node, order, self.problem.items, self.unpacked)
        return node

    def _fill_order(self, offering: int, capacity: Vector) -> FillOrder:
        """The offering's fill order, without classes that have run out of pods when these are many."""
        order = self.fill_orders.get(offering)
        if order is None:
            classes = {
                j
                for offerings, group in self.classes_by_offerings
                if offerings >> offering & 1
                for j in group
                if self.unpacked[j]
            }
            order = FillOrder(self.problem.items, capacity, classes, self._urgent_classes(capacity))
            self.fill_orders[offering] = order
            self.work_units += _UNITS_PER_FILL_ORDER + self.active_class_count
        elif (self.empty_class_count - self.empty_classes_at_build[offering]) * _STALE <= self.active_class_count:
            return order
        else:
            order.drop_empty_classes(self.unpacked)
        self.empty_classes_at_build[offering] = self.empty_class_count
        return order

    def _urgent_classes(self, capacity: Vector) -> list[int]:
        """Classes of which a host may hold so few that they decide how many nodes there will be."""
        if not self.host_caps:
            return []
        nodes = max(self.demand[d] / capacity[d] for d in (CPU_DIMENSION, MEMORY_DIMENSION) if capacity[d])
        urgent = [
            (-self.unpacked[j] / cap, j) for j, cap in self.host_caps if self.unpacked[j] >= _URGENT * cap * nodes
        ]
        return [j for _, j in sorted(urgent)]

    def _commit(self, packed_nodes: PackedNodes) -> bool:
        """Add as many such nodes as the remaining pods fill and limits allow; False if limits allow none."""
        packed_nodes.offering = self._cheapest_equivalent(packed_nodes)
        node_count = min(self.unpacked[j] // count for j, count in packed_nodes.pod_counts.items())
        node_count = self.limits.max_nodes(self.offering_index, packed_nodes.offering, node_count)
        if node_count:
            packed_nodes.node_count = node_count
            self.limits.spend(self.offering_index, packed_nodes.offering, node_count)
            for j, count in packed_nodes.pod_counts.items():
                self._take_pods(j, count * node_count)
        return node_count > 0

    def _take_pods(self, j: int, count: int) -> None:
        self.unpacked[j] -= count
        self.empty_class_count += not self.unpacked[j]
        demand = self.demand_by_offerings[self.problem.offerings[j]]
        for d, amount in self.problem.items.needs[j]:
            self.demand[d] -= amount * count
            demand[d] -= amount * count

    def _cheapest_equivalent(self, packed_nodes: PackedNodes) -> int:
        """The cheapest offering that holds the node's pods and takes no more from the limits."""
        cheaper = self.initially_allowed & ((1 << packed_nodes.offering) - 1)
        for offering in iterate_bits(offerings_that_fit(self.problem, packed_nodes.pod_counts, cheaper)):
            if self._takes_no_more_from_limits(offering, packed_nodes.offering):
                return offering
        return packed_nodes.offering

    def _takes_no_more_from_limits(self, offering: int, replaced: int) -> bool:
        pool_type = self.offering_index.pool_type_of[offering]
        replaced_type = self.offering_index.pool_type_of[replaced]
        limited = self.limits.by_template[pool_type.template_index]
        if self.offering_index.reservation_ids[offering] or (
            limited and pool_type.template_index != replaced_type.template_index
        ):
            return self.limits.max_nodes(self.offering_index, offering, 1) > 0
        return all(pool_type.counted(name) <= replaced_type.counted(name) for name in limited)
