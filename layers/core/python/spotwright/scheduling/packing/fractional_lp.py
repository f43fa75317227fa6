"""The packing problem as if pods and nodes could be divided: what it costs, and the shadow price of each resource.

``min p·y, Ay ≥ demand, y ≥ 0``, with ``y`` nodes of each offering, prices ``p`` and free capacities ``A``. Solved by a
dense primal simplex on the dual, which has one column per resource and so stays small.
"""

from collections.abc import Iterable, Sequence
from math import inf

_EPSILON = 1e-12
_PIVOTS = 60


def compute_shadow_prices(
    demand: Sequence[int], capacities: Iterable[Sequence[int]], prices: Iterable[float]
) -> list[float]:
    """Price of one unit of each resource; 0 for a resource that is not requested, or not scarce.

    ``capacities`` and ``prices`` are of the same offerings. No offering holds more than its price is worth:
    shadow_prices · capacity ≤ price.
    """
    cheapest = cheapest_by_capacity(zip(map(tuple, capacities), prices, strict=True))
    return FractionalPacking(demand, list(cheapest), list(cheapest.values())).shadow_prices


def cheapest_by_capacity(offerings: Iterable[tuple[tuple[int, ...], float]]) -> dict[tuple[int, ...], float]:
    """The lowest price of each capacity: with the same capacity nothing dearer is bought, in fractions or not."""
    cheapest: dict[tuple[int, ...], float] = {}
    for capacity, price in offerings:
        if price < cheapest.get(capacity, inf):
            cheapest[capacity] = price
    return cheapest


class FractionalPacking:
    """The cheapest nodes for a demand, in fractions. ``shadow_prices``: see ``compute_shadow_prices``;
    ``node_counts``: how many nodes of which offering.
    """

    __slots__ = ("_columns", "_in_columns", "_in_rows", "_requested", "_scales", "node_counts", "shadow_prices")

    def __init__(self, demand: Sequence[int], capacities: Sequence[Sequence[int]], prices: Sequence[float]) -> None:
        self._requested = requested = [d for d, amount in enumerate(demand) if amount > 0]
        self._scales = [1.0 / max([1, *(capacity[d] for capacity in capacities)]) for d in requested]
        # A column for each resource and one for the prices; a row for each offering.
        self._columns = [
            [capacity[d] * scale for capacity in capacities] for d, scale in zip(requested, self._scales, strict=True)
        ]
        self._columns.append(list(prices))
        # Variables: k is the shadow price of the k-th requested resource, ~k the slack of row k.
        self._in_rows = dict[int, int]()
        self._in_columns = list(range(len(requested)))
        self.solve(demand)

    def solve(self, demand: Sequence[int]) -> None:
        """Solve for a demand for the same resources, or fewer; quick where it is close to the last demand."""
        goal = self._goal(demand)
        _solve(self._columns, goal, self._in_rows, self._in_columns)
        self.node_counts = {~held: goal[column] for column, held in enumerate(self._in_columns) if held < 0}
        self.shadow_prices = [0.0] * len(demand)
        for row, held in self._in_rows.items():
            if held >= 0:
                self.shadow_prices[self._requested[held]] = self._columns[-1][row] * self._scales[held]

    def cost(self, demand: Sequence[float]) -> float:
        """The cost for another demand for the same resources, or fewer; changes nothing."""
        goal = self._goal(demand)
        if min(goal[:-1], default=0.0) < -_EPSILON:
            # Columns are replaced, never changed.
            _solve(self._columns.copy(), goal, self._in_rows.copy(), self._in_columns.copy())
        return goal[-1]

    def _goal(self, demand: Sequence[float]) -> list[float]:
        """The reduced cost of each column, and at last what the demand costs at the current prices."""
        gain = [-max(demand[d], 0) * scale for d, scale in zip(self._requested, self._scales, strict=True)]
        goal = [gain[held] if held >= 0 else 0.0 for held in self._in_columns] + [0.0]
        for row, held in self._in_rows.items():
            if held >= 0 and gain[held]:
                goal = [value - gain[held] * column[row] for value, column in zip(goal, self._columns, strict=True)]
        return goal


def _solve(columns: list[list[float]], goal: list[float], in_rows: dict[int, int], in_columns: list[int]) -> None:
    """Pivot until no column improves the goal. ``in_rows``, ``in_columns``: the variable of each row and column; a row
    that is left out has its own slack."""
    for _ in range(_PIVOTS):
        column = min(range(len(goal) - 1), key=goal.__getitem__, default=-1)
        if column < 0 or goal[column] >= -_EPSILON:
            break
        row = _leaving_row(columns[column], columns[-1])
        if row < 0:
            break
        _pivot(columns, goal, row, column)
        in_rows[row], in_columns[column] = in_columns[column], in_rows.get(row, ~row)


def _leaving_row(column: Sequence[float], prices: Sequence[float]) -> int:
    """The row that limits the column most; -1 if no row does (ratio test)."""
    best, leaving = 0.0, -1
    for row, (value, price) in enumerate(zip(column, prices, strict=True)):
        if value > _EPSILON:
            ratio = price / value
            if leaving < 0 or ratio < best - 1e-15:
                best, leaving = ratio, row
    return leaving


def _pivot(columns: list[list[float]], goal: list[float], row: int, column: int) -> None:
    factors, gain = columns[column], goal[column]
    inverse = 1.0 / factors[row]
    for place, values in enumerate(columns):
        pivot = values[row] * inverse
        if place != column and pivot:
            columns[place] = [value - factor * pivot for value, factor in zip(values, factors, strict=True)]
            columns[place][row] = pivot
            goal[place] -= gain * pivot
    columns[column] = [-factor * inverse for factor in factors]
    columns[column][row] = inverse
    goal[column] = -gain * inverse
