"""A NodeClaim (karpenter.sh/v1): one node that was promised."""

from datetime import datetime

import msgspec

from spotwright.model import labels
from spotwright.model.nodepool import NodeClassReference
from spotwright.model.objects import Condition, Metadata, is_true
from spotwright.model.requirements import Selector
from spotwright.model.taints import Taint


class NodeClaim(msgspec.Struct, frozen=True):
    """A NodeClaim. Quantities: cpu millicores, memory bytes. ``expire_after_seconds`` None = Never.

    ``unreadable``: why the rest of it cannot be read, naming field and value; nothing is done about such a claim, and
    its class is not stated.
    """

    metadata: Metadata
    node_class_ref: NodeClassReference
    requirements: tuple[Selector, ...] = ()
    requests: dict[str, int] = {}
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after_seconds: int | None = None
    termination_grace_seconds: int | None = None
    provider_id: str = ""
    node_name: str = ""
    image_id: str = ""
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    last_pod_event: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    unreadable: str = ""

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def managed(self) -> bool:
        """True when it is of a class we launch; every other claim is left alone."""
        return (self.node_class_ref.group, self.node_class_ref.kind) == ("karpenter.k8s.aws", "EC2NodeClass")

    @property
    def nodepool(self) -> str:
        return self.metadata.labels.get(labels.NODEPOOL, "")

    def has(self, condition: str) -> bool:
        """True when that condition is True."""
        return is_true(self.conditions, condition)
