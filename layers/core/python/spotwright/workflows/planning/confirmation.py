"""Existing Nodes that take pods are read before that is relied on, where a cluster state that lies would cost a place.

A state may show room where there is none. A pod that is pending costs that no more than time, and kube-scheduler takes
room that exists within a second; so Nodes are read for pods that have waited for longer, and for those of nodes that
EC2 takes back, which are evicted for it. Nor may it have more bought than the limits of a NodePool: near them a state
that shows less than is counted elsewhere is not relied on.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Final

import msgspec

from spotwright.decisions.decide import decide
from spotwright.model import quantity, resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.in_flight_nodes import build_in_flight_node
from spotwright.scheduling.plan import Plan
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.planning.overlay import MAXIMUM_READS, SETTLING, BehindError
from spotwright.workflows.ports.cluster import ClusterPort

# kube-scheduler binds a pod to a Node with room in less; it may back off for 10 s.
BINDING_PERIOD: Final = timedelta(seconds=30)
# In a burst hundreds of pods wait for longer. Nodes are read for so many of them, those that have waited longest.
DOUBTED_PODS: Final = 20
# How often it is planned again where Nodes are not as the state shows them.
ROUNDS: Final = 3

# What a running pod takes of its Node, and whom it keeps away.
_OF_SPEC: Final = ("requests", "host_ports", "pod_anti_affinity", "volume_claim_names")


def longest_waiting_pods(snapshot: Snapshot, now: datetime) -> frozenset[str]:
    """Keys of pending pods that would be bound by now if the room that a plan sees existed, DOUBTED_PODS at most."""
    waiting = [
        (created, pod.key)
        for pod in snapshot.pods
        if not pod.node_name
        and (created := pod.metadata.creation_timestamp) is not None
        and now - created > BINDING_PERIOD
    ]
    return frozenset(key for _, key in sorted(waiting)[:DOUBTED_PODS])


def decide_on_read_nodes(
    snapshot: Snapshot, catalog: Catalog, cluster: ClusterPort, doubted: Collection[str]
) -> tuple[Snapshot, Plan]:
    """The plan, and the snapshot that it is of: existing Nodes that take pods of ``doubted`` (keys) are as they are
    now.

    Raises BehindError where Nodes are not as shown again and again, or too many to be read one by one, and where limits
    of a NodePool may be exceeded.
    """
    read: frozenset[str] = frozenset()
    for _ in range(ROUNDS):
        plan = decide(snapshot, catalog)
        unread = _taking_nodes(snapshot, plan, doubted) - read
        if len(unread) > MAXIMUM_READS:
            raise BehindError(f"{len(unread)} Nodes take pods that have to be sure of their place")
        after = _with_nodes(snapshot, cluster, unread)
        if after is snapshot:
            _check_limits(snapshot, plan, catalog)
            return snapshot, plan
        snapshot, read = after, read | unread
    raise BehindError(f"Nodes {', '.join(sorted(read)[:3])} are not as it shows them")


def _check_limits(snapshot: Snapshot, plan: Plan, catalog: Catalog) -> None:
    """Limits of NodePools hold, however little of them the snapshot shows. Raises BehindError.

    A plan keeps them for what the snapshot shows. What is launched is to keep them as well for what the status of the
    NodePool and rows count, which is more while nodes go or have just joined, and where a state lies.
    """
    launched = {node.nodepool for node in plan.new_nodes}
    for pool in snapshot.nodepools:
        if pool.limits and pool.name in launched:
            _check_pool_limits(pool, _counted(pool, snapshot, catalog), plan, catalog)


def _counted(pool: NodePool, snapshot: Snapshot, catalog: Catalog) -> dict[str, int]:
    """What the NodePool has at most: what its status counts, and what is too new for that to be sure."""
    new = [
        build_in_flight_node(claim, (), catalog)
        for claim in snapshot.nodeclaims
        if claim.nodepool == pool.name and _is_new(claim, snapshot.now)
    ]
    new += [
        build_in_flight_node(coming.nodeclaim, coming.instance_types, catalog)
        for coming in snapshot.in_flight
        if coming.nodeclaim.nodepool == pool.name
    ]
    of_status = {**pool.resources, resources.NODES: pool.node_count}
    return resources.add(of_status, {resources.NODES: len(new)}, *(node.capacity for node in new))


def _is_new(claim: NodeClaim, now: datetime) -> bool:
    """Whether a status may not count the claim yet, or not its size."""
    launched = find_condition(claim.conditions, "Launched")
    times = (claim.metadata.creation_timestamp, launched.last_transition_time if launched else None)
    return any(at is not None and now - at < SETTLING for at in times)


def _check_pool_limits(pool: NodePool, counted: Mapping[str, int], plan: Plan, catalog: Catalog) -> None:
    """``counted``: what the NodePool has. Of each new node the largest that may be launched counts."""
    types = catalog.instance_types(pool.node_class_ref.name, pool.name)

    @cache
    def largest(names: tuple[str, ...]) -> dict[str, int]:
        return resources.maximum(instance_type.capacity for instance_type in types if instance_type.name in names)

    new = [largest(node.instance_types) for node in plan.new_nodes if node.nodepool == pool.name]
    added = resources.add({resources.NODES: len(new)}, *new)
    total = resources.add(counted, added)
    for name, limit in sorted(pool.limits.items()):
        if added.get(name, 0) > 0 and total[name] > limit:
            texts = quantity.texts(name, (total[name], limit))
            raise BehindError(
                f"with what is new and what would be launched, the status of NodePool {pool.name} comes to {texts[0]}"
                f" of {name}, beyond its limit of {texts[1]}; it shows less",
                code="NearLimits",
            )


def _taking_nodes(snapshot: Snapshot, plan: Plan, doubted: Collection[str]) -> frozenset[str]:
    there = {node.name for node in snapshot.nodes} if doubted else set[str]()
    taking = (node for node in plan.existing_nodes if node.name in there)
    return frozenset(node.name for node in taking if any(key in doubted for key in node.pods))


def _with_nodes(snapshot: Snapshot, cluster: ClusterPort, names: Collection[str]) -> Snapshot:
    """The snapshot with these Nodes as they are now, and with pods that run there as they are.

    Other pods that it shows there keep their room, since some are planned for the Node. The same snapshot where nothing
    that a plan looks at is another.
    """
    ordered = sorted(names)
    nodes = dict(zip(ordered, in_parallel(cluster.node, ordered), strict=True))
    shown = [node for node in snapshot.nodes if node.name in nodes]
    on_nodes = {pod.key: pod for pod in snapshot.pods if pod.node_name in nodes}
    listed = in_parallel(lambda name: cluster.pods(node=name), ordered)
    running = [pod for pods in listed for pod in pods if not pod.is_terminal]
    otherwise = {pod.key: pod for pod in running if not _takes_alike(on_nodes.get(pod.key), pod)}
    if not otherwise and len(shown) == len(nodes) and all(_is_alike(node, nodes[node.name]) for node in shown):
        return snapshot
    kept = (node for node in snapshot.nodes if node.name not in nodes)
    pods = (*(pod for pod in snapshot.pods if pod.key not in otherwise), *otherwise.values())
    return msgspec.structs.replace(
        snapshot,
        nodes=(*kept, *(node for node in nodes.values() if node is not None)),
        pods=tuple(sorted(pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))),
    )


def _takes_alike(shown: Pod | None, pod: Pod) -> bool:
    """Whether a plan sees the same pod on the same Node: all but what its status says."""
    if shown is None or shown.is_terminal or shown.node_name != pod.node_name:
        return False
    if shown.metadata.labels != pod.metadata.labels:
        return False
    return all(getattr(shown, field) == getattr(pod, field) for field in _OF_SPEC)


def _is_alike(shown: Node, node: Node | None) -> bool:
    """Whether a plan sees the same Node: all but what each heartbeat of its kubelet changes."""
    if node is None or node.metadata.uid != shown.metadata.uid:
        return False
    unchanging = {"metadata": shown.metadata, "conditions": shown.conditions}
    return (
        msgspec.structs.replace(node, **unchanging) == shown
        and node.metadata.labels == shown.metadata.labels
        and node.metadata.deletion_timestamp == shown.metadata.deletion_timestamp
    )
