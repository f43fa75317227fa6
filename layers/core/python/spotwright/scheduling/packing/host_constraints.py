"""Rules between the pods of one node, while it is packed: spread over hosts, anti-affinity on hosts, host ports.

Only nodes that are made take part: each is a host of its own, so its counts start at nothing.
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
    """What one class asks of a host. Circles are numbered.

    ``selecting_terms``: circles that hold the class; ``term_caps``: (circle, how many of it the host may hold);
    ``avoided_terms``: circles it avoids; ``host_ports``: what it binds; ``max_per_host``: how many of the class one
    host may hold, 0 = no bound.
    """

    __slots__ = ("avoided_terms", "host_ports", "max_per_host", "selecting_terms", "term_caps")

    def __init__(
        self, counted: Sequence[int], caps: Sequence[tuple[int, int]], avoids: Sequence[int], ports: Sequence[HostPort]
    ) -> None:
        self.selecting_terms = frozenset(counted)
        self.term_caps = tuple(caps)
        self.avoided_terms = tuple(avoids)
        self.host_ports = tuple(ports)
        own = [cap for circle, cap in self.term_caps if circle in self.selecting_terms]
        alone = bool(self.host_ports) or any(circle in self.selecting_terms for circle in self.avoided_terms)
        self.max_per_host = min([*own, 1] if alone else own, default=0)


def build_host_constraints(
    classes: Sequence[tuple[PodClass, PodRequirements]], topology: Topology
) -> list[HostConstraint | None]:
    """The bond of every class; None for those that no rule on hosts concerns."""
    spreads = [(cls, demand, topology.spread_terms(cls, demand, labels.HOSTNAME)) for cls, demand in classes]
    avoided = [topology.anti_affinity_terms(demand, labels.HOSTNAME) for _, demand in classes]
    numbers: dict[TopologyTerm, int] = {}
    for circle in (*(circle for _, _, circles in spreads for circle, _ in circles), *chain.from_iterable(avoided)):
        numbers.setdefault(circle, len(numbers))
    holders = TopologyTermIndex[int]()
    for circle, number in numbers.items():
        holders.add(circle, number)
    host_constraints: list[HostConstraint | None] = []
    for (cls, _, circles), topology_terms in zip(spreads, avoided, strict=True):
        counted = holders.items_selecting(cls)
        caps, avoids = (
            [(numbers[circle], cap) for circle, cap in circles],
            [numbers[circle] for circle in topology_terms],
        )
        bonded = counted or caps or avoids or cls.host_ports
        host_constraints.append(HostConstraint(counted, caps, avoids, cls.host_ports) if bonded else None)
    return host_constraints


def shared_host_caps(bonds: Sequence[HostConstraint | None]) -> list[tuple[int, list[int]]]:
    """Classes of which one host holds at most so many pods, all together; a class may be in several of them.

    Those that avoid a circle and are in it come one to a host, and so do those that bind one port; of those that spread
    over a circle and are in it a host holds what the most patient of them allows.
    """
    alone: dict[object, list[int]] = {}
    capped: dict[int, dict[int, int]] = {}
    for j, bond in enumerate(bonds):
        if bond is not None:
            for reason in (
                *(circle for circle in bond.avoided_terms if circle in bond.selecting_terms),
                *bond.host_ports,
            ):
                alone.setdefault(reason, []).append(j)
            for circle, cap in bond.term_caps:
                if circle in bond.selecting_terms:
                    capped.setdefault(circle, {})[j] = cap
    return [*((1, several) for several in alone.values()), *((max(caps.values()), [*caps]) for caps in capped.values())]


class HostState:
    """The pods of one node as their bonds see them (``packing.Rules``)."""

    __slots__ = ("_also", "_avoiding", "_bonds", "_held", "_ports")

    def __init__(self, bonds: Sequence[HostConstraint | None], also: BinConstraints | None = None) -> None:
        self._bonds = bonds
        self._also = also
        self._held: dict[int, int] = {}
        self._avoiding: set[int] = set()
        self._ports: list[HostPort] = []

    def max_count(self, j: int, wanted: int) -> int:
        if self._also is not None:
            wanted = self._also.max_count(j, wanted)
        bond = self._bonds[j]
        if bond is None or wanted <= 0:
            return wanted
        held = self._held
        if not self._avoiding.isdisjoint(bond.selecting_terms) or any(
            held.get(circle) for circle in bond.avoided_terms
        ):
            return 0
        if bond.host_ports and any(
            host_port.conflicts_with(other_port) for host_port in bond.host_ports for other_port in self._ports
        ):
            return 0
        for circle, cap in bond.term_caps:
            left = cap - held.get(circle, 0)
            if left < 0 or (circle in bond.selecting_terms and left < wanted):
                wanted = max(left, 0)
        return min(wanted, 1) if bond.max_per_host == 1 else wanted

    def add(self, j: int, count: int) -> None:
        if self._also is not None:
            self._also.add(j, count)
        bond = self._bonds[j]
        if bond is not None:
            for circle in bond.selecting_terms:
                self._held[circle] = self._held.get(circle, 0) + count
            self._avoiding.update(bond.avoided_terms)
            self._ports += bond.host_ports


def fit_on_one_host(bonds: Sequence[HostConstraint | None], pods: Mapping[int, int]) -> bool:
    """True when so many pods of each class can share one node."""
    if not any(bonds[j] for j in pods):
        return True
    household = HostState(bonds)
    for j, count in sorted(pods.items()):
        if household.max_count(j, count) < count:
            return False
        household.add(j, count)
    return True
