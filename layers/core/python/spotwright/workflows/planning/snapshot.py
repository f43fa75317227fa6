"""Gathering a snapshot: what the API server, the state table and committed decisions say of one cluster."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final

import msgspec

from spotwright.aws.instance_types import interruption_history, offering_health
from spotwright.aws.interruption_messages import REPLACED_KINDS
from spotwright.decisions.decision import (
    DRIFTED,
    REBALANCED,
    SCALED_DOWN,
    SCHEDULED_CHANGE,
    UNDERUTILIZED,
    Decision,
    decode_decision,
)
from spotwright.disruption import interruption
from spotwright.model.cluster_state import ClusterState
from spotwright.model.karpenter.nodeclaim import NodeClaim, nodes_of_claims
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.volumes import Storage
from spotwright.model.snapshot import (
    CAPACITY_BUFFER,
    NODE_OVERLAY,
    STATIC_CAPACITY,
    InFlightNodeClaim,
    Settings,
    Snapshot,
)
from spotwright.scheduling.plan import NewNode, to_in_flight_nodeclaim
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.account import offering_health_store
from spotwright.workflows.planning import nominated_pods
from spotwright.workflows.planning.cluster_state import NoClusterState, read_cluster_state
from spotwright.workflows.planning.overlay import (
    RECENT,
    BehindError,
    lay_over,
    lay_over_claims,
    loses_replacement,
    to_snapshot,
)
from spotwright.workflows.ports.bundles import ListingPorts, SnapshotPorts
from spotwright.workflows.ports.cluster import ClusterPort
from spotwright.workflows.ports.rows import FINAL_PHASES, ClusterRow, CommandRow, LaunchRow

log: Final = logging.getLogger("spotwright.planning")

# For these, nodes with pods are replaced.
REPLACED_REASONS: Final = (DRIFTED, REBALANCED, SCHEDULED_CHANGE, UNDERUTILIZED)


def disrupted_claims(
    pending_decisions: Iterable[Decision], commands: Iterable[CommandRow]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """NodeClaims that committed disruptions delete in any case, and those that wait for their replacements.

    ``pending_decisions``: read before ``commands``.
    """
    disrupted = [
        (disruption.candidates, disruption.reason, disruption.deadline > 0)
        for decision in pending_decisions
        for disruption in decision.disruptions
    ]
    disrupted += [(row.candidates, row.reason, row.forced) for row in commands if row.phase != "proposed"]
    certain = {name for names, reason, forced in disrupted if forced or reason == SCALED_DOWN for name in names}
    replaced = {name for names, _, _ in disrupted for name in names} - certain
    return tuple(sorted(certain)), tuple(sorted(replaced))


# Launches and commands that are open or recent.
type _Launches = tuple[LaunchRow, ...]
type _Commands = tuple[CommandRow, ...]
# Reads the API server's objects.
type _Read = Callable[[_Launches, _Commands], Snapshot]
# The snapshot of a state as the cluster is now. Raises BehindError.
type _LayOver = Callable[[Snapshot, ClusterState, _Launches, _Commands], Snapshot]


# Called before the cluster is listed. Raises NotListedError where that is to wait.
type BeforeList = Callable[[], object]


class NotListedError(Exception):
    """The cluster is not to be listed now; the text says why."""


def _list_at_once() -> None:
    """A BeforeList for whoever lists at any time."""


def gather(
    ports: SnapshotPorts,
    row: ClusterRow,
    *,
    now: datetime,
    nodes_read: Collection[str] = (),
    before_list: BeforeList = _list_at_once,
) -> Snapshot:
    """The planner's input, of the cluster state if there is a fresh one, else as ``gather_live``.

    ``row``: the cluster's, read just before. ``nodes_read``: nodes whose pods are read from the API server in any case.
    Committed decisions that the state does not show are laid over it. Nothing is disrupted by it alone.
    """

    def lay(snapshot: Snapshot, state: ClusterState, launches: _Launches, commands: _Commands) -> Snapshot:
        return lay_over(snapshot, state, ports.cluster, launches, commands, nodes_read)

    return _gather_state(ports, row, now, lay, before_list)


def gather_claims(
    ports: SnapshotPorts,
    row: ClusterRow,
    *,
    now: datetime,
    claims: Collection[str],
    before_list: BeforeList = _list_at_once,
) -> Snapshot:
    """As ``gather``, but all NodeClaims are listed, and of those named the Nodes and their pods are read by name."""

    def lay(snapshot: Snapshot, state: ClusterState, launches: _Launches, commands: _Commands) -> Snapshot:
        return lay_over_claims(snapshot, state, ports.cluster, launches, commands, claims)

    return _gather_state(ports, row, now, lay, before_list)


def gather_with_claims(
    ports: SnapshotPorts, row: ClusterRow, *, now: datetime, before_list: BeforeList = _list_at_once
) -> Snapshot:
    """As ``gather``, but all NodeClaims are listed: their conditions changed a moment ago."""
    return gather_claims(ports, row, now=now, claims=(), before_list=before_list)


def _gather_state(
    ports: SnapshotPorts, row: ClusterRow, now: datetime, lay: _LayOver, before_list: BeforeList
) -> Snapshot:
    """The planner's input, of the cluster state if it may be used, else as ``gather_live``."""

    def read(launches: _Launches, commands: _Commands) -> Snapshot:
        state = read_cluster_state(ports.cluster_state, now=now)
        if isinstance(state, ClusterState):
            snapshot = to_snapshot(state, ports.cluster, ports.settings, now)
            try:
                snapshot = lay(snapshot, state, launches, commands)
            except BehindError as behind:
                state = NoClusterState(behind.code, str(behind))
            else:
                _log_state(ports.cluster.name, state, now)
                return snapshot
        before_list()
        _log_listed(ports.cluster.name, state)
        return read_cluster(ports.cluster, ports.settings, now)

    return _gather(ports, row, now, read)


