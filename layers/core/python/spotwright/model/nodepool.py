"""A NodePool (karpenter.sh/v1): which nodes may be made, how many, and when they may be disrupted."""

import msgspec

from spotwright.model.objects import Condition, Metadata
from spotwright.model.requirements import Selector
from spotwright.model.taints import Taint


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


class NodePool(msgspec.Struct, frozen=True):
    """A NodePool.

    ``expire_after_seconds`` and ``consolidate_after_seconds``: None = Never.
    ``termination_grace_seconds``: None = unset. ``replicas`` set = a static pool. ``limits``: cpu millicores …
    ``unreadable``: why the rest of it cannot be read, naming field and value; such a pool makes no nodes.
    ``problems``: fields that are set but mean nothing to us (unknown, or not handled), each with a sentence.
    ``stated_empty``: template lists and maps that are written out empty (taints, startupTaints, labels, annotations),
    which Karpenter's hash tells from absent ones.
    """

    metadata: Metadata
    node_class_ref: NodeClassReference
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    requirements: tuple[Selector, ...] = ()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after_seconds: int | None = 720 * 3600
    termination_grace_seconds: int | None = None
    limits: dict[str, int] = {}
    weight: int = 0
    replicas: int | None = None
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    consolidate_after_seconds: int | None = 0
    budgets: tuple[Budget, ...] = (Budget(),)
    conditions: tuple[Condition, ...] = ()
    resources: dict[str, int] = {}
    nodes: int = 0
    problems: tuple[str, ...] = ()
    unreadable: str = ""
    stated_empty: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.metadata.name
