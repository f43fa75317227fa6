"""A NodePool (karpenter.sh/v1): which nodes may be launched, how many, and when they may be disrupted."""

from enum import StrEnum

import msgspec

from spotwright.model import labels
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement


class NodeClassReference(msgspec.Struct, frozen=True):
    group: str
    kind: str
    name: str


class Budget(msgspec.Struct, frozen=True):
    """How many nodes may be disrupted at once. ``nodes``: a count or a percentage; empty ``reasons`` = all."""

    nodes: str = "10%"
    reasons: tuple[str, ...] = ()
    schedule: str = ""
    duration: str = ""


class RebalancePolicy(StrEnum):
    """What becomes of a node whose spot instance EC2 recommends to leave.

    ``ReplaceWhenBetter``: it is replaced where an offering with fewer notices costs about as much.
    """

    IGNORE = "Ignore"
    REPLACE_WHEN_BETTER = "ReplaceWhenBetter"
    REPLACE = "Replace"


class NodePool(msgspec.Struct, frozen=True):
    """A NodePool.

    ``expire_after_seconds`` and ``consolidate_after_seconds``: None = Never.
    ``termination_grace_period_seconds``: None = unset. ``replicas`` set = a static pool. ``limits``: cpu millicores …
    ``read_error``: why the rest of it cannot be read, naming field and value; no nodes are launched for such a pool.
    ``problems``: a sentence for each field that is unknown or not handled.
    ``explicitly_empty``: template lists and maps that the manifest states as empty (taints, startupTaints, labels,
    annotations), which Karpenter's hash distinguishes from absent ones.
    """

    metadata: ObjectMeta
    node_class_ref: NodeClassReference
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    requirements: tuple[NodeSelectorRequirement, ...] = ()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after_seconds: int | None = 720 * 3600
    termination_grace_period_seconds: int | None = msgspec.field(default=None, name="termination_grace_seconds")
    limits: dict[str, int] = {}
    weight: int = 0
    replicas: int | None = None
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    consolidate_after_seconds: int | None = 0
    budgets: tuple[Budget, ...] = (Budget(),)
    conditions: tuple[Condition, ...] = ()
    resources: dict[str, int] = {}
    node_count: int = msgspec.field(default=0, name="nodes")
    problems: tuple[str, ...] = ()
    read_error: str = msgspec.field(default="", name="unreadable")
    explicitly_empty: tuple[str, ...] = msgspec.field(default=(), name="stated_empty")

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def rebalance_policy(self) -> RebalancePolicy:
        """By its annotation; a value that is none of the policies replaces nothing."""
        stated = self.metadata.annotations.get(labels.REBALANCE_RECOMMENDATION, RebalancePolicy.REPLACE_WHEN_BETTER)
        return RebalancePolicy(stated) if stated in list(RebalancePolicy) else RebalancePolicy.IGNORE

    @property
    def is_managed(self) -> bool:
        """Whether its class is an EC2NodeClass, which group and kind default to; all other pools are left alone."""
        reference = self.node_class_ref
        is_ec2 = reference.kind in ("", "EC2NodeClass")
        return is_ec2 and reference.group in ("", "karpenter.k8s.aws")
