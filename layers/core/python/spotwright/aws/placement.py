"""Where on EC2's hardware a launch lands: tenancy, placement group, partition; and whether it may run enclaves.

Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LaunchTemplatePlacementRequest.html.
"""

from collections.abc import Mapping
from typing import Any, Final

from spotwright.model import labels
from spotwright.model.nodeclass import EC2NodeClass
from spotwright.model.requirements import Requirements

PARTITION: Final = "karpenter.k8s.aws/placement-group-partition"
# Pods ask for Nitro Enclaves by this resource.
NITRO_SANDBOX: Final = "eks.amazonaws.com/nitro-sandbox"


def placement(node_class: EC2NodeClass, wanted: Requirements) -> dict[str, Any]:
    """The Placement of a template; dedicated hardware only where the default is not allowed."""
    found: dict[str, Any] = {"Tenancy": tenancy(wanted)}
    group = node_class.placement_group
    if group is None:
        return found
    found["GroupId"] = group.id
    partition = _partition(group.partitions, wanted)
    return found | ({"PartitionNumber": partition} if partition else {})


def tenancy(wanted: Requirements) -> str:
    """The first that is allowed: dedicated hardware costs more."""
    asked = wanted.get(labels.TENANCY)
    return next((one for one in labels.TENANCIES if asked.has(one)), labels.TENANCIES[0])


def _partition(partitions: int, wanted: Requirements) -> int:
    """The partition that is asked for, the lowest of several; 0 = EC2 spreads evenly."""
    if PARTITION not in wanted:
        return 0
    asked = wanted.get(PARTITION)
    return next((number for number in range(1, partitions + 1) if asked.has(str(number))), 0)


def enclaves(requests: Mapping[str, int]) -> dict[str, Any]:
    """EnclaveOptions, stated only when a pod asks for enclaves."""
    return {"EnclaveOptions": {"Enabled": True}} if requests.get(NITRO_SANDBOX) else {}
