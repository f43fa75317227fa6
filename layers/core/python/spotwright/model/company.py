"""What a pod asks about the pods around it: topology spread, affinity, anti-affinity, host ports.

Source: Kubernetes ``core/v1`` PodSpec. matchLabelKeys and mismatchLabelKeys are folded into the selectors when a pod
is read, and a namespace list that was left out is the pod's own namespace.
"""

import msgspec

from spotwright.model.requirements import Operator, Selector

type LabelSelector = tuple[Selector, ...] | None
"""A LabelSelector: its expressions together; () selects everything, None nothing."""


class Spread(msgspec.Struct, frozen=True):
    """One topologySpreadConstraint. ``hard``: DoNotSchedule. ``min_domains`` 0 = unset."""

    key: str
    max_skew: int
    selector: LabelSelector
    hard: bool = True
    min_domains: int = 0
    honors_affinity: bool = True
    honors_taints: bool = False


class Company(msgspec.Struct, frozen=True):
    """One term of pod (anti-)affinity: pods of these namespaces that the selector selects, per value of ``key``.

    ``namespace_selector`` None: only ``namespaces``; (): all namespaces.
    """

    key: str
    selector: LabelSelector
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector = None


class Wish(msgspec.Struct, frozen=True):
    """A preferred term and its weight."""

    weight: int
    company: Company


class HostPort(msgspec.Struct, frozen=True):
    """A port of the node that a container binds; ``address`` "" and the unspecified addresses mean all of them."""

    port: int
    protocol: str = "TCP"
    address: str = ""

    def clashes(self, other: "HostPort") -> bool:
        """True when two pods on one node cannot both bind them."""
        if (self.port, self.protocol) != (other.port, other.protocol):
            return False
        everywhere = ("", "0.0.0.0", "::")
        return self.address == other.address or self.address in everywhere or other.address in everywhere


def selects(selector: LabelSelector, labels: dict[str, str]) -> bool:
    """Whether a LabelSelector selects an object with these labels."""
    return selector is not None and all(matches(one, labels) for one in selector)


def matches(selector: Selector, labels: dict[str, str]) -> bool:
    """Whether labels meet one expression of a LabelSelector; a missing label meets the negative ones."""
    value = labels.get(selector.key)
    match selector.operator:
        case Operator.IN:
            return value in selector.values
        case Operator.NOT_IN:
            return value not in selector.values
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None
    return False
