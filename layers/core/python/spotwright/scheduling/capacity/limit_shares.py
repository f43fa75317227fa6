"""Which types the launches of planned nodes may choose from, so that limits hold whatever they choose.

A node counts the largest of the types that its NodeClaim lists. What the planned types leave of the limits is shared
among the nodes, so that the node with the fewest alternatives has as many as possible: again and again the node with
the fewest gets as much more as it needs to list further types. Far from its limits a NodePool keeps all types.

Example: a limit leaves 24 cpu for three nodes that were planned for types of 4 cpu. The 12 cpu that are left let each
of them list types of up to 8 cpu as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from spotwright.model import labels, resources
from spotwright.model.requirements import Requirement
from spotwright.scheduling.capacity.planned_nodes import PlannedNode
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.pool_types import PoolInstanceType, Vector

# A launch sends at most 60 types to EC2 after its own filters; more only make claims and decisions long.
MAX_INSTANCE_TYPES: Final = 100
# Where a NodePool has minValues, as many as Karpenter keeps.
MAX_INSTANCE_TYPES_WITH_MIN_VALUES: Final = 600
# Spot nodes with fewer types than this come first. Karpenter replaces a spot node by another only with as many.
MIN_SPOT_INSTANCE_TYPES: Final = 15


def max_instance_types(index: OfferingIndex, template_index: int) -> int:
    """How many types a NodeClaim of a NodePool lists at most."""
    return MAX_INSTANCE_TYPES_WITH_MIN_VALUES if index.min_values[template_index] else MAX_INSTANCE_TYPES


def share_limits(group: WeightGroup, planned_nodes: Sequence[PlannedNode]) -> dict[int, int] | None:
    """The offerings that each of the planned nodes of a group may be launched with, by its id; None where even the
    fewest that minValues allow may exceed a limit.
    """
    offerings = {id(planned_node): planned_node.options.offerings for planned_node in planned_nodes}
    for number, left in enumerate(group.initial_limits.by_template):
        of_pool = [planned_node for planned_node in planned_nodes if planned_node.template_index == number]
        if of_pool and left:
            shared = _share(of_pool, left)
            if shared is None:
                return None
            offerings |= shared
    return offerings


def spend_limits(group: WeightGroup, planned_nodes: Iterable[PlannedNode]) -> None:
    """Count planned nodes against the limits of their group, each with the fewest types that it may list."""
    for planned_node in planned_nodes:
        group.limits.spend(group.offering_index, planned_node.offering, len(planned_node.pods_by_node))
        left = group.limits.by_template[planned_node.template_index]
        names = tuple(name for name in left if name != resources.NODES)
        if names and group.offering_index.min_values[planned_node.template_index]:
            share = _Share(planned_node, names, _count_types(group.offering_index, names))
            planned = share.counted_of(group.offering_index.pool_type_of[planned_node.offering])
            share.list_least()
            for name, size, counted in zip(names, planned, share.counted, strict=True):
                left[name] -= share.node_count * (counted - size)


def _share(planned_nodes: Sequence[PlannedNode], left: Mapping[str, int]) -> dict[int, int] | None:
    node_count = sum(len(planned_node.pods_by_node) for planned_node in planned_nodes)
    if node_count > left.get(resources.NODES, node_count):
        return None
    names = tuple(sorted(name for name in left if name != resources.NODES))
    index = planned_nodes[0].weight_group.offering_index
    counted_types = _count_types(index, names)
    shares = [_Share(planned_node, names, counted_types) for planned_node in planned_nodes]
    slack = [left[name] for name in names]
    for share in shares:
        share.list_all()
        slack = share.taken_from(slack)
    if min(slack, default=0) >= 0:
        return {id(share.planned_node): share.listed for share in shares}
    slack = [left[name] for name in names]
    for share in shares:
        share.list_least()
        slack = share.taken_from(slack)
    if min(slack, default=0) < 0:
        return None
    _raise_fewest(shares, slack)
    return {id(share.planned_node): share.listed for share in shares}


def _raise_fewest(shares: Sequence["_Share"], slack: list[int]) -> None:
    """List further types, each time for the nodes with the fewest, while the limits have slack."""
    waiting = [(share.rank(), place) for place, share in enumerate(shares)]
    heapify(waiting)
    while waiting:
        _, place = heappop(waiting)
        share = shares[place]
        more = share.next_step(slack)
        if more is not None:
            slack = [amount - share.node_count * size for amount, size in zip(slack, more, strict=True)]
            share.raise_by(more)
            if share.may_list_more:
                heappush(waiting, (share.rank(), place))


def _count_types(index: OfferingIndex, names: Sequence[str]) -> list[tuple[PoolInstanceType, Vector]]:
    """Every type, and what it counts of these resources."""
    return [(pool_type, _counted(pool_type, names)) for pool_type in index.pool_types]


def _counted(pool_type: PoolInstanceType, names: Sequence[str]) -> Vector:
    return tuple([pool_type.counted(name) for name in names])


class _Share:
    """Equal planned nodes, what each of them counts now, and the offerings within that.

    ``counted``: in the order of ``names``, the limited resources.
    """

    def __init__(
        self, planned_node: PlannedNode, names: Sequence[str], counted_types: Sequence[tuple[PoolInstanceType, Vector]]
    ) -> None:
        """``counted_types``: see ``_count_types``."""
        self.planned_node = planned_node
        self.node_count = len(planned_node.pods_by_node)
        self._index = planned_node.weight_group.offering_index
        self._template = self._index.templates[planned_node.template_index]
        self._most = max_instance_types(self._index, planned_node.template_index)
        self._options = planned_node.options.offerings
        self._names = names
        self._by_capacity: dict[tuple[int, ...], int] = {}
        self._offerings_by_name: dict[str, int] = {}
        for pool_type, capacity in counted_types:
            if offerings := pool_type.offerings & self._options:
                name = pool_type.instance_type.name
                self._by_capacity[capacity] = self._by_capacity.get(capacity, 0) | offerings
                self._offerings_by_name[name] = self._offerings_by_name.get(name, 0) | offerings
        spot = self._index.by_label.meeting(Requirement(labels.CAPACITY_TYPE, False, frozenset((labels.SPOT,))))
        self.is_spot = bool(spot >> planned_node.offering & 1)
        self._same_capacity_type = spot if self.is_spot else ~spot
        self.counted: tuple[int, ...] = ()
        self.listed = 0

    def counted_of(self, pool_type: PoolInstanceType) -> tuple[int, ...]:
        """What a type counts."""
        return _counted(pool_type, self._names)

    def taken_from(self, slack: Sequence[int]) -> list[int]:
        return [amount - self.node_count * size for amount, size in zip(slack, self.counted, strict=True)]

    def list_all(self) -> None:
        """List what a NodeClaim lists without limits: the cheapest types."""
        listed, names, left = 0, set[str](), self._options
        while left and len(names) < self._most:
            pool_type = self._index.pool_type_of[(left & -left).bit_length() - 1]
            names.add(pool_type.instance_type.name)
            listed |= pool_type.offerings & self._options
            left &= ~pool_type.offerings
        self._list_up_to(_largest(capacity for capacity, offerings in self._by_capacity.items() if offerings & listed))

    def list_least(self) -> None:
        """List types no larger than the planned type, and as few more as minValues need."""
        self._list_up_to(self.counted_of(self._index.pool_type_of[self.planned_node.offering]))
        enough = [amount * self.node_count for amount in _largest(self._by_capacity)]
        while not self._index.keep_min_values(self.listed) and (more := self.next_step(enough)):
            self.raise_by(more)

    def _list_up_to(self, counted: tuple[int, ...]) -> None:
        self.counted, self.listed = counted, 0
        for capacity, offerings in self._by_capacity.items():
            if all(size <= most for size, most in zip(capacity, counted, strict=True)):
                self.listed |= offerings
        same = self.listed & self._same_capacity_type
        self._type_count = sum(1 for offerings in self._offerings_by_name.values() if offerings & same)

    def next_step(self, slack: Sequence[int]) -> tuple[int, ...] | None:
        """By how much each of the nodes has to count more to list further types: the least share of the slack; None
        where the slack is too small.
        """
        best, best_share = None, 1.0
        for capacity, offerings in self._by_capacity.items():
            if offerings & ~self.listed:
                more = tuple([max(size - now, 0) for size, now in zip(capacity, self.counted, strict=True)])
                needed = [amount * self.node_count for amount in more]
                if all(amount <= left for amount, left in zip(needed, slack, strict=True)):
                    share = max(amount / left if left else 0.0 for amount, left in zip(needed, slack, strict=True))
                    if best is None or (share, more) < (best_share, best):
                        best, best_share = more, share
        return best

    def raise_by(self, more: Sequence[int]) -> None:
        self._list_up_to(tuple([now + amount for now, amount in zip(self.counted, more, strict=True)]))

    @property
    def may_list_more(self) -> bool:
        return self._type_count < self._most

    def rank(self) -> tuple[int, bool, int]:
        """Nodes of a smaller rank get more first: minValues that need not be kept but can be, then spot, then all."""
        missing = sum(
            max(requirement.min_values - self._count_values(requirement), 0)
            for requirement in self._template.requirements
            if requirement.min_values
        )
        few = self.is_spot and self._type_count < MIN_SPOT_INSTANCE_TYPES
        return -missing, not few, self._type_count

    def _count_values(self, requirement: Requirement) -> int:
        least = requirement.min_values or 0
        return self._index.by_label.count_values(requirement.key, self.listed, at_most=least)


def _largest(capacities: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple([max(amounts) for amounts in zip(*capacities, strict=True)])
