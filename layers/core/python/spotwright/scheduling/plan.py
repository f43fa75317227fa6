"""What the scheduler decides, as values."""

import msgspec

from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import InFlightNodeClaim


class AlternativeOffering(msgspec.Struct, frozen=True):
    """A shape that was weighed for a node: the cheapest of its kind and its price."""

    instance_type: str
    capacity_type: str
    zone: str
    price_picousd_per_hour: int


class NewNode(msgspec.Struct, frozen=True):
    """A node to make.

    ``pods``: keys ``namespace/name``, sorted. ``instance_types``: cheapest first, every one of them fits.
    ``requirements``: the NodeClaim's, with instance types and capacity types narrowed to what can be bought.
    ``labels``: template labels and those resolved from requirements. ``requests``: with daemonset overhead.
    ``price_picousd_per_hour``: the cheapest available offering. ``reason``: why this shape, one sentence or more.
    ``relaxed_preferences``: preferences of its pods that it does not meet, each as a sentence.
    ``price_overlay_applied``, ``capacity_overlay_applied``: a NodeOverlay changes what one of the types costs, or has.
    """

    nodepool: str = msgspec.field(name="node_pool")
    nodeclass: str = msgspec.field(name="node_class")
    pods: tuple[str, ...]
    instance_types: tuple[str, ...]
    requirements: tuple[NodeSelectorRequirement, ...]
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    startup_taints: tuple[Taint, ...]
    requests: dict[str, int]
    price_picousd_per_hour: int
    capacity_type: str
    zones: tuple[str, ...]
    reason: str = ""
    binding_resource: str = ""
    alternatives: tuple[AlternativeOffering, ...] = ()
    relaxed_preferences: tuple[str, ...] = msgspec.field(default=(), name="given_up")
    price_overlay_applied: bool = msgspec.field(default=False, name="price_overlaid")
    capacity_overlay_applied: bool = msgspec.field(default=False, name="capacity_overlaid")


class NodeAssignment(msgspec.Struct, frozen=True):
    """A Node, or a NodeClaim in flight, that takes pods."""

    name: str
    pods: tuple[str, ...]


class UnplacedPod(msgspec.Struct, frozen=True):
    """A pod without a place, and why: at least one sentence."""

    pod: str
    reasons: tuple[str, ...]


class BufferProvisioning(msgspec.Struct, frozen=True):
    """A CapacityBuffer: how many pods it keeps room for, and how that stands.

    ``reason``: of its condition Provisioning: FitsExistingCapacity, RequiresNewCapacity, NotReadyForProvisioning or
    BufferEmpty. ``message``: what keeps some of its pods from any node, or what the buffer says that means nothing.
    """

    namespace: str
    name: str
    pod_count: int = msgspec.field(name="pods")
    reason: str
    message: str = ""


class Plan(msgspec.Struct, frozen=True):
    """A complete answer: every candidate pod is in exactly one of the four.

    ``notes`` concern NodePools and classes (a pool without types, an unhandled field). ``nodepools_without_offerings``:
    NodePools whose demands leave nothing to buy, by name, and why. ``read_errors``: nodes (``nodes/name``) and claims
    (``nodeclaims/name``) that cannot be read, and why. ``work_units``: work done.
    ``lower_bound_picousd_per_hour``: no nodes of these NodePools hold the pods of the new nodes, in the domains they
    were given, for less; 0 where nothing is known. ``excess_nodeclaims``: NodeClaims that static NodePools have beyond
    their replicas.
    ``buffers``: every CapacityBuffer, by namespace and name; ``buffer_assignments``: nodes on which their pods find
    room. The nodes that are bought for them are among the new ones, with pods that nobody runs.
    """

    new_nodes: tuple[NewNode, ...] = ()
    existing_nodes: tuple[NodeAssignment, ...] = ()
    unschedulable_pods: tuple[UnplacedPod, ...] = msgspec.field(default=(), name="unschedulable")
    ignored_pods: tuple[UnplacedPod, ...] = msgspec.field(default=(), name="ignored")
    notes: tuple[str, ...] = ()
    work_units: int = msgspec.field(default=0, name="units")
    lower_bound_picousd_per_hour: int = msgspec.field(default=0, name="bound_picousd_per_hour")
    nodepools_without_offerings: dict[str, str] = msgspec.field(default_factory=dict, name="barren")
    read_errors: dict[str, str] = msgspec.field(default_factory=dict, name="unread")
    excess_nodeclaims: tuple[str, ...] = msgspec.field(default=(), name="surplus")
    buffers: tuple[BufferProvisioning, ...] = ()
    buffer_assignments: tuple[NodeAssignment, ...] = msgspec.field(default=(), name="buffered")

    @property
    def price_picousd_per_hour(self) -> int:
        return sum(node.price_picousd_per_hour for node in self.new_nodes)


def to_in_flight_nodeclaim(node: NewNode, claim: str) -> InFlightNodeClaim:
    """A decided node as capacity for the next plan."""
    return InFlightNodeClaim(
        nodeclaim=NodeClaim(
            metadata=ObjectMeta(claim, labels=dict(node.labels)),
            node_class_ref=NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", node.nodeclass),
            requirements=node.requirements,
            requests=dict(node.requests),
            taints=node.taints,
            startup_taints=node.startup_taints,
        ),
        instance_types=node.instance_types,
    )
