"""What is laid over a cluster state: what was committed since it was taken, and what a plan must not take on trust.

A state is some seconds behind the cluster, without knowing how many, and whoever holds the forwarder's token may write
another one. NodePools, EC2NodeClasses and NodeOverlays, which say what may be bought and what it costs, and DaemonSets,
which say how much of a node is left for pods, are read from the API server, and so are pods that wait and claims that
rows name and the state does not show. These are few. Where they are many, the state is too far behind, and the cluster
is listed.
"""

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.disruption import interruption
from spotwright.model.cluster_state import ClusterState
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.volumes import Storage
from spotwright.model.snapshot import CAPACITY_BUFFER, NODE_OVERLAY, InFlightNodeClaim, Settings, Snapshot
from spotwright.scheduling.plan import NewNode, to_in_flight_nodeclaim
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.cluster import ClusterPort
from spotwright.workflows.ports.rows import FINAL_PHASES, CommandRow, LaunchRow, epoch_ms

# Rows that were created in this time may have made something that a state does not show. What a launch or a command
# does, it does within ten minutes; and a state may lack what happened since the last contact with a watch, which may be
# older than the time at which it was taken (cluster_state.IN_CONTACT), and that time by cluster_state.FRESH.
RECENT: Final = timedelta(minutes=20)
# Claims of a launch that ended in this time are taken from its row, where they are too many to be read.
SETTLING: Final = timedelta(seconds=90)
# Unless the watch of NodeClaims had contact so long after the launch was decided: it would have shown them.
SHOWN_AFTER: Final = timedelta(seconds=30)
# A status of a NodePool is older in a cluster of more than 9,000 nodes, whose claims and nodes take long to list:
# lifecycle pauses as long between two counts (PAUSE_MS_PER_CLAIM).
STATUS_AGE_PER_NODE: Final = timedelta(milliseconds=10)
# Objects of a kind that are read one by one, at most.
MAXIMUM_READS: Final = 50
# Pods that were bound since, at most. In a burst kube-scheduler binds a hundred between two states, just when the API
# server has most to do; reading them costs it a fraction of a list of all pods.
MAXIMUM_BOUND_READS: Final = 300
# NodeClaims whose nodes and pods are read one by one before they are disrupted, at most; lists are less work beyond.
MAXIMUM_CANDIDATES: Final = 100
# If no more pods wait than this, all that wait are read; they are some KB each.
MAXIMUM_WAITING: Final = 1000
# Beyond that only the first are read if the state had contact with their watch in this time: a page of them.
POD_CONTACT: Final = timedelta(seconds=5)
FIRST_WAITING: Final = 500


class BehindError(Exception):
    """The state differs too much from what rows and the API server say, or must not be relied on alone.

    ``code``: Behind, NegativeSize, NearLimits, RemovesNodes or PodsWait.
    """

    def __init__(self, message: str, *, code: str = "Behind") -> None:
        super().__init__(message)
        self.code = code


def to_snapshot(state: ClusterState, cluster: ClusterPort, settings: Settings, now: datetime) -> Snapshot:
    """The objects of a state, with the NodePools, classes, NodeOverlays and DaemonSets of the API server."""
    objects = state.objects
    gates = settings.feature_gates
    with ThreadPoolExecutor(3) as beside:
        nodeclasses, daemonsets = beside.submit(cluster.nodeclasses), beside.submit(cluster.daemonsets)
        overlays = beside.submit(cluster.nodeoverlays) if NODE_OVERLAY in gates else None
        nodepools = cluster.nodepools()
    return Snapshot(
        cluster=cluster.name,
        now=now,
        nodepools=nodepools,
        nodeclasses=nodeclasses.result(),
        nodeclaims=objects.nodeclaims,
        nodes=objects.nodes,
        daemonsets=daemonsets.result(),
        pod_disruption_budgets=objects.pod_disruption_budgets,
        pods=objects.pods,
        namespaces=objects.namespaces,
        storage=objects.storage,
        nodeoverlays=overlays.result() if overlays else (),
        capacity_buffers=objects.capacity_buffers if CAPACITY_BUFFER in gates else (),
        settings=settings,
    )


