"""How many of the pods that a rule is about each domain of a label has."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import LabelSelector, selects
from spotwright.model.kubernetes.taints import Taint, Toleration, untolerated_taints
from spotwright.model.requirements import NodeSelectorRequirement, Operator, Requirements
from spotwright.scheduling.inputs.pod_classes import PodClass, PodCount


class TopologyNode(Protocol):
    """A node as rules between pods see it."""

    @property
    def taints(self) -> tuple[Taint, ...]: ...

    def domain(self, key: str) -> str | None:
        """The value of a label, when it is certain."""
        ...

    def may_meet_requirements(self, requirements: Requirements) -> bool:
        """Whether its labels meet the requirements, as far as they are known."""
        ...


class CountedNode(TopologyNode, Protocol):
    """A node that this plan puts pods on."""

    @property
    def pod_counts(self) -> Sequence[PodCount]:
        """Pods put there, in the order they came."""
        ...

    @property
    def recorded_counts(self) -> dict[str, int]:
        """Per label key, how many of the ``pod_counts`` are counted in its domain."""
        ...


class TopologyTerm(msgspec.Struct, frozen=True):
    """Pods that are counted per value of a label. ``namespaces`` None = all."""

    topology_key: str
    label_selector: LabelSelector
    namespaces: frozenset[str] | None

    def selects(self, pod: Pod) -> bool:
        if self.namespaces is not None and pod.metadata.namespace not in self.namespaces:
            return False
        return selects(self.label_selector, pod.metadata.labels)

    @property
    def listed_values(self) -> NodeSelectorRequirement | None:
        """The first expression that lists values: a selected pod has one of them. None if there is none."""
        expressions = self.label_selector or ()
        return next((expression for expression in expressions if expression.operator == Operator.IN), None)


class TopologyGroup:
    """The pods of a term, per domain.

    Only nodes count that meet one of the ``node_terms``, and whose taints the ``tolerations`` tolerate. None of either:
    every node counts.
    """

    __slots__ = ("_selected", "counts", "node_terms", "term", "tolerations")

    def __init__(
        self,
        term: TopologyTerm,
        node_terms: tuple[Requirements, ...] | None = None,
        tolerations: tuple[Toleration, ...] | None = None,
    ) -> None:
        self.term = term
        self.node_terms = node_terms
        self.tolerations = tolerations
        self.counts: dict[str, int] = {}
        self._selected: dict[int, bool] = {}

    def selects(self, pod_class: PodClass) -> bool:
        if pod_class.index not in self._selected:
            self._selected[pod_class.index] = self.term.selects(pod_class.pod)
        return self._selected[pod_class.index]

    def includes(self, node: TopologyNode) -> bool:
        """Whether a node counts."""
        if self.tolerations is not None and has_untolerated_taint(node.taints, self.tolerations):
            return False
        return self.node_terms is None or any(node.may_meet_requirements(term) for term in self.node_terms)

    def record(self, domain: str, count: int) -> None:
        self.counts[domain] = self.counts.get(domain, 0) + count

    def count(self, domain: str) -> int:
        return self.counts.get(domain, 0)


def has_untolerated_taint(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    return any(taint.effect != "PreferNoSchedule" for taint in untolerated_taints(taints, tolerations))
