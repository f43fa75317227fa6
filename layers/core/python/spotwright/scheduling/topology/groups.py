"""How many pods of a kind each domain of a label has."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import LabelSelector, selects
from spotwright.model.kubernetes.taints import Taint, Toleration, untolerated_taints
from spotwright.model.requirements import Operator, Requirements
from spotwright.scheduling.inputs.pod_classes import PodClass, PodCount
from spotwright.scheduling.inputs.state_nodes import StateNode


class TopologyNode(Protocol):
    """A node as rules see it."""

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
    """Pods that are counted, per value of a label. ``namespaces`` None = all."""

    topology_key: str
    label_selector: LabelSelector
    namespaces: frozenset[str] | None

    def selects(self, pod: Pod) -> bool:
        ours = self.namespaces is None or pod.metadata.namespace in self.namespaces
        return ours and selects(self.label_selector, pod.metadata.labels)


class TopologyGroup:
    """Pods of a circle per domain.

    Only nodes count that meet one of the ``node_terms`` node terms, and whose taints ``tolerations`` tolerate; None of
    either: every node counts.
    """

    __slots__ = ("_known", "counts", "node_terms", "term", "tolerations")

    def __init__(
        self, circle: TopologyTerm, honored: tuple[Requirements, ...] | None, tolerations: tuple[Toleration, ...] | None
    ) -> None:
        self.term = circle
        self.node_terms = honored
        self.tolerations = tolerations
        self.counts: dict[str, int] = {}
        self._known: dict[int, bool] = {}

    def selects(self, cls: PodClass) -> bool:
        known = self._known.get(cls.index)
        if known is None:
            known = self._known[cls.index] = self.term.selects(cls.pod)
        return known

    def includes(self, place: TopologyNode) -> bool:
        if self.tolerations is not None and has_untolerated_taint(place.taints, self.tolerations):
            return False
        return self.node_terms is None or any(place.may_meet_requirements(term) for term in self.node_terms)

    def record(self, domain: str, count: int) -> None:
        self.counts[domain] = self.counts.get(domain, 0) + count

    def count(self, domain: str) -> int:
        return self.counts.get(domain, 0)


def has_untolerated_taint(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    return any(taint.effect != "PreferNoSchedule" for taint in untolerated_taints(taints, tolerations))


class BoundPods:
    """Running pods; those that look alike to rules mostly together, with the hosts they are on and how many on each."""

    def __init__(self, hosts: Iterable[StateNode], moving: frozenset[str]) -> None:
        counts: dict[object, tuple[Pod, dict[str, tuple[StateNode, int]]]] = {}
        for host in hosts:
            for pod in host.pods:
                if pod.metadata.deletion_timestamp is None and pod.key not in moving:
                    look = (pod.metadata.namespace, tuple(pod.metadata.labels.items()), pod.pod_anti_affinity)
                    on = counts.setdefault(look, (pod, {}))[1]
                    on[host.name] = (host, on.get(host.name, (host, 0))[1] + 1)
        self.pod_groups = [(pod, list(on.values())) for pod, on in counts.values()]
        self._by_label: dict[tuple[str, str], list[int]] = {}
        for place, (pod, _) in enumerate(self.pod_groups):
            for label in pod.metadata.labels.items():
                self._by_label.setdefault(label, []).append(place)

    def candidates(self, circle: TopologyTerm) -> Iterator[tuple[Pod, list[tuple[StateNode, int]]]]:
        """Those among whom all that a circle holds are: they have the label that its selector lists first."""
        listed = next(
            (expression for expression in circle.label_selector or () if expression.operator == Operator.IN), None
        )
        if listed is None:
            yield from self.pod_groups
            return
        for value in sorted(set(listed.values)):
            yield from map(self.pod_groups.__getitem__, self._by_label.get((listed.key, value), ()))
