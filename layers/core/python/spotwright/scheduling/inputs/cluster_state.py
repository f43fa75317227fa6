"""All nodes of a snapshot: Nodes, NodeClaims without a Node, and committed nodes without a visible NodeClaim."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.daemonset_pods import DaemonSetPod
from spotwright.scheduling.inputs.in_flight_nodes import (
    build_in_flight_node,
    fewest_attachable_volumes,
    without_startup_taints,
)
from spotwright.scheduling.inputs.state_nodes import StateNode

_CORDONED: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


class ClusterState:
    """All nodes of a snapshot. ``nodes``: nodes that take pods, initialized nodes first, then by name.

    ``deleting_nodes``: nodes on their way out; what stays on them still counts for rules between pods.
    ``usage_by_nodepool``: capacity that counts against each NodePool's limits.
    """

    __slots__ = ("deleting_nodes", "nodes", "usage_by_nodepool")

    def __init__(self, nodes: list[StateNode], deleting_nodes: list[StateNode]) -> None:
        self.nodes = sorted(nodes, key=lambda state_node: (not state_node.is_initialized, state_node.name))
        self.deleting_nodes = sorted(deleting_nodes, key=lambda state_node: state_node.name)
        self.usage_by_nodepool = _usage_by_nodepool(nodes)


def build_cluster_state(snapshot: Snapshot, catalog: Catalog, daemonset_pods: Sequence[DaemonSetPod]) -> ClusterState:
    """Nodes and NodeClaims in flight, with their room.

    What a NodeClaim promises counts for the Node that it is registered with alone, whoever else states its provider id.
    Of several NodeClaims of an instance one that is registered counts, and none is in flight beside the Node.
    """
    by_provider_id = {
        nodeclaim.provider_id: nodeclaim
        for nodeclaim in sorted(snapshot.nodeclaims, key=lambda claim: (bool(claim.node_name), claim.name))
        if nodeclaim.provider_id
    }
    by_node_name = {nodeclaim.node_name: nodeclaim for nodeclaim in snapshot.nodeclaims if nodeclaim.node_name}
    nodepools = {nodepool.name: nodepool for nodepool in snapshot.nodepools}
    nodes, deleting_nodes = list[StateNode](), list[StateNode]()
    joined = {node.provider_id for node in snapshot.nodes} - {""}
    with_node = {nodeclaim.name for nodeclaim in snapshot.nodeclaims if nodeclaim.provider_id in joined}
    for node in snapshot.nodes:
        nodeclaim = by_provider_id.get(node.provider_id) or by_node_name.get(node.name)
        with_node.add(nodeclaim.name if nodeclaim else "")
        promising = nodeclaim if nodeclaim is not None and nodeclaim.node_name in ("", node.name) else None
        state_node = _build_node(node, promising, nodepools.get(node.nodepool), catalog)
        (deleting_nodes if _is_deleting(node, nodeclaim) else nodes).append(state_node)
    nodes += _in_flight_nodes(snapshot, catalog, with_node)
    by_name = {state_node.name: state_node for state_node in (*nodes, *deleting_nodes)}
    for pod in snapshot.pods:
        host = by_name.get(pod.node_name) if pod.node_name else None
        if host is not None and not pod.is_terminal:
            host.bind(pod)
    for state_node in by_name.values():
        state_node.reserve_for_daemonsets(daemonset_pods)
    return ClusterState(nodes, deleting_nodes)


def _in_flight_nodes(snapshot: Snapshot, catalog: Catalog, with_node: set[str]) -> list[StateNode]:
    """``with_node``: NodeClaims that have a Node."""
    state_nodes = [
        build_in_flight_node(nodeclaim, (), catalog)
        for nodeclaim in snapshot.nodeclaims
        if nodeclaim.name not in with_node
        and nodeclaim.metadata.deletion_timestamp is None
        and not nodeclaim.read_error
    ]
    visible = {nodeclaim.name for nodeclaim in snapshot.nodeclaims}
    state_nodes += [
        build_in_flight_node(in_flight.nodeclaim, in_flight.instance_types, catalog)
        for in_flight in snapshot.in_flight
        if in_flight.nodeclaim.name not in visible
    ]
    return state_nodes


def _is_deleting(node: Node, nodeclaim: NodeClaim | None) -> bool:
    if nodeclaim is None:
        return node.metadata.deletion_timestamp is not None
    return nodeclaim.metadata.deletion_timestamp is not None or nodeclaim.is_condition_true("InstanceTerminating")


def _build_node(node: Node, nodeclaim: NodeClaim | None, nodepool: NodePool | None, catalog: Catalog) -> StateNode:
    node_labels, taints = dict(node.metadata.labels), [*node.taints]
    if node.unschedulable and not any(taint.key == _CORDONED.key for taint in taints):
        taints.append(_CORDONED)
    allocatable, capacity = dict(node.allocatable), dict(node.capacity)
    is_starting = (nodeclaim is not None or nodepool is not None) and not node.is_initialized
    if is_starting and nodeclaim is not None:
        allocatable = _with_promised(allocatable, nodeclaim.allocatable)
        capacity = _with_promised(capacity, nodeclaim.capacity)
        if not node.is_registered:
            node_labels, taints = node_labels | nodeclaim.metadata.labels, [*nodeclaim.taints]
    if is_starting:
        starting = nodeclaim or nodepool
        taints = without_startup_taints(taints, starting.startup_taints if starting else ())
    if node.read_error:
        allocatable = capacity = {resources.PODS: -1}
    state_node = StateNode(node.name, node_labels, taints, is_initialized=not is_starting, is_in_flight=False)
    state_node.free_capacity = dict(allocatable or capacity)
    state_node.capacity = capacity or allocatable
    if is_starting and nodeclaim is not None:
        types = catalog.instance_types(nodeclaim.node_class_ref.name, nodeclaim.nodepool)
        name = state_node.labels.get(labels.INSTANCE_TYPE)
        state_node.attachable_volumes = fewest_attachable_volumes(
            [instance_type for instance_type in types if instance_type.name == name]
        )
    return state_node


def _with_promised(amounts: Mapping[str, int], promised: Mapping[str, int]) -> dict[str, int]:
    """A starting kubelet reports nothing, or zero for extended resources: then what the NodeClaim promised counts."""
    return {name: amounts.get(name) or promised.get(name, 0) for name in {**amounts, **promised}}


def _usage_by_nodepool(state_nodes: Iterable[StateNode]) -> dict[str, dict[str, int]]:
    usage: dict[str, dict[str, int]] = {}
    for state_node in state_nodes:
        if pool := state_node.nodepool:
            usage[pool] = resources.add(usage.get(pool, {}), state_node.capacity, {resources.NODES: 1})
    return usage
