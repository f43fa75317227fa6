"""Everything a decision may look at."""

from datetime import datetime
from typing import Final

import msgspec

from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import DaemonSet, Pod, PodDisruptionBudget
from spotwright.model.kubernetes.volumes import Storage

# Feature gate: launches use capacity reservations.
RESERVED_CAPACITY: Final = "ReservedCapacity"
# Feature gate: static NodePools, which have ``replicas``.
STATIC_CAPACITY: Final = "StaticCapacity"
# Feature gate: NodeOverlays.
NODE_OVERLAY: Final = "NodeOverlay"
# Feature gate: CapacityBuffers.
CAPACITY_BUFFER: Final = "CapacityBuffer"
# Feature gate: nodes that stay unhealthy are replaced.
NODE_REPAIR: Final = "NodeRepair"
# Feature gate: consolidation replaces spot nodes with spot nodes.
SPOT_TO_SPOT_CONSOLIDATION: Final = "SpotToSpotConsolidation"


class Settings(msgspec.Struct, frozen=True):
    """Settings of a decision, under Karpenter's names where it has them.

    ``feature_gates``: Karpenter's gates that are on, sorted.
    ``follower_selectors``: key=value labels of follower pods in kube-system, which never cause the first node and never
    keep the last node. ``work_units``: budget of the search.
    ``follow_plan``: Nominate | Off; whether pods are nominated for the nodes that were planned for them.
    ``breaker_percent``: percent of the nodes that may be disrupted within ten minutes before the breaker opens.
    ``largest_node_share``: percent of what a plan places for which a node may be sized;
    ``largest_zone_share``: percent of a pool's cpu that a zone may hold. 100 = no bound.
    ``max_launches_per_minute``, ``max_nodes_per_hour``, ``max_dollars_per_hour``: ceilings of what is launched (see
    ``decisions.ceilings``), 0 = none. ``max_evictions_per_hour``: for the sake of price, 0 = any number.
    """

    feature_gates: tuple[str, ...] = (RESERVED_CAPACITY,)
    preference_policy: str = "Respect"
    min_values_policy: str = "Strict"
    follower_selectors: tuple[str, ...] = (
        "k8s-app=kube-dns",
        "k8s-app=metrics-server",
        "app.kubernetes.io/name=metrics-server",
        "app.kubernetes.io/name=aws-ebs-csi-driver",
        "app.kubernetes.io/name=aws-efs-csi-driver",
        "app.kubernetes.io/name=eks-pod-identity-agent",
    )
    work_units: int = 150_000
    follow_plan: str = "Nominate"
    breaker_percent: int = 50
    largest_node_share: int = 100
    largest_zone_share: int = 100
    max_launches_per_minute: int = 1000
    max_nodes_per_hour: int = 10_000
    max_dollars_per_hour: int = 10_000
    max_evictions_per_hour: int = 0


class UnavailableOffering(msgspec.Struct, frozen=True, order=True):
    """An offering that EC2 recently had no capacity for; a decision leaves it out.

    Fields as in ``model.ec2.fleet.OfferingHealth``. ``reservation_launches``: instances launched into a reservation
    since EC2 described it; 0 = the offering is unavailable.
    """

    capacity_type: str
    instance_type: str
    zone: str
    code: str = ""
    scope: str = ""
    cpu_millicores: int = 0
    reservation_launches: int = msgspec.field(default=0, name="taken")


class OfferingHistory(msgspec.Struct, frozen=True, order=True):
    """What EC2 lately announced of a spot offering: notices of the last 24 hours, and what they make of its price.

    ``penalty_percent``: by how much it counts dearer. ``troubled_at_ms``: when EC2 last had no capacity there or took
    instances back, epoch milliseconds, 0 = not lately.
    """

    instance_type: str
    zone: str
    interruptions: int = 0
    rebalances: int = 0
    penalty_percent: int = msgspec.field(default=0, name="penalty")
    troubled_at_ms: int = msgspec.field(default=0, name="troubled")


class LaunchedInMinute(msgspec.Struct, frozen=True):
    """What was decided to be launched in a minute of the clock. ``minute``: of the epoch."""

    minute: int
    launches: int = 0
    nodes: int = 0
    price_picousd_per_hour: int = msgspec.field(default=0, name="price")


class LaunchBound(msgspec.Struct, frozen=True):
    """A ceiling of launches and what is used of it. ``resumes_at``: when some of that counts no more.

    ``setting``: its name; ``allowed`` and ``used``: launches, nodes, or the price of nodes in picodollars per hour.
    """

    setting: str
    allowed: int
    used: int
    resumes_at: datetime


class InFlightNodeClaim(msgspec.Struct, frozen=True):
    """A planned node whose NodeClaim the API server does not show yet; ``nodeclaim.allocatable`` may be empty."""

    nodeclaim: NodeClaim = msgspec.field(name="claim")
    instance_types: tuple[str, ...]


class Snapshot(msgspec.Struct, frozen=True):
    """The input of a decision, together with the catalog named by ``catalog_key``.

    ``in_flight``: nodes of committed launches whose NodeClaims the API server does not show yet. ``namespaces``: name →
    labels. ``now``: aware UTC. ``nodeoverlays`` and ``capacity_buffers``: empty unless the feature gates NodeOverlay
    and CapacityBuffer are on.
    ``nodeclaims_to_delete``: NodeClaims that a committed decision deletes in any case; ``nodeclaims_to_replace``:
    NodeClaims that it deletes once their replacements are ready. Both empty unless StaticCapacity is on.
    ``moving_pods``: pods of nodes on their way out that an earlier decision planned for another node, key → the node
    they still run on; their ``node_name`` is where they will be.
    ``launch_bounds``: the ceilings that new nodes are held to; empty where nothing is launched.
    ``offering_histories``: spot offerings that were in trouble lately; those that are not listed were not.
    """

    cluster: str
    now: datetime
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    nodepools: tuple[NodePool, ...] = ()
    nodeclasses: tuple[EC2NodeClass, ...] = ()
    nodeclaims: tuple[NodeClaim, ...] = ()
    daemonsets: tuple[DaemonSet, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = msgspec.field(default=(), name="budgets")
    in_flight: tuple[InFlightNodeClaim, ...] = ()
    unavailable_offerings: tuple[UnavailableOffering, ...] = msgspec.field(default=(), name="unavailable")
    namespaces: dict[str, dict[str, str]] = {}
    storage: Storage = Storage()
    nodeoverlays: tuple[NodeOverlay, ...] = msgspec.field(default=(), name="overlays")
    capacity_buffers: tuple[CapacityBuffer, ...] = msgspec.field(default=(), name="buffers")
    nodeclaims_to_delete: tuple[str, ...] = msgspec.field(default=(), name="leaving")
    nodeclaims_to_replace: tuple[str, ...] = msgspec.field(default=(), name="disrupting")
    moving_pods: dict[str, str] = msgspec.field(default_factory=dict, name="moving")
    launch_bounds: tuple[LaunchBound, ...] = ()
    offering_histories: tuple[OfferingHistory, ...] = msgspec.field(default=(), name="histories")
    settings: Settings = Settings()
    catalog_key: str = ""
    schema: int = 1

    def pods_by_key(self) -> dict[str, Pod]:
        """``pods`` by ``namespace/name``, made anew by each call."""
        return {pod.key: pod for pod in self.pods}
