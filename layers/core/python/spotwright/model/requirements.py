"""The requirement algebra: which values of a label are allowed, and what two demands allow together.

Source: Karpenter v1.14 ``pkg/scheduling/requirement.go`` and ``requirements.go``, in our words. We keep bounds next to
excluded values when they are printed (Karpenter drops the latter).
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from spotwright.model import labels

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
    """A requirement that means nothing; the message names key, operator, value and what is allowed."""


def integer(value: str) -> int | None:
    """A label's value as Kubernetes reads a number: ASCII digits of 64 bits; None for anything else."""
    if not _INTEGER.match(value):
        return None
    number = int(value)
    return number if -(2**63) <= number < 2**63 else None


class Requirement(msgspec.Struct, frozen=True):
    """The allowed values of one label.

    ``complement`` False: exactly ``values`` (none = the label must be absent). True: every value but
    ``values``, within the inclusive integer bounds ``gte`` and ``lte`` where they are set.
    ``must_exist``: the label must be there although values are excluded (NotIn beside Exists).
    ``min_values``: how many distinct values the chosen instance types must keep between them.
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
        """The operator that says most of this requirement; bounds aside."""
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
        """The values both allow. The larger ``min_values`` stays."""
        gte, lte = _larger(self.gte, other_requirement.gte), _smaller(self.lte, other_requirement.lte)
        least = _larger(self.min_values, other_requirement.min_values)
        if gte is not None and lte is not None and gte > lte:
            return Requirement(self.key, False, min_values=least)
        if self.complement and other_requirement.complement:
            bounded = Requirement(self.key, True, frozenset(), gte, lte)
            kept = frozenset(v for v in self.values | other_requirement.values if bounded._within(v))
            needed = (
                bool(kept)
                and gte is None
                and lte is None
                and not (self.allows_absence and other_requirement.allows_absence)
            )
            return Requirement(self.key, True, kept, gte, lte, least, needed)
        concrete = other_requirement if self.complement else self
        kept = frozenset(v for v in concrete.values if self.has(v) and other_requirement.has(v))
        return Requirement(self.key, False, kept, min_values=least)

    def intersects(self, other_requirement: "Requirement") -> bool:
        """True when some value satisfies both; two open sets always meet unless their bounds exclude each other."""
        both = self.intersection(other_requirement)
        return both.complement or bool(both.values)

    def __str__(self) -> str:
        return " and ".join(_phrase(self.key, expression) for expression in self.node_selector_requirements())

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
    """One NodeSelectorRequirement as a manifest states it."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    min_values: int | None = None

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
                return self._bounded(key)
        raise RequirementError(f"{self.key}: operator {self.operator!r} is unknown; allowed are {', '.join(Operator)}")

    def _bounded(self, key: str) -> Requirement:
        number = integer(self.values[0]) if len(self.values) == 1 else None
        if number is None or number < 0:
            raise RequirementError(
                f"{self.key} {self.operator} {[value[:40] for value in self.values]}: needs exactly one integer that is"
                " not negative and at most 2^63-1"
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
    """What a set of labels must satisfy, at most one requirement per key, ordered by key."""

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

    def intersection(self, other: "Requirements | Iterable[Requirement]") -> "Requirements":
        """Both demands together, key by key."""
        merged = dict(self.by_key)
        for requirement in other:
            merged[requirement.key] = (
                merged[requirement.key].intersection(requirement) if requirement.key in merged else requirement
            )
        return Requirements({key: merged[key] for key in sorted(merged)})

    def conflicts(self, other_requirements: "Requirements") -> tuple[tuple[Requirement, Requirement], ...]:
        """Pairs (ours, theirs) on a shared key that leave no value; absence satisfies two negatives."""
        return tuple(
            (requirement, theirs)
            for theirs in other_requirements
            if (requirement := self.by_key.get(theirs.key)) is not None
            and not requirement.intersects(theirs)
            and not (requirement.allows_absence and theirs.allows_absence)
        )

    def intersects(self, other_requirements: "Requirements") -> bool:
        return not self.conflicts(other_requirements)

    def undefined_keys(self, pod: "Requirements", allowed: Collection[str] = labels.WELL_KNOWN) -> tuple[str, ...]:
        """Keys that ``pod`` asks for, that nothing here defines and that are not in ``allowed``, sorted."""
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
        """True when a node with these requirements can host a pod with those."""
        return not self.undefined_keys(pod, allowed) and self.intersects(pod)

    def labels(self) -> dict[str, str]:
        """The labels that are already certain: keys with one allowed value."""
        return {requirement.key: value for requirement in self if (value := requirement.sole_value) is not None}

    def node_selector_requirements(self) -> tuple[NodeSelectorRequirement, ...]:
        return tuple(selector for requirement in self for selector in requirement.node_selector_requirements())

    def __str__(self) -> str:
        return ", ".join(str(requirement) for requirement in self)


def conjunction(demands: Iterable[Requirement]) -> Requirements | None:
    """All demands together; None when they leave a label that must be there without a value.

    The plain intersection would read an empty set as DoesNotExist, which a node without the label meets.
    """
    together = Requirements()
    for requirement in demands:
        before = together.by_key.get(requirement.key)
        together = together.intersection((requirement,))
        if (
            before is not None
            and not before.intersects(requirement)
            and not (before.allows_absence and requirement.allows_absence)
        ):
            return None
    return together


def from_expressions(selectors: Iterable[NodeSelectorRequirement]) -> Requirements:
    """The conjunction of NodeSelectorRequirements; raises RequirementError."""
    return Requirements().intersection(selector.requirement() for selector in selectors)


def from_labels(values: Mapping[str, str]) -> Requirements:
    """Labels, or a nodeSelector, as requirements."""
    return Requirements().intersection(
        Requirement(labels.normalize(key), False, frozenset((value,))) for key, value in values.items()
    )


def _larger(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _smaller(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _phrase(key: str, selector: NodeSelectorRequirement) -> str:
    shown = ", ".join(selector.values[:5])
    more = f" and {len(selector.values) - 5} others" if len(selector.values) > 5 else ""
    return f"{key} {selector.operator}" + (f" [{shown}{more}]" if selector.values else "")
