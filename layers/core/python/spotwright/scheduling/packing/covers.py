"""Nodes whose capacity in sum covers what some pods request: branch and bound over the shapes of nodes.

A cover says nothing of how the pods are shared: whether they can be is for the caller to try.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import ge, sub
from typing import Final

from spotwright.scheduling.offerings.pool_types import Vector

# Covers of more nodes are left out: a group of few nodes is seldom worth so many, and each is a call within a call.
_MOST_NODES: Final = 100
# Of the steps that are left, all covers that begin alike get one in so many; others begin with the rest.
_SHARE_OF_STEPS: Final = 2


class Shape:
    """A node that may be bought. ``room``: its free capacity, and one host; ``rows``: the rows of a demand that it
    counts for, the last of which is always that of all pods; ``values``: what its room is worth, by resource.
    """

    __slots__ = ("offering", "price", "room", "rows", "values")

    def __init__(self, offering: int, price: int, room: Vector, rows: Sequence[int]) -> None:
        self.offering = offering
        self.price = price
        self.room = room
        self.rows = rows
        self.values: list[float] = []


class CoverSearch:
    """Finds multisets of shapes that cover a demand; offers each to ``pack`` that is cheaper than all packed before.

    ``shadow_prices``: prices of the resources, at which no shape is worth more than it costs; ``lone_prices``: for some
    resources, the price at which no shape is worth more by that resource alone. ``pack``: what the nodes of these
    offerings cost once the pods are on them, None where they do not fit; ``below``: the least such cost, at first the
    cost to improve on; ``evaluated``: how many shapes were tried.
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        shadow_prices: Sequence[float],
        lone_prices: Sequence[tuple[int, float]],
        below: int,
        pack: Callable[[Sequence[int]], int | None],
    ) -> None:
        self.below = below
        self.evaluated = 0
        self._pack = pack
        self._priced = [(dimension, price) for dimension, price in enumerate(shadow_prices) if price]
        self._lone_prices = lone_prices
        for shape in shapes:
            shape.values = self._values(shape.room)
        self._by_price = sorted(shapes, key=lambda shape: (shape.price, shape.offering))
        self._prices = [shape.price for shape in self._by_price]
        surcharges = [(shape, shape.price - sum(shape.values)) for shape in shapes]
        # The orders in which shapes are added, in turn by search: largest first, and those that waste least.
        self._orders = (
            sorted(surcharges, key=lambda entry: (-sum(entry[0].values), entry[0].offering)),
            sorted(surcharges, key=lambda entry: (entry[1] / entry[0].price, entry[0].offering)),
        )
        self._searches = 0
        self._of_row: list[list[tuple[Shape, float]]] = []
        self._disjoint = set[int]()
        self._chosen: list[int] = []
        self._most_evaluated = self._packings_left = 0
        self._is_incomplete = False

    def search(self, demand: Sequence[Vector], most_evaluated: int, most_packings: int) -> bool:
        """``demand``: amounts of each resource and hosts, by row: for pods that are limited to some offerings, and for
        all pods last. True when no cover was left out for want of steps or packings, or for its number of nodes."""
        self._is_incomplete = False
        self._most_evaluated, self._packings_left = self.evaluated + most_evaluated, most_packings
        values = self._values(demand[-1])
        gap = self.below - sum(values)
        usable = [(shape, surcharge) for shape, surcharge in self._orders[self._searches % 2] if surcharge < gap]
        self._searches += 1
        self._of_row = [
            [(shape, surcharge) for shape, surcharge in usable if row in shape.rows] for row in range(len(demand))
        ]
        self._disjoint = self._disjoint_rows(len(demand) - 1)
        least = self._least_cost(demand[-1], values)
        if least < self.below:
            self._branch(list(demand), values, least, 0, self._of_row[0], 0)
        return not self._is_over() and not self._is_incomplete

    def _disjoint_rows(self, last: int) -> set[int]:
        """Rows for which no two count the same shape."""
        disjoint, counted = set[int](), set[int]()
        for row in range(last):
            offerings = {shape.offering for shape, _ in self._of_row[row]}
            if counted.isdisjoint(offerings):
                disjoint.add(row)
                counted |= offerings
        return disjoint

    def _is_over(self) -> bool:
        return self.evaluated >= self._most_evaluated or self._packings_left <= 0

    def _values(self, amounts: Vector) -> list[float]:
        """What the amounts are worth at shadow prices, by resource."""
        return [amounts[dimension] * price for dimension, price in self._priced]

    def _least_cost(self, amounts: Vector, values: Sequence[float]) -> float:
        """What covers the amounts costs no less. ``values``: of these amounts."""
        least = 0.0
        for value in values:
            if value > 0:
                least += value
        for dimension, price in self._lone_prices:
            if amounts[dimension] * price > least:
                least = amounts[dimension] * price
        return least

    def _branch(
        self,
        missing: list[Vector],
        values: list[float],
        least: float,
        row: int,
        shapes: Sequence[tuple[Shape, float]],
        cost: int,
    ) -> None:
        """Add one more of the shapes to the chosen; rows are covered in turn.

        ``values``: of what all pods miss, by resource; ``least``: what covers that costs no less.
        """
        last = len(missing) - 1
        while max(missing[row]) <= 0:
            if row == last:
                self._offer(cost)
                return
            row += 1
            shapes = self._of_row[row]
        if row == last:
            self._offer_last_shape(missing[last], cost, least)
        if len(self._chosen) >= _MOST_NODES:
            self._is_incomplete = True
            return
        # What the chosen shapes cost beyond what they are worth only grows.
        most_surcharge = self.below - cost - sum(values)
        shapes = [entry for entry in shapes if entry[1] < most_surcharge]
        alone = row in self._disjoint
        row_values = self._values(missing[row]) if alone else []
        later = sum([self._least_alone(missing[other]) for other in self._disjoint if other > row]) if alone else 0.0
        for place, (shape, _) in enumerate(shapes):
            self.evaluated += 1
            most = self.below - cost - shape.price
            left_values = list(map(sub, values, shape.values))
            if sum([value for value in left_values if value > 0]) >= most or (
                alone and later + sum([value for value in map(sub, row_values, shape.values) if value > 0]) >= most
            ):
                continue
            rows = missing.copy()
            for other in shape.rows:
                rows[other] = tuple(map(sub, missing[other], shape.room))
            least = self._least_cost(rows[last], left_values)
            if least < most:
                self._chosen.append(shape.offering)
                self._branch_within_share(rows, left_values, least, row, shapes[place:], cost + shape.price)
                self._chosen.pop()
            if self._is_over():
                return

    def _least_alone(self, missing: Vector) -> float:
        return self._least_cost(missing, self._values(missing))

    def _branch_within_share(
        self,
        missing: list[Vector],
        values: list[float],
        least: float,
        row: int,
        shapes: Sequence[tuple[Shape, float]],
        cost: int,
    ) -> None:
        """Spend a share of the steps that are left, so that covers which begin otherwise are tried too."""
        most_evaluated = self._most_evaluated
        self._most_evaluated = self.evaluated + (most_evaluated - self.evaluated) // _SHARE_OF_STEPS + 1
        self._branch(missing, values, least, row, shapes, cost)
        self._is_incomplete = self._is_incomplete or self._is_over()
        self._most_evaluated = most_evaluated

    def _offer_last_shape(self, missing: Vector, cost: int, least: float) -> None:
        """Offer the cheapest shape that covers what is missing."""
        for shape in self._by_price[bisect_left(self._prices, least) :]:
            if cost + shape.price >= self.below:
                return
            if all(map(ge, shape.room, missing)):
                self._chosen.append(shape.offering)
                self._offer(cost + shape.price)
                self._chosen.pop()
                return

    def _offer(self, cost: int) -> None:
        if cost < self.below and self._packings_left > 0:
            self._packings_left -= 1
            packed_cost = self._pack(self._chosen)
            if packed_cost is not None:
                self.below = min(self.below, packed_cost)
