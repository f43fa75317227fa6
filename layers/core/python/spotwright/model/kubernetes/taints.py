"""Taints, tolerations, and which tolerates which.

Source: Kubernetes ``core/v1`` Toleration.ToleratesTaint, with the numeric operators Lt and Gt of 1.35.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from spotwright.model.requirements import integer


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Taint(msgspec.Struct, frozen=True, order=True):
    key: str
    effect: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True, order=True):
    """One toleration of a pod; empty key with Exists tolerates everything, empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator or "Equal":
            case "Exists":
                return True
            case "Equal":
                return bool(self.key) and self.value == taint.value
            case "Gt" | "Lt":
                return self._compares(taint.value)
        return False

    def _compares(self, value: str) -> bool:
        theirs, ours = integer(value), integer(self.value)
        if theirs is None or ours is None:
            return False
        return theirs > ours if self.operator == "Gt" else theirs < ours


def untolerated_taints(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> tuple[Taint, ...]:
    """The taints that keep a pod away, in the order given. PreferNoSchedule counts: relaxing it is a decision."""
    ours = tuple(tolerations)
    return tuple(taint for taint in taints if not any(toleration.tolerates(taint) for toleration in ours))
