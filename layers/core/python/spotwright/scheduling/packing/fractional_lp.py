"""What a unit of each resource is worth while the remaining pods are packed, and in which shapes they would be.

``min p·y, Ay ≥ demand, y ≥ 0`` over the shapes on offer, as if pods could be divided: a node earns its price by the
resources it packs. Source: our own dense primal simplex on the dual; it has one column per resource, so it is tiny.
"""

from collections.abc import Sequence

_EPSILON = 1e-12
_PIVOTS = 60


def compute_shadow_prices(
    demand: Sequence[int], rooms: Sequence[Sequence[int]], prices: Sequence[float]
) -> list[float]:
    """Price of one unit of each resource; 0 for what is not asked for, or not scarce at all.

    ``rooms[k]`` and ``prices[k]`` describe shape k. No shape packs more than its price: worth·room ≤ price.
    """
    return FractionalPacking(demand, rooms, prices).shadow_prices


class FractionalPacking:
    """The cheapest mixture of shapes for a demand. ``shadow_prices``: what ``compute_shadow_prices`` answers;
    ``node_counts``: how many nodes of which shapes, whole and parts.
    """

    __slots__ = ("_asked", "_columns", "_in_columns", "_in_rows", "_scales", "node_counts", "shadow_prices")

    def __init__(self, demand: Sequence[int], rooms: Sequence[Sequence[int]], prices: Sequence[float]) -> None:
        self._asked = asked = [d for d, amount in enumerate(demand) if amount > 0]
        self._scales = [1.0 / max([1, *(room[d] for room in rooms)]) for d in asked]
        # A column for each resource and one for the prices, with a row for each shape.
        self._columns = [[room[d] * scale for room in rooms] for d, scale in zip(asked, self._scales, strict=True)]
        self._columns.append(list(prices))
        # A resource's price is its place among those asked for; what row k leaves to its shape's price is ~k.
        self._in_rows = dict[int, int]()
        self._in_columns = list(range(len(asked)))
        self.solve(demand)

    def solve(self, demand: Sequence[int]) -> None:
        """The cheapest mixture for a demand that asks for nothing new; quick where it is close to the last one."""
        goal = self._goal(demand)
        _solve(self._columns, goal, self._in_rows, self._in_columns)
        self.node_counts = {~held: goal[column] for column, held in enumerate(self._in_columns) if held < 0}
        self.shadow_prices = [0.0] * len(demand)
        for row, held in self._in_rows.items():
            if held >= 0:
                self.shadow_prices[self._asked[held]] = self._columns[-1][row] * self._scales[held]

    def cost(self, demand: Sequence[float]) -> float:
        """What the cheapest mixture costs for another demand: more or less of what this mixture holds."""
        goal = self._goal(demand)
        if min(goal[:-1], default=0.0) < -_EPSILON:
            # Columns are replaced, never changed.
            _solve(self._columns.copy(), goal, self._in_rows.copy(), self._in_columns.copy())
        return goal[-1]

    def _goal(self, demand: Sequence[float]) -> list[float]:
        """What is gained by each column, and what the demand costs at these prices."""
        gain = [-max(demand[d], 0) * scale for d, scale in zip(self._asked, self._scales, strict=True)]
        goal = [gain[held] if held >= 0 else 0.0 for held in self._in_columns] + [0.0]
        for row, held in self._in_rows.items():
            if held >= 0 and gain[held]:
                goal = [value - gain[held] * column[row] for value, column in zip(goal, self._columns, strict=True)]
        return goal


def _solve(columns: list[list[float]], goal: list[float], in_rows: dict[int, int], in_columns: list[int]) -> None:
    """Pivot until no column improves the goal. ``in_rows`` and ``in_columns``: the variable of each; rows that are
    left out hold their own."""
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
    """The row that limits the column first; -1 if no row does."""
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
