"""Cheaper types for planned nodes, as far as limits have room for what these count more.

Where a limit has a high price, nodes are planned for types that count little, and what is left of the limit in the end
is worth nothing: it is spent where that saves most.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spotwright.model import resources
from spotwright.scheduling.capacity.planned_nodes import PlannedNode
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.offerings.bit_sets import iterate_bits


class _Exchange(NamedTuple):
    """Another offering for some of equal nodes. ``value``: what it saves for its share of what a limit leaves."""

    value: float
    offering: int
    node_count: int


def plan_cheaper_types(group: WeightGroup, planned_nodes: Sequence[PlannedNode]) -> list[PlannedNode]:
    """The nodes of a group whose limits they keep, with the same pods, on offerings that together cost no more.

    NodePools with minValues are left as they are: their nodes list the cheaper types already. Limits follow.
    """
    nodes = list(planned_nodes)
    for number, left in enumerate(group.limits.by_template):
        if left and not group.offering_index.min_values[number]:
            of_pool = [node for node in nodes if node.template_index == number]
            for node in of_pool:
                nodes += _exchange(group, node, left)
    return [node for node in nodes if node.pods_by_node]


def _exchange(group: WeightGroup, node: PlannedNode, left: dict[str, int]) -> list[PlannedNode]:
    exchanged = []
    while node.pods_by_node and (best := _best_exchange(group, node, left)):
        exchanged.append(node.split_off(best.node_count, best.offering))
        group.limits.spend(group.offering_index, node.offering, -best.node_count)
        group.limits.spend(group.offering_index, best.offering, best.node_count)
    return exchanged


def _best_exchange(group: WeightGroup, node: PlannedNode, left: Mapping[str, int]) -> _Exchange | None:
    """The exchange of most value for as many of the nodes as the limits allow."""
    index = group.offering_index
    planned, price = index.pool_type_of[node.offering], index.prices[node.offering]
    names = [name for name in left if name != resources.NODES]
    best: _Exchange | None = None
    for offering in iterate_bits(node.options.offerings & ((1 << node.offering) - 1)):
        pool_type = index.pool_type_of[offering]
        more = {name: max(pool_type.counted(name) - planned.counted(name), 0) for name in names}
        node_count = min([len(node.pods_by_node), *(left[name] // amount for name, amount in more.items() if amount)])
        if node_count > 0:
            share = max((amount / left[name] for name, amount in more.items() if amount), default=0.0)
            exchange = _Exchange((price - index.prices[offering]) / max(share, 1e-9), offering, node_count)
            best = max(best, exchange) if best else exchange
    return best
