"""The requirement algebra: which values of a label are allowed, and what requirements allow together.

Source: Karpenter v1.14 ``pkg/scheduling/requirement.go`` and ``requirements.go``. Difference: a requirement with bounds
and excluded values is printed with both (Karpenter drops the latter).
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.quoting import quote

_INTEGER: Final = re.compile(r"-?[0-9]{1,30}\Z")


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"
    GTE = "Gte"
    LTE = "Lte"


class RequirementError(ValueError):
    """An invalid requirement; the message names key, operator, value and what is allowed."""


def integer(value: str) -> int | None:
    """A label's value as Kubernetes reads a number: ASCII digits of 64 bits; None for anything else."""
    if not _INTEGER.match(value):
        return None
    number = int(value)
    return number if -(2**63) <= number < 2**63 else None


class Requirement(msgspec.Struct, frozen=True):
    """The allowed values of a label.

    ``complement`` False: exactly ``values`` (none = the label must be absent). True: every value but
    ``values``, within the inclusive integer bounds ``gte`` and ``lte`` where they are set.
    ``must_exist``: the label must exist although values are excluded (NotIn and Exists together).
    ``min_values``: how many distinct values the instance types of a launch must have together.
    """

    key: str
    complement: bool
    values: frozenset[str] = frozenset()
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None
    must_exist: bool = False

    @property
    def operator(self) -> Operator:
        """The operator that describes this requirement without its bounds."""
        if self.complement:
            return Operator.NOT_IN if self.values else Operator.EXISTS
        return Operator.IN if self.values else Operator.DOES_NOT_EXIST

    @property
    def allows_absence(self) -> bool:
        """True for NotIn and DoesNotExist: a node without the label meets them."""
        bounded = self.gte is not None or self.lte is not None
        return bool(self.values) == self.complement and not self.must_exist and not bounded

    @property
    def sole_value(self) -> str | None:
        """The only value allowed, if there is exactly one."""
        return next(iter(self.values)) if not self.complement and len(self.values) == 1 else None

    def has(self, value: str) -> bool:
        return (value in self.values) != self.complement and self._within(value)

    def _within(self, value: str) -> bool:
        if self.gte is None and self.lte is None:
            return True
        number = integer(value)
        if number is None:
            return False
        return (self.gte is None or number >= self.gte) and (self.lte is None or number <= self.lte)

    def intersection(self, other_requirement: "Requirement") -> "Requirement":
        """The values that both allow, with the larger ``min_values``."""
        gte, lte = _larger(self.gte, other_requirement.gte), _smaller(self.lte, other_requirement.lte)
        least = _larger(self.min_values, other_requirement.min_values)
        if gte is not None and lte is not None and gte > lte:
            return Requirement(self.key, False, min_values=least)
        if self.complement and other_requirement.complement:
            bounded = Requirement(self.key, True, frozenset(), gte, lte)
            kept = frozenset(v for v in self.values | other_requirement.values if bounded._within(v))
            must_exist = (
                bool(kept)
                and gte is None
                and lte is None
                and not (self.allows_absence and other_requirement.allows_absence)
            )
            return Requirement(self.key, True, kept, gte, lte, least, must_exist)
        finite = other_requirement if self.complement else self
        kept = frozenset(v for v in finite.values if self.has(v) and other_requirement.has(v))
        return Requirement(self.key, False, kept, min_values=least)

    def intersects(self, other_requirement: "Requirement") -> bool:
        """Whether both allow a common value; two complements do unless their bounds exclude each other."""
        both = self.intersection(other_requirement)
        return both.complement or bool(both.values)

    def __str__(self) -> str:
        """Bounds as Gt and Lt, which is what most people write, and all that node affinity has."""
        return " and ".join(str(expression._exclusive()) for expression in self.node_selector_requirements())

    def describe_values(self) -> str:
        """The allowed values alone, ``amd64, arm64``; the whole requirement where it does not list them."""
        return str(self) if self.complement or not self.values else _few(sorted(self.values))

    def node_selector_requirements(self) -> tuple["NodeSelectorRequirement", ...]:
        """This requirement as NodeSelectorRequirements; several when it has bounds and exclusions."""
        listed = tuple(sorted(self.values))
        if not self.complement:
            operator = Operator.IN if listed else Operator.DOES_NOT_EXIST
            return (NodeSelectorRequirement(self.key, operator, listed, self.min_values),)
        parts = []
        if self.gte is not None:
            parts.append(NodeSelectorRequirement(self.key, Operator.GTE, (str(self.gte),), self.min_values))
        if self.lte is not None:
            # Bounds are never written negative: nothing is below 0.
            below = (Operator.LTE, str(self.lte)) if self.lte >= 0 else (Operator.LT, "0")
            parts.append(NodeSelectorRequirement(self.key, below[0], (below[1],), self.min_values))
        if self.must_exist:
            parts.append(NodeSelectorRequirement(self.key, Operator.EXISTS, (), self.min_values))
        if listed:
            parts.append(NodeSelectorRequirement(self.key, Operator.NOT_IN, listed, self.min_values))
        return tuple(parts) or (NodeSelectorRequirement(self.key, Operator.EXISTS, (), self.min_values),)


