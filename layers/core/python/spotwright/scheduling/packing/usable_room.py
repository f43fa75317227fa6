"""How much of a node's cpu and memory some pods can use: where one runs out first, what is left of the other is lost.

Of a node with 2 GiB a core, pods that ask for 4 GiB a core use at most half of the cores.
"""

from collections.abc import Sequence
from typing import Final

from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.packing.bins import CPU_DIMENSION, MEMORY_DIMENSION

# How many classes that were looked at are one unit of work.
_CLASSES_PER_UNIT: Final = 16

type _Kind = tuple[int, int, int]
"""What a pod asks for of a resource and of the other, and how many such pods a node holds at most."""


class UsableRoom:
    """``pods``: of each kind what a pod requests, the offerings open to it, and how many a node holds at most.

    ``work_units``: what all answers took.
    """

    def __init__(self, pods: Sequence[tuple[Vector, frozenset[int], int]]) -> None:
        self._with_cpu = _densest_first(pods, CPU_DIMENSION, MEMORY_DIMENSION)
        self._with_memory = _densest_first(pods, MEMORY_DIMENSION, CPU_DIMENSION)
        # Kinds of pods by which of these sets an offering is in; and what is usable of what such offerings have.
        self._offering_sets = list(dict.fromkeys(offerings for _, offerings, _ in pods))
        self._kinds_in: dict[tuple[int, ...], tuple[list[_Kind], list[_Kind]]] = {}
        self._usable: dict[tuple[tuple[int, ...], int, int], tuple[int, int]] = {}
        self._scanned = 0

    @property
    def work_units(self) -> int:
        return self._scanned // _CLASSES_PER_UNIT

    def of(self, offering: int, free_capacity: Vector) -> Vector:
        """The free capacity without the cpu and the memory that no pods open to the offering can use together."""
        cpu, memory = free_capacity[CPU_DIMENSION], free_capacity[MEMORY_DIMENSION]
        self._scanned += len(self._with_cpu) + len(self._with_memory)
        sets = tuple([place for place, offerings in enumerate(self._offering_sets) if offering in offerings])
        key = sets, cpu, memory
        if key not in self._usable:
            with_cpu, with_memory = self._kinds_open_to(sets)
            self._usable[key] = _most(with_cpu, cpu, memory), _most(with_memory, memory, cpu)
        return (*self._usable[key], *free_capacity[MEMORY_DIMENSION + 1 :])

    def _kinds_open_to(self, sets: tuple[int, ...]) -> tuple[list[_Kind], list[_Kind]]:
        if sets not in self._kinds_in:
            open_to = {self._offering_sets[place] for place in sets}
            self._kinds_in[sets] = (
                [kind for offerings, kind in self._with_cpu if offerings in open_to],
                [kind for offerings, kind in self._with_memory if offerings in open_to],
            )
        return self._kinds_in[sets]


def _most(kinds: Sequence[_Kind], amount: int, other_amount: int) -> int:
    """The most that pods use of an amount within the amount of the other resource, the last pod divided."""
    used, left = 0, other_amount
    for size, other_size, most in kinds:
        if size <= amount and other_size <= other_amount:
            if size * most > amount:
                most = amount // size
            if other_size * most > other_amount:
                most = other_amount // other_size
            if other_size * most > left:
                used += -(-left * size // other_size)
                break
            used += size * most
            left -= other_size * most
            if used >= amount:
                break
    return min(used, amount)


def _densest_first(
    pods: Sequence[tuple[Vector, frozenset[int], int]], dimension: int, other: int
) -> list[tuple[frozenset[int], _Kind]]:
    """Kinds of pods that ask for the resource, those first that ask for least of the other beside it, each with its
    offerings.
    """
    kinds = [(offerings, (size[dimension], size[other], most)) for size, offerings, most in pods if size[dimension]]
    return sorted(kinds, key=lambda entry: entry[1][1] / entry[1][0])
