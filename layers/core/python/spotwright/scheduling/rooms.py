"""Filling the nodes there are before any is made."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from spotwright.model.requirements import Requirements
from spotwright.model.taints import Taint, untolerated
from spotwright.model.volumes import ENDLESS, driver_of
from spotwright.scheduling.classes import Demand, PodClass
from spotwright.scheduling.disks import Attached, Disks, attached, together
from spotwright.scheduling.hosts import Host
from spotwright.scheduling.market import Vector, bits
from spotwright.scheduling.packing import Items, Lanes, Node, fill
from spotwright.scheduling.waiting import Waiting


class Room:
    """A node that exists or is in flight: what is free on it, and the pods it is given."""

    __slots__ = ("attached", "counted", "free", "given", "host", "members", "ports")

    def __init__(self, host: Host, names: Sequence[str], disks: Disks) -> None:
        self.host = host
        # An overdrawn node takes nothing, whatever else is free on it.
        overdrawn = any(amount < 0 for amount in host.free.values())
        self.free = tuple(0 if overdrawn else _free(host, name) for name in names)
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
        # A loop, since this is asked for every node and class.
        for free, amount in zip(self.free, size, strict=True):  # noqa: SIM110
            if free < amount:
                return False
        return True

    def seat(self, waiting: Waiting, disks: Disks) -> None:
        """Give the next pod of a class a place here."""
        self.free = tuple(free - size for free, size in zip(self.free, waiting.size, strict=True))
        taken = waiting.take(1)
        self.given += taken
        self.members.append((waiting.cls, 1))
        self.ports += waiting.cls.host_ports
        self.attached = together(self.attached, disks.attachments(waiting.cls.pod, *taken))


def _free(host: Host, resource: str) -> int:
    """Room for volumes is not counted here but by claim, see ``Disks.full``."""
    return ENDLESS if driver_of(resource) else host.free.get(resource, 0)


class Vacancies:
    """Rooms by what is free on them: it only gets less, so no room that fits is left out."""

    def __init__(self, rooms: Sequence[Room]) -> None:
        self._rooms = rooms
        self._all = (1 << len(rooms)) - 1
        self._rank()

    def _rank(self) -> None:
        dimensions = len(self._rooms[0].free) if self._rooms else 0
        self._ladders = [_ladder([room.free[d] for room in self._rooms]) for d in range(dimensions)]
        self._missed = 0

    def fitting(self, size: Vector) -> Iterator[Room]:
        """Those that still hold one pod of this size, in the order of the rooms."""
        # Once as many were looked at for nothing as there are, another look at all of them pays.
        if self._missed > len(self._rooms):
            self._rank()
        mask = self._all
        for (steps, masks), amount in zip(self._ladders, size, strict=bool(self._rooms)):
            if amount > 0:
                place = bisect_left(steps, amount)
                mask &= masks[place] if place < len(masks) else 0
        for room in map(self._rooms.__getitem__, bits(mask)):
            if room.fits(size):
                yield room
            else:
                self._missed += 1


def _ladder(amounts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Amounts, ascending, and for each the places with at least that much."""
    steps: dict[int, list[int]] = {}
    for place, amount in enumerate(amounts):
        steps.setdefault(amount, []).append(place)
    sizes, masks, above = sorted(steps), list[int](), 0
    for size in reversed(sizes):
        above |= sum(1 << place for place in steps[size])
        masks.append(above)
    return sizes, masks[::-1]


def occupy(rooms: Sequence[Room], waiting: Sequence[Waiting]) -> int:
    """Give pods to nodes that can take them, in the order of the rooms; how many classes were looked at."""
    ours = [one for one in waiting if one.keys and one.demand is not None]
    if not ours or not rooms:
        return 0
    items = Items([one.size for one in ours])
    counts = [len(one.keys) for one in ours]
    least = tuple([min(sizes) for sizes in zip(*items.sizes, strict=True)])
    asking = Asking(items.sizes)
    welcome = Welcome(ours)
    units = 0
    for room in rooms:
        if room.fits(least):
            takes = asking.within(room.free) & welcome.of(room.host)
            units += _occupy(room, ours, items, counts, takes)
    return units


def _occupy(room: Room, ours: Sequence[Waiting], items: Items, counts: list[int], takes: int) -> int:
    lanes = Lanes(items, room.free, {j for j in bits(takes) if counts[j]})
    if not lanes:
        return len(ours)
    node = Node(room.free)
    units = fill(node, lanes, items, counts)
    for j, count in sorted(node.taken.items()):
        room.given += ours[j].take(count)
        counts[j] -= count
    room.free = tuple(node.free)
    return units


def occupy_largest_first(rooms: Sequence[Room], waiting: Sequence[Waiting]) -> int:
    """Give the largest pods to the first nodes that can take them, then smaller ones; how many pairs were looked at.

    A node's resources run out less evenly than with ``occupy``, but small pods do not keep a large one out.
    """
    ours = [one for one in waiting if one.keys and one.demand is not None]
    welcome = Welcome(ours)
    for j, one in enumerate(ours):
        for room in rooms:
            if one.keys and room.fits(one.size) and welcome.of(room.host) >> j & 1:
                most = min(have // size for have, size in zip(room.free, one.size, strict=True) if size)
                taken = one.take(most)
                room.given += taken
                room.free = tuple([have - len(taken) * size for have, size in zip(room.free, one.size, strict=True)])
    return len(ours) * len(rooms)


class Asking:
    """Classes by what one pod of them asks for."""

    def __init__(self, sizes: Sequence[Vector]) -> None:
        self._all = (1 << len(sizes)) - 1
        self._ladders = [_ladder(amounts) for amounts in zip(*sizes, strict=True)]

    def within(self, free: Vector) -> int:
        """Those of which one pod fits into this much, as bits."""
        mask = self._all
        for (steps, masks), amount in zip(self._ladders, free, strict=True):
            place = bisect_right(steps, amount)
            mask &= ~masks[place] if place < len(masks) else mask
        return mask


class Welcome:
    """Which classes a node's labels and taints let in; nodes that look alike are asked once."""

    def __init__(self, waiting: Sequence[Waiting]) -> None:
        self._demands = [one.demand for one in waiting]
        self._keys = sorted({key for one in self._demands if one for key in one.requirements.by_key})
        self._known: dict[object, int] = {}

    def of(self, host: Host) -> int:
        """The classes, as bits."""
        look = (host.taints, tuple([host.labels.get(key) for key in self._keys]))
        known = self._known.get(look)
        if known is None:
            known = self._known[look] = sum(1 << j for j, one in enumerate(self._demands) if one and _lets(host, one))
        return known


def _lets(host: Host, demand: Demand) -> bool:
    return not untolerated(host.taints, demand.tolerations) and host.admits(demand.requirements)
