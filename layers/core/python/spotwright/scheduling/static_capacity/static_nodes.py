"""A node of a static NodePool: the types it may become, and its price."""

from collections.abc import Sequence

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType, Offering
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.capacity.limit_shares import MAX_INSTANCE_TYPES, MAX_INSTANCE_TYPES_WITH_MIN_VALUES
from spotwright.scheduling.explain.node_choice import format_price
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.nodeclaims.requirements import allowed_value
from spotwright.scheduling.plan import NewNode


def build_static_node(template: NodeClaimTemplate) -> NewNode | str:
    """A node of a static NodePool; or why it can have none."""
    pool, cheapest_offerings = template.nodepool, _cheapest_offerings(template)
    if not cheapest_offerings:
        return "no instance type that its requirements allow can be bought"
    has_min_values = any(requirement.min_values for requirement in template.requirements)
    most = MAX_INSTANCE_TYPES_WITH_MIN_VALUES if has_min_values else MAX_INSTANCE_TYPES
    names = tuple(dict.fromkeys(instance_type.name for instance_type, _ in cheapest_offerings))[:most]
    kept = [instance_type for instance_type, _ in cheapest_offerings if instance_type.name in names]
    requirements = _requirements(template, kept)
    if isinstance(requirements, str):
        return requirements
    cheapest = cheapest_offerings[0][1]
    zones = {offering.zone for instance_type in kept for offering in _offerings(template, instance_type)}
    return NewNode(
        nodepool=pool.name,
        nodeclass=pool.node_class_ref.name,
        pods=(),
        instance_types=names,
        requirements=requirements.node_selector_requirements(),
        labels=template.labels | _user_labels(template),
        taints=pool.taints,
        startup_taints=pool.startup_taints,
        requests={},
        price_picousd_per_hour=cheapest.price_picousd_per_hour,
        capacity_type=cheapest.capacity_type,
        zones=tuple(sorted(zones)),
        reason=(
            f"{kept[0].name} {cheapest.capacity_type} at {format_price(cheapest.price_picousd_per_hour)}"
            f" is the cheapest that its requirements allow"
        ),
        price_overlay_applied=any(instance_type.price_overlay_applied for instance_type in kept),
        capacity_overlay_applied=any(instance_type.capacity_overlay_applied for instance_type in kept),
    )


def _cheapest_offerings(template: NodeClaimTemplate) -> list[tuple[InstanceType, Offering]]:
    """Types that can be bought, each with its cheapest offering, cheapest first."""
    by_type = (
        (instance_type, _offerings(template, instance_type)) for instance_type in template.compatible_instance_types()
    )
    cheapest = [
        (instance_type, min(offerings, key=lambda offering: (offering.weighed_price, offering.zone)))
        for instance_type, offerings in by_type
        if offerings
    ]
    return sorted(cheapest, key=lambda pair: (pair[1].weighed_price, pair[0].name))


def _offerings(template: NodeClaimTemplate, instance_type: InstanceType) -> list[Offering]:
    return [offering for offering in instance_type.offerings if offering.available and template.allows(offering)]


def _requirements(template: NodeClaimTemplate, types: Sequence[InstanceType]) -> Requirements | str:
    """The NodeClaim's requirements; or which minValues cannot be kept. Settings may allow to lower them."""
    names = frozenset(instance_type.name for instance_type in types)
    requirements = template.requirements.intersection((Requirement(labels.INSTANCE_TYPE, False, names),))
    lowered = {}
    for requirement in requirements:
        if requirement.min_values:
            count = _count_values(requirement, types)
            if count < template.min_values.get(requirement.key, 0):
                return f"minValues: {requirement.min_values} of {requirement.key} cannot be met: there are {count}"
            lowered[requirement.key] = msgspec.structs.replace(
                requirement, min_values=min(requirement.min_values, count)
            )
    return Requirements(requirements.by_key | lowered)


def _count_values(requirement: Requirement, types: Sequence[InstanceType]) -> int:
    """How many values of a label that the requirement allows the types have between them."""
    stated = (value for instance_type in types for value in instance_type.requirements.get(requirement.key).values)
    return len({value for value in stated if requirement.has(value)})


def _user_labels(template: NodeClaimTemplate) -> dict[str, str]:
    """A value for every label of the user's own that must be there."""
    return {
        requirement.key: requirement.sole_value or allowed_value(requirement)
        for requirement in template.requirements
        if requirement.key not in template.known_label_keys and not requirement.allows_absence
    }
