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
    """The cheapest mixture of shapes for a demand. ``shadow_prices``: what ``worth()`` answers; ``node_counts``: how
    many nodes of which shapes, whole and parts.
    """

    __slots__ = ("_asked", "_in_columns", "_in_rows", "_rows", "_scales", "node_counts", "shadow_prices")

    def __init__(self, demand: Sequence[int], rooms: Sequence[Sequence[int]], prices: Sequence[float]) -> None:
        self._asked = asked = [d for d, amount in enumerate(demand) if amount > 0]
        self._scales = [1.0 / max(max(room[d] for room in rooms), 1) for d in asked]
        self._rows = [
            [room[d] * scale for d, scale in zip(asked, self._scales, strict=True)] + [price]
            for room, price in zip(rooms, prices, strict=True)
        ]
        # A resource's price is its place among those asked for; what row k leaves to its shape's price is ~k.
        self._in_rows = dict[int, int]()
        self._in_columns = list(range(len(asked)))
        goal = [-demand[d] * scale for d, scale in zip(asked, self._scales, strict=True)] + [0.0]
        _solve(self._rows, goal, self._in_rows, self._in_columns)
        self.node_counts = {~held: goal[column] for column, held in enumerate(self._in_columns) if held < 0}
        self.shadow_prices = [0.0] * len(demand)
        for row, held in self._in_rows.items():
            if held >= 0:
                self.shadow_prices[asked[held]] = self._rows[row][-1] * self._scales[held]

    def cost(self, demand: Sequence[float]) -> float:
        """What the cheapest mixture costs for another demand: more or less of what this one asks for."""
        goal = self._goal(demand)
        if min(goal[:-1], default=0.0) < -_EPSILON:
            # Rows are replaced, never changed.
            _solve(self._rows.copy(), goal, self._in_rows.copy(), self._in_columns.copy())
        return goal[-1]

    def _goal(self, demand: Sequence[float]) -> list[float]:
        """What is gained by each column, and what the demand costs at the prices found."""
        gain = [-max(demand[d], 0) * scale for d, scale in zip(self._asked, self._scales, strict=True)]
        goal = [gain[held] if held >= 0 else 0.0 for held in self._in_columns] + [0.0]
        for row, held in self._in_rows.items():
            if held >= 0 and gain[held]:
                goal = [one - gain[held] * other for one, other in zip(goal, self._rows[row], strict=True)]
        return goal


def _solve(rows: list[list[float]], goal: list[float], in_rows: dict[int, int], in_columns: list[int]) -> None:
    """Pivot until no column improves. ``in_rows`` and ``in_columns``: which variable each holds; of rows, those that
    hold not their own."""
    for _ in range(_PIVOTS):
        column = min(range(len(goal) - 1), key=goal.__getitem__, default=-1)
        if column < 0 or goal[column] >= -_EPSILON:
            break
        row = _leaving(rows, column)
        if row < 0:
            break
        _pivot(rows, goal, row, column)
        in_rows[row], in_columns[column] = in_columns[column], in_rows.get(row, ~row)


def _leaving(rows: list[list[float]], column: int) -> int:
    """The row that limits the column first; -1 if none does."""
    best, found = 0.0, -1
    for place, row in enumerate(rows):
        if row[column] > _EPSILON:
            ratio = row[-1] / row[column]
            if found < 0 or ratio < best - 1e-15:
                best, found = ratio, place
    return found


def _pivot(rows: list[list[float]], goal: list[float], row: int, column: int) -> None:
    old = rows[row]
    inverse = 1.0 / old[column]
    new = [value * inverse for value in old]
    new[column] = inverse
    for place, other in enumerate(rows):
        if place != row and (factor := other[column]):
            rows[place] = _eliminated(other, new, factor, column, inverse)
    goal[:] = _eliminated(goal, new, goal[column], column, inverse)
    rows[row] = new


def _eliminated(line: list[float], pivot: list[float], factor: float, column: int, inverse: float) -> list[float]:
    changed = [value - factor * other for value, other in zip(line, pivot, strict=True)]
    changed[column] = -factor * inverse
    return changed
