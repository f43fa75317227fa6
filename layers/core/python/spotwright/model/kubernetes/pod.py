"""Pods, DaemonSets and PodDisruptionBudgets: the fields that decisions about nodes depend on."""

from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.kubernetes.meta import ObjectMeta, ZonedTime
from spotwright.model.kubernetes.pod_constraints import (
    HostPort,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from spotwright.model.kubernetes.taints import Toleration
from spotwright.model.requirements import NodeSelectorRequirement

# The entry of ``unsupported_fields`` for device claims (dynamic resource allocation).
RESOURCE_CLAIMS: Final = "spec.resourceClaims"
# The annotations that are looked at. Others may be large, and differ from pod to pod.
USED_ANNOTATIONS: Final = frozenset({labels.DO_NOT_DISRUPT, labels.FOLLOW, labels.POD_DELETION_COST})


class Pod(msgspec.Struct, frozen=True):
    """A pod. Of its annotations, those in USED_ANNOTATIONS.

    ``requests``: as kube-scheduler counts them, with ``pods: 1`` (cpu millicores, memory bytes).
    ``node_affinity``: required terms of which one must hold, each a conjunction; () = none.
    ``unsupported_fields``: field paths of constraints that the planner does not handle; such a pod is unschedulable for
    that reason.
    ``preferred_node_affinity``: (weight, conjunction). ``pod_affinity`` and ``pod_anti_affinity``: required pod
    affinity and anti-affinity; ``preferred_pod_affinity`` and ``preferred_pod_anti_affinity``: the preferred ones.
    ``volume_claim_names``: names in the pod's namespace.
    ``read_error``: why the pod cannot be read (a malformed quantity …), naming field and value; "" = fine.
    """

    metadata: ObjectMeta
    requests: dict[str, int] = {}
    node_selector: dict[str, str] = {}
    node_affinity: tuple[tuple[NodeSelectorRequirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0
    priority_class_name: str = msgspec.field(default="", name="priority_class")
    scheduler_name: str = msgspec.field(default="default-scheduler", name="scheduler")
    node_name: str = ""
    nominated_node_name: str = msgspec.field(default="", name="nominated_node")
    phase: str = "Pending"
    unschedulable: bool = False
    start_time: ZonedTime | None = msgspec.field(default=None, name="started")
    termination_grace_period_seconds: int = msgspec.field(default=30, name="termination_grace_seconds")
    is_ready: bool = msgspec.field(default=False, name="ready")
    unsupported_fields: tuple[str, ...] = msgspec.field(default=(), name="unhandled")
    read_error: str = msgspec.field(default="", name="problem")
    preferred_node_affinity: tuple[tuple[int, tuple[NodeSelectorRequirement, ...]], ...] = msgspec.field(
        default=(), name="node_preferences"
    )
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = msgspec.field(default=(), name="spreads")
    pod_affinity: tuple[PodAffinityTerm, ...] = msgspec.field(default=(), name="near")
    pod_anti_affinity: tuple[PodAffinityTerm, ...] = msgspec.field(default=(), name="apart")
    preferred_pod_affinity: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(default=(), name="rather_near")
    preferred_pod_anti_affinity: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(default=(), name="rather_apart")
    host_ports: tuple[HostPort, ...] = ()
    volume_claim_names: tuple[str, ...] = msgspec.field(default=(), name="volume_claims")

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def key(self) -> str:
        return self.metadata.key

    @property
    def is_terminal(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_active(self) -> bool:
        """Neither finished nor being deleted."""
        return not self.is_terminal and self.metadata.deletion_timestamp is None

    def is_owned_by(self, kind: str) -> bool:
        return any(owner.kind == kind for owner in self.metadata.owner_references)

    @property
    def is_mirror(self) -> bool:
        """Whether it is the mirror of a static pod, which its Node owns."""
        return self.is_owned_by("Node")


class DaemonSet(msgspec.Struct, frozen=True):
    """A DaemonSet and a pod as it would make it for a new node. ``template.metadata`` names the DaemonSet."""

    metadata: ObjectMeta
    template: Pod


class PodDisruptionBudget(msgspec.Struct, frozen=True):
    """A budget: ``selector`` None selects nothing, () everything in the namespace.

    ``read_error``: why the rest of it cannot be read; then it allows no eviction in its namespace.
    """

    metadata: ObjectMeta
    selector: tuple[NodeSelectorRequirement, ...] | None
    disruptions_allowed: int = 0
    min_available: str | int | None = None
    max_unavailable: str | int | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"
    read_error: str = msgspec.field(default="", name="unreadable")
