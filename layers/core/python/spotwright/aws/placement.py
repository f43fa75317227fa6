"""Where on EC2's hardware a launch lands: tenancy, placement group, partition; and whether it may run enclaves.

Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LaunchTemplatePlacementRequest.html.
"""

from collections.abc import Mapping
from typing import Any, Final

from spotwright.model import labels
from spotwright.model.karpenter.nodeclass import EC2NodeClass, PlacementGroup
from spotwright.model.requirements import Requirements

# Pods ask for Nitro Enclaves by this resource.
NITRO_SANDBOX: Final = "eks.amazonaws.com/nitro-sandbox"


def placement(node_class: EC2NodeClass, wanted: Requirements) -> dict[str, Any]:
    """The Placement of a template; dedicated hardware only where the default is not allowed."""
    found: dict[str, Any] = {"Tenancy": tenancy(wanted)}
    group = node_class.placement_group
    if group is None:
        return found
    found["GroupId"] = group.id
    number = partition(group, wanted)
    return found | ({"PartitionNumber": number} if number else {})


def scope(node_class: EC2NodeClass, wanted: Requirements) -> str:
    """What an answer of EC2 is true of: the placement group, or the one partition asked for; "" = no group."""
    group = node_class.placement_group
    number = partition(group, wanted) if group else 0
    return f"{group.id}/{number}" if group and number else group.id if group else ""


def tenancy(wanted: Requirements) -> str:
    """The first that is allowed: dedicated hardware costs more."""
    asked = wanted.get(labels.TENANCY)
    return next((one for one in labels.TENANCIES if asked.has(one)), labels.TENANCIES[0])


def partition(group: PlacementGroup, wanted: Requirements) -> int:
    """The partition that is asked for, the lowest of several; 0 = EC2 spreads evenly."""
    if labels.PLACEMENT_GROUP_PARTITION not in wanted:
        return 0
    asked = wanted.get(labels.PLACEMENT_GROUP_PARTITION)
    return next((int(name) for name in group.partition_names if asked.has(name)), 0)


def partition_label(known: Requirements, wanted: Requirements, number: int) -> dict[str, str]:
    """The partition's label of a node: "" = EC2 has not said yet, {} = it is in no partition.

    ``known``: the labels of its type; ``number``: what EC2 says, 0 = nothing yet.
    """
    key = labels.PLACEMENT_GROUP_PARTITION
    if number:
        return {key: str(number)}
    if not known.get(key).values or known.get(key).complement:
        return {}
    return {key: (wanted.get(key).sole_value if key in wanted else None) or ""}


def enclaves(requests: Mapping[str, int]) -> dict[str, Any]:
    """EnclaveOptions, stated only when a pod asks for enclaves."""
    return {"EnclaveOptions": {"Enabled": True}} if requests.get(NITRO_SANDBOX) else {}
