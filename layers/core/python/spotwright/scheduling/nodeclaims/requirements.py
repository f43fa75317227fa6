"""Requirements, labels and requests of the NodeClaim of a planned node."""

from collections.abc import Iterable, Sequence

import msgspec

from spotwright.model import labels, resources
from spotwright.model.kubernetes.volumes import csi_driver
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.capacity.planned_nodes import PlannedNode
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.pool_types import PoolInstanceType


def nodeclaim_requirements(
    planned_node: PlannedNode, pool_types: Sequence[PoolInstanceType], offerings: int
) -> Requirements:
    """The requirements of a NodeClaim that is to become any of these offerings. ``pool_types``: of the offerings."""
    index, template = planned_node.weight_group.offering_index, planned_node.template_index
    requirements = index.templates[template].requirements.intersection(planned_node.options.topology_requirements)
    of_pods = dict.fromkeys(
        requirement
        for pods in planned_node.pod_counts
        for requirement in pods.pod_requirements.requirements.by_key.values()
    )
    requirements = requirements.intersection(of_pods)
    names = frozenset(pool_type.instance_type.name for pool_type in pool_types)
    narrowed = [
        Requirement(labels.INSTANCE_TYPE, False, names),
        Requirement(labels.CAPACITY_TYPE, False, frozenset(label_values(index, labels.CAPACITY_TYPE, offerings))),
    ]
    # A type that has other resources in some zones: the claim names the zones where its pods have room.
    if names & index.split_types[template]:
        zones = label_values(index, labels.ZONE, offerings)
        if zones != label_values(index, labels.ZONE, index.offerings_of_template[template]):
            narrowed.append(Requirement(labels.ZONE, False, frozenset(zones)))
    if reservation := index.reservation_ids[planned_node.offering]:
        narrowed.append(Requirement(labels.RESERVATION_ID, False, frozenset((reservation,))))
    return requirements.intersection(narrowed)


def label_values(index: OfferingIndex, key: str, offerings: int) -> tuple[str, ...]:
    """The values of a label that these offerings state, sorted."""
    statements = index.by_label.statements(key)
    return tuple(
        sorted(value for value, stating in statements.items() if isinstance(value, str) and stating & offerings)
    )


def lower_min_values(index: OfferingIndex, offerings: int, requirements: Requirements) -> Requirements:
    """Requirements whose minValues these offerings keep. They are lowered only where the settings allow that."""
    lowered = {
        requirement.key: msgspec.structs.replace(
            requirement,
            min_values=index.by_label.count_values(requirement.key, offerings, at_most=requirement.min_values),
        )
        for requirement in requirements
        if requirement.min_values
    }
    return Requirements(requirements.by_key | lowered)


def user_labels(planned_node: PlannedNode, requirements: Requirements) -> dict[str, str]:
    """A value for every label of the user's own that must be there."""
    group = planned_node.weight_group
    well_known = group.offering_index.templates[planned_node.template_index].known_label_keys
    left = planned_node.options.label_bits & group.undetermined_labels.initial_bits(planned_node.offering)
    values = {}
    for requirement in requirements:
        label = group.undetermined_labels.get(requirement.key)
        may_be_absent = label.allows_absence(left) if label else requirement.allows_absence
        if requirement.key not in well_known and not may_be_absent:
            possible = label.first_value(left) if label else None
            values[requirement.key] = requirement.sole_value or possible or allowed_value(requirement)
    return values


def allowed_value(requirement: Requirement) -> str:
    """A value that the requirement allows: the first it lists, or the smallest number."""
    if not requirement.complement:
        return min(requirement.values)
    number = requirement.gte or 0
    while not requirement.has(str(number)):
        number += 1
    return str(number)


def nodeclaim_requests(planned_node: PlannedNode, pool_types: Iterable[PoolInstanceType]) -> dict[str, int]:
    """What the pods request, and the least that DaemonSets will on any of these types."""
    overheads = {id(pool_type.daemon_overhead): pool_type.daemon_overhead for pool_type in pool_types}
    names = {name for overhead in overheads.values() for name in overhead}
    least = {name: min(overhead.get(name, 0) for overhead in overheads.values()) for name in names}
    pods = dict(zip(planned_node.weight_group.offering_index.dimensions, planned_node.usage, strict=True))
    return {name: size for name, size in sorted(resources.add(pods, least).items()) if size and not csi_driver(name)}
