"""What the planner decides, as values."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

import msgspec

from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import InFlightNodeClaim


class AlternativeOffering(msgspec.Struct, frozen=True):
    """The next best instance type for a node, or the best under another capacity type, with its cheapest offering."""

    instance_type: str
    capacity_type: str
    zone: str
    price_picousd_per_hour: int


class ResourceUsage(msgspec.Struct, frozen=True):
    """What the pods of a node ask for of a resource, of what DaemonSets leave on the type that was chosen.

    In the units of ``model.resources``.
    """

    resource: str
    requested: int
    available: int

    @property
    def share(self) -> float:
        return self.requested / self.available if self.available else 1.0


class NewNode(msgspec.Struct, frozen=True):
    """A node to make.

    ``pods``: keys ``namespace/name``, sorted. ``instance_types``: cheapest first; all of them hold the pods.
    ``requirements``: the NodeClaim's, with instance types and capacity types narrowed to what can be bought.
    ``labels``: of the template, and resolved from requirements. ``requests``: of pods and DaemonSets.
    ``price_picousd_per_hour``: of the cheapest available offering. ``reason``: why this offering, in sentences.
    ``relaxed_preferences``: preferences of its pods that it does not meet, a sentence for each.
    ``price_overlay_applied``, ``capacity_overlay_applied``: a NodeOverlay changes what some type costs, or has.
    ``usage``: of the cheapest type, the resource that is used most first; empty where no pod is planned for the node.
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
    usage: tuple[ResourceUsage, ...] = ()


class NodeAssignment(msgspec.Struct, frozen=True):
    """A Node, or a NodeClaim in flight, that takes pods."""

    name: str
    pods: tuple[str, ...]


class Cause(msgspec.Struct, frozen=True):
    """What a reason is about, for programs.

    ``code``: see docs/plan-json.md. ``nodepools``: those that the reason speaks of; empty = it is about no NodePool.
    ``details``: what the code is about, such as the label's ``key`` and the values on both sides, as text.
    """

    code: str
    nodepools: tuple[str, ...] = ()
    details: dict[str, str] = {}


class UnplacedPod(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod without a place, and why, in at least a sentence. ``causes``: of each reason, in their order."""

    pod: str
    reasons: tuple[str, ...]
    causes: tuple[Cause, ...] = ()


class BufferProvisioning(msgspec.Struct, frozen=True):
    """A CapacityBuffer: how many pods it keeps room for, and whether that room is there.

    ``reason``: of its condition Provisioning: FitsExistingCapacity, RequiresNewCapacity, NotReadyForProvisioning or
    BufferEmpty. ``message``: what keeps a virtual pod from any node, or what is wrong with the buffer.
    """

    namespace: str
    name: str
    pod_count: int = msgspec.field(name="pods")
    reason: str
    message: str = ""


class HeldBackNodes(msgspec.Struct, frozen=True):
    """New nodes of a NodePool that a ceiling of launches holds back. ``setting``: the ceiling.

    ``resumes_at``: when it leaves more; ``reason``: all of it in a sentence.
    """

    nodepool: str = msgspec.field(name="node_pool")
    nodes: int
    setting: str
    reason: str
    resumes_at: datetime


class Plan(msgspec.Struct, frozen=True):
    """The whole answer. Every candidate pod is on a new node, on an existing node, unschedulable, or ignored.

    ``notes``: on NodePools and EC2NodeClasses (no instance types, a field that is not handled).
    ``nodepools_without_offerings``: NodePools whose requirements leave nothing to buy, by name, and why.
    ``read_errors``: nodes (``nodes/name``) and NodeClaims (``nodeclaims/name``) that cannot be read, and why.
    ``work_units``: how much work the search took. ``lower_bound_picousd_per_hour``: no nodes of these NodePools hold
    the pods of the new nodes, in their domains, for less; 0 = unknown. ``is_cheapest``: proven that no nodes hold their
    pods for less, each counted with its volume (``packing/problem.py``).
    ``excess_nodeclaims``: NodeClaims that static NodePools have beyond their replicas.
    ``buffers``: every CapacityBuffer, by namespace and name; ``buffer_assignments``: existing nodes with room for their
    virtual pods. Nodes that are bought for buffers are among the new nodes, and name virtual pods.
    ``nodes_held_back``: by ceilings of launches, by NodePool; they are not among the new nodes.
    """

    new_nodes: tuple[NewNode, ...] = ()
    existing_nodes: tuple[NodeAssignment, ...] = ()
    unschedulable_pods: tuple[UnplacedPod, ...] = msgspec.field(default=(), name="unschedulable")
    ignored_pods: tuple[UnplacedPod, ...] = msgspec.field(default=(), name="ignored")
    notes: tuple[str, ...] = ()
    work_units: int = msgspec.field(default=0, name="units")
    lower_bound_picousd_per_hour: int = msgspec.field(default=0, name="bound_picousd_per_hour")
    is_cheapest: bool = False
    nodepools_without_offerings: dict[str, str] = msgspec.field(default_factory=dict, name="barren")
    read_errors: dict[str, str] = msgspec.field(default_factory=dict, name="unread")
    excess_nodeclaims: tuple[str, ...] = msgspec.field(default=(), name="surplus")
    buffers: tuple[BufferProvisioning, ...] = ()
    buffer_assignments: tuple[NodeAssignment, ...] = msgspec.field(default=(), name="buffered")
    nodes_held_back: tuple[HeldBackNodes, ...] = msgspec.field(default=(), name="held_back")

    @property
    def price_picousd_per_hour(self) -> int:
        return sum(node.price_picousd_per_hour for node in self.new_nodes)


def to_in_flight_nodeclaim(
    node: NewNode, claim: str, requests: Mapping[str, Mapping[str, int]] = MappingProxyType({})
) -> InFlightNodeClaim:
    """A decided node as capacity for the next plan. ``requests``: of claims that request something else than ``node``,
    by name."""
    return InFlightNodeClaim(
        nodeclaim=NodeClaim(
            metadata=ObjectMeta(claim, labels=dict(node.labels)),
            node_class_ref=NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", node.nodeclass),
            requirements=node.requirements,
            requests=dict(requests.get(claim, node.requests)),
            taints=node.taints,
            startup_taints=node.startup_taints,
        ),
        instance_types=node.instance_types,
    )
