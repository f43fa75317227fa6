"""Which nodes have room for a pod, and which pods fit on a node, without a look at every node and every pod."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from spotwright.scheduling.capacity.existing_nodes import ExistingNode
from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.offerings.pool_types import Vector


class FreeCapacityIndex:
    """Existing nodes by their free capacity. It only shrinks, so no node that has room is left out."""

    def __init__(self, existing_nodes: Sequence[ExistingNode]) -> None:
        self._existing_nodes = existing_nodes
        self._all = (1 << len(existing_nodes)) - 1
        self._rank()

    def _rank(self) -> None:
        dimensions = len(self._existing_nodes[0].free_capacity) if self._existing_nodes else 0
        self._ladders = [
            _ladder([existing_node.free_capacity[d] for existing_node in self._existing_nodes])
            for d in range(dimensions)
        ]
        self._missed = 0

    def nodes_with_room(self, size: Vector) -> Iterator[ExistingNode]:
        """Nodes with room for one pod of this size, in their order."""
        # Rank again once as many nodes were looked at for nothing as there are: then that is the cheaper way.
        if self._missed > len(self._existing_nodes):
            self._rank()
        mask = self._all
        for (amounts, masks), amount in zip(self._ladders, size, strict=bool(self._existing_nodes)):
            if amount > 0:
                place = bisect_left(amounts, amount)
                mask &= masks[place] if place < len(masks) else 0
        for existing_node in map(self._existing_nodes.__getitem__, iterate_bits(mask)):
            if existing_node.fits(size):
                yield existing_node
            else:
                self._missed += 1


class RequestIndex:
    """Classes by what one pod of them requests."""

    def __init__(self, sizes: Sequence[Vector]) -> None:
        self._all = (1 << len(sizes)) - 1
        self._ladders = [_ladder(amounts) for amounts in zip(*sizes, strict=True)]

    def classes_that_fit(self, free_capacity: Vector) -> int:
        """The classes of which one pod fits, as bits."""
        mask = self._all
        for (amounts, masks), amount in zip(self._ladders, free_capacity, strict=True):
            place = bisect_right(amounts, amount)
            mask &= ~masks[place] if place < len(masks) else mask
        return mask


def _ladder(amounts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Amounts, ascending, and for each the places with at least that much, as bits."""
    places: dict[int, list[int]] = {}
    for place, amount in enumerate(amounts):
        places.setdefault(amount, []).append(place)
    ascending, masks, above = sorted(places), list[int](), 0
    for amount in reversed(ascending):
        above |= sum(1 << place for place in places[amount])
        masks.append(above)
    return ascending, masks[::-1]
