"""Which offerings within limits the NodeClaim of a planned node lists: the pods have room whichever is taken."""

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Offering
from spotwright.model.requirements import Requirement
from spotwright.scheduling.capacity.limit_shares import max_instance_types
from spotwright.scheduling.capacity.planned_nodes import PlannedNode
from spotwright.scheduling.nodeclaims.requirements import nodeclaim_requests, nodeclaim_requirements
from spotwright.scheduling.offerings.pool_types import PoolInstanceType
from spotwright.scheduling.offerings.unintended_offerings import find_unintended_offerings, offering_label


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
    most = max_instance_types(index, template)
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
