"""Which conditions make a Node unhealthy, and how long each is tolerated before the Node is repaired.

Source: Karpenter's AWS provider v1.14, ``RepairPolicies`` in ``pkg/cloudprovider``: the kubelet's condition, and those
of the EKS node monitoring agent.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.model.kubernetes.node import Node


class RepairPolicy(msgspec.Struct, frozen=True):
    """A status of a condition that is tolerated for so long."""

    condition: str
    status: str
    toleration: timedelta


_MINUTE: Final = timedelta(minutes=1)
REPAIR_POLICIES: Final = (
    RepairPolicy("Ready", "False", 30 * _MINUTE),
    RepairPolicy("Ready", "Unknown", 30 * _MINUTE),
    RepairPolicy("AcceleratedHardwareReady", "False", 10 * _MINUTE),
    RepairPolicy("StorageReady", "False", 30 * _MINUTE),
    RepairPolicy("NetworkingReady", "False", 30 * _MINUTE),
    RepairPolicy("KernelReady", "False", 30 * _MINUTE),
    RepairPolicy("ContainerRuntimeReady", "False", 30 * _MINUTE),
)


# A kubelet states when its conditions began before the API server creates its Node, by a moment.
JOINING: Final = timedelta(minutes=1)


class UnhealthyCondition(msgspec.Struct, frozen=True):
    """A condition of a Node that a policy names. ``since``: when its status changed; ``toleration``: the policy's.

    ``source``: what the type is a name of. ``is_timely``: whether ``since`` proves how long it has been so.
    """

    type: str
    status: str
    since: datetime
    toleration: timedelta
    source: str = "condition"
    is_timely: bool = True

    @property
    def repair_at(self) -> datetime:
        """From then on the Node is to be repaired."""
        return self.since + self.toleration


def is_unhealthy(node: Node) -> bool:
    """Whether a policy names a condition of the Node, for however long it has been so."""
    statuses = {(condition.type, condition.status) for condition in node.conditions}
    return any((policy.condition, policy.status) in statuses for policy in REPAIR_POLICIES)


def unhealthy_condition(node: Node) -> UnhealthyCondition | None:
    """The condition that is tolerated no longer first; None = there is none.

    One that does not say since when proves nothing.
    """
    return min(_unhealthy_conditions(node), key=lambda found: (found.repair_at, found.type), default=None)


def _unhealthy_conditions(node: Node) -> Iterator[UnhealthyCondition]:
    for condition in node.conditions:
        for policy in REPAIR_POLICIES:
            since = condition.last_transition_time
            if (policy.condition, policy.status) == (condition.type, condition.status) and since is not None:
                yield UnhealthyCondition(
                    condition.type,
                    condition.status,
                    since,
                    policy.toleration,
                    is_timely=_has_right_clock(node, condition.type),
                )


def _has_right_clock(node: Node, condition: str) -> bool:
    """False: other conditions of the Node are older than the Node, so that a clock that is slow wrote them.

    One condition alone was dated back by who reports it, unless no other says since when it is so.
    """
    created = node.metadata.creation_timestamp
    dated = [(other.type, other.last_transition_time) for other in node.conditions if other.last_transition_time]
    times = [at for type, at in dated if type != condition] or [at for _, at in dated]
    return created is None or all(at >= created - JOINING for at in times)
