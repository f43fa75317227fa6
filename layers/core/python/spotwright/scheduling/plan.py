"""What the scheduler decides, as values."""

import msgspec

from spotwright.model.nodeclaim import NodeClaim
from spotwright.model.nodepool import NodeClassReference
from spotwright.model.objects import Metadata
from spotwright.model.requirements import Selector
from spotwright.model.snapshot import InFlight
from spotwright.model.taints import Taint


class Alternative(msgspec.Struct, frozen=True):
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
    ``given_up``: preferences of its pods that it does not meet, each as a sentence.
    ``price_overlaid``, ``capacity_overlaid``: a NodeOverlay changes what one of the types costs, or has.
    """

    node_pool: str
    node_class: str
    pods: tuple[str, ...]
    instance_types: tuple[str, ...]
    requirements: tuple[Selector, ...]
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    startup_taints: tuple[Taint, ...]
    requests: dict[str, int]
    price_picousd_per_hour: int
    capacity_type: str
    zones: tuple[str, ...]
    reason: str = ""
    binding_resource: str = ""
    alternatives: tuple[Alternative, ...] = ()
    given_up: tuple[str, ...] = ()
    price_overlaid: bool = False
    capacity_overlaid: bool = False


class ExistingNode(msgspec.Struct, frozen=True):
    """A Node, or a NodeClaim in flight, that takes pods."""

    name: str
    pods: tuple[str, ...]


class Refused(msgspec.Struct, frozen=True):
    """A pod without a place, and why: at least one sentence."""

    pod: str
    reasons: tuple[str, ...]


class BufferVerdict(msgspec.Struct, frozen=True):
    """A CapacityBuffer: how many pods it keeps room for, and how that stands.

    ``reason``: of its condition Provisioning: FitsExistingCapacity, RequiresNewCapacity, NotReadyForProvisioning or
    BufferEmpty. ``message``: what keeps some of its pods from any node, or what the buffer says that means nothing.
    """

    namespace: str
    name: str
    pods: int
    reason: str
    message: str = ""


class Plan(msgspec.Struct, frozen=True):
    """A complete answer: every candidate pod is in exactly one of the four.

    ``notes`` concern NodePools and classes (a pool without types, an unhandled field). ``barren``: NodePools whose
    demands leave nothing to buy, by name, and why. ``unread``: nodes (``nodes/name``) and claims (``nodeclaims/name``)
    that cannot be read, and why. ``units``: work done.
    ``bound_picousd_per_hour``: no nodes of these NodePools hold the pods of the new nodes, in the domains they were
    given, for less; 0 where nothing is known. ``surplus``: NodeClaims that static NodePools have beyond their replicas.
    ``buffers``: every CapacityBuffer, by namespace and name; ``buffered``: nodes on which their pods find room. The
    nodes that are bought for them are among the new ones, with pods that nobody runs.
    """

    new_nodes: tuple[NewNode, ...] = ()
    existing_nodes: tuple[ExistingNode, ...] = ()
    unschedulable: tuple[Refused, ...] = ()
    ignored: tuple[Refused, ...] = ()
    notes: tuple[str, ...] = ()
    units: int = 0
    bound_picousd_per_hour: int = 0
    barren: dict[str, str] = {}
    unread: dict[str, str] = {}
    surplus: tuple[str, ...] = ()
    buffers: tuple[BufferVerdict, ...] = ()
    buffered: tuple[ExistingNode, ...] = ()

    @property
    def price_picousd_per_hour(self) -> int:
        return sum(node.price_picousd_per_hour for node in self.new_nodes)


def on_its_way(node: NewNode, claim: str) -> InFlight:
    """A decided node as capacity for the next plan."""
    return InFlight(
        claim=NodeClaim(
            metadata=Metadata(claim, labels=dict(node.labels)),
            node_class_ref=NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", node.node_class),
            requirements=node.requirements,
            requests=dict(node.requests),
            taints=node.taints,
            startup_taints=node.startup_taints,
        ),
        instance_types=node.instance_types,
    )
