"""Which offerings of a planned node a launch may take: limits hold and the pods have room whichever it takes."""

from collections.abc import Iterable, Sequence
from typing import Final

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Offering
from spotwright.model.requirements import Requirement
from spotwright.scheduling.capacity.planned_nodes import PlannedNode
from spotwright.scheduling.nodeclaims.requirements import nodeclaim_requests, nodeclaim_requirements
from spotwright.scheduling.offerings.pool_types import PoolInstanceType
from spotwright.scheduling.offerings.unintended_offerings import find_unintended_offerings, offering_label
from spotwright.scheduling.packing.problem import RemainingLimits

# A launch sends at most 60 types to EC2 after its own filters; more only make claims and decisions long.
MAX_INSTANCE_TYPES: Final = 100
# Where a NodePool has minValues, as many as Karpenter keeps.
MAX_INSTANCE_TYPES_WITH_MIN_VALUES: Final = 600


def offerings_within_limits(planned_nodes: Sequence[PlannedNode], limits: RemainingLimits) -> dict[int, int]:
    """The offerings of each planned node, by its id, with which the limits hold whatever is launched.

    ``limits``: what they left before any of these nodes, per template of their weight group. Far from its limits a
    NodePool keeps all offerings; near them, a node keeps types that count no more than the type it was planned for.
    """
    offerings = {id(planned_node): planned_node.options.offerings for planned_node in planned_nodes}
    for number, left in enumerate(limits.by_template):
        of_pool = [planned_node for planned_node in planned_nodes if planned_node.template_index == number]
        if of_pool and left and _may_exceed(of_pool, left):
            for planned_node in of_pool:
                offerings[id(planned_node)] &= _no_larger(planned_node, left)
    return offerings


def _may_exceed(planned_nodes: Sequence[PlannedNode], left: dict[str, int]) -> bool:
    """Whether the largest types that these nodes could become count more than a limit leaves."""
    nodes = {resources.NODES: sum(len(planned_node.pods_by_node) for planned_node in planned_nodes)}
    largest = resources.add(
        *(
            resources.scale(_largest(planned_node, left), len(planned_node.pods_by_node))
            for planned_node in planned_nodes
        ),
        nodes,
    )
    return any(largest.get(name, 0) > amount for name, amount in left.items())


def _largest(planned_node: PlannedNode, limited: Iterable[str]) -> dict[str, int]:
    capacities = [
        pool_type.instance_type.capacity
        for pool_type in planned_node.weight_group.offering_index.pool_types
        if pool_type.offerings & planned_node.options.offerings
    ]
    return {name: max(capacity.get(name, 0) for capacity in capacities) for name in limited if name != resources.NODES}


def _no_larger(planned_node: PlannedNode, limited: Iterable[str]) -> int:
    """Offerings of types with no more of any limited resource than the type the node was planned for."""
    index = planned_node.weight_group.offering_index
    planned = index.pool_type_of[planned_node.offering].instance_type.capacity
    offerings = 0
    for pool_type in index.pool_types:
        capacity = pool_type.instance_type.capacity
        if all(capacity.get(name, 0) <= planned.get(name, 0) for name in limited):
            offerings |= pool_type.offerings
    return offerings


def without_unintended_offerings(planned_node: PlannedNode, offerings: int) -> int:
    """Of these offerings so few that a launch can take no offering but these; minValues come first.

    The cheapest offering stays. Where its own type has unintended offerings, no type is launched in their zones, or
    under their capacity types.
    """
    index = planned_node.weight_group.offering_index
    if not index.split_types[planned_node.template_index]:
        return offerings
    kept, cheapest = offerings, (offerings & -offerings).bit_length() - 1
    own_type, own = index.pool_type_of[cheapest].instance_type.name, index.offerings[cheapest]
    unintended = _unintended(planned_node, kept)

    def same_label(key: str) -> bool:
        own_label = offering_label(own, key)
        return any(offering_label(offering, key) == own_label for offering in unintended.get(own_type, ()))

    for key in sorted((labels.ZONE, labels.CAPACITY_TYPE), key=same_label):
        away = {offering_label(offering, key) for offering in unintended.get(own_type, ())} - {offering_label(own, key)}
        if away:
            kept &= index.by_label.meeting(Requirement(key, True, frozenset(away)))
            unintended = _unintended(planned_node, kept)
    for pool_type in index.pool_types:
        if pool_type.instance_type.name in unintended and pool_type.instance_type.name != own_type:
            kept &= ~pool_type.offerings
    return index.keep_min_values(kept) or offerings


def _unintended(planned_node: PlannedNode, offerings: int) -> dict[str, list[Offering]]:
    index = planned_node.weight_group.offering_index
    pool_types = [pool_type for pool_type in index.pool_types if pool_type.offerings & offerings]
    return find_unintended_offerings(
        index,
        planned_node.template_index,
        offerings,
        nodeclaim_requirements(planned_node, pool_types, offerings),
        nodeclaim_requests(planned_node, pool_types),
    )


def cheapest_types(planned_node: PlannedNode, offerings: int) -> tuple[list[PoolInstanceType], int]:
    """The cheapest types, with all that is left of each, and their offerings."""
    index, template = planned_node.weight_group.offering_index, planned_node.template_index
    most = MAX_INSTANCE_TYPES_WITH_MIN_VALUES if index.min_values[template] else MAX_INSTANCE_TYPES
    pool_types, names, left = list[PoolInstanceType](), set[str](), offerings
    while left and len(names) < most:
        pool_type = index.pool_type_of[(left & -left).bit_length() - 1]
        left &= ~pool_type.offerings
        names.add(pool_type.instance_type.name)
        pool_types.append(pool_type)
    # A type that has other resources in some offerings is kept whole.
    if split := names & index.split_types[template]:
        pool_types += [
            pool_type
            for pool_type in index.pool_types
            if pool_type.offerings & left and pool_type.instance_type.name in split
        ]
    kept = 0
    for pool_type in pool_types:
        kept |= pool_type.offerings
    return pool_types, offerings & kept
