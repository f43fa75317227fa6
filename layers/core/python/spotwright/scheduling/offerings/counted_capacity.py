"""What a planned node counts against the limits of its NodePool, and how much room it then has.

A launch may take any of the types that a NodeClaim lists, so a node counts what the largest of them has. A NodePool
without minValues may list the planned type alone: a node counts that type's capacity. With minValues it must list more
types, and its pods must fit on each of them. So near limits a type of such a NodePool stands for a bundle: the type and
as many others of about its size as minValues need, with the least room, and counting the most, of any of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from spotwright.model import resources
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.pool_types import PoolInstanceType, PoolTypeKey, Vector

# A bundle has no types that take a smaller share of the limits than this part of its type's share.
_SMALLEST_PART: Final = 0.7


class Bundle(msgspec.Struct, frozen=True):
    """What a type has room for and counts together with others."""

    free_capacity: Vector
    counted_capacity: Mapping[str, int]


def build_bundles(index: OfferingIndex) -> dict[PoolTypeKey, Bundle]:
    """The bundles of the types of NodePools with limits and minValues; types that no bundle has room for are left
    without."""
    bundles: dict[PoolTypeKey, Bundle] = {}
    for number, template in enumerate(index.templates):
        limits = {name: limit for name, limit in template.nodepool.limits.items() if name != resources.NODES}
        if limits and index.min_values[number]:
            bundles |= _TypesOfPool(index, number, limits).bundles()
    return bundles


class _TypesOfPool:
    """The types of one NodePool, those first that take the smallest share of a limit."""

    def __init__(self, index: OfferingIndex, template_index: int, limits: Mapping[str, int]) -> None:
        self._limits = limits
        self._min_values = index.min_values[template_index]
        pool_types = [pool_type for pool_type in index.pool_types if pool_type.template_index == template_index]
        self._types = sorted(pool_types, key=lambda pool_type: (self._share(pool_type), pool_type.instance_type.name))
        self._shares = [self._share(pool_type) for pool_type in self._types]
        self._values = {
            key: [
                {value for value, stating in statements if isinstance(value, str) and stating & pool_type.offerings}
                for pool_type in self._types
            ]
            for key in self._min_values
            for statements in (list(index.by_label.statements(key).items()),)
        }

    def _share(self, pool_type: PoolInstanceType) -> float:
        """The largest share of any limit."""
        capacity = pool_type.instance_type.capacity
        return max(capacity.get(name, 0) / max(limit, 1) for name, limit in self._limits.items())

    def bundles(self) -> Iterator[tuple[PoolTypeKey, Bundle]]:
        for place, pool_type in enumerate(self._types):
            bundle = self._bundle(place)
            if bundle is not None:
                yield pool_type.key, bundle

    def _bundle(self, place: int) -> Bundle | None:
        """The type with others of at most its share of the limits; with larger ones where these are too few."""
        first = bisect_left(self._shares, self._shares[place] * _SMALLEST_PART)
        last = bisect_right(self._shares, self._shares[place])
        while True:
            chosen = self._choose(place, range(first, last))
            if chosen is not None:
                members = [self._types[member] for member in chosen]
                return Bundle(
                    tuple(map(min, zip(*(member.free_capacity for member in members), strict=True))),
                    resources.maximum(member.instance_type.capacity for member in members),
                )
            if last == len(self._types):
                return None
            last = bisect_right(self._shares, self._shares[last])

    def _choose(self, place: int, candidates: Sequence[int]) -> list[int] | None:
        """So many of the candidates, with most room for what the type has room for, that minValues hold; None where
        all of them are too few."""
        seen = {key: set(self._values[key][place]) for key in self._min_values}
        chosen = [place]
        if self._hold(seen):
            return chosen
        if not self._hold({key: set().union(*(self._values[key][one] for one in candidates)) for key in seen}):
            return None
        room = self._types[place].free_capacity
        for candidate in sorted(candidates, key=lambda candidate: self._rank(candidate, room)):
            if any(self._values[key][candidate] - values for key, values in seen.items()):
                chosen.append(candidate)
                for key, values in seen.items():
                    values |= self._values[key][candidate]
                if self._hold(seen):
                    return chosen
        return None

    def _hold(self, values: Mapping[str, set[str]]) -> bool:
        return all(len(values[key]) >= least for key, least in self._min_values.items())

    def _rank(self, candidate: int, room: Vector) -> tuple[float, float, int]:
        """Types with cpu and memory for as much as possible of the room first, then with slots for its pods."""
        free = self._types[candidate].free_capacity
        parts = [min(has / wanted, 1.0) if wanted else 1.0 for has, wanted in zip(free, room, strict=True)]
        return -min(parts[:2]), -min(parts), candidate
