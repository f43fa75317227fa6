"""Nodes that exist or are on their way, and the room they have for pods.

Source: Karpenter v1.14 ``pkg/controllers/state/statenode.go`` and ``scheduling/existingnode.go``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog, InstanceType
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.node import Node, is_ephemeral
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import HostPort
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.kubernetes.volumes import UNLIMITED_VOLUMES
from spotwright.model.requirements import Requirement, RequirementError, Requirements, conjunction
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.nodeclaim_templates import DaemonSetPod, daemonset_key

_CORDONED: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


class StateNode:
    """A Node, or a NodeClaim in flight. ``free_capacity``: allocatable without its pods and the daemons still to come;
    ``host_ports``: what its pods bind.

    ``attachable_volumes``: volumes by CSI driver while there is no CSINode. ``nodepool`` "" = a node of nobody's;
    ``capacity`` counts against the pool's limits.
    """

    __slots__ = (
        "attachable_volumes",
        "capacity",
        "free_capacity",
        "host_ports",
        "is_in_flight",
        "is_initialized",
        "labels",
        "name",
        "nodepool",
        "pods",
        "taints",
    )

    def __init__(self, name: str, values: dict[str, str], taints: Sequence[Taint], initialized: bool) -> None:
        self.name = name
        self.labels = values
        self.taints = tuple(taints)
        self.is_initialized = initialized
        self.is_in_flight = False
        self.nodepool = values.get(labels.NODEPOOL, "")
        self.capacity: dict[str, int] = {}
        self.free_capacity: dict[str, int] = {}
        self.attachable_volumes: dict[str, int] = {}
        self.pods: list[Pod] = []
        self.host_ports: tuple[HostPort, ...] = ()

    def domain(self, key: str) -> str | None:
        """The value of a label."""
        return self.labels.get(key)

    def may_meet_requirements(self, requirements: Requirements) -> bool:
        return self.meets_requirements(requirements)

    def meets_requirements(self, requirements: Requirements) -> bool:
        """True when its labels meet every demand; an absent label meets the negative ones."""
        return all(_meets(self.labels.get(requirement.key), requirement) for requirement in requirements)


def _meets(value: str | None, requirement: Requirement) -> bool:
    return requirement.allows_absence if value is None else requirement.has(value)


class ClusterState:
    """All nodes of a snapshot. ``nodes``: those that take pods, started ones first, then by name.

    ``deleting_nodes``: nodes on their way out; what stays on them still counts for rules between pods.
    ``usage_by_nodepool``: capacity that counts against each pool's limits.
    """

    __slots__ = ("deleting_nodes", "nodes", "usage_by_nodepool")

    def __init__(self, hosts: list[StateNode], leaving: list[StateNode]) -> None:
        self.nodes = sorted(hosts, key=lambda state_node: (not state_node.is_initialized, state_node.name))
        self.deleting_nodes = sorted(leaving, key=lambda state_node: state_node.name)
        self.usage_by_nodepool = _used(hosts)


def build_cluster_state(snapshot: Snapshot, catalog: Catalog, daemons: Sequence[DaemonSetPod]) -> ClusterState:
    """Nodes and claims in flight, with their room."""
    by_provider = {nodeclaim.provider_id: nodeclaim for nodeclaim in snapshot.nodeclaims if nodeclaim.provider_id}
    by_node = {nodeclaim.node_name: nodeclaim for nodeclaim in snapshot.nodeclaims if nodeclaim.node_name}
    pools = {nodepool.name: nodepool for nodepool in snapshot.nodepools}
    hosts, leaving, backed = list[StateNode](), list[StateNode](), set[str]()
    for node in snapshot.nodes:
        claim = by_provider.get(node.provider_id) or by_node.get(node.name)
        backed.add(claim.name if claim else "")
        (leaving if _leaves(node, claim) else hosts).append(_of_node(node, claim, pools, catalog))
    for claim in snapshot.nodeclaims:
        if claim.name not in backed and claim.metadata.deletion_timestamp is None and not claim.read_error:
            hosts.append(_of_claim(claim, (), catalog))
    shown = {nodeclaim.name for nodeclaim in snapshot.nodeclaims}
    for entry in snapshot.in_flight:
        if entry.nodeclaim.name not in shown:
            hosts.append(_of_claim(entry.nodeclaim, entry.instance_types, catalog))
    _seat((*hosts, *leaving), snapshot.pods, daemons)
    return ClusterState(hosts, leaving)


def _leaves(node: Node, claim: NodeClaim | None) -> bool:
    if claim is None:
        return node.metadata.deletion_timestamp is not None
    return claim.metadata.deletion_timestamp is not None or claim.is_condition_true("InstanceTerminating")


def _of_node(node: Node, claim: NodeClaim | None, pools: Mapping[str, NodePool], catalog: Catalog) -> StateNode:
    taints = [*node.taints]
    if node.unschedulable and not any(taint.key == _CORDONED.key for taint in taints):
        taints.append(_CORDONED)
    values, allocatable, capacity = dict(node.metadata.labels), dict(node.allocatable), dict(node.capacity)
    pool = pools.get(node.nodepool)
    starting = (claim is not None or pool is not None) and not node.is_initialized
    if starting:
        if claim is not None:
            allocatable, capacity = _filled(allocatable, claim.allocatable), _filled(capacity, claim.capacity)
            if not node.is_registered:
                values, taints = values | claim.metadata.labels, [*claim.taints]
        startup = claim.startup_taints if claim is not None else pool.startup_taints if pool is not None else ()
        taints = _lasting(taints, startup)
    if node.read_error:
        allocatable = capacity = {resources.PODS: -1}
    host = StateNode(node.name, _named(values, node.name), taints, not starting)
    host.free_capacity = dict(allocatable or capacity)
    host.capacity = capacity or allocatable
    if starting and claim is not None:
        sold, name = (
            catalog.instance_types(claim.node_class_ref.name, claim.nodepool),
            host.labels.get(labels.INSTANCE_TYPE),
        )
        host.attachable_volumes = _attachable([instance_type for instance_type in sold if instance_type.name == name])
    return host


def _named(values: dict[str, str], name: str) -> dict[str, str]:
    normalized = {labels.normalize(key): value for key, value in values.items()}
    return {labels.HOSTNAME: name} | normalized


def _filled(amounts: Mapping[str, int], promised: Mapping[str, int]) -> dict[str, int]:
    """A starting kubelet reports nothing, or zero for extended resources: then what the claim promised counts."""
    return {name: amounts.get(name) or promised.get(name, 0) for name in {**amounts, **promised}}


def _lasting(taints: Iterable[Taint], startup: Iterable[Taint]) -> list[Taint]:
    """Taints without those that go away by themselves while a node starts; key and effect decide."""
    going = {(taint.key, taint.effect) for taint in startup}
    return [taint for taint in taints if (taint.key, taint.effect) not in going and not is_ephemeral(taint)]


def _of_claim(claim: NodeClaim, types: Sequence[str], catalog: Catalog) -> StateNode:
    """A claim without a Node: what every instance type it may become has in common."""
    wanted = _requirements(claim)
    instance_types = _possible(claim, wanted, types, catalog.instance_types(claim.node_class_ref.name, claim.nodepool))
    shared = _shared(instance_types, wanted)
    values = {**shared, **_tenancy(instance_types, wanted), **wanted.labels(), **claim.metadata.labels}
    host = StateNode(claim.name, _named(values, claim.name), _lasting(claim.taints, claim.startup_taints), False)
    host.is_in_flight = True
    host.capacity = dict(claim.capacity) or resources.maximum(
        instance_type.capacity for instance_type in instance_types
    )
    host.free_capacity = dict(claim.allocatable) or _least(
        [instance_type.allocatable for instance_type in instance_types]
    )
    host.attachable_volumes = _attachable(instance_types)
    return host


def _attachable(instance_types: Sequence[InstanceType]) -> dict[str, int]:
    """Volumes by CSI driver that any of these types can attach."""
    drivers = {driver for instance_type in instance_types for driver in instance_type.attachable_volumes}
    return {
        driver: min(instance_type.attachable_volumes.get(driver, UNLIMITED_VOLUMES) for instance_type in instance_types)
        for driver in drivers
    }


def _requirements(claim: NodeClaim) -> Requirements:
    try:
        return conjunction(expression.requirement() for expression in claim.requirements) or Requirements()
    except RequirementError:
        return Requirements()


def _possible(
    claim: NodeClaim, wanted: Requirements, types: Sequence[str], every: Sequence[InstanceType]
) -> list[InstanceType]:
    """What a launch may make of a claim; a type of which only some offerings have room for it is what those are."""
    names = set(types)
    asked = wanted.by_key.get(labels.INSTANCE_TYPE)
    if not names and asked is not None and not asked.complement:
        names = set(asked.values)
    if not names:
        return []
    instance_types = [
        instance_type
        for instance_type in every
        if instance_type.name in names and instance_type.requirements.intersects(wanted)
    ]
    return [
        instance_type
        for instance_type in instance_types
        if not instance_type.capacity_overlay_applied or resources.fits(claim.requests, instance_type.allocatable)
    ]


def _shared(instance_types: Sequence[InstanceType], wanted: Requirements) -> dict[str, str]:
    """Labels on which all types agree, offerings that the claim rules out left aside."""
    common: dict[str, str] | None = None
    for instance_type in instance_types:
        certain = instance_type.requirements.intersection(
            wanted.by_key[key]
            for key in (labels.ZONE, labels.CAPACITY_TYPE)
            if key in wanted and key in instance_type.requirements
        ).labels()
        common = certain if common is None else {k: v for k, v in common.items() if certain.get(k) == v}
    return common or {}


def _tenancy(instance_types: Iterable[InstanceType], wanted: Requirements) -> dict[str, str]:
    """The tenancy that the claim is launched with, where all its types state theirs."""
    found = set()
    for instance_type in instance_types:
        allowed = instance_type.requirements.get(labels.TENANCY).intersection(wanted.get(labels.TENANCY))
        stated = labels.TENANCY in instance_type.requirements
        found.add(next((tenancy for tenancy in labels.TENANCIES if stated and allowed.has(tenancy)), ""))
    return {labels.TENANCY: found.pop()} if len(found) == 1 and "" not in found else {}


def _least(several: Sequence[Mapping[str, int]]) -> dict[str, int]:
    if not several:
        return {}
    return {name: min(one.get(name, 0) for one in several) for name in several[0]}


def _seat(hosts: Iterable[StateNode], pods: Iterable[Pod], daemons: Sequence[DaemonSetPod]) -> None:
    """Take what runs, and the daemons still to come, off the room of every host."""
    by_name = {state_node.name: state_node for state_node in hosts}
    for pod in pods:
        host = by_name.get(pod.node_name) if pod.node_name else None
        if host is not None and not pod.is_terminal:
            host.pods.append(pod)
            host.host_ports += pod.host_ports
            # In place: a large cluster has ten times as many pods as wait.
            for name, size in pod.requests.items():
                host.free_capacity[name] = host.free_capacity.get(name, 0) - size
    for host in by_name.values():
        running = {daemonset_key(pod) for pod in host.pods if pod.metadata.owner_references}
        for daemon in daemons:
            if daemon.key not in running and _runs_on(daemon, host):
                # Its host ports stay open: whoever comes first gets them, and that may be a waiting pod.
                host.free_capacity = resources.subtract(host.free_capacity, daemon.requests)


def _runs_on(daemon: DaemonSetPod, host: StateNode) -> bool:
    return daemon.tolerates(host.taints) and any(host.meets_requirements(term) for term in daemon.node_terms)


def _used(hosts: Iterable[StateNode]) -> dict[str, dict[str, int]]:
    used: dict[str, dict[str, int]] = {}
    for host in hosts:
        if host.nodepool:
            used[host.nodepool] = resources.add(used.get(host.nodepool, {}), host.capacity, {resources.NODES: 1})
    return used
