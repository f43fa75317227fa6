"""Taints, tolerations, and which taints a toleration tolerates.

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
    """A toleration of a pod; an empty key with Exists tolerates every taint, an empty effect every effect."""

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
        taint_value, toleration_value = integer(value), integer(self.value)
        if taint_value is None or toleration_value is None:
            return False
        return taint_value > toleration_value if self.operator == "Gt" else taint_value < toleration_value


def untolerated_taints(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> tuple[Taint, ...]:
    """The taints that no toleration tolerates, in their order; PreferNoSchedule taints count."""
    pod_tolerations = tuple(tolerations)
    return tuple(taint for taint in taints if not any(toleration.tolerates(taint) for toleration in pod_tolerations))
