"""Constraints between the pods of one new node: topology spread over hosts, anti-affinity on hosts, host ports.

A new node is a host without pods, so every count starts at zero. Existing nodes take no part.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

from spotwright.model import labels
from spotwright.model.kubernetes.pod_constraints import HostPort
from spotwright.scheduling.inputs.pod_classes import PodClass
from spotwright.scheduling.inputs.pod_requirements import PodRequirements
from spotwright.scheduling.packing.bins import BinConstraints
from spotwright.scheduling.topology.groups import TopologyTerm
from spotwright.scheduling.topology.term_index import TopologyTermIndex
from spotwright.scheduling.topology.topology import Topology


class HostConstraint:
    """What one class of pods requires of its host. Topology terms are numbered.

    ``selecting_terms``: terms whose selector matches the class; ``term_caps``: (term, how many pods that it selects the
    host may hold); ``avoided_terms``: terms of its anti-affinity; ``host_ports``: ports it binds; ``max_per_host``: how
    many pods of the class one host may hold, 0 = any number.
    """

    __slots__ = ("avoided_terms", "host_ports", "max_per_host", "selecting_terms", "term_caps")

    def __init__(
        self,
        selecting_terms: Sequence[int],
        term_caps: Sequence[tuple[int, int]],
        avoided_terms: Sequence[int],
        host_ports: Sequence[HostPort],
    ) -> None:
        self.selecting_terms = frozenset(selecting_terms)
        self.term_caps = tuple(term_caps)
        self.avoided_terms = tuple(avoided_terms)
        self.host_ports = tuple(host_ports)
        own_caps = [cap for term, cap in self.term_caps if term in self.selecting_terms]
        one_per_host = bool(self.host_ports) or not self.selecting_terms.isdisjoint(self.avoided_terms)
        self.max_per_host = min([*own_caps, 1] if one_per_host else own_caps, default=0)


def build_host_constraints(
    classes: Sequence[tuple[PodClass, PodRequirements]], topology: Topology
) -> list[HostConstraint | None]:
    """The host constraint of every class; None for classes that may share a host with any pod."""
    caps_by_class = [
        topology.spread_terms(pod_class, pod_requirements, labels.HOSTNAME) for pod_class, pod_requirements in classes
    ]
    avoided = [topology.anti_affinity_terms(pod_requirements, labels.HOSTNAME) for _, pod_requirements in classes]
    numbers: dict[TopologyTerm, int] = {}
    for term in (*(term for caps in caps_by_class for term, _ in caps), *chain.from_iterable(avoided)):
        numbers.setdefault(term, len(numbers))
    index = TopologyTermIndex[int]()
    for term, number in numbers.items():
        index.add(term, number)
    host_constraints: list[HostConstraint | None] = []
    for (pod_class, _), caps, avoided_terms in zip(classes, caps_by_class, avoided, strict=True):
        selecting = index.items_selecting(pod_class)
        constrained = selecting or caps or avoided_terms or pod_class.host_ports
        host_constraint = HostConstraint(
            selecting,
            [(numbers[term], cap) for term, cap in caps],
            [numbers[term] for term in avoided_terms],
            pod_class.host_ports,
        )
        host_constraints.append(host_constraint if constrained else None)
    return host_constraints


def shared_host_caps(host_constraints: Sequence[HostConstraint | None]) -> list[tuple[int, list[int]]]:
    """(cap, classes): a host holds at most so many pods of these classes together; a class may be in several pairs.

    Classes that avoid a term and are selected by it come one to a host, and so do classes that bind the same port. Of
    classes that spread over a term and are selected by it, a host holds at most the largest cap among them.
    """
    one_per_host: dict[object, list[int]] = {}
    capped: dict[int, dict[int, int]] = {}
    for j, host_constraint in enumerate(host_constraints):
        if host_constraint is not None:
            selecting = host_constraint.selecting_terms
            avoided = (term for term in host_constraint.avoided_terms if term in selecting)
            for reason in (*avoided, *host_constraint.host_ports):
                one_per_host.setdefault(reason, []).append(j)
            for term, cap in host_constraint.term_caps:
                if term in selecting:
                    capped.setdefault(term, {})[j] = cap
    return [
        *((1, classes) for classes in one_per_host.values()),
        *((max(caps.values()), [*caps]) for caps in capped.values()),
    ]


class HostState:
    """The pods of one node as host constraints count them (a ``BinConstraints``, which may include another)."""

    __slots__ = ("_avoided_terms", "_host_constraints", "_host_ports", "_other_constraints", "_term_counts")

    def __init__(
        self, host_constraints: Sequence[HostConstraint | None], other_constraints: BinConstraints | None = None
    ) -> None:
        self._host_constraints = host_constraints
        self._other_constraints = other_constraints
        self._term_counts: dict[int, int] = {}
        self._avoided_terms: set[int] = set()
        self._host_ports: list[HostPort] = []

    def max_count(self, j: int, wanted: int) -> int:
        if self._other_constraints is not None:
            wanted = self._other_constraints.max_count(j, wanted)
        host_constraint = self._host_constraints[j]
        if host_constraint is None or wanted <= 0:
            return wanted
        if self._excludes(host_constraint):
            return 0
        for term, cap in host_constraint.term_caps:
            left = cap - self._term_counts.get(term, 0)
            if left < 0 or (term in host_constraint.selecting_terms and left < wanted):
                wanted = max(left, 0)
        return min(wanted, 1) if host_constraint.max_per_host == 1 else wanted

    def _excludes(self, host_constraint: HostConstraint) -> bool:
        """True when anti-affinity or a host port keeps the class from the pods on the node."""
        if not self._avoided_terms.isdisjoint(host_constraint.selecting_terms):
            return True
        if any(self._term_counts.get(term) for term in host_constraint.avoided_terms):
            return True
        return bool(host_constraint.host_ports) and any(
            host_port.conflicts_with(used_port)
            for host_port in host_constraint.host_ports
            for used_port in self._host_ports
        )

    def add(self, j: int, count: int) -> None:
        if self._other_constraints is not None:
            self._other_constraints.add(j, count)
        host_constraint = self._host_constraints[j]
        if host_constraint is not None:
            for term in host_constraint.selecting_terms:
                self._term_counts[term] = self._term_counts.get(term, 0) + count
            self._avoided_terms.update(host_constraint.avoided_terms)
            self._host_ports += host_constraint.host_ports


def fit_on_one_host(host_constraints: Sequence[HostConstraint | None], pods: Mapping[int, int]) -> bool:
    """True when so many pods of each class can share one node."""
    if not any(host_constraints[j] for j in pods):
        return True
    host_state = HostState(host_constraints)
    for j, count in sorted(pods.items()):
        if host_state.max_count(j, count) < count:
            return False
        host_state.add(j, count)
    return True
