"""Rules between the pods of one node, while it is packed: spread over hosts, anti-affinity on hosts, host ports.

Only nodes that are made take part: each is a host of its own, so its counts start at nothing.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

from spotwright.model import labels
from spotwright.model.company import HostPort
from spotwright.scheduling.circles import Circles
from spotwright.scheduling.classes import Demand, PodClass
from spotwright.scheduling.packing import Rules
from spotwright.scheduling.tally import Circle
from spotwright.scheduling.topology import Topology


class Bond:
    """What one class asks of a host. Circles are numbered.

    ``counted``: circles that hold the class; ``caps``: (circle, how many of it the host may hold); ``avoids``: circles
    it avoids; ``ports``: what it binds; ``most``: how many of the class one host may hold, 0 = no bound.
    """

    __slots__ = ("avoids", "caps", "counted", "most", "ports")

    def __init__(
        self, counted: Sequence[int], caps: Sequence[tuple[int, int]], avoids: Sequence[int], ports: Sequence[HostPort]
    ) -> None:
        self.counted = frozenset(counted)
        self.caps = tuple(caps)
        self.avoids = tuple(avoids)
        self.ports = tuple(ports)
        own = [cap for circle, cap in self.caps if circle in self.counted]
        alone = bool(self.ports) or any(circle in self.counted for circle in self.avoids)
        self.most = min([*own, 1] if alone else own, default=0)


def bonds(classes: Sequence[tuple[PodClass, Demand]], topology: Topology) -> list[Bond | None]:
    """The bond of every class; None for those that no rule on hosts concerns."""
    spreads = [(cls, demand, topology.spread_circles(cls, demand, labels.HOSTNAME)) for cls, demand in classes]
    avoided = [topology.avoided_circles(demand, labels.HOSTNAME) for _, demand in classes]
    numbers: dict[Circle, int] = {}
    for circle in (*(circle for _, _, circles in spreads for circle, _ in circles), *chain.from_iterable(avoided)):
        numbers.setdefault(circle, len(numbers))
    holders = Circles[int]()
    for circle, number in numbers.items():
        holders.add(circle, number)
    found: list[Bond | None] = []
    for (cls, _, circles), several in zip(spreads, avoided, strict=True):
        counted = holders.holding(cls)
        caps, avoids = [(numbers[circle], cap) for circle, cap in circles], [numbers[circle] for circle in several]
        bonded = counted or caps or avoids or cls.host_ports
        found.append(Bond(counted, caps, avoids, cls.host_ports) if bonded else None)
    return found


def crowds(bonds: Sequence[Bond | None]) -> list[tuple[int, list[int]]]:
    """Classes of which one host holds at most so many pods, all together; a class may be in several of them.

    Those that avoid a circle and are in it come one to a host, and so do those that bind one port; of those that spread
    over a circle and are in it a host holds what the most patient of them allows.
    """
    alone: dict[object, list[int]] = {}
    capped: dict[int, dict[int, int]] = {}
    for j, bond in enumerate(bonds):
        if bond is not None:
            for reason in (*(circle for circle in bond.avoids if circle in bond.counted), *bond.ports):
                alone.setdefault(reason, []).append(j)
            for circle, cap in bond.caps:
                if circle in bond.counted:
                    capped.setdefault(circle, {})[j] = cap
    return [*((1, several) for several in alone.values()), *((max(caps.values()), [*caps]) for caps in capped.values())]


class Household:
    """The pods of one node as their bonds see them (``packing.Rules``)."""

    __slots__ = ("_also", "_avoiding", "_bonds", "_held", "_ports")

    def __init__(self, bonds: Sequence[Bond | None], also: Rules | None = None) -> None:
        self._bonds = bonds
        self._also = also
        self._held: dict[int, int] = {}
        self._avoiding: set[int] = set()
        self._ports: list[HostPort] = []

    def most(self, j: int, wanted: int) -> int:
        if self._also is not None:
            wanted = self._also.most(j, wanted)
        bond = self._bonds[j]
        if bond is None or wanted <= 0:
            return wanted
        held = self._held
        if not self._avoiding.isdisjoint(bond.counted) or any(held.get(circle) for circle in bond.avoids):
            return 0
        if bond.ports and any(one.clashes(other) for one in bond.ports for other in self._ports):
            return 0
        for circle, cap in bond.caps:
            left = cap - held.get(circle, 0)
            if left < 0 or (circle in bond.counted and left < wanted):
                wanted = max(left, 0)
        return min(wanted, 1) if bond.most == 1 else wanted

    def took(self, j: int, count: int) -> None:
        if self._also is not None:
            self._also.took(j, count)
        bond = self._bonds[j]
        if bond is not None:
            for circle in bond.counted:
                self._held[circle] = self._held.get(circle, 0) + count
            self._avoiding.update(bond.avoids)
            self._ports += bond.ports


def agree(bonds: Sequence[Bond | None], pods: Mapping[int, int]) -> bool:
    """True when so many pods of each class can share one node."""
    if not any(bonds[j] for j in pods):
        return True
    household = Household(bonds)
    for j, count in sorted(pods.items()):
        if household.most(j, count) < count:
            return False
        household.took(j, count)
    return True