def gather_live(ports: ListingPorts, row: ClusterRow, *, now: datetime) -> Snapshot:
    """The planner's input, everything directly from the API server. ``row``: the cluster's, read just before."""
    return _gather(ports, row, now, lambda _launches, _commands: read_cluster(ports.cluster, ports.settings, now))


def gather_listed(ports: ListingPorts, row: ClusterRow, behind: BehindError, *, now: datetime) -> Snapshot:
    """As ``gather_live``, since what was planned of a cluster state must not be relied on."""
    _log_listed(ports.cluster.name, NoClusterState(behind.code, str(behind)))
    return gather_live(ports, row, now=now)


def _log_listed(cluster: str, state: NoClusterState) -> None:
    log_line(log, log_lines.LISTED_CLUSTER, cluster=cluster, reason=state.code, details=state.details)


def _log_state(cluster: str, state: ClusterState, now: datetime) -> None:
    log_line(
        log, log_lines.READ_CLUSTER_STATE,
        cluster=cluster, epoch=state.epoch, sequence=state.sequence, seconds=(now - state.taken).total_seconds(),
    )  # fmt: skip


def _gather(ports: ListingPorts, row: ClusterRow, now: datetime, read: _Read) -> Snapshot:
    """Decisions are read before launches, launches before claims and nodes before pods, so that what happens in between
    shows up twice (as a launch and as its claim) or as capacity, never as a pod without the node that was bought for
    it. Storage is read after the pods that may ask for it, and only where one does. What has no order is read
    meanwhile. Nodes with an interruption notice are shown as if they were being deleted, and the pods of nodes on their
    way out where an earlier decision has planned them.
    """
    state, settings, now_ms = ports.state, ports.settings, int(now.timestamp() * 1000)
    recent = now_ms - int(RECENT.total_seconds() * 1000)
    with ThreadPoolExecutor(5) as meanwhile:
        health_read = meanwhile.submit(state.offering_health, now_ms)
        notices_read = meanwhile.submit(state.notices)
        catalog_key = meanwhile.submit(state.catalog_key)
        decisions = tuple(decode_decision(ports.blobs.get(key)) for key in row.pending_decisions)
        nominations_read = meanwhile.submit(nominated_pods.open_nominations, state, decisions, settings)
        commands_read = meanwhile.submit(state.commands, created_after=recent)
        launches = state.launches(created_after=recent)
        committed = tuple(_nodes_in_flight(launches, decisions))
        commands = commands_read.result()
        has_static_pools = STATIC_CAPACITY in settings.feature_gates
        open_commands = [command for command in commands if command.phase not in FINAL_PHASES]
        leaving, disrupting = disrupted_claims(decisions, open_commands) if has_static_pools else ((), ())
        nominations = nominations_read.result()
        snapshot = read(launches, commands)
    interrupted = {row.instance_id for row in notices_read.result() if row.kind in REPLACED_KINDS}
    coming = {node.nodeclaim.name for node in committed}
    going = instances_going(snapshot, decisions, commands, REPLACED_REASONS, uncreated=coming)
    snapshot = interruption.mark_deleting(snapshot, interrupted | going)
    claims = {claim.name: claim for claim in snapshot.nodeclaims}
    in_flight = tuple(node for node in committed if node.nodeclaim.name not in claims) + snapshot.in_flight
    nominations = tuple(
        row for row in nominations if row.claim not in claims or nominated_pods.is_for_claim(row, claims[row.claim])
    )
    health = health_read.result()
    described_ms = offering_health_store.reservations_described_ms(state, health)
    hosts = _node_names(snapshot.nodeclaims, snapshot.nodes, in_flight)
    leaving_nodes = _leaving_nodes(snapshot)
    pods = nominated_pods.place_nominated_pods(
        snapshot.pods, nominations, node_names=hosts, leaving_nodes=leaving_nodes, now=now
    )
    return msgspec.structs.replace(
        snapshot,
        in_flight=in_flight,
        nodeclaims_to_delete=leaving,
        nodeclaims_to_replace=disrupting,
        pods=pods,
        moving_pods={
            before.key: before.node_name
            for before, after in zip(snapshot.pods, pods, strict=True)
            if before.node_name in leaving_nodes and after.node_name != before.node_name
        },
        unavailable_offerings=offering_health.to_snapshot(health, now_ms=now_ms, described_ms=described_ms),
        offering_histories=interruption_history.to_histories(health, now_ms=now_ms),
        catalog_key=catalog_key.result(),
    )


