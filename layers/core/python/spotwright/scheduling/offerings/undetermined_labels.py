"""Labels whose value is still open when a node is chosen, and what pods together leave of it.

A NodePool may declare ``team Exists``, or two values; an instance type may run several systems. Every value that
some demand names is one bit, one more stands for all other values, and one for absence. The bits of all open keys
lie side by side in one integer: demands together are an AND, and they clash when some key is left without a bit.
"""

from collections.abc import Iterable, Sequence

from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.offerings.offering_index import (
    ANYTHING,
    LabelStatement,
    OfferingIndex,
    PoolInstanceType,
    statement_can_meet,
)

UNCONSTRAINED = -1
"""Nothing is asked of any open key."""


class UndeterminedLabel:
    """One label: ``values`` by bit; after them the bit of any other value and the bit of absence."""

    __slots__ = ("key", "mask", "shift", "values")

    def __init__(self, key: str, values: Iterable[str], shift: int) -> None:
        self.key = key
        self.values = tuple(sorted(set(values)))
        self.shift = shift
        self.mask = ((1 << (len(self.values) + 2)) - 1) << shift

    @property
    def width(self) -> int:
        return len(self.values) + 2

    def allowed_bits(self, statement: LabelStatement) -> int:
        """Bits of the values that a statement or demand leaves; other keys' bits are not set."""
        found = 0
        for place, value in enumerate(self.values):
            if statement_can_meet(value, _demand(self.key, statement)):
                found |= 1 << place
        if statement is ANYTHING or (isinstance(statement, Requirement) and statement.complement):
            found |= 1 << len(self.values)
        if (
            statement is None
            or statement is ANYTHING
            or (isinstance(statement, Requirement) and statement.allows_absence)
        ):
            found |= 2 << len(self.values)
        return found << self.shift

    def first_value(self, left: int) -> str | None:
        """The first named value that is left; None if only others, or absence, are."""
        return next((one for place, one in enumerate(self.values) if left >> self.shift >> place & 1), None)

    def possible_values(self, left: int) -> list[str]:
        """The named values that are left."""
        return [one for place, one in enumerate(self.values) if left >> self.shift >> place & 1]

    def allows_absence(self, left: int) -> bool:
        """True when the label may stay away."""
        return bool(left >> self.shift >> len(self.values) & 2)


def _demand(key: str, statement: LabelStatement) -> Requirement:
    if statement is None:
        return Requirement(key, False)
    return Requirement(key, False, frozenset((statement,))) if isinstance(statement, str) else statement


class UndeterminedLabels:
    """All open keys of a market that some pod asks about; usually none."""

    def __init__(self, market: OfferingIndex, demands: Iterable[Requirements]) -> None:
        asked: dict[str, set[str]] = {}
        for requirements in demands:
            for requirement in requirements:
                asked.setdefault(requirement.key, set()).update(requirement.values)
        self.labels: list[UndeterminedLabel] = []
        shift = 0
        for key in sorted(asked):
            statements = market.label_statements(key)
            if any(_is_open(statement) for statement in statements):
                stated = (value for statement in statements for value in _values(statement))
                self.labels.append(UndeterminedLabel(key, asked[key].union(stated), shift))
                shift += self.labels[-1].width
        self._market = market
        self._starts: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self.labels)

    def get(self, key: str) -> UndeterminedLabel | None:
        return next((label for label in self.labels if label.key == key), None)

    def requirement_bits(self, requirements: Requirements) -> int:
        """What a demand leaves of every open key; FREE if it does not care."""
        left = UNCONSTRAINED
        for label in self.labels:
            requirement = requirements.by_key.get(label.key)
            if requirement is not None:
                left &= ~label.mask | label.allowed_bits(requirement)
        return left

    def initial_bits(self, choice: int) -> int:
        """What a choice leaves of every open key before any pod is on it."""
        return self._start_of(self._market.pool_type_of[choice])

    def _start_of(self, goods: PoolInstanceType) -> int:
        left = self._starts.get(id(goods))
        if left is None:
            left = self._starts[id(goods)] = self._start(goods)
        return left

    def _start(self, goods: PoolInstanceType) -> int:
        left = 0
        for label in self.labels:
            for statement, mask in self._market.label_statements(label.key).items():
                if mask & goods.offerings:
                    left |= label.allowed_bits(statement)
        return left

    def is_satisfiable(self, left: int) -> bool:
        """True when every open key still has a value."""
        return all(left & label.mask for label in self.labels)

    def initial_bits_of_any(self, mask: int) -> int:
        """What any of these choices leaves of every open key before any pod is on it."""
        left = 0
        for goods in self._market.pool_types:
            if goods.offerings & mask:
                left |= self._start_of(goods)
        return left

    def equivalent_offerings(self) -> list[int]:
        """The choices that start alike, one mask for each kind; none without open keys."""
        alike: dict[int, int] = {}
        for goods in self._market.pool_types if self.labels else ():
            start = self._start_of(goods)
            alike[start] = alike.get(start, 0) | goods.offerings
        return [alike[start] for start in sorted(alike)]

    def narrow(self, mask: int, left: int) -> int:
        """The choices of a mask that can still have the values that are left."""
        if left == UNCONSTRAINED:
            return mask
        kept = 0
        for goods in self._market.pool_types:
            if goods.offerings & mask and self.is_satisfiable(self._start_of(goods) & left):
                kept |= goods.offerings & mask
        return kept


class LabelState:
    """What the pods of one node leave of its open keys (``packing.Rules``)."""

    __slots__ = ("_asked", "_keys", "bits")

    def __init__(self, keys: UndeterminedLabels, asked: Sequence[int], start: int) -> None:
        self._keys = keys
        self._asked = asked
        self.bits = start

    def max_count(self, j: int, wanted: int) -> int:
        asked = self._asked[j]
        return wanted if asked == UNCONSTRAINED or self._keys.is_satisfiable(self.bits & asked) else 0

    def add(self, j: int, count: int) -> None:
        self.bits &= self._asked[j]


def _is_open(statement: LabelStatement) -> bool:
    return statement is ANYTHING or (
        isinstance(statement, Requirement) and (statement.complement or len(statement.values) > 1)
    )


def _values(statement: LabelStatement) -> Iterable[str]:
    if isinstance(statement, str):
        return (statement,)
    return statement.values if isinstance(statement, Requirement) else ()
