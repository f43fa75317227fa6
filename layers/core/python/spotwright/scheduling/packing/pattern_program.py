"""The linear program of patterns: which nodes with which pods on them, in fractions, hold all pods at the least cost.

A *pattern* is the pods of one node. ``min p·x, Ax ≥ counts, x ≥ 0``, with ``x`` nodes of each pattern, prices ``p`` and
pods by class ``A``. As in ``fractional_lp`` a dense simplex works on the dual, which has one column per class: what a
pod is worth, where no pattern may be worth more than its price. A pattern that is added is one more row of it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

_EPSILON: Final = 1e-9
# Fewer nodes of a pattern than this are none.
_LEAST_NODES: Final = 1e-7
_PIVOTS: Final = 400
# A row has so many numbers beside those of the classes; so many numbers that are worked out are one unit of work.
_NUMBERS_PER_ROW: Final = 10
_NUMBERS_PER_UNIT: Final = 40
# Rows that are kept for each class, and beside that, before patterns that are far from worth their price are left out.
_ROWS_PER_CLASS: Final = 6
_ROWS: Final = 60


class PatternProgram:
    """``patterns``: pods by class, in the order in which they were added; ``work_units``: what all changes took.

    ``_rows``: by held variable the coefficient of every column, and at last the variable's value; ``_held``,
    ``_columns``: the variable of each row and column: class j is what its pod is worth, ~k the slack of pattern k.
    """

    def __init__(self, class_count: int) -> None:
        self.patterns: list[Mapping[int, int]] = []
        self._columns = list(range(class_count))
        self._rows: list[list[float]] = []
        self._held: list[int] = []
        self._goal: list[float] = []
        self._numbers = 0

    @property
    def work_units(self) -> int:
        return self._numbers // _NUMBERS_PER_UNIT

    @property
    def cost(self) -> float:
        """What the nodes of all patterns cost together."""
        return self._goal[-1]

    def pod_prices(self) -> list[float]:
        """What a pod of each class is worth."""
        prices = [0.0] * len(self._columns)
        for row, held in zip(self._rows, self._held, strict=True):
            if held >= 0:
                prices[held] = row[-1]
        return prices

    def node_counts(self) -> dict[int, float]:
        """How many nodes of which pattern."""
        return {
            ~held: value
            for held, value in zip(self._columns, self._goal, strict=False)
            if held < 0 and value > _LEAST_NODES
        }

    def add(self, pattern: Mapping[int, int], price: float) -> None:
        """Patterns that are worth more than their price count from the next call of ``improve`` on."""
        row = [0.0] * len(self._columns)
        row.append(price)
        places = {held: place for place, held in enumerate(self._columns) if held >= 0}
        rows = {held: row for row, held in zip(self._rows, self._held, strict=True) if held >= 0}
        for j, count in pattern.items():
            if j in places:
                row[places[j]] += count
            else:
                row = [value - count * other for value, other in zip(row, rows[j], strict=True)]
        self._rows.append(row)
        self._held.append(~len(self.patterns))
        self.patterns.append(pattern)

    def solve(self, counts: Sequence[int]) -> None:
        """Solve for so many pods by class. Every class must be in some pattern."""
        goal = [-float(counts[held]) if held >= 0 else 0.0 for held in self._columns]
        goal.append(0.0)
        for row, held in zip(self._rows, self._held, strict=True):
            if held >= 0 and counts[held]:
                goal = [value + counts[held] * other for value, other in zip(goal, row, strict=True)]
        self._goal = goal
        self._raise_worth()

    def improve(self) -> None:
        """Solve again after patterns were added."""
        for _ in range(_PIVOTS):
            leaving = min(range(len(self._rows)), key=lambda place: self._rows[place][-1])
            row = self._rows[leaving]
            entering = [
                (self._goal[place] / -value, place) for place, value in enumerate(row[:-1]) if value < -_EPSILON
            ]
            if row[-1] >= -_EPSILON or not entering:
                break
            self._pivot(leaving, min(entering)[1])
        self._raise_worth()
        self._leave_out_rows()

    def _raise_worth(self) -> None:
        """Pivot until no pod can be worth more."""
        for _ in range(_PIVOTS):
            column = min(range(len(self._columns)), key=self._goal.__getitem__)
            if self._goal[column] >= -_EPSILON:
                return
            leaving = [(row[-1] / row[column], at) for at, row in enumerate(self._rows) if row[column] > _EPSILON]
            if not leaving:
                return
            self._pivot(min(leaving)[1], column)

    def _pivot(self, leaving: int, column: int) -> None:
        factor = self._rows[leaving][column]
        pivot = [value / factor for value in self._rows[leaving]]
        pivot[column] = 1.0 / factor
        for at, row in enumerate(self._rows):
            if at != leaving and row[column]:
                self._rows[at] = _without(row, pivot, column)
        self._rows[leaving] = pivot
        self._goal = _without(self._goal, pivot, column)
        self._held[leaving], self._columns[column] = self._columns[column], self._held[leaving]
        self._numbers += len(self._rows) * (len(self._columns) + _NUMBERS_PER_ROW)

    def _leave_out_rows(self) -> None:
        """Leave out the patterns that are farthest from worth their price where there are many."""
        most = _ROWS_PER_CLASS * len(self._columns) + _ROWS
        if len(self._rows) > most:
            ranked = sorted(
                range(len(self._rows)),
                key=lambda at: (self._held[at] < 0, self._rows[at][-1] if self._held[at] < 0 else 0),
            )
            kept = sorted(ranked[: most // 2])
            self._rows = [self._rows[at] for at in kept]
            self._held = [self._held[at] for at in kept]


def _without(row: Sequence[float], pivot: Sequence[float], column: int) -> list[float]:
    """The row once the column's variable is held in the pivot's row."""
    factor = row[column]
    changed = [value - factor * other for value, other in zip(row, pivot, strict=True)]
    changed[column] = -factor * pivot[column]
    return changed
