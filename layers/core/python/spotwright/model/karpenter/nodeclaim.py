"""A NodeClaim (karpenter.sh/v1): a node that is requested, launched or running."""

from collections.abc import Iterable

import msgspec

from spotwright.model import labels
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, ZonedTime, is_condition_true
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement


class NodeClaim(msgspec.Struct, frozen=True):
    """A NodeClaim. Quantities: cpu millicores, memory bytes. ``expire_after_seconds`` None = Never.

    ``read_error``: why the rest of it cannot be read, naming field and value; Spotwright leaves such a claim alone.
    """

    metadata: ObjectMeta
    node_class_ref: NodeClassReference
    requirements: tuple[NodeSelectorRequirement, ...] = ()
    requests: dict[str, int] = {}
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after_seconds: int | None = None
    termination_grace_period_seconds: int | None = msgspec.field(default=None, name="termination_grace_seconds")
    provider_id: str = ""
    node_name: str = ""
    image_id: str = ""
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    last_pod_event_time: ZonedTime | None = msgspec.field(default=None, name="last_pod_event")
    conditions: tuple[Condition, ...] = ()
    read_error: str = msgspec.field(default="", name="unreadable")

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def is_managed(self) -> bool:
        """Whether its class is an EC2NodeClass; Spotwright leaves all other claims alone."""
        return (self.node_class_ref.group, self.node_class_ref.kind) == ("karpenter.k8s.aws", "EC2NodeClass")

    @property
    def nodepool(self) -> str:
        return self.metadata.labels.get(labels.NODEPOOL, "")

    def is_condition_true(self, condition: str) -> bool:
        """Whether the status of the condition is True."""
        return is_condition_true(self.conditions, condition)


def nodes_of_claims(claims: Iterable[NodeClaim], nodes: Iterable[Node]) -> dict[str, tuple[Node, ...]]:
    """NodeClaim → the Nodes with its provider id, the one that it is registered with first; without those that have
    none.
    """
    by_provider_id = dict[str, list[Node]]()
    for node in nodes:
        if node.provider_id:
            by_provider_id.setdefault(node.provider_id, []).append(node)
    return {
        claim.name: tuple(
            sorted(by_provider_id[claim.provider_id], key=lambda node: (node.name != claim.node_name, node.name))
        )
        for claim in claims
        if claim.provider_id in by_provider_id
    }
