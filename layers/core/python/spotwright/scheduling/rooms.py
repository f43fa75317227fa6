"""Filling the nodes there are before any is made."""

from collections.abc import Sequence

from spotwright.model.requirements import Requirements
from spotwright.model.taints import Taint, untolerated
from spotwright.scheduling.classes import PodClass
from spotwright.scheduling.disks import Attached, Disks, attached, together
from spotwright.scheduling.hosts import Host
from spotwright.scheduling.market import Vector
from spotwright.scheduling.packing import Items, Lanes, Node, fill
from spotwright.scheduling.waiting import Waiting


class Room:
    """A node that exists or is in flight: what is free on it, and the pods it is given."""

    __slots__ = ("attached", "counted", "free", "given", "host", "members", "ports")

    def __init__(self, host: Host, names: Sequence[str], disks: Disks) -> None:
        self.host = host
        # An overdrawn node takes nothing, whatever else is free on it.
        overdrawn = any(amount < 0 for amount in host.free.values())
        self.free = tuple(0 if overdrawn else host.free.get(name, 0) for name in names)
        self.given: list[str] = []
        self.members: list[tuple[PodClass, int]] = []
        self.counted: dict[str, int] = {}
        self.ports = host.ports
        self.attached: Attached = attached(host.pods, disks)

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.host.taints

    def domain(self, key: str) -> str | None:
        return self.host.domain(key)

    def may_meet(self, requirements: Requirements) -> bool:
        return self.host.admits(requirements)

    def fits(self, size: Vector) -> bool:
        return all(free >= amount for free, amount in zip(self.free, size, strict=True))

    def seat(self, waiting: Waiting, disks: Disks) -> None:
        """Give the next pod of a class a place here."""
        self.free = tuple(free - size for free, size in zip(self.free, waiting.size, strict=True))
        self.given += waiting.take(1)
        self.members.append((waiting.cls, 1))
        self.ports += waiting.cls.host_ports
        self.attached = together(self.attached, disks.attachments(waiting.cls.pod))


def occupy(rooms: Sequence[Room], waiting: Sequence[Waiting]) -> int:
    """Give pods to nodes that can take them, in the order of the rooms; how many classes were looked at."""
    ours = [one for one in waiting if one.keys and one.demand is not None]
    if not ours or not rooms:
        return 0
    items = Items([one.size for one in ours])
    counts = [len(one.keys) for one in ours]
    least = [min(sizes) for sizes in zip(*(one.size for one in ours), strict=True)]
    welcome = Welcome(ours)
    units = 0
    for room in rooms:
        if all(free >= size for free, size in zip(room.free, least, strict=True)):
            units += _occupy(room, ours, items, counts, welcome.of(room.host))
    return units


def _occupy(room: Room, ours: Sequence[Waiting], items: Items, counts: list[int], welcome: Sequence[bool]) -> int:
    takes = {
        j
        for j, wanted in enumerate(counts)
        if wanted and welcome[j] and all(room.free[d] >= n for d, n in items.needs[j])
    }
    lanes = Lanes(items, room.free, takes)
    if not lanes:
        return len(ours)
    node = Node(room.free)
    units = fill(node, lanes, items, counts)
    for j, count in sorted(node.taken.items()):
        room.given += ours[j].take(count)
        counts[j] -= count
    room.free = tuple(node.free)
    return units


class Welcome:
    """Which classes a node's labels and taints let in; nodes that look alike are asked once."""

    def __init__(self, waiting: Sequence[Waiting]) -> None:
        self._demands = [one.demand for one in waiting]
        self._keys = sorted({key for one in self._demands if one for key in one.requirements.by_key})
        self._known: dict[object, list[bool]] = {}

    def of(self, host: Host) -> list[bool]:
        look = (host.taints, tuple(host.labels.get(key) for key in self._keys))
        known = self._known.get(look)
        if known is None:
            known = self._known[look] = [
                one is not None and not untolerated(host.taints, one.tolerations) and host.admits(one.requirements)
                for one in self._demands
            ]
        return known
