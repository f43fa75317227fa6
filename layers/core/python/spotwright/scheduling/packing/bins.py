"""Filling one node so that its resources run out together.

Classes stand in two lanes, those that ask for more of the node's cpu and those that ask for more of its memory,
largest first. The next pods always come from the lane of the resource with more left. (A vector bin packing rule of
the "permutation pack" kind: Leinberger, Karypis and Kumar, "Multi-capacity bin packing", 1999.)
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress
from typing import Protocol

from spotwright.scheduling.offerings.pool_types import Vector

CPU_DIMENSION, MEMORY_DIMENSION, PODS_DIMENSION = 0, 1, 2
"""Places of the dimensions that every problem has; scarce ones such as devices follow."""


class Items:
    """The classes of one packing problem, by number. ``needs[j]``: (dimension, amount) pairs of one pod.

    ``cpu``, ``memory``: what one pod of each class asks for; ``cpu_rank``, ``memory_rank``: the places of the classes
    when they stand largest first; ``scarce``: those that ask for devices, largest first.
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
    """The place of each in descending order; of equal ones the first comes first."""
    ordered = sorted((-one, -other, j) for j, (one, other) in enumerate(sizes))
    ranks = [0] * len(ordered)
    for rank, (_, _, j) in enumerate(ordered):
        ranks[j] = rank
    return ranks


class FillQueue:
    """Classes largest first. ``sizes``: of the resource they lean on, negated; ``leans``: how much further one pod
    tips the node towards it; ``other``: what each asks of the other resource; ``others``: the least that this class or
    a later one asks of it."""

    __slots__ = ("classes", "leans", "other", "others", "sizes")

    def __init__(self, classes: list[int], leans: list[float], sizes: list[int], other: list[int]) -> None:
        self.classes = classes
        self.leans = leans
        self.sizes = sizes
        self.other = other
        self.others = list(accumulate(reversed(other), min))[::-1]

    def among(self, counts: Sequence[int]) -> "FillQueue":
        """The same lane without the classes that have no pod left."""
        kept = [counts[j] for j in self.classes]
        if all(kept):
            return self
        return FillQueue(
            list(compress(self.classes, kept)),
            list(compress(self.leans, kept)),
            list(compress(self.sizes, kept)),
            list(compress(self.other, kept)),
        )


class FillOrder:
    """The classes one kind of node may take, in the order in which it takes them.

    ``scarce``: those that come before all others, because they ask for devices or a host holds few of them.
    """

    __slots__ = ("cpu", "memory", "per_cpu", "per_memory", "scarce")

    def __init__(self, items: Items, room: Vector, takes: set[int], first: Sequence[int] = ()) -> None:
        """``takes``: the classes of which at least one pod fits and may come; changed."""
        self.per_cpu = per_cpu = 1.0 / max(room[CPU_DIMENSION], 1)
        self.per_memory = per_memory = 1.0 / max(room[MEMORY_DIMENSION], 1)
        self.scarce = [j for j in dict.fromkeys((*items.scarce, *first)) if j in takes]
        takes.difference_update(self.scarce)
        cores, memories = items.cpu, items.memory
        tips = {j: cores[j] * per_cpu - memories[j] * per_memory for j in takes}
        cpu = sorted((j for j, lean in tips.items() if lean >= 0), key=items.cpu_rank.__getitem__)
        memory = sorted((j for j, lean in tips.items() if lean < 0), key=items.memory_rank.__getitem__)
        self.cpu = FillQueue(cpu, [tips[j] for j in cpu], [-cores[j] for j in cpu], [memories[j] for j in cpu])
        self.memory = FillQueue(
            memory, [-tips[j] for j in memory], [-memories[j] for j in memory], [cores[j] for j in memory]
        )

    def drop_empty_classes(self, counts: Sequence[int]) -> None:
        """Leave out the classes that have no pod left."""
        self.cpu = self.cpu.among(counts)
        self.memory = self.memory.among(counts)

    def __bool__(self) -> bool:
        return bool(self.scarce or self.cpu.classes or self.memory.classes)


class BinConstraints(Protocol):
    """What pods of one node owe each other. Made anew for every node."""

    def max_count(self, j: int, wanted: int) -> int:
        """How many more pods of a class the node may take, up to ``wanted``."""
        ...

    def add(self, j: int, count: int) -> None:
        """The node took that many pods of a class."""
        ...


class Bin:
    """A node while it is filled: what is left of it, and how many pods of each class it took."""

    __slots__ = ("constraints", "counts", "free_capacity")

    def __init__(self, room: Iterable[int], rules: BinConstraints | None = None) -> None:
        self.free_capacity = list(room)
        self.counts: dict[int, int] = {}
        self.constraints = rules

    def add(self, j: int, needs: Iterable[tuple[int, int]], wanted: int) -> int:
        """Put up to that many pods of a class on the node; how many went."""
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


def fill_bin(node: Bin, lanes: FillOrder, items: Items, counts: Sequence[int]) -> int:
    """Fill a node from the pods that are left; how many classes were looked at."""
    for j in lanes.scarce:
        if counts[j]:
            node.add(j, items.needs[j], counts[j])
    return len(lanes.scarce) + _balance(node, lanes, items.needs, counts)


def _balance(node: Bin, lanes: FillOrder, needs: Sequence[Sequence[tuple[int, int]]], counts: Sequence[int]) -> int:
    """The inner loop of every plan: one long function, because calls cost more than what it does."""
    free, taken, take = node.free_capacity, node.counts, node.add
    per_cpu, per_memory = lanes.per_cpu, lanes.per_memory
    cpu, memory = lanes.cpu, lanes.memory
    cpu_end, memory_end = len(cpu.classes), len(memory.classes)
    at_cpu = at_memory = looked = 0
    while free[PODS_DIMENSION] > 0:
        balance = free[CPU_DIMENSION] * per_cpu - free[MEMORY_DIMENSION] * per_memory
        if at_cpu < cpu_end and (balance >= 0 or at_memory >= memory_end):
            lane, place, leaning, contested = cpu, at_cpu, CPU_DIMENSION, at_memory < memory_end and balance >= 0
        elif at_memory < memory_end:
            lane, place, leaning, contested = memory, at_memory, MEMORY_DIMENSION, at_cpu < cpu_end
        else:
            break
        looked += 1
        j = lane.classes[place]
        left = counts[j] - taken[j] if j in taken else counts[j]
        if left > 0:
            if contested and (lean := lane.leans[place]) > 0:
                # No more of them than tip the balance: then it is the other lane's turn.
                turn = int(abs(balance) / lean) + 1
                if turn < left:
                    if take(j, needs[j], turn) == turn:
                        continue
                    left = 0
            if left:
                take(j, needs[j], left)
        place += 1
        sizes = lane.sizes
        if place < len(sizes) and sizes[place] + free[leaning] < 0:
            place = bisect_left(sizes, -free[leaning], place)
        # Where no later class fits by the other resource, the lane is at its end.
        if leaning == CPU_DIMENSION:
            at_cpu = place if place < cpu_end and cpu.others[place] <= free[MEMORY_DIMENSION] else cpu_end
        else:
            at_memory = place if place < memory_end and memory.others[place] <= free[CPU_DIMENSION] else memory_end
    return looked
