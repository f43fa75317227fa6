"""How much of a node's cpu and memory some pods can use: where one runs out first, what is left of the other is lost.

Of a node with 2 GiB a core, pods that ask for 4 GiB a core use at most half of the cores.
"""

from collections.abc import Sequence
from typing import Final

from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.packing.bins import CPU_DIMENSION, MEMORY_DIMENSION

# How many classes that were looked at are one unit of work.
_CLASSES_PER_UNIT: Final = 16


class UsableRoom:
    """``pods``: of each kind what a pod requests, the offerings open to it, and how many a node holds at most.

    ``work_units``: what all answers took.
    """

    def __init__(self, pods: Sequence[tuple[Vector, int, int]]) -> None:
        self._with_cpu = _densest_first(pods, CPU_DIMENSION, MEMORY_DIMENSION)
        self._with_memory = _densest_first(pods, MEMORY_DIMENSION, CPU_DIMENSION)
        self._scanned = 0

    @property
    def work_units(self) -> int:
        return self._scanned // _CLASSES_PER_UNIT

    def of(self, offering: int, free_capacity: Vector) -> Vector:
        """The free capacity without the cpu and the memory that no pods open to the offering can use together."""
        cpu, memory = free_capacity[CPU_DIMENSION], free_capacity[MEMORY_DIMENSION]
        usable_cpu = self._most(self._with_cpu, offering, cpu, memory)
        return (
            usable_cpu,
            self._most(self._with_memory, offering, memory, cpu),
            *free_capacity[MEMORY_DIMENSION + 1 :],
        )

    def _most(self, classes: Sequence[tuple[int, int, int, int]], offering: int, amount: int, other_amount: int) -> int:
        """The most that pods use of an amount within the amount of the other resource, the last pod divided."""
        used, left = 0, other_amount
        self._scanned += len(classes)
        for offerings, size, other_size, most in classes:
            if size <= amount and other_size <= other_amount and offerings >> offering & 1:
                most = min(most, amount // size, other_amount // other_size if other_size else most)
                if other_size * most > left:
                    used += -(-left * size // other_size)
                    break
                used += size * most
                left -= other_size * most
                if used >= amount:
                    break
        return min(used, amount)


def _densest_first(
    pods: Sequence[tuple[Vector, int, int]], dimension: int, other: int
) -> list[tuple[int, int, int, int]]:
    """Kinds of pods that ask for the resource, those first that ask for least of the other beside it: their offerings,
    what a pod asks for of both, and how many a node holds at most.
    """
    kinds = [(offerings, size[dimension], size[other], most) for size, offerings, most in pods if size[dimension]]
    return sorted(kinds, key=lambda kind: kind[2] / kind[1])