def lay_over(
    snapshot: Snapshot,
    state: ClusterState,
    cluster: ClusterPort,
    launches: Iterable[LaunchRow],
    commands: Iterable[CommandRow],
    nodes_read: Collection[str],
) -> Snapshot:
    """The snapshot of a state as the cluster is by rows and by a few reads. Raises BehindError.

    ``launches`` and ``commands``: open ones and RECENT ones. ``nodes_read``: nodes whose pods are read.
    """
    launches = tuple(launches)
    snapshot = _with_claims(snapshot, state.kinds["NodeClaim"].contacted, cluster, launches)
    return _lay_over(snapshot, state, cluster, commands, nodes_read, uncreated_claims(launches))


def lay_over_claims(
    snapshot: Snapshot,
    state: ClusterState,
    cluster: ClusterPort,
    launches: Iterable[LaunchRow],
    commands: Iterable[CommandRow],
    claims: Collection[str],
) -> Snapshot:
    """As ``lay_over``, with all NodeClaims as they are now; where some are named, with all Nodes, too, and with pods of
    theirs and of those that are not shown.

    So much is read before nodes are disrupted of which nobody needs to know where their pods go: budgets count which
    NodeClaims go, and which Nodes are not ready. Raises BehindError.
    """
    if len(claims) > MAXIMUM_CANDIDATES:
        raise BehindError(f"{len(claims)} NodeClaims are looked at, and their nodes are read one by one")
    listed = cluster.nodeclaims()
    nodes = cluster.nodes() if claims else snapshot.nodes
    names = {node.name for node in nodes} - {node.name for node in snapshot.nodes}
    if len(names) > MAXIMUM_READS:
        raise BehindError(f"{len(names)} Nodes, {min(names)} among them, are not in it")
    names |= {claim.node_name for claim in listed if claim.name in claims} - {""}
    snapshot = msgspec.structs.replace(snapshot, nodeclaims=listed, nodes=nodes)
    return _lay_over(snapshot, state, cluster, commands, names, uncreated_claims(launches))


def _lay_over(
    snapshot: Snapshot,
    state: ClusterState,
    cluster: ClusterPort,
    commands: Iterable[CommandRow],
    nodes_read: Collection[str],
    uncreated: frozenset[str],
) -> Snapshot:
    """With everything but NodeClaims, which are as they are now."""
    _check_sizes(snapshot)
    snapshot = _with_commands(snapshot, commands, uncreated)
    snapshot = _with_waiting_pods(snapshot, state.kinds["Pod"].contacted, cluster)
    snapshot = _with_pods_of(snapshot, cluster, nodes_read)
    return _with_storage(snapshot, cluster)


def _with_claims(
    snapshot: Snapshot, contacted: datetime, cluster: ClusterPort, launches: tuple[LaunchRow, ...]
) -> Snapshot:
    """With claims that launches created and that are not shown, without those that launches have given up.

    New claims of NodePools with limits are read though they are shown; where they are many, all claims are listed. So
    they are where many are not shown that a state should show: they are gone, or the state is too far behind.
    """
    given_up = {(name, uid) for row in launches for name, uid in row.uids.items() if not _has_claim(row, name)}
    claims = tuple(
        claim for claim in snapshot.nodeclaims if claim.provider_id or (claim.name, claim.metadata.uid) not in given_up
    )
    shown = {(claim.name, claim.metadata.uid) for claim in claims}
    created = {(name, uid): row for row in launches for name, uid in row.uids.items() if _has_claim(row, name)}
    missing = {name: row for (name, uid), row in created.items() if (name, uid) not in shown}
    uncounted = _uncounted_claims(snapshot, created)
    if len(uncounted) > MAXIMUM_READS:
        return msgspec.structs.replace(snapshot, nodeclaims=cluster.nodeclaims())
    read = uncounted | missing if len(uncounted | missing) <= MAXIMUM_READS else uncounted
    missing = {name: row for name, row in missing.items() if name not in read}
    old = [name for name, row in missing.items() if not _is_settling(row, snapshot.now)]
    # A state may say any time, such as the first there is, from which nothing can be subtracted.
    shown_by = epoch_ms(contacted) - SHOWN_AFTER.total_seconds() * 1000
    looked_up = {*old, *(name for name, row in missing.items() if row.created <= shown_by)}
    if len(looked_up) > MAXIMUM_READS:
        listed = cluster.nodeclaims()
        hidden = {claim.name for claim in listed}.intersection(old)
        if len(hidden) > MAXIMUM_READS:
            raise BehindError(f"it does not show {len(hidden)} NodeClaims, {min(hidden)} among them, that exist")
        return msgspec.structs.replace(snapshot, nodeclaims=listed)
    in_flight = tuple(_in_flight(missing[name], name) for name in sorted(missing.keys() - looked_up))
    kept = (claim for claim in claims if claim.name not in read)
    found = (claim for claim in in_parallel(cluster.nodeclaim, sorted({*read, *looked_up})) if claim is not None)
    return msgspec.structs.replace(snapshot, nodeclaims=_by_name((*kept, *found)), in_flight=in_flight)


