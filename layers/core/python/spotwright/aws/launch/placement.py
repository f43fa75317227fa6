"""Where on EC2's hardware a launch lands: tenancy, placement group, partition; and whether it may run enclaves.

Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LaunchTemplatePlacementRequest.html.
"""

from collections.abc import Mapping
from typing import Any, Final

from spotwright.model import labels
from spotwright.model.karpenter.nodeclass import EC2NodeClass, PlacementGroup
from spotwright.model.requirements import Requirements

# Pods ask for Nitro Enclaves by this resource.
NITRO_SANDBOX_RESOURCE: Final = "eks.amazonaws.com/nitro-sandbox"


def placement_fields(nodeclass: EC2NodeClass, requirements: Requirements) -> dict[str, Any]:
    """The Placement of a template; dedicated hardware only where the default is not allowed."""
    fields: dict[str, Any] = {"Tenancy": tenancy(requirements)}
    group = nodeclass.placement_group
    if group is None:
        return fields
    fields["GroupId"] = group.id
    number = partition_number(group, requirements)
    return fields | ({"PartitionNumber": number} if number else {})


def placement_scope(nodeclass: EC2NodeClass, requirements: Requirements) -> str:
    """Where an error of EC2 holds: the placement group, or its partition that is required; "" = no placement group."""
    group = nodeclass.placement_group
    number = partition_number(group, requirements) if group else 0
    return f"{group.id}/{number}" if group and number else group.id if group else ""


def tenancy(requirements: Requirements) -> str:
    """The first tenancy that the requirements allow, the default before dedicated hardware, which costs more."""
    requirement = requirements.get(labels.TENANCY)
    return next((name for name in labels.TENANCIES if requirement.has(name)), labels.TENANCIES[0])


def partition_number(group: PlacementGroup, requirements: Requirements) -> int:
    """The lowest partition that the requirements allow; 0 = they do not mention partitions, and EC2 spreads evenly."""
    if labels.PLACEMENT_GROUP_PARTITION not in requirements:
        return 0
    requirement = requirements.get(labels.PLACEMENT_GROUP_PARTITION)
    return next((int(name) for name in group.partition_names if requirement.has(name)), 0)


def partition_label(type_requirements: Requirements, requirements: Requirements, number: int) -> dict[str, str]:
    """The partition label of a node: "" = EC2 has not said the partition yet, {} = the node is in no partition.

    ``type_requirements``: the labels of its type; ``number``: the partition that EC2 names, 0 = not yet.
    """
    key = labels.PLACEMENT_GROUP_PARTITION
    if number:
        return {key: str(number)}
    if not type_requirements.get(key).values or type_requirements.get(key).complement:
        return {}
    return {key: (requirements.get(key).sole_value if key in requirements else None) or ""}


def enclave_options(requests: Mapping[str, int]) -> dict[str, Any]:
    """EnclaveOptions, only when a pod requests enclaves."""
    return {"EnclaveOptions": {"Enabled": True}} if requests.get(NITRO_SANDBOX_RESOURCE) else {}
