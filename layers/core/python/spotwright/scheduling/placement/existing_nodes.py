"""Filling the nodes there are before any is made."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from spotwright.model.kubernetes.taints import Taint, untolerated_taints
from spotwright.model.kubernetes.volumes import UNLIMITED_VOLUMES, csi_driver
from spotwright.model.requirements import Requirements
from spotwright.scheduling.inputs.pod_classes import PodClass, PodRequirements
from spotwright.scheduling.inputs.state_nodes import StateNode
from spotwright.scheduling.inputs.volume_topology import (
    VolumesByDriver,
    VolumeTopology,
    attached_volumes,
    merge_volumes,
)
from spotwright.scheduling.offerings.offering_index import Vector, iterate_bits
from spotwright.scheduling.packing.bins import Bin, FillOrder, Items, fill_bin
from spotwright.scheduling.placement.pending_pods import PendingClass


class ExistingNode:
    """A node that exists or is in flight: what is free on it, and the pods it is given."""

    __slots__ = (
        "assigned_pods",
        "free_capacity",
        "host_ports",
        "pod_counts",
        "recorded_counts",
        "state_node",
        "volumes",
    )

    def __init__(self, host: StateNode, names: Sequence[str], disks: VolumeTopology) -> None:
        self.state_node = host
        # An overdrawn node takes nothing, whatever else is free on it.
        overdrawn = any(amount < 0 for amount in host.free_capacity.values())
        self.free_capacity = tuple(0 if overdrawn else _free(host, name) for name in names)
        self.assigned_pods: list[str] = []
        self.pod_counts: list[tuple[PodClass, int]] = []
        self.recorded_counts: dict[str, int] = {}
        self.host_ports = host.host_ports
        self.volumes: VolumesByDriver = attached_volumes(host.pods, disks)

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.state_node.taints

    def domain(self, key: str) -> str | None:
        return self.state_node.domain(key)

    def may_meet_requirements(self, requirements: Requirements) -> bool:
        return self.state_node.meets_requirements(requirements)

    def fits(self, size: Vector) -> bool:
        # A loop, since this is asked for every node and class.
        for free, amount in zip(self.free_capacity, size, strict=True):  # noqa: SIM110
            if free < amount:
                return False
        return True

    def add_pod(self, waiting: PendingClass, disks: VolumeTopology) -> None:
        """Give the next pod of a class a place here."""
        self.free_capacity = tuple(free - size for free, size in zip(self.free_capacity, waiting.size, strict=True))
        taken = waiting.take(1)
        self.assigned_pods += taken
        self.pod_counts.append((waiting.pod_class, 1))
        self.host_ports += waiting.pod_class.host_ports
        self.volumes = merge_volumes(self.volumes, disks.volumes(waiting.pod_class.pod, *taken))


def _free(host: StateNode, resource: str) -> int:
    """Room for volumes is not counted here but by claim, see ``Disks.full``."""
    return UNLIMITED_VOLUMES if csi_driver(resource) else host.free_capacity.get(resource, 0)


class FreeCapacityIndex:
    """Rooms by what is free on them: it only gets less, so no room that fits is left out."""

    def __init__(self, rooms: Sequence[ExistingNode]) -> None:
        self._rooms = rooms
        self._all = (1 << len(rooms)) - 1
        self._rank()

    def _rank(self) -> None:
        dimensions = len(self._rooms[0].free_capacity) if self._rooms else 0
        self._ladders = [_ladder([room.free_capacity[d] for room in self._rooms]) for d in range(dimensions)]
        self._missed = 0

    def nodes_with_room(self, size: Vector) -> Iterator[ExistingNode]:
        """Those that still hold one pod of this size, in the order of the rooms."""
        # Once as many were looked at for nothing as there are, another look at all of them pays.
        if self._missed > len(self._rooms):
            self._rank()
        mask = self._all
        for (steps, masks), amount in zip(self._ladders, size, strict=bool(self._rooms)):
            if amount > 0:
                place = bisect_left(steps, amount)
                mask &= masks[place] if place < len(masks) else 0
        for room in map(self._rooms.__getitem__, iterate_bits(mask)):
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


def fill_existing_nodes(rooms: Sequence[ExistingNode], waiting: Sequence[PendingClass]) -> int:
    """Give pods to nodes that can take them, in the order of the rooms; how many classes were looked at."""
    pending_classes = [
        pending_class
        for pending_class in waiting
        if pending_class.pod_keys and pending_class.pod_requirements is not None
    ]
    if not pending_classes or not rooms:
        return 0
    items = Items([pending_class.size for pending_class in pending_classes])
    counts = [len(pending_class.pod_keys) for pending_class in pending_classes]
    least = tuple([min(sizes) for sizes in zip(*items.sizes, strict=True)])
    asking = RequestIndex(items.sizes)
    welcome = NodeAdmission(pending_classes)
    units = 0
    for room in rooms:
        if room.fits(least):
            takes = asking.classes_that_fit(room.free_capacity) & welcome.admitted_classes(room.state_node)
            units += _occupy(room, pending_classes, items, counts, takes)
    return units


def _occupy(
    room: ExistingNode, pending_classes: Sequence[PendingClass], items: Items, counts: list[int], takes: int
) -> int:
    lanes = FillOrder(items, room.free_capacity, {j for j in iterate_bits(takes) if counts[j]})
    if not lanes:
        return len(pending_classes)
    node = Bin(room.free_capacity)
    units = fill_bin(node, lanes, items, counts)
    for j, count in sorted(node.counts.items()):
        room.assigned_pods += pending_classes[j].take(count)
        counts[j] -= count
    room.free_capacity = tuple(node.free_capacity)
    return units


def fill_existing_nodes_largest_first(rooms: Sequence[ExistingNode], waiting: Sequence[PendingClass]) -> int:
    """Give the largest pods to the first nodes that can take them, then smaller ones; how many pairs were looked at.

    A node's resources run out less evenly than with ``occupy``, but small pods do not keep a large one out.
    """
    pending_classes = [one for one in waiting if one.pod_keys and one.pod_requirements is not None]
    welcome = NodeAdmission(pending_classes)
    for j, pending_class in enumerate(pending_classes):
        for room in rooms:
            if (
                pending_class.pod_keys
                and room.fits(pending_class.size)
                and welcome.admitted_classes(room.state_node) >> j & 1
            ):
                most = min(
                    have // size for have, size in zip(room.free_capacity, pending_class.size, strict=True) if size
                )
                taken = pending_class.take(most)
                room.assigned_pods += taken
                room.free_capacity = tuple(
                    [
                        have - len(taken) * size
                        for have, size in zip(room.free_capacity, pending_class.size, strict=True)
                    ]
                )
    return len(pending_classes) * len(rooms)


class RequestIndex:
    """Classes by what one pod of them asks for."""

    def __init__(self, sizes: Sequence[Vector]) -> None:
        self._all = (1 << len(sizes)) - 1
        self._ladders = [_ladder(amounts) for amounts in zip(*sizes, strict=True)]

    def classes_that_fit(self, free: Vector) -> int:
        """Those of which one pod fits into this much, as bits."""
        mask = self._all
        for (steps, masks), amount in zip(self._ladders, free, strict=True):
            place = bisect_right(steps, amount)
            mask &= ~masks[place] if place < len(masks) else mask
        return mask


class NodeAdmission:
    """Which classes a node's labels and taints let in; nodes that look alike are asked once."""

    def __init__(self, waiting: Sequence[PendingClass]) -> None:
        self._demands = [pending_class.pod_requirements for pending_class in waiting]
        self._keys = sorted(
            {
                key
                for pod_requirements in self._demands
                if pod_requirements
                for key in pod_requirements.requirements.by_key
            }
        )
        self._known: dict[object, int] = {}

    def admitted_classes(self, host: StateNode) -> int:
        """The classes, as bits."""
        look = (host.taints, tuple([host.labels.get(key) for key in self._keys]))
        known = self._known.get(look)
        if known is None:
            known = self._known[look] = sum(
                1 << j
                for j, pod_requirements in enumerate(self._demands)
                if pod_requirements and _lets(host, pod_requirements)
            )
        return known


def _lets(host: StateNode, demand: PodRequirements) -> bool:
    return not untolerated_taints(host.taints, demand.tolerations) and host.meets_requirements(demand.requirements)
