"""Whether a launch may use an EC2NodeClass now."""

from typing import Final

import msgspec

from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.kubernetes.meta import find_condition

CLASS_NOT_RESOLVED: Final = "NodeClassReadinessUnknown"


class NodeClassReadiness(msgspec.Struct, frozen=True):
    """Whether a launch may use the class: ``reason`` "" = yes. ``final``: the NodeClaim is deleted, not retried."""

    reason: str = ""
    message: str = ""
    final: bool = False


def nodeclass_readiness(nodeclass: EC2NodeClass | None, name: str) -> NodeClassReadiness:
    """As in Karpenter's AWS provider, a missing class counts as insufficient capacity, a class that is not ready ends
    the NodeClaim, and the launch waits for a class that was not resolved yet."""
    if nodeclass is None or nodeclass.metadata.deletion_timestamp is not None:
        return NodeClassReadiness(
            "InsufficientCapacity", f"EC2NodeClass {name} does not exist or is being deleted", True
        )
    ready = find_condition(nodeclass.conditions, "Ready")
    if ready is None or ready.status == "Unknown" or ready.observed_generation < nodeclass.metadata.generation:
        return NodeClassReadiness(CLASS_NOT_RESOLVED, f"EC2NodeClass {name} has not been resolved yet")
    if ready.status != "True":
        return NodeClassReadiness("NodeClassNotReady", f"EC2NodeClass {name} is not ready: {ready.message}", True)
    return NodeClassReadiness()
