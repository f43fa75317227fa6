"""Filling one node so that its resources run out together.

Classes stand in two queues, largest first: those that request more of the node's cpu than of its memory, and those
that request more of its memory. The next pods always come from the queue of the resource of which the larger share is
free. (A vector bin packing rule of the "permutation pack" kind: Leinberger, Karypis and Kumar, "Multi-capacity bin
packing", 1999.)
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress
from typing import Protocol

from spotwright.scheduling.offerings.pool_types import Vector

CPU_DIMENSION, MEMORY_DIMENSION, PODS_DIMENSION = 0, 1, 2
"""Indices of the dimensions that every problem has; scarce resources such as devices follow."""


class Items:
    """The classes of one packing problem, by number. ``needs[j]``: (dimension, amount) pairs of one pod.

    ``cpu``, ``memory``: the request of one pod of each class; ``cpu_rank``, ``memory_rank``: the ranks of the classes
    in descending order of it; ``scarce``: classes that request devices, largest first.
    """

    __slots__ = ("cpu", "cpu_rank", "memory", "memory_rank", "needs", "scarce", "sizes")

    def __init__(self, sizes: Sequence[Vector]) -> None:
        self.sizes = sizes
        self.needs = [tuple([(d, amount) for d, amount in enumerate(size) if amount > 0]) for size in sizes]
        self.cpu = [size[CPU_DIMENSION] for size in sizes]
        self.memory = [size[MEMORY_DIMENSION] for size in sizes]
        self.cpu_rank = _ranks(zip(self.cpu, self.memory, strict=True))
        self.memory_rank = _ranks(zip(self.memory, self.cpu, strict=True))
        self.scarce = sorted(
            (j for j, size in enumerate(sizes) if any(size[PODS_DIMENSION + 1 :])),
            key=lambda j: (tuple(-amount for amount in sizes[j][PODS_DIMENSION + 1 :]), -sizes[j][CPU_DIMENSION], j),
        )


def _ranks(sizes: Iterable[tuple[int, int]]) -> list[int]:
    """The rank of each size in descending order; of equal sizes the first ranks first."""
    ordered = sorted((-first, -second, j) for j, (first, second) in enumerate(sizes))
    ranks = [0] * len(ordered)
    for rank, (_, _, j) in enumerate(ordered):
        ranks[j] = rank
    return ranks


class FillQueue:
    """Classes whose pods shift the node's balance towards one resource, largest first.

    ``sizes``: the pod's request for that resource, negated; ``balance_shifts``: by how much one pod shifts the balance;
    ``other_requests``: the pod's request for the other resource; ``least_other_requests``: the least of them from this
    class on.
    """

    __slots__ = ("balance_shifts", "classes", "least_other_requests", "other_requests", "sizes")

    def __init__(
        self, classes: list[int], balance_shifts: list[float], sizes: list[int], other_requests: list[int]
    ) -> None:
        self.classes = classes
        self.balance_shifts = balance_shifts
        self.sizes = sizes
        self.other_requests = other_requests
        self.least_other_requests = list(accumulate(reversed(other_requests), min))[::-1]

    def without_empty_classes(self, counts: Sequence[int]) -> "FillQueue":
        """The queue without the classes that have no pod left."""
        remaining = [counts[j] for j in self.classes]
        if all(remaining):
            return self
        return FillQueue(
            list(compress(self.classes, remaining)),
            list(compress(self.balance_shifts, remaining)),
            list(compress(self.sizes, remaining)),
            list(compress(self.other_requests, remaining)),
        )


class FillOrder:
    """The classes that a node of one offering may take, in the order in which it takes them.

    ``first``: classes before both queues, because they request devices or a host may hold few of their pods.
    """

    __slots__ = ("cpu", "first", "memory", "per_cpu", "per_memory")

    def __init__(self, items: Items, capacity: Vector, classes: set[int], urgent: Sequence[int] = ()) -> None:
        """``classes``: those of which the node may take at least one pod; ``urgent``: classes to take first."""
        self.per_cpu = per_cpu = 1.0 / max(capacity[CPU_DIMENSION], 1)
        self.per_memory = per_memory = 1.0 / max(capacity[MEMORY_DIMENSION], 1)
        self.first = [j for j in dict.fromkeys((*items.scarce, *urgent)) if j in classes]
        cores, memories = items.cpu, items.memory
        shifts = {j: cores[j] * per_cpu - memories[j] * per_memory for j in classes.difference(self.first)}
        cpu = sorted((j for j, shift in shifts.items() if shift >= 0), key=items.cpu_rank.__getitem__)
        memory = sorted((j for j, shift in shifts.items() if shift < 0), key=items.memory_rank.__getitem__)
        self.cpu = FillQueue(cpu, [shifts[j] for j in cpu], [-cores[j] for j in cpu], [memories[j] for j in cpu])
        self.memory = FillQueue(
            memory, [-shifts[j] for j in memory], [-memories[j] for j in memory], [cores[j] for j in memory]
        )

    def drop_empty_classes(self, counts: Sequence[int]) -> None:
        """Leave out the classes that have no pod left."""
        self.cpu = self.cpu.without_empty_classes(counts)
        self.memory = self.memory.without_empty_classes(counts)

    def __bool__(self) -> bool:
        return bool(self.first or self.cpu.classes or self.memory.classes)


class BinConstraints(Protocol):
    """Which pods may share one node. Every node has its own."""

    def max_count(self, j: int, wanted: int) -> int:
        """How many more pods of a class the node may take, up to ``wanted``."""
        ...

    def add(self, j: int, count: int) -> None:
        """The node took that many pods of a class."""
        ...


class Bin:
    """A node while it is filled: its free capacity, and how many pods of each class it took."""

    __slots__ = ("constraints", "counts", "free_capacity")

    def __init__(self, free_capacity: Iterable[int], constraints: BinConstraints | None = None) -> None:
        self.free_capacity = list(free_capacity)
        self.counts: dict[int, int] = {}
        self.constraints = constraints

    def add(self, j: int, needs: Iterable[tuple[int, int]], wanted: int) -> int:
        """Put up to ``wanted`` pods of a class on the node; returns how many fit."""
        free = self.free_capacity
        for dimension, amount in needs:
            possible = free[dimension] // amount
            if possible < wanted:
                wanted = possible
        if self.constraints is not None and wanted > 0:
            wanted = self.constraints.max_count(j, wanted)
        if wanted <= 0:
            return 0
        for dimension, amount in needs:
            free[dimension] -= wanted * amount
        self.counts[j] = self.counts.get(j, 0) + wanted
        if self.constraints is not None:
            self.constraints.add(j, wanted)
        return wanted


def fill_bin(node: Bin, order: FillOrder, items: Items, counts: Sequence[int]) -> int:
    """Fill a node from the pods that are left; returns how many classes it tried."""
    for j in order.first:
        if counts[j]:
            node.add(j, items.needs[j], counts[j])
    return len(order.first) + _fill_from_queues(node, order, items.needs, counts)


def _fill_from_queues(
    node: Bin, order: FillOrder, needs: Sequence[Sequence[tuple[int, int]]], counts: Sequence[int]
) -> int:
    """The inner loop of every plan: one long function, because function calls would cost more than its work."""
    free, on_node, add = node.free_capacity, node.counts, node.add
    per_cpu, per_memory = order.per_cpu, order.per_memory
    cpu, memory = order.cpu, order.memory
    cpu_end, memory_end = len(cpu.classes), len(memory.classes)
    at_cpu = at_memory = tried = 0
    while free[PODS_DIMENSION] > 0:
        balance = free[CPU_DIMENSION] * per_cpu - free[MEMORY_DIMENSION] * per_memory
        if at_cpu < cpu_end and (balance >= 0 or at_memory >= memory_end):
            queue, at, dimension, may_alternate = cpu, at_cpu, CPU_DIMENSION, at_memory < memory_end and balance >= 0
        elif at_memory < memory_end:
            queue, at, dimension, may_alternate = memory, at_memory, MEMORY_DIMENSION, at_cpu < cpu_end
        else:
            break
        tried += 1
        j = queue.classes[at]
        left = counts[j] - on_node[j] if j in on_node else counts[j]
        if left > 0:
            if may_alternate and (shift := queue.balance_shifts[at]) > 0:
                # As many pods as turn the balance: then the other queue is next.
                turn = int(abs(balance) / shift) + 1
                if turn < left:
                    if add(j, needs[j], turn) == turn:
                        continue
                    left = 0
            if left:
                add(j, needs[j], left)
        at += 1
        sizes = queue.sizes
        if at < len(sizes) and sizes[at] + free[dimension] < 0:
            at = bisect_left(sizes, -free[dimension], at)
        # Where no later class fits by the other resource, the queue ends.
        if dimension == CPU_DIMENSION:
            at_cpu = at if at < cpu_end and cpu.least_other_requests[at] <= free[MEMORY_DIMENSION] else cpu_end
        else:
            fits = at < memory_end and memory.least_other_requests[at] <= free[CPU_DIMENSION]
            at_memory = at if fits else memory_end
    return tried