def _uncounted_claims(snapshot: Snapshot, created: Mapping[tuple[str, str], LaunchRow]) -> dict[str, LaunchRow]:
    """Claims of NodePools with limits that are so new that no status may count them yet, whatever the state shows."""
    limited = {pool.name for pool in snapshot.nodepools if pool.limits or pool.replicas is not None}
    if not limited:
        return {}
    period = uncounted_period(snapshot)
    settling = {row.id: row for row in created.values() if _is_settling(row, snapshot.now, period)}
    # A row may have hundreds of KB, and a hundred claims.
    counted = {id for id, row in settling.items() if msgspec.json.decode(row.node, type=NewNode).nodepool in limited}
    return {name: row for (name, _), row in created.items() if row.id in counted}


def uncounted_period(snapshot: Snapshot) -> timedelta:
    """So long the status of a NodePool may not count a new claim. By the status of all, which no state says."""
    return max(SETTLING, STATUS_AGE_PER_NODE * sum(pool.node_count for pool in snapshot.nodepools))


def _has_claim(row: LaunchRow, name: str) -> bool:
    """Whether a claim that the launch created still has a use: it has an instance, or may get one."""
    return row.phase not in FINAL_PHASES or name in row.instances


def _is_settling(row: LaunchRow, now: datetime, period: timedelta = SETTLING) -> bool:
    """Whether the launch is open or ended a moment ago: a minute long it waits for surplus instances."""
    is_new = epoch_ms(now) - row.created < period.total_seconds() * 1000
    return row.phase not in FINAL_PHASES or bool(row.due) or is_new


def _in_flight(row: LaunchRow, name: str) -> InFlightNodeClaim:
    return to_in_flight_nodeclaim(msgspec.json.decode(row.node, type=NewNode), name, row.requests)


def _by_name(claims: Iterable[NodeClaim]) -> tuple[NodeClaim, ...]:
    """The last one of a name counts."""
    named = {claim.name: claim for claim in claims}
    return tuple(named[name] for name in sorted(named))


def _check_sizes(snapshot: Snapshot) -> None:
    """Nothing requests less than nothing, which would be room on its node. Raises BehindError."""
    # Replicas share what they request.
    distinct = {id(pod.requests): pod for pod in snapshot.pods}
    for pod in distinct.values():
        if any(size < 0 for size in pod.requests.values()):
            raise BehindError(f"in it {pod.key} requests less than nothing", code="NegativeSize")


def _with_commands(snapshot: Snapshot, commands: Iterable[CommandRow], uncreated: Collection[str]) -> Snapshot:
    """With the claims of disruptions that began as if they were being deleted: their nodes take no pods."""
    uids = {
        (name, uid)
        for row in commands
        if row.phase == "done" or (row.phase == "waiting" and not loses_replacement(row, snapshot, uncreated))
        for name, uid in row.candidate_uids.items()
        if name in row.candidates
    }
    going = (claim for claim in snapshot.nodeclaims if (claim.name, claim.metadata.uid) in uids)
    instances = {instance_id(claim.provider_id) for claim in going} - {""}
    return interruption.mark_deleting(snapshot, instances) if instances else snapshot


def uncreated_claims(launches: Iterable[LaunchRow]) -> frozenset[str]:
    """Names of NodeClaims that open launches are yet to create."""
    launching = (row for row in launches if row.phase not in FINAL_PHASES)
    return frozenset(name for row in launching for name in row.claims if name not in row.uids)