class NodeSelectorRequirement(msgspec.Struct, frozen=True):
    """A NodeSelectorRequirement as a manifest states it."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    min_values: int | None = None

    def __str__(self) -> str:
        return f"{self.key} {self.operator}" + (f" [{_few(self.values)}]" if self.values else "")

    def _exclusive(self) -> "NodeSelectorRequirement":
        """Gte and Lte as Gt and Lt; Gte 0 stays, since bounds are never negative."""
        if self.operator == Operator.GTE and int(self.values[0]) > 0:
            return NodeSelectorRequirement(self.key, Operator.GT, (str(int(self.values[0]) - 1),), self.min_values)
        if self.operator == Operator.LTE:
            return NodeSelectorRequirement(self.key, Operator.LT, (str(int(self.values[0]) + 1),), self.min_values)
        return self

    def requirement(self) -> Requirement:
        """What it allows; raises RequirementError for what Kubernetes refuses."""
        key, values = labels.normalize(self.key), frozenset(self.values)
        match self.operator:
            case Operator.IN:
                if not values:
                    raise RequirementError(f"{self.key} In: needs at least one value")
                return Requirement(key, False, values, min_values=self.min_values)
            case Operator.NOT_IN:
                return Requirement(key, True, values, min_values=self.min_values)
            case Operator.EXISTS:
                return Requirement(key, True, min_values=self.min_values)
            case Operator.DOES_NOT_EXIST:
                return Requirement(key, False, min_values=self.min_values)
            case Operator.GT | Operator.LT | Operator.GTE | Operator.LTE:
                return self._bound_requirement(key)
        raise RequirementError(
            f"{self.key}: operator {quote(self.operator)} is unknown; allowed are {', '.join(Operator)}"
        )

    def _bound_requirement(self, key: str) -> Requirement:
        number = integer(self.values[0]) if len(self.values) == 1 else None
        if number is None or number < 0:
            raise RequirementError(
                f"{self.key} {self.operator} [{', '.join(value[:40] for value in self.values)}]: needs exactly one"
                " integer that is not negative and at most 2^63-1"
            )
        match self.operator:
            case Operator.GT:
                return Requirement(key, True, gte=number + 1, min_values=self.min_values)
            case Operator.LT:
                return Requirement(key, True, lte=number - 1, min_values=self.min_values)
            case Operator.GTE:
                return Requirement(key, True, gte=number, min_values=self.min_values)
        return Requirement(key, True, lte=number, min_values=self.min_values)


class Requirements(msgspec.Struct, frozen=True):
    """Requirements of labels: at most one for a key, ordered by key."""

    by_key: dict[str, Requirement] = {}

    def __iter__(self) -> Iterator[Requirement]:
        return iter(self.by_key.values())

    def __len__(self) -> int:
        return len(self.by_key)

    def __contains__(self, key: object) -> bool:
        return key in self.by_key

    def get(self, key: str) -> Requirement:
        """The requirement of a key; one that allows everything if there is none."""
        return self.by_key.get(key) or Requirement(key, True)

    def intersection(self, other_requirements: "Requirements | Iterable[Requirement]") -> "Requirements":
        """The requirements that hold when both hold, key by key."""
        merged = dict(self.by_key)
        for requirement in other_requirements:
            merged[requirement.key] = (
                merged[requirement.key].intersection(requirement) if requirement.key in merged else requirement
            )
        return Requirements({key: merged[key] for key in sorted(merged)})

    def conflicts(self, other_requirements: "Requirements") -> tuple[tuple[Requirement, Requirement], ...]:
        """Pairs of requirements of a shared key without a common value; absence satisfies NotIn and DoesNotExist."""
        return tuple(
            (requirement, other_requirement)
            for other_requirement in other_requirements
            if (requirement := self.by_key.get(other_requirement.key)) is not None
            and not requirement.intersects(other_requirement)
            and not (requirement.allows_absence and other_requirement.allows_absence)
        )

    def intersects(self, other_requirements: "Requirements") -> bool:
        return not self.conflicts(other_requirements)

    def undefined_keys(self, pod: "Requirements", allowed: Collection[str] = labels.WELL_KNOWN) -> tuple[str, ...]:
        """Keys that ``pod`` requires and that are neither defined here nor in ``allowed``, sorted."""
        return tuple(
            sorted(
                requirement.key
                for requirement in pod
                if requirement.key not in self.by_key
                and requirement.key not in allowed
                and not requirement.allows_absence
            )
        )

    def is_compatible(self, pod: "Requirements", allowed: Collection[str] = labels.WELL_KNOWN) -> bool:
        """Whether a node with these requirements can host a pod with the requirements ``pod``."""
        return not self.undefined_keys(pod, allowed) and self.intersects(pod)

    def labels(self) -> dict[str, str]:
        """The labels whose requirement allows a single value."""
        return {requirement.key: value for requirement in self if (value := requirement.sole_value) is not None}

    def node_selector_requirements(self) -> tuple[NodeSelectorRequirement, ...]:
        return tuple(selector for requirement in self for selector in requirement.node_selector_requirements())

    def __str__(self) -> str:
        return ", ".join(str(requirement) for requirement in self)


def conjunction(demands: Iterable[Requirement]) -> Requirements | None:
    """All requirements together; None = they allow no value for a label that must exist.

    An intersection alone would be DoesNotExist then, which a node without the label meets.
    """
    combined = Requirements()
    for requirement in demands:
        before = combined.by_key.get(requirement.key)
        combined = combined.intersection((requirement,))
        if (
            before is not None
            and not before.intersects(requirement)
            and not (before.allows_absence and requirement.allows_absence)
        ):
            return None
    return combined


def from_expressions(selectors: Iterable[NodeSelectorRequirement]) -> Requirements:
    """The conjunction of NodeSelectorRequirements; raises RequirementError."""
    return Requirements().intersection(selector.requirement() for selector in selectors)


def from_labels(values: Mapping[str, str]) -> Requirements:
    """Labels, or a nodeSelector, as requirements."""
    return Requirements().intersection(
        Requirement(labels.normalize(key), False, frozenset((value,))) for key, value in values.items()
    )


def _larger(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else max(left, right)


def _smaller(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else min(left, right)


def _few(values: Sequence[str]) -> str:
    """At most six values; of more the first five, so that never only one is left out."""
    return ", ".join(values) if len(values) <= 6 else f"{', '.join(values[:5])} and {len(values) - 5} others"
