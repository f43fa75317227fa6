"""How much of a node's cpu and memory some pods can use: where one runs out first, what is left of the other is lost.

Of a node with 2 GiB a core, pods that ask for 4 GiB a core use at most half of the cores.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.packing.bins import CPU_DIMENSION, MEMORY_DIMENSION
from spotwright.scheduling.packing.problem import PackingProblem

# How many classes that were looked at are one unit of work.
_CLASSES_PER_UNIT: Final = 16


class UsableRoom:
    """``pods``: how many by class, of which a node holds some or all. ``work_units``: what all answers took."""

    def __init__(self, problem: PackingProblem, pods: Mapping[int, int]) -> None:
        self._offerings = problem.offerings
        self._with_cpu = _densest_first(problem, pods, CPU_DIMENSION, MEMORY_DIMENSION)
        self._with_memory = _densest_first(problem, pods, MEMORY_DIMENSION, CPU_DIMENSION)
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
        for j, size, other_size, most in classes:
            if size <= amount and other_size <= other_amount and self._offerings[j] >> offering & 1:
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
    problem: PackingProblem, pods: Mapping[int, int], dimension: int, other: int
) -> list[tuple[int, int, int, int]]:
    """Classes that ask for the resource, those first that ask for least of the other beside it: the class, what a pod
    asks for of both, and how many pods a host holds at most.
    """
    sizes = problem.items.sizes
    classes = []
    for j, count in pods.items():
        host_constraint = problem.host_constraints[j]
        cap = host_constraint.max_per_host if host_constraint is not None else 0
        if sizes[j][dimension] and count > 0:
            classes.append((j, sizes[j][dimension], sizes[j][other], min(cap, count) if cap else count))
    return sorted(classes, key=lambda entry: (entry[2] / entry[1], entry[0]))