def loses_replacement(row: CommandRow, snapshot: Snapshot, uncreated: Collection[str]) -> bool:
    """Whether a command is about to be given up, since a replacement that it waits for goes itself, or is gone: its
    nodes stay, and count in the limits of their NodePools. One that is Initialized is not waited for, though the
    command may not have noticed it yet.
    """
    waited_for = set(row.replacements) - set(row.initialized_replacements)
    if row.forced or not waited_for:
        return False
    claims = {claim.name: claim for claim in snapshot.nodeclaims if claim.name in waited_for}
    coming = {*uncreated, *(node.nodeclaim.name for node in snapshot.in_flight)}
    is_lost = any(
        claim.metadata.deletion_timestamp is not None and not claim.is_condition_true("Initialized")
        for claim in claims.values()
    )
    return is_lost or not waited_for <= claims.keys() | coming


def _with_waiting_pods(snapshot: Snapshot, contacted: datetime, cluster: ClusterPort) -> Snapshot:
    """With the pods that wait now in place of those that waited; a pod that was bound since is on its node.

    Where many do, those that a state hides are among the first sooner or later, as the others get their nodes.
    """
    waited = {pod.metadata.uid: pod for pod in snapshot.pods if not pod.node_name}
    limit = FIRST_WAITING if len(waited) > MAXIMUM_WAITING and snapshot.now - contacted <= POD_CONTACT else None
    read = cluster.pods(pending=True, limit=limit)
    waiting = tuple(pod for pod in read if not pod.is_terminal)
    if len(read) == limit:
        return _with_pods(snapshot, snapshot.pods, waiting)
    gone_on = [waited[uid] for uid in sorted(waited.keys() - {pod.metadata.uid for pod in waiting})]
    if len(gone_on) > MAXIMUM_BOUND_READS:
        raise BehindError(f"{len(gone_on)} pods that wait in it, {gone_on[0].key} among them, wait no more")
    found = in_parallel(lambda pod: cluster.pod(pod.metadata.namespace, pod.metadata.name), gone_on)
    moved = (pod for pod in found if pod is not None and not pod.is_terminal)
    return _with_pods(snapshot, (pod for pod in snapshot.pods if pod.node_name), (*moved, *waiting))


def _with_pods_of(snapshot: Snapshot, cluster: ClusterPort, names: Collection[str]) -> Snapshot:
    """With the pods that run on these nodes now, and with the nodes where they are not shown."""
    if not names:
        return snapshot
    ordered = sorted(names)
    shown = {node.name for node in snapshot.nodes}
    joined = in_parallel(cluster.node, (name for name in ordered if name not in shown))
    nodes = (*snapshot.nodes, *(node for node in joined if node is not None))
    read = in_parallel(lambda name: cluster.pods(node=name), ordered)
    running = (pod for pods in read for pod in pods if not pod.is_terminal)
    kept = (pod for pod in snapshot.pods if pod.node_name not in names or not pod.node_name)
    return _with_pods(msgspec.structs.replace(snapshot, nodes=nodes), kept, running)


def _with_pods(snapshot: Snapshot, shown: Iterable[Pod], read: Iterable[Pod]) -> Snapshot:
    """A pod that was read replaces that of its name."""
    newer = {pod.key: pod for pod in read}
    names = {pod.metadata.name for pod in newer.values()}
    kept = (pod for pod in shown if pod.metadata.name not in names or pod.key not in newer)
    ordered = sorted((*kept, *newer.values()), key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
    return msgspec.structs.replace(snapshot, pods=tuple(ordered))


def _with_storage(snapshot: Snapshot, cluster: ClusterPort) -> Snapshot:
    """With claims of waiting pods that are not shown; without storage if no pod asks for it.

    Where more claims are not shown than are read one by one, storage is listed.
    """
    if not any(pod.volume_claim_names for pod in snapshot.pods):
        return msgspec.structs.replace(snapshot, storage=Storage())
    shown = {claim.metadata.key for claim in snapshot.storage.persistent_volume_claims}
    asked = {
        (pod.metadata.namespace, name) for pod in snapshot.pods if not pod.node_name for name in pod.volume_claim_names
    }
    missing = sorted((namespace, name) for namespace, name in asked if f"{namespace}/{name}" not in shown)
    if len(missing) > MAXIMUM_READS:
        return msgspec.structs.replace(snapshot, storage=cluster.storage())
    read = in_parallel(lambda key: cluster.persistent_volume_claim(*key), missing)
    claims = (*snapshot.storage.persistent_volume_claims, *(claim for claim in read if claim is not None))
    storage = msgspec.structs.replace(snapshot.storage, persistent_volume_claims=claims)
    return msgspec.structs.replace(snapshot, storage=storage)
