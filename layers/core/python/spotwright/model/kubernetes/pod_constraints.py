"""Constraints between pods: topology spread, pod affinity, pod anti-affinity, host ports.

Source: Kubernetes ``core/v1`` PodSpec. The codec adds matchLabelKeys and mismatchLabelKeys to the selectors, and the
pod's own namespace where a term lists none.
"""

import msgspec

from spotwright.model.requirements import NodeSelectorRequirement, Operator

type LabelSelector = tuple[NodeSelectorRequirement, ...] | None
"""A LabelSelector: its expressions together; () selects everything, None nothing."""


class TopologySpreadConstraint(msgspec.Struct, frozen=True):
    """A topologySpreadConstraint. ``do_not_schedule``: its whenUnsatisfiable. ``min_domains`` 0 = unset."""

    topology_key: str = msgspec.field(name="key")
    max_skew: int
    label_selector: LabelSelector = msgspec.field(name="selector")
    do_not_schedule: bool = msgspec.field(default=True, name="hard")
    min_domains: int = 0
    honors_node_affinity: bool = msgspec.field(default=True, name="honors_affinity")
    honors_node_taints: bool = msgspec.field(default=False, name="honors_taints")


class PodAffinityTerm(msgspec.Struct, frozen=True):
    """A term of pod (anti-)affinity: pods of these namespaces that the selector selects, per value of
    ``topology_key``.

    ``namespace_selector`` None: only ``namespaces``; (): all namespaces.
    """

    topology_key: str = msgspec.field(name="key")
    label_selector: LabelSelector = msgspec.field(name="selector")
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector = None


class WeightedPodAffinityTerm(msgspec.Struct, frozen=True):
    """A preferred term and its weight."""

    weight: int
    pod_affinity_term: PodAffinityTerm = msgspec.field(name="company")


class HostPort(msgspec.Struct, frozen=True):
    """A port of the node that a container binds; ``host_ip`` "" and the unspecified addresses mean all of them."""

    port: int
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="address")

    def conflicts_with(self, other_host_port: "HostPort") -> bool:
        """True when two pods on one node cannot both bind them."""
        if (self.port, self.protocol) != (other_host_port.port, other_host_port.protocol):
            return False
        everywhere = ("", "0.0.0.0", "::")
        return (
            self.host_ip == other_host_port.host_ip
            or self.host_ip in everywhere
            or other_host_port.host_ip in everywhere
        )


def selects(selector: LabelSelector, labels: dict[str, str]) -> bool:
    """Whether a LabelSelector selects an object with these labels."""
    return selector is not None and all(matches(expression, labels) for expression in selector)


def matches(selector: NodeSelectorRequirement, labels: dict[str, str]) -> bool:
    """Whether labels meet an expression of a LabelSelector; a missing label meets NotIn and DoesNotExist."""
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
