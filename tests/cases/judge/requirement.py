"""Label requirements as questions about one label value, where None means that the label is absent."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from tests.cases.judge.quantity import Raw

Value = str | None
Values = frozenset[Value]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
NODEPOOL = "karpenter.sh/nodepool"

NORMALIZED = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
    "topology.ebs.csi.aws.com/zone": ZONE,
}
"""Old keys that mean a stable one (Karpenter's NormalizedLabels; the last is the AWS provider's)."""

SOME_VALUE = "\0some value"
"""Stands for a label that will exist with a value nobody has fixed yet: it satisfies Exists and nothing more
precise."""


@dataclass(frozen=True)
class Requirement:
    """One `key operator values`, as in node affinity, NodePool requirements and NodeClaims."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def allows(self, value: Value) -> bool:
        """Whether a node with this label value (None: without the label) satisfies the requirement."""
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value != SOME_VALUE and value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt" | "Gte" | "Lte":
                return value is not None and self._within_bound(value)
        return False  # an operator nobody knows is satisfied by nothing

    def _within_bound(self, value: str) -> bool:
        try:
            number, bound = int(value), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return {"Gt": number > bound, "Lt": number < bound, "Gte": number >= bound, "Lte": number <= bound}[
            self.operator
        ]

    def __str__(self) -> str:
        shown = ", ".join(self.values[:5]) + (" ..." if len(self.values) > 5 else "")
        return f"{self.key} {self.operator}" + (f" [{shown}]" if self.values else "")


def requirement(raw: Raw) -> Requirement:
    """From a NodeSelectorRequirement."""
    key = str(raw["key"])
    return Requirement(NORMALIZED.get(key, key), raw["operator"], tuple(str(v) for v in raw.get("values") or ()))


def from_labels(labels: Mapping[str, object] | None) -> tuple[Requirement, ...]:
    """A nodeSelector (or a label map) as requirements."""
    return tuple(Requirement(NORMALIZED.get(k, k), "In", (str(v),)) for k, v in (labels or {}).items())


Possible = Callable[[str], Values]
"""What a node may carry for a key: one value when it is known, several while a launch may still choose."""


def certain(term: Iterable[Requirement], possible: Possible) -> bool:
    """Whether every node that may come out satisfies all requirements of the term."""
    return all(r.allows(v) for r in term for v in possible(r.key))


def conceivable(term: Iterable[Requirement], possible: Possible) -> bool:
    """Whether some node that may come out could satisfy each requirement of the term."""
    return all(any(r.allows(v) or v == SOME_VALUE for v in possible(r.key)) for r in term)


@dataclass(frozen=True)
class LabelSelector:
    """A metav1.LabelSelector over pod or namespace labels. None upstream selects nothing; {} selects everything."""

    nothing: bool
    requirements: tuple[Requirement, ...]

    def selects(self, labels: Mapping[str, str]) -> bool:
        return not self.nothing and all(r.allows(labels.get(r.key)) for r in self.requirements)


def selector(raw: Raw | None, extra: Iterable[Requirement] = ()) -> LabelSelector:
    """From a LabelSelector object; `extra` are requirements that matchLabelKeys adds."""
    if raw is None:
        return LabelSelector(True, ())
    requirements = [Requirement(k, "In", (str(v),)) for k, v in (raw.get("matchLabels") or {}).items()]
    requirements += [
        Requirement(e["key"], e["operator"], tuple(e.get("values") or ())) for e in raw.get("matchExpressions") or []
    ]
    return LabelSelector(False, tuple(sorted({*requirements, *extra}, key=str)))


def tolerates(tolerations: Iterable[Raw], taint: Raw) -> bool:
    """Kubernetes toleration matching, including the numeric operators Gt and Lt."""
    return any(_tolerates(t, taint) for t in tolerations)


def _tolerates(toleration: Raw, taint: Raw) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    operator = toleration.get("operator") or "Equal"
    if not toleration.get("key"):
        return operator == "Exists"
    if toleration["key"] != taint.get("key"):
        return False
    mine, theirs = str(toleration.get("value") or ""), str(taint.get("value") or "")
    match operator:
        case "Exists":
            return True
        case "Equal":
            return mine == theirs
        case "Gt" | "Lt":
            return Requirement("", operator, (mine,)).allows(theirs) if mine.lstrip("-").isdigit() else False
    return False


def untolerated(taints: Iterable[Raw], tolerations: Iterable[Raw], hard_only: bool = True) -> str:
    """The first taint that keeps a pod away, as key=value:effect; '' if none does."""
    tolerations = list(tolerations)
    for taint in taints:
        if hard_only and taint.get("effect") == "PreferNoSchedule":
            continue
        if not tolerates(tolerations, taint):
            return f"{taint.get('key')}={taint.get('value') or ''}:{taint.get('effect')}"
    return ""


@cache
def only(value: Value) -> Values:
    """The set of exactly this value."""
    return frozenset((value,))
