"""What a unit of each resource is worth while the remaining pods are packed.

The dual of ``min p·y, Ay ≥ demand, y ≥ 0`` over the shapes on offer: a node earns its price by the resources it
packs. Source: our own dense primal simplex on the dual; it has one column per resource, so it is tiny.
"""

from collections.abc import Sequence

_EPSILON = 1e-12
_PIVOTS = 60


def worth(demand: Sequence[int], rooms: Sequence[Sequence[int]], prices: Sequence[float]) -> list[float]:
    """Price of one unit of each resource; 0 for what is not asked for, or not scarce at all.

    ``rooms[k]`` and ``prices[k]`` describe shape k. No shape packs more than its price: worth·room ≤ price.
    """
    asked = [d for d, amount in enumerate(demand) if amount > 0]
    scales = [1.0 / max(max(room[d] for room in rooms), 1) for d in asked]
    rows = [
        [room[d] * scale for d, scale in zip(asked, scales, strict=True)] + [price]
        for room, price in zip(rooms, prices, strict=True)
    ]
    goal = [-demand[d] * scale for d, scale in zip(asked, scales, strict=True)] + [0.0]
    found = [0.0] * len(demand)
    for row, column in _solve(rows, goal):
        found[asked[column]] = rows[row][-1] * scales[column]
    return found


def _solve(rows: list[list[float]], goal: list[float]) -> list[tuple[int, int]]:
    """Pivot until no column improves; (row, column) of the columns that are in the basis."""
    basis: dict[int, int] = {}
    column_holds: list[int | None] = list(range(len(goal) - 1))
    for _ in range(_PIVOTS):
        column = min(range(len(goal) - 1), key=goal.__getitem__, default=-1)
        if column < 0 or goal[column] >= -_EPSILON:
            break
        row = _leaving(rows, column)
        if row < 0:
            break
        _pivot(rows, goal, row, column)
        entered = column_holds[column]
        column_holds[column] = basis.pop(row, None)
        if entered is not None:
            basis[row] = entered
    return sorted(basis.items())


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