def instances_going(
    snapshot: Snapshot,
    decisions: Iterable[Decision],
    commands: Iterable[CommandRow],
    reasons: Collection[str],
    *,
    uncreated: Collection[str] = (),
) -> set[str]:
    """Instances of nodes that were decided to go for one of these reasons and that nobody has deleted yet.

    ``decisions``: those without rows yet, read before ``commands``. ``uncreated``: NodeClaims that are to come.
    """
    uids = {
        (name, disruption.candidate_uids.get(name))
        for decision in decisions
        for disruption in decision.disruptions
        if disruption.reason in reasons
        for name in disruption.candidates
    }
    uids |= {
        (name, row.candidate_uids.get(name))
        for row in commands
        if row.phase in ("planned", "waiting")
        and row.reason in reasons
        and not loses_replacement(row, snapshot, uncreated)
        for name in row.candidates
    }
    going = (claim for claim in snapshot.nodeclaims if (claim.name, claim.metadata.uid) in uids)
    return {instance_id(claim.provider_id) for claim in going} - {""}


def read_cluster(cluster: ClusterPort, settings: Settings, now: datetime) -> Snapshot:
    """The objects of the API server: claims before nodes before pods, and storage after the pods that ask for it.

    What has no order is read meanwhile.
    """
    with ThreadPoolExecutor(6) as meanwhile:
        nodepools, nodeclasses = meanwhile.submit(cluster.nodepools), meanwhile.submit(cluster.nodeclasses)
        daemonsets, budgets = meanwhile.submit(cluster.daemonsets), meanwhile.submit(cluster.pod_disruption_budgets)
        namespaces = meanwhile.submit(cluster.namespaces)
        overlays = meanwhile.submit(cluster.nodeoverlays) if NODE_OVERLAY in settings.feature_gates else None
        buffers = meanwhile.submit(cluster.capacity_buffers) if CAPACITY_BUFFER in settings.feature_gates else None
        claims = cluster.nodeclaims()
        nodes = cluster.nodes()
        pods = cluster.pods()
        storage = cluster.storage() if any(pod.volume_claim_names for pod in pods) else Storage()
    return Snapshot(
        cluster=cluster.name,
        now=now,
        nodepools=nodepools.result(),
        nodeclasses=nodeclasses.result(),
        nodeclaims=claims,
        nodes=nodes,
        daemonsets=daemonsets.result(),
        pod_disruption_budgets=budgets.result(),
        pods=pods,
        namespaces=namespaces.result(),
        storage=storage,
        nodeoverlays=overlays.result() if overlays else (),
        capacity_buffers=buffers.result() if buffers else (),
        settings=settings,
    )


def _leaving_nodes(snapshot: Snapshot) -> frozenset[str]:
    going = [claim for claim in snapshot.nodeclaims if claim.metadata.deletion_timestamp is not None]
    provider_ids, names = {claim.provider_id for claim in going} - {""}, {claim.node_name for claim in going}
    return frozenset(
        node.name
        for node in snapshot.nodes
        if node.metadata.deletion_timestamp is not None or node.provider_id in provider_ids or node.name in names
    )


def _node_names(
    claims: tuple[NodeClaim, ...], nodes: tuple[Node, ...], in_flight: tuple[InFlightNodeClaim, ...]
) -> dict[str, str]:
    """Claim → the name of its node in a plan: the Node's if there is one. Without claims that are being deleted."""
    of_claims = nodes_of_claims(claims, nodes)
    staying = {
        nodeclaim.name: of_claims[nodeclaim.name][0].name if nodeclaim.name in of_claims else nodeclaim.name
        for nodeclaim in claims
        if nodeclaim.metadata.deletion_timestamp is None
    }
    return {node.nodeclaim.name: node.nodeclaim.name for node in in_flight} | staying


def _nodes_in_flight(launches: tuple[LaunchRow, ...], decisions: tuple[Decision, ...]) -> Iterator[InFlightNodeClaim]:
    """Nodes of committed launches whose NodeClaims do not exist yet; a claim that existed once is not repeated.

    ``decisions``: those without rows yet. They are read before the rows, so that no launch is missed.
    """
    launch_ids = set()
    for row in launches:
        launch_ids.add(row.id)
        if row.phase not in FINAL_PHASES:
            node = msgspec.json.decode(row.node, type=NewNode)
            yield from (to_in_flight_nodeclaim(node, name, row.requests) for name in row.claims if name not in row.uids)
    for decision in decisions:
        for launch in decision.launches:
            if launch.id not in launch_ids:
                yield from (to_in_flight_nodeclaim(launch.node, name, launch.requests) for name in launch.claims)
