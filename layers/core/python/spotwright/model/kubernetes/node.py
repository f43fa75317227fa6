"""A Node of the cluster, with or without a NodeClaim."""

from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, is_condition_true
from spotwright.model.kubernetes.taints import Taint

# Taints that the control plane removes once the kubelet is Ready.
CONTROL_PLANE_TAINTS: Final = (labels.NOT_READY, labels.UNREACHABLE, labels.UNINITIALIZED)


class Node(msgspec.Struct, frozen=True):
    """A Node. ``allocatable`` and ``capacity``: cpu millicores, memory bytes, pods.

    ``read_error``: why the rest of it cannot be read, naming field and value; such a node takes no pods.
    """

    metadata: ObjectMeta
    provider_id: str = ""
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: dict[str, int] = {}
    capacity: dict[str, int] = {}
    conditions: tuple[Condition, ...] = ()
    read_error: str = msgspec.field(default="", name="unreadable")

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def is_ready(self) -> bool:
        return is_condition_true(self.conditions, "Ready")

    @property
    def is_open(self) -> bool:
        """Whether it is Ready, and the control plane has taken off the taints that it removes then."""
        return self.is_ready and not any(taint.key in CONTROL_PLANE_TAINTS for taint in self.taints)

    @property
    def is_registered(self) -> bool:
        return self.metadata.labels.get(labels.REGISTERED) == "true"

    @property
    def is_initialized(self) -> bool:
        return self.metadata.labels.get(labels.INITIALIZED) == "true"

    @property
    def nodepool(self) -> str:
        """The NodePool that owns it; "" = it has none."""
        return self.metadata.labels.get(labels.NODEPOOL, "")

    @property
    def zone(self) -> str:
        """The name of its availability zone; "" = not stated."""
        return self.metadata.labels.get(labels.ZONE, "")


class NodeWithVolumes(Node, frozen=True):
    """A Node as a step reads it that may drain it: with the names of the VolumeAttachments of its
    ``status.volumesAttached``. It equals no Node without them, and is no part of a snapshot.

    A volume is taken out of there when it begins to detach; its VolumeAttachment exists until it is detached.
    """

    volume_attachments: tuple[str, ...] = ()


def is_ephemeral(taint: Taint) -> bool:
    """Whether a taint is removed while a node starts, so that the node counts as without it."""
    return taint.key.startswith(labels.READINESS_PREFIX) or (taint.key, taint.effect) in {
        (labels.NOT_READY, "NoSchedule"),
        (labels.NOT_READY, "NoExecute"),
        (labels.UNREACHABLE, "NoSchedule"),
        (labels.UNINITIALIZED, "NoSchedule"),
        (labels.UNREGISTERED, "NoExecute"),
        (labels.HELD, "NoSchedule"),
    }


def instance_id(provider_id: str) -> str:
    """``i-…`` of ``aws:///zone/i-…``; "" when there is none. As in Karpenter, anything may stand before ``://``."""
    _, separator, path = provider_id.partition("://")
    last = path.rsplit("/", 1)[-1]
    return last if separator and last.startswith("i-") and last != "i-" else ""
