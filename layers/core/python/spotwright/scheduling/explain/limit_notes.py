"""What limits cost new nodes: spot nodes with few types to choose from, and minValues that are lowered."""

from collections.abc import Iterator, Sequence

from spotwright.model import labels, quantity, resources
from spotwright.model.plurals import counted
from spotwright.model.requirements import Requirement
from spotwright.scheduling.capacity.limit_shares import MIN_SPOT_INSTANCE_TYPES, share_limits
from spotwright.scheduling.capacity.planned_nodes import PlannedNode
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.placement.placement import Placement

type _Listed = Sequence[tuple[PlannedNode, int]]
"""Planned nodes of a NodePool, with the offerings that its limits leave to each."""


def write_limit_notes(placement: Placement) -> Iterator[str]:
    """A sentence for all nodes of a NodePool for which its limits leave too little to choose from."""
    for group in placement.weight_groups:
        yield from _of_weight_group(group, placement.planned_nodes_of(group))


def _of_weight_group(group: WeightGroup, planned_nodes: Sequence[PlannedNode]) -> Iterator[str]:
    if not any(group.initial_limits.by_template):
        return
    shares = share_limits(group, planned_nodes) or {}
    for number, template in enumerate(group.offering_index.templates):
        of_pool = [(node, shares[id(node)]) for node in planned_nodes if node.template_index == number]
        if not of_pool:
            continue
        names = [
            f"{name} {quantity.text(name, template.nodepool.limits[name])}"
            for name, left in sorted(group.initial_limits.by_template[number].items())
            if name != resources.NODES and _most_counted(of_pool, name) > left
        ]
        if names:
            limits = f"limit{'s' if len(names) > 1 else ''} {' and '.join(names)}"
            for sentence in (_few_spot_types(of_pool, limits), *_lowered_min_values(of_pool, limits)):
                if sentence:
                    yield f"NodePool {template.nodepool.name}: {sentence}"


def _most_counted(of_pool: _Listed, name: str) -> int:
    """What the nodes would count at most if they listed all types with room for their pods."""
    return sum(
        len(node.pods_by_node)
        * max(
            pool_type.counted(name)
            for pool_type in node.weight_group.offering_index.pool_types
            if pool_type.offerings & node.options.offerings
        )
        for node, _ in of_pool
    )


def _few_spot_types(of_pool: _Listed, limits: str) -> str:
    few, possible, node_count = list[int](), list[int](), 0
    for node, listed in of_pool:
        index = node.weight_group.offering_index
        spot = index.by_label.meeting(Requirement(labels.CAPACITY_TYPE, False, frozenset((labels.SPOT,))))
        if spot >> node.offering & 1:
            count, count_of_all = _count_types(node, listed & spot), _count_types(node, node.options.offerings & spot)
            if count < min(count_of_all, MIN_SPOT_INSTANCE_TYPES):
                few.append(count)
                possible.append(count_of_all)
                node_count += len(node.pods_by_node)
    if not few:
        return ""
    return (
        f"{limits} leave{'' if limits.startswith('limits') else 's'} {counted(node_count, 'new spot node')}"
        f" {_from_to(few)} of {_from_to(possible)} instance types to choose from;"
        f" {MIN_SPOT_INSTANCE_TYPES} or more make interruptions rarer"
    )


def _count_types(node: PlannedNode, offerings: int) -> int:
    pool_types = node.weight_group.offering_index.pool_types
    return len({pool_type.instance_type.name for pool_type in pool_types if pool_type.offerings & offerings})


def _lowered_min_values(of_pool: _Listed, limits: str) -> Iterator[str]:
    """A sentence for each of the NodePool's minValues that the nodes could keep but for its limits."""
    node = of_pool[0][0]
    by_label = node.weight_group.offering_index.by_label
    for requirement in node.weight_group.offering_index.templates[node.template_index].requirements:
        least, kept, node_count = requirement.min_values or 0, list[int](), 0
        for node, listed in of_pool:
            count = by_label.count_values(requirement.key, listed, at_most=least)
            if count < by_label.count_values(requirement.key, node.options.offerings, at_most=least):
                kept.append(count)
                node_count += len(node.pods_by_node)
        if kept:
            yield (
                f"within {limits}, minValues {least} of {requirement.key} is lowered to {_from_to(kept)} for"
                f" {counted(node_count, 'new node')}, as MIN_VALUES_POLICY=BestEffort allows"
            )


def _from_to(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least}" if least == most else f"{least} to {most}"
