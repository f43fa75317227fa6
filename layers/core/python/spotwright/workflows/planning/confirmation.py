"""Existing Nodes that take pods are read before that is relied on, where a cluster state that lies would cost a place.

A state may show room where there is none. A pod that is pending costs that no more than time, and kube-scheduler takes
room that exists within a second; so Nodes are read for pods that have waited for longer, and for those of nodes that
EC2 takes back, which are evicted for it. A NodeClaim that a state shows without a Node has room as well: it is read,
and the Node that it has after all.
"""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.decisions.decide import decide
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.planning.near_limits import check_limits
from spotwright.workflows.planning.overlay import BehindError
from spotwright.workflows.ports.bundles import ListingPorts
from spotwright.workflows.ports.cluster import ClusterPort

# kube-scheduler binds a pod to a Node with room in less; it may back off for 10 s.
BINDING_PERIOD: Final = timedelta(seconds=30)
# In a burst hundreds of pods wait for longer. Nodes are read for so many of them, those that have waited longest.
DOUBTED_PODS: Final = 20
# Nodes that are read by name with their pods, at most: two requests each, ten at once. Of 5,000 nodes these are a
# sixteenth of the objects that the API server would write for lists (489 MB, 8.5 s; docs/scale.md).
MAXIMUM_TAKING: Final = 300
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


def _as_it_is(snapshot: Snapshot) -> Snapshot:
    return snapshot


def decide_on_read_nodes(
    snapshot: Snapshot,
    catalog: Catalog,
    ports: ListingPorts,
    doubted: Collection[str],
    *,
    may_wait: bool = False,
    fit: Callable[[Snapshot], Snapshot] = _as_it_is,
) -> tuple[Snapshot, Plan]:
    """The plan, and the snapshot that it is of: existing Nodes that take pods of ``doubted`` (keys) are as they are
    now, and so are NodeClaims without a Node that do.

    Raises BehindError where they are not as shown again and again, or too many to be read one by one, and where limits
    of a NodePool may be exceeded. ``may_wait``: where they are not as shown again and again, the pods may wait for the
    next plan; all others get their nodes by this one. While many nodes join or go, each round finds others that are not
    as a cluster state of some seconds ago shows them, and a list would be as old when it is read. ``fit``: the snapshot
    with what there is time for, before it is planned again.
    """
    read: frozenset[str] = frozenset()
    for _ in range(ROUNDS):
        plan = decide(snapshot, catalog)
        unread = _taking_nodes(snapshot, plan, doubted) - read
        if len(unread) > MAXIMUM_TAKING:
            raise BehindError(f"{len(unread)} Nodes take pods that have to be sure of their place")
        after = _with_nodes(snapshot, ports.cluster, unread)
        if after is snapshot:
            check_limits(snapshot, plan, catalog, ports)
            return snapshot, plan
        snapshot, read = fit(after), read | unread
    if may_wait:
        plan = decide(snapshot, catalog)
        check_limits(snapshot, plan, catalog, ports)
        return snapshot, plan
    raise BehindError(f"Nodes {', '.join(sorted(read)[:3])} are not as it shows them")


def _taking_nodes(snapshot: Snapshot, plan: Plan, doubted: Collection[str]) -> frozenset[str]:
    """Names of Nodes, and of NodeClaims that count as one. What is in flight by rows need not be read."""
    if not doubted:
        return frozenset()
    there = {node.name for node in snapshot.nodes} | {claim.name for claim in snapshot.nodeclaims}
    taking = (node for node in plan.existing_nodes if node.name in there)
    return frozenset(node.name for node in taking if any(key in doubted for key in node.pods))


def _with_nodes(snapshot: Snapshot, cluster: ClusterPort, names: Collection[str]) -> Snapshot:
    """The snapshot with these NodeClaims and Nodes, and the Nodes of the former, as they are now, and with pods that
    run there as they are.

    Other pods that it shows there keep their room, since some are planned for the Node. The same snapshot where nothing
    that a plan looks at is another.
    """
    snapshot, hosts = _with_claims(snapshot, cluster, names)
    ordered = sorted(hosts.union(node.name for node in snapshot.nodes if node.name in names))
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


def _with_claims(snapshot: Snapshot, cluster: ClusterPort, names: Collection[str]) -> tuple[Snapshot, frozenset[str]]:
    """The snapshot with these NodeClaims as they are now, and the names of the Nodes that they have. The same snapshot
    where none is another.
    """
    shown = [claim for claim in snapshot.nodeclaims if claim.name in names]
    ordered = sorted({claim.name for claim in shown})
    claims = dict(zip(ordered, in_parallel(cluster.nodeclaim, ordered), strict=True))
    hosts = frozenset(claim.node_name for claim in claims.values() if claim is not None) - {""}
    if len(shown) == len(claims) and all(claim == claims[claim.name] for claim in shown):
        return snapshot, hosts
    kept = (claim for claim in snapshot.nodeclaims if claim.name not in claims)
    read = (claim for claim in claims.values() if claim is not None)
    return msgspec.structs.replace(snapshot, nodeclaims=(*kept, *read)), hosts


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
