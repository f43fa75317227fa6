"""What a planned node counts against the limits of its NodePool.

A launch may take any of the types that a NodeClaim lists, so a node counts what the largest of them has. A NodePool
without minValues may list the planned type alone, and a node counts that type's capacity. With minValues it must list
more: a node counts the least with which enough different types, all with at least the planned type's room, are listed.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from spotwright.model import resources
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.pool_types import PoolInstanceType


def count_min_values(index: OfferingIndex) -> None:
    """Set what the types of NodePools with limits and minValues count. Changes the pool types of the index."""
    for number, template in enumerate(index.templates):
        limits = {name: limit for name, limit in template.nodepool.limits.items() if name != resources.NODES}
        if limits and index.min_values[number]:
            types = [pool_type for pool_type in index.pool_types if pool_type.template_index == number]
            counted = _Counting(index, types, limits)
            for pool_type, capacity in [(pool_type, counted.least(pool_type)) for pool_type in types]:
                pool_type.counted_capacity = capacity


class _Counting:
    """The types of one NodePool, those first that take the smallest share of a limit."""

    def __init__(self, index: OfferingIndex, types: Sequence[PoolInstanceType], limits: Mapping[str, int]) -> None:
        self._index = index
        self._limits = limits
        self._types = sorted(types, key=lambda pool_type: self._share(pool_type.instance_type.capacity))
        self._shares = [self._share(pool_type.instance_type.capacity) for pool_type in self._types]
        self._most = resources.maximum(pool_type.instance_type.capacity for pool_type in types)

    def _share(self, capacity: Mapping[str, int]) -> float:
        """The largest share of any limit."""
        return max(capacity.get(name, 0) / max(limit, 1) for name, limit in self._limits.items())

    def least(self, pool_type: PoolInstanceType) -> Mapping[str, int]:
        """What must be counted to list enough types with this type's room; the most of all types where none would do.

        Types with as much room have at least as much capacity, so smaller types are not looked at.
        """
        index = self._index
        with_room = index.by_capacity.with_room(pool_type.free_capacity)
        listed, counted = pool_type.offerings, dict(pool_type.instance_type.capacity)
        if index.keep_min_values(listed):
            return counted
        room = dict(zip(index.dimensions, pool_type.free_capacity, strict=True))
        for candidate in self._types[bisect_left(self._shares, self._share(room)) :]:
            if candidate.offerings & with_room:
                listed |= candidate.offerings
                counted = resources.maximum((counted, candidate.instance_type.capacity))
                if index.keep_min_values(listed):
                    return counted
        return self._most
