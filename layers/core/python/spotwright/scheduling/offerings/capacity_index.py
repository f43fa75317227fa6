"""Offerings found by how much of each resource they have."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from operator import or_

from spotwright.model import resources
from spotwright.scheduling.offerings.pool_types import PoolInstanceType, Vector

type _Steps = tuple[list[int], list[int]]


class CapacityIndex:
    """Answers are sets of offerings, as bits."""

    def __init__(self, pool_types: Sequence[PoolInstanceType], dimensions: int, all_offerings: int) -> None:
        self._pool_types = pool_types
        self._all_offerings = all_offerings
        self._at_least = [self._index_free_capacity(dimension) for dimension in range(dimensions)]
        self._at_most: dict[str, _Steps] = {}

    def with_room(self, amounts: Iterable[int]) -> int:
        """Offerings with room for these amounts, given in the order of the dimensions."""
        offerings = self._all_offerings
        for (sizes, larger), amount in zip(self._at_least, amounts, strict=True):
            if amount > 0:
                place = bisect_left(sizes, amount)
                offerings &= larger[place] if place < len(larger) else 0
        return offerings

    def dominated(self, free_capacity: Vector) -> int:
        """Offerings with no more room than this in any dimension."""
        offerings = self._all_offerings
        for (sizes, larger), amount in zip(self._at_least, free_capacity, strict=True):
            place = bisect_left(sizes, amount + 1)
            if place < len(larger):
                offerings &= ~larger[place]
        return offerings

    def up_to(self, resource: str, amount: int) -> int:
        """Offerings of types that count no more than this of a resource."""
        if resource not in self._at_most:
            self._at_most[resource] = self._index_capacity(resource)
        sizes, smaller = self._at_most[resource]
        place = bisect_right(sizes, amount)
        return smaller[place - 1] if place else 0

    @cached_property
    def by_millicores(self) -> list[tuple[int, int]]:
        """(millicores, offerings of types with that many), ascending."""
        capacities = (pool_type.instance_type.capacity.get(resources.CPU, 0) for pool_type in self._pool_types)
        return sorted(self._by_size(capacities).items())

    def _index_free_capacity(self, dimension: int) -> _Steps:
        """Sizes of one resource, ascending, and for each the offerings with at least that much."""
        steps = self._by_size(pool_type.free_capacity[dimension] for pool_type in self._pool_types)
        sizes = sorted(steps)
        larger = list(accumulate((steps[size] for size in reversed(sizes)), or_))
        return sizes, larger[::-1]

    def _index_capacity(self, resource: str) -> _Steps:
        """What types count of a resource, ascending, and for each the offerings that count at most that much."""
        steps = self._by_size(pool_type.counted(resource) for pool_type in self._pool_types)
        sizes = sorted(steps)
        return sizes, list(accumulate((steps[size] for size in sizes), or_))

    def _by_size(self, sizes: Iterator[int]) -> dict[int, int]:
        """The offerings of each size; ``sizes``: one for each pool type."""
        steps: dict[int, int] = {}
        for pool_type, size in zip(self._pool_types, sizes, strict=True):
            steps[size] = steps.get(size, 0) | pool_type.offerings
        return steps
