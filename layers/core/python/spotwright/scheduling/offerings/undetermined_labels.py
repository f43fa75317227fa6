"""Labels whose value is still undetermined when a node is chosen, and what pods together leave of it.

A NodePool may declare ``team Exists``, or two values; an instance type may run more than one operating system. Every
value that some requirement names is a bit, one more bit stands for all other values, and one for absence. The bits of
all undetermined labels lie side by side in one integer: requirements together are an AND, and they contradict each
other when some label is left without a bit.
"""

from collections.abc import Iterable, Sequence

from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.offerings.label_index import ANYTHING, LabelStatement, statement_can_meet
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.pool_types import PoolInstanceType

UNCONSTRAINED = -1
"""No requirement looks at an undetermined label."""


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
        """Bits of the values that a statement or requirement leaves; bits of other labels are not set."""
        requirement = _as_requirement(self.key, statement)
        bits = 0
        for place, value in enumerate(self.values):
            if statement_can_meet(value, requirement):
                bits |= 1 << place
        if statement is ANYTHING or (isinstance(statement, Requirement) and statement.complement):
            bits |= 1 << len(self.values)
        if (
            statement is None
            or statement is ANYTHING
            or (isinstance(statement, Requirement) and statement.allows_absence)
        ):
            bits |= 2 << len(self.values)
        return bits << self.shift

    def first_value(self, left: int) -> str | None:
        """The first named value that is left; None if only values without a name, or absence, are."""
        return next(iter(self.possible_values(left)), None)

    def possible_values(self, left: int) -> list[str]:
        """The named values that are left."""
        return [value for place, value in enumerate(self.values) if left >> self.shift >> place & 1]

    def allows_absence(self, left: int) -> bool:
        """True when the label may be absent."""
        return bool(left >> self.shift >> len(self.values) & 2)


def _as_requirement(key: str, statement: LabelStatement) -> Requirement:
    if statement is None:
        return Requirement(key, False)
    return Requirement(key, False, frozenset((statement,))) if isinstance(statement, str) else statement


class UndeterminedLabels:
    """The undetermined labels of an offering index that some pod asks about; usually none."""

    def __init__(self, offering_index: OfferingIndex, all_requirements: Iterable[Requirements]) -> None:
        required: dict[str, set[str]] = {}
        for requirements in all_requirements:
            for requirement in requirements:
                required.setdefault(requirement.key, set()).update(requirement.values)
        self.labels: list[UndeterminedLabel] = []
        shift = 0
        for key in sorted(required):
            statements = offering_index.by_label.statements(key)
            if any(map(_is_undetermined, statements)):
                stated = (value for statement in statements for value in _values(statement))
                self.labels.append(UndeterminedLabel(key, required[key].union(stated), shift))
                shift += self.labels[-1].width
        self._offering_index = offering_index
        self._initial_bits: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self.labels)

    def get(self, key: str) -> UndeterminedLabel | None:
        return next((label for label in self.labels if label.key == key), None)

    def requirement_bits(self, requirements: Requirements) -> int:
        """What a pod's requirements leave of every label; UNCONSTRAINED if they look at none."""
        left = UNCONSTRAINED
        for label in self.labels:
            requirement = requirements.by_key.get(label.key)
            if requirement is not None:
                left &= ~label.mask | label.allowed_bits(requirement)
        return left

    def initial_bits(self, offering: int) -> int:
        """What an offering leaves of every label before any pod is on its node."""
        return self._bits_of(self._offering_index.pool_type_of[offering])

    def _bits_of(self, pool_type: PoolInstanceType) -> int:
        bits = self._initial_bits.get(id(pool_type))
        if bits is None:
            bits = 0
            for label in self.labels:
                for statement, stating in self._offering_index.by_label.statements(label.key).items():
                    if stating & pool_type.offerings:
                        bits |= label.allowed_bits(statement)
            self._initial_bits[id(pool_type)] = bits
        return bits

    def is_satisfiable(self, left: int) -> bool:
        """True when every label still has a value."""
        return all(left & label.mask for label in self.labels)

    def initial_bits_of_any(self, offerings: int) -> int:
        """What any of these offerings leaves of every label before any pod is on its node."""
        bits = 0
        for pool_type in self._offering_index.pool_types:
            if pool_type.offerings & offerings:
                bits |= self._bits_of(pool_type)
        return bits

    def equivalent_offerings(self) -> list[int]:
        """Sets of offerings with equal initial bits; none without undetermined labels."""
        by_bits: dict[int, int] = {}
        for pool_type in self._offering_index.pool_types if self.labels else ():
            bits = self._bits_of(pool_type)
            by_bits[bits] = by_bits.get(bits, 0) | pool_type.offerings
        return [by_bits[bits] for bits in sorted(by_bits)]

    def narrow(self, offerings: int, left: int) -> int:
        """The part of these offerings that can still have the values that are left."""
        if left == UNCONSTRAINED:
            return offerings
        kept = 0
        for pool_type in self._offering_index.pool_types:
            if pool_type.offerings & offerings and self.is_satisfiable(self._bits_of(pool_type) & left):
                kept |= pool_type.offerings & offerings
        return kept


class LabelState:
    """What the pods of one node leave of its undetermined labels (a ``BinConstraints`` of packing).

    ``requirement_bits``: by class.
    """

    __slots__ = ("_labels", "_requirement_bits", "bits")

    def __init__(self, labels: UndeterminedLabels, requirement_bits: Sequence[int], initial_bits: int) -> None:
        self._labels = labels
        self._requirement_bits = requirement_bits
        self.bits = initial_bits

    def max_count(self, j: int, wanted: int) -> int:
        bits = self._requirement_bits[j]
        return wanted if bits == UNCONSTRAINED or self._labels.is_satisfiable(self.bits & bits) else 0

    def add(self, j: int, count: int) -> None:
        self.bits &= self._requirement_bits[j]


def _is_undetermined(statement: LabelStatement) -> bool:
    return statement is ANYTHING or (
        isinstance(statement, Requirement) and (statement.complement or len(statement.values) > 1)
    )


def _values(statement: LabelStatement) -> Iterable[str]:
    if isinstance(statement, str):
        return (statement,)
    return statement.values if isinstance(statement, Requirement) else ()
