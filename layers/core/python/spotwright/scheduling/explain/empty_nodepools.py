"""Why a NodePool can launch nothing, whatever pods ask for."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType, Offering
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.explain.label_values import explain_unknown_values, known_values
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate, can_meet
from spotwright.scheduling.inputs.nodepools import as_written, field_path

# What EC2 says where the account may run no more, and of what.
_USED_UP: Final = {"MaxSpotInstanceCountExceeded": "spot vCPUs", "VcpuLimitExceeded": "on-demand vCPUs"}


def explain_empty_nodepools(weight_groups: Iterable[WeightGroup]) -> dict[str, str]:
    """NodePools without any offering, by name, and why."""
    return {
        template.nodepool.name: explain_empty_nodepool(template)
        for group in weight_groups
        for number, template in enumerate(group.offering_index.templates)
        if not group.offering_index.offerings_of_template[number]
    }


def explain_empty_nodepool(template: NodeClaimTemplate) -> str:
    """The requirement that left no instance type, the zone or capacity type without an offering, or its DaemonSets."""
    left: Sequence[InstanceType] = template.instance_types
    for requirement in template.requirements:
        stated = {instance_type.requirements.get(requirement.key) for instance_type in left}
        met = {label for label in stated if can_meet(label, requirement)}
        if not met:
            if unknown := explain_unknown_values(requirement, known_values(requirement.key, template.instance_types)):
                return f"{field_path(template.nodepool, requirement.key)}: {unknown}"
            values = {value for label in stated for value in label.values}
            has = f"; they have {list_some(values)}" if values else ""
            asked = as_written(template.nodepool, requirement)
            return f"the pool's requirements filtered out all available instance types: none has {asked}{has}"
        if len(met) < len(stated):
            left = [instance_type for instance_type in left if instance_type.requirements.get(requirement.key) in met]
    sold = {
        instance_type.name
        for instance_type in left
        if any(offering.available and template.allows(offering) for offering in instance_type.offerings)
    }
    if not sold:
        return _explain_unsold(template, left)
    return f"none of the {len(sold)} instance types that meet the pool's requirements has room for its DaemonSets"


def _explain_unsold(template: NodeClaimTemplate, types: Sequence[InstanceType]) -> str:
    """Which requirement on zone or capacity type no available offering meets."""
    offered = [offering for instance_type in types for offering in instance_type.offerings if offering.available]
    for key, values in (
        (labels.ZONE, {offering.zone for offering in offered}),
        (labels.CAPACITY_TYPE, {offering.capacity_type for offering in offered}),
    ):
        requirement = template.requirements.get(key)
        if offered and not any(requirement.has(value) for value in values):
            if unknown := explain_unknown_values(requirement, values):
                return f"{field_path(template.nodepool, key)}: {unknown}"
            offered_values = ", ".join(sorted(values))
            return (
                "the pool's requirements filtered out all available offerings: none has"
                f" {as_written(template.nodepool, requirement)}; known: {offered_values}"
            )
    return (
        f"none of the {len({instance_type.name for instance_type in types})} instance types that meet the pool's"
        f" requirements has an available offering{list_unavailable(types)}"
    )


def list_unavailable(types: Iterable[InstanceType]) -> str:
    """What EC2 answered lately for offerings that are left alone for a while, with the number of offerings."""
    return list_refusals(offering for instance_type in types for offering in instance_type.offerings)


def list_refusals(offerings: Iterable[Offering]) -> str:
    """The same of offerings; "" where EC2 refused none."""
    reasons = Counter(offering.unavailable_reason for offering in offerings if offering.unavailable_reason)
    counts = ", ".join(f"{reason} ({reasons[reason]})" for reason in sorted(reasons))
    quotas = " and ".join(_USED_UP[reason] for reason in sorted(reasons) if reason in _USED_UP)
    used_up = f"; the account's quota of {quotas} is used up: spotwright preflight names it" if quotas else ""
    return f"; EC2 said lately: {counts}{used_up}" if reasons else ""


def list_some(values: Iterable[str]) -> str:
    """The first values in order, and how many more there are; never only one more."""
    ordered = sorted(values)
    return ", ".join(ordered) if len(ordered) <= 6 else f"{', '.join(ordered[:5])} and {len(ordered) - 5} others"
