"""How many pods of a kind each domain of a label has."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from spotwright.model.company import LabelSelector, selects
from spotwright.model.pod import Pod
from spotwright.model.requirements import Operator, Requirements
from spotwright.model.taints import Taint, Toleration, untolerated
from spotwright.scheduling.classes import PodClass
from spotwright.scheduling.hosts import Host


class Spot(Protocol):
    """A node as rules see it."""

    @property
    def taints(self) -> tuple[Taint, ...]: ...

    def domain(self, key: str) -> str | None:
        """The value of a label, when it is certain."""
        ...

    def may_meet(self, requirements: Requirements) -> bool:
        """Whether its labels meet the requirements, as far as they are known."""
        ...


class Place(Spot, Protocol):
    """A node that this plan puts pods on."""

    @property
    def members(self) -> Sequence[tuple[PodClass, int]]:
        """Pods put there: class and how many, in the order they came."""
        ...

    @property
    def counted(self) -> dict[str, int]:
        """Per label key, how many of the members are in the counts."""
        ...


class Circle(msgspec.Struct, frozen=True):
    """Pods that are counted, per value of a label. ``namespaces`` None = all."""

    key: str
    selector: LabelSelector
    namespaces: frozenset[str] | None

    def holds(self, pod: Pod) -> bool:
        ours = self.namespaces is None or pod.metadata.namespace in self.namespaces
        return ours and selects(self.selector, pod.metadata.labels)


class Tally:
    """Pods of a circle per domain.

    Only nodes count that meet one of the ``honored`` node terms, and whose taints ``tolerations`` tolerate; None of
    either: every node counts.
    """

    __slots__ = ("_known", "circle", "counts", "honored", "tolerations")

    def __init__(
        self, circle: Circle, honored: tuple[Requirements, ...] | None, tolerations: tuple[Toleration, ...] | None
    ) -> None:
        self.circle = circle
        self.honored = honored
        self.tolerations = tolerations
        self.counts: dict[str, int] = {}
        self._known: dict[int, bool] = {}

    def selects(self, cls: PodClass) -> bool:
        known = self._known.get(cls.index)
        if known is None:
            known = self._known[cls.index] = self.circle.holds(cls.pod)
        return known

    def counts_on(self, place: Spot) -> bool:
        if self.tolerations is not None and repelled(place.taints, self.tolerations):
            return False
        return self.honored is None or any(place.may_meet(term) for term in self.honored)

    def add(self, domain: str, count: int) -> None:
        self.counts[domain] = self.counts.get(domain, 0) + count

    def of(self, domain: str) -> int:
        return self.counts.get(domain, 0)


def repelled(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    return any(one.effect != "PreferNoSchedule" for one in untolerated(taints, tolerations))


class Residents:
    """Running pods; those that look alike to rules mostly together, with the hosts they are on and how many on each."""

    def __init__(self, hosts: Iterable[Host], moving: frozenset[str]) -> None:
        counts: dict[object, tuple[Pod, dict[str, tuple[Host, int]]]] = {}
        for host in hosts:
            for pod in host.pods:
                if pod.metadata.deleting is None and pod.key not in moving:
                    look = (pod.metadata.namespace, tuple(pod.metadata.labels.items()), pod.apart)
                    on = counts.setdefault(look, (pod, {}))[1]
                    on[host.name] = (host, on.get(host.name, (host, 0))[1] + 1)
        self.every = [(pod, list(on.values())) for pod, on in counts.values()]
        self._by_label: dict[tuple[str, str], list[int]] = {}
        for place, (pod, _) in enumerate(self.every):
            for label in pod.metadata.labels.items():
                self._by_label.setdefault(label, []).append(place)

    def near(self, circle: Circle) -> Iterator[tuple[Pod, list[tuple[Host, int]]]]:
        """Those among whom all that a circle holds are: they have the label that its selector lists first."""
        listed = next((one for one in circle.selector or () if one.operator == Operator.IN), None)
        if listed is None:
            yield from self.every
            return
        for value in sorted(set(listed.values)):
            yield from map(self.every.__getitem__, self._by_label.get((listed.key, value), ()))
