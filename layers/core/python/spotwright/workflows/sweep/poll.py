"""The sweep makes up for lost messages: it reads what there is and rings for what is left to do.

The poll reads little and runs every minute, and every few seconds while no forwarder is alive (at zero nodes nothing
else wakes a function). The full sweep compares everything. Neither writes to the cluster or to EC2.
"""

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.errors import ApiError
from spotwright.lifecycle import instance_health, liveness, node_repair, reservation_expiration
from spotwright.model import labels
from spotwright.model.cluster_state import ClusterState
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.karpenter.repair_policies import unhealthy_condition
from spotwright.model.kubernetes.meta import Condition, find_condition
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import TaintEffect
from spotwright.model.snapshot import (
    CAPACITY_BUFFER,
    NODE_OVERLAY,
    NODE_REPAIR,
    RESERVED_CAPACITY,
    STATIC_CAPACITY,
)
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.planning import planner_at_work, repeated_plan
from spotwright.workflows.planning.cluster_state import read_cluster_state
from spotwright.workflows.planning.heartbeat import is_forwarder_alive
from spotwright.workflows.ports.bundles import SweepPorts
from spotwright.workflows.ports.doorbells import RUNG_ANYWAY, Doorbell, DoorbellPort
from spotwright.workflows.ports.rows import ClusterRow, CommandRow, LaunchRow, NominationRow, NoticeRow, Row
from spotwright.workflows.ports.state import StatePort

log: Final = logging.getLogger("spotwright.sweep")

# So long a NodeClaim that boots or drains is left to the doorbells of its node and to its ticks.
RECENT_SECONDS: Final = 45
# How often pending pods and classes are looked at while no forwarder rings for them.
POLL_SECONDS: Final = 5
# A class that has not been ready for this long is looked at once a minute, as Karpenter does. Whoever changes it need
# not wait: a status of an older generation is looked at by every poll.
NEWLY_UNREADY: Final = timedelta(seconds=30)
# How often claims are compared with EC2's instances, as often as Karpenter does.
COMPARISON_MINUTES: Final = 2
# So often NodeClaims, pods and instances are listed in any case; between that, a fresh cluster state will do.
LISTING_MINUTES: Final = 10
# The taint that the forwarder tolerates (manifests/forwarder.yaml).
_ADD_ONS: Final = "CriticalAddonsOnly"
# Beside the names of status checks: an instance for which EC2 has scheduled something.
SCHEDULED_EVENT: Final = "ScheduledEvent"
# Doorbells for what is due this soon are sent now, with the exact delay.
HORIZON_SECONDS: Final = 60


class ClusterView(msgspec.Struct, frozen=True):
    """What a poll knows of the cluster. ``ready_instances``: those whose Node is Ready; none where lists were read.

    ``nodes``: none where lists were read and nobody needs them. ``tainted_nodes``: names of those with the taint of a
    disruption; none where lists were read.
    """

    claims: tuple[NodeClaim, ...]
    waiting_pods: tuple[Pod, ...]
    ready_instances: frozenset[str] = frozenset()
    nodes: tuple[Node, ...] = ()
    tainted_nodes: frozenset[str] = frozenset()


class SweepResult(msgspec.Struct, frozen=True):
    """What a sweep found. ``orphans`` -1: too many, and those in ``refused_orphans`` (the first of them) stay.

    ``oldest_pending_seconds``: age of the oldest pending pod, 0 = none. Of a scheduled poll only:
    ``nodepools_not_ready``; ``forwarder_silent``: nodes are Ready that it could run on, and it writes no heartbeat;
    ``other_provisioner``: who else provisions nodes in the cluster, "" = nobody;
    ``nodes_by_capacity_type``: NodeClaims by capacity type, and ``price_picousd_per_hour`` of all of them by the
    present catalog; ``instances_in_trouble``: of NodeClaims, by EC2's status check, and SCHEDULED_EVENT, or empty
    with EC2's error, ``status_error``.
    """

    pending_pods: int = 0
    nodeclaims: int = 0
    due_rows: int = 0
    orphans: int = 0
    refused_orphans: tuple[str, ...] = ()
    forwarder_alive: bool = False
    oldest_pending_seconds: int = 0
    nodepools_not_ready: int = 0
    forwarder_silent: bool = False
    other_provisioner: str = ""
    nodes_by_capacity_type: dict[str, int] = {}
    instances_in_trouble: dict[str, int] = {}
    status_error: str = ""
    price_picousd_per_hour: int = 0


def poll(ports: SweepPorts, *, now: datetime, scheduled: bool) -> SweepResult:
    """``scheduled``: the poll of each minute, which enqueues the others; these end at once while a forwarder lives."""
    name, moment = ports.cluster.name, int(now.timestamp() * 1000)
    forwarder_alive = is_forwarder_alive(ports.state, now=now)
    if scheduled:
        for delay in range(POLL_SECONDS, 60, POLL_SECONDS):
            ports.doorbells.ring("sweep", [Doorbell(name, "poll", epoch=1)], delay_seconds=delay)
    elif forwarder_alive:
        return SweepResult(forwarder_alive=True)
    if scheduled and not ports.state.catalog_key():
        ports.doorbells.ring("catalog", [Doorbell(name, "region")])
    due_rows = ports.state.due_rows(moment + HORIZON_SECONDS * 1000)
    _ring_due(ports.doorbells, due_rows, moment)
    row = ports.state.cluster()
    if scheduled:
        row = _note_other_provisioner(ports, row, now)
    if row.pending_decisions:
        ports.doorbells.ring("lifecycle", [Doorbell(name, "decision")])
    if scheduled:
        _ring_unserved(ports.doorbells, row, moment)
    elif planner_at_work.is_noted(row, now=now):
        # It lists the cluster: beside another list it would take twice as long.
        return SweepResult(due_rows=len(due_rows))
    classes = ports.cluster.nodeclasses()
    pools = tuple(pool for pool in ports.cluster.nodepools() if pool.is_managed)
    _ring_unready(ports, classes, pools, now, scheduled=scheduled)
    if scheduled and row.other_provisioner:
        event = events.OTHER_PROVISIONER(name=row.other_provisioner)
        for pool in pools:
            ports.cluster.record_event("nodepools", pool.metadata, event, now=now)
    view = _view(ports, now, scheduled=scheduled)
    claims = view.claims
    if _is_miscounted(pools, claims):
        ports.doorbells.ring("lifecycle", [Doorbell(name, "nodepools")])
    unsettled = [claim for claim in claims if _is_unsettled(claim, view.tainted_nodes)]
    if forwarder_alive:
        # A node that boots or drains rings for each step: a hundred that do so now need no second one.
        unsettled = [claim for claim in unsettled if not _changed_recently(claim, now)]
    if unsettled:
        ports.doorbells.ring("lifecycle", [Doorbell(name, "claim", claim.name) for claim in unsettled])
    if scheduled:
        _ring_expiring(ports.doorbells, name, claims, now)
        if any(node_repair.is_due(unhealthy_condition(node), now) for node in view.nodes):
            ports.doorbells.ring("lifecycle", [Doorbell(name, "repair")])
        if RESERVED_CAPACITY in ports.settings.feature_gates:
            _ring_reserved(ports.doorbells, name, claims, classes)
    pending = repeated_plan.pending_pods(view.waiting_pods, ports.settings, has_nodes=bool(claims))
    gates = ports.settings.feature_gates
    is_short = STATIC_CAPACITY in gates and _is_off_target(pools, claims)
    # Only a plan shows whether capacity buffers still have their capacity.
    left = () if forwarder_alive else _unplanned(ports.state, row, pending, moment)
    is_wanted = (pending if scheduled else left) or is_short or (scheduled and CAPACITY_BUFFER in gates)
    digest = repeated_plan.digest_of(pools, classes, claims, left)
    pauses = repeated_plan.is_pausing(row, digest, now=now) or repeated_plan.seconds_until_list(row, now=now) > 0
    if is_wanted and (forwarder_alive or not pauses):
        ports.doorbells.ring("provision", [Doorbell(name, "pods")])
    if scheduled and now.minute % COMPARISON_MINUTES == 0:
        # Last: while EC2 does not answer, everything else was rung for.
        _ring_lost_instances(ports, view)
    result = SweepResult(
        pending_pods=len(pending),
        nodeclaims=len(claims),
        due_rows=len(due_rows),
        forwarder_alive=forwarder_alive,
        oldest_pending_seconds=_oldest_seconds(pending, now),
    )
    if not scheduled:
        return result
    troubles, status_error = _ring_unhealthy_instances(ports, claims, now) if claims else ({}, "")
    result = msgspec.structs.replace(
        result,
        nodepools_not_ready=sum(_is_unready(pool.conditions, pool.metadata.generation) for pool in pools),
        other_provisioner=row.other_provisioner,
        forwarder_silent=not forwarder_alive and _has_node_for_forwarder(ports),
        instances_in_trouble=troubles,
        status_error=status_error,
    )
    return _with_price(result, claims, ports.catalogs.read(ports.state.catalog_key()))


def _note_other_provisioner(ports: SweepPorts, row: ClusterRow, now: datetime) -> ClusterRow:
    """The row with who else provisions nodes now, which is noted for everybody when it has changed."""
    name = ports.other_provisioners.running(now=now)
    if name == row.other_provisioner:
        return row
    ports.state.set_other_provisioner(name)
    line = log_lines.FOUND_OTHER_PROVISIONER if name else log_lines.OTHER_PROVISIONER_GONE
    log_line(log, line, cluster=row.cluster, provisioner=name or row.other_provisioner)
    return msgspec.structs.replace(row, other_provisioner=name)


def _oldest_seconds(pods: tuple[Pod, ...], now: datetime) -> int:
    """The age of the oldest of the pods; 0 without pods, or when none says when it was created."""
    created = [pod.metadata.creation_timestamp for pod in pods if pod.metadata.creation_timestamp is not None]
    return max(0, int((now - min(created)).total_seconds())) if created else 0


def _has_node_for_forwarder(ports: SweepPorts) -> bool:
    """Whether a Ready node may run the forwarder: Linux, without taints (so no Fargate) but those for add-ons."""
    return any(
        node.is_ready
        and not node.unschedulable
        and node.metadata.labels.get(labels.OS) == "linux"
        and all(taint.key == _ADD_ONS for taint in node.taints if taint.effect != TaintEffect.PREFER_NO_SCHEDULE)
        for node in ports.cluster.nodes()
    )


def _view(ports: SweepPorts, now: datetime, *, scheduled: bool) -> ClusterView:
    """From the cluster state, if it is fresh; from lists every ten minutes, and whenever no forwarder is alive.

    A state that lies can so delay what a lost message was about by ten minutes at most.
    """
    repairs = NODE_REPAIR in ports.settings.feature_gates
    if scheduled and now.minute % LISTING_MINUTES:
        state = read_cluster_state(ports.cluster_state, now=now)
        if isinstance(state, ClusterState):
            objects = state.objects
            return ClusterView(
                objects.nodeclaims,
                tuple(pod for pod in objects.pods if not pod.node_name),
                frozenset(instance_id(node.provider_id) for node in objects.nodes if node.is_ready),
                objects.nodes if repairs else (),
                frozenset(
                    node.name for node in objects.nodes if any(taint.key == labels.DISRUPTED for taint in node.taints)
                ),
            )
    nodes = ports.cluster.nodes() if scheduled and repairs else ()
    return ClusterView(ports.cluster.nodeclaims(), ports.cluster.pods(pending=True), nodes=nodes)


def _with_price(result: SweepResult, claims: tuple[NodeClaim, ...], catalog: Catalog) -> SweepResult:
    """The nodes by capacity type and their price; an instance type that the catalog no longer has counts as free."""
    capacity = Counter(claim.metadata.labels.get(labels.CAPACITY_TYPE, "") for claim in claims)
    price = sum(_price(claim, catalog) for claim in claims)
    return msgspec.structs.replace(result, nodes_by_capacity_type=dict(capacity), price_picousd_per_hour=price)


def _price(claim: NodeClaim, catalog: Catalog) -> int:
    claim_labels = claim.metadata.labels
    offering_key = (claim_labels.get(labels.ZONE), claim_labels.get(labels.CAPACITY_TYPE))
    return next(
        (
            offering.price_picousd_per_hour
            for instance_type in catalog.instance_types(claim.node_class_ref.name)
            if instance_type.name == claim_labels.get(labels.INSTANCE_TYPE)
            for offering in instance_type.offerings
            if (offering.zone, offering.capacity_type) == offering_key
        ),
        0,
    )


def _ring_due(bells: DoorbellPort, rows: Iterable[Row], now: int) -> None:
    """Ring for each row at the second at which it is due; those of a queue and a second together."""
    _ring_together(bells, ((_queue_of(row), max(0, -(-(row.due - now) // 1000)), _doorbell_of(row)) for row in rows))


def _ring_together(bells: DoorbellPort, delayed: Iterable[tuple[str, int, Doorbell]]) -> None:
    """Ring each doorbell in its queue after its delay in seconds; those of a queue and a second together."""
    together: dict[tuple[str, int], list[Doorbell]] = {}
    for queue, delay, doorbell in delayed:
        together.setdefault((queue, delay), []).append(doorbell)
    for (queue, delay), doorbells in sorted(together.items()):
        bells.ring(queue, doorbells, delay_seconds=delay)


def _ring_unserved(bells: DoorbellPort, row: ClusterRow, now: int) -> None:
    """Ring for requests for planning that nobody served, once the planner they were left to must have ended."""
    if row.served_requests < row.planning_requests and not row.held_by:
        delay = min(HORIZON_SECONDS, max(0, -(-(row.planner_until - now) // 1000)))
        bells.ring("provision", [Doorbell(row.cluster, "pods", epoch=row.planning_requests)], delay_seconds=delay)


def _queue_of(row: Row) -> str:
    return "notices" if isinstance(row, NoticeRow) else "lifecycle"


def _doorbell_of(row: Row) -> Doorbell:
    match row:
        case LaunchRow():
            return Doorbell(row.cluster, "launch", row.id)
        case CommandRow():
            return Doorbell(row.cluster, "command", row.id)
        case NoticeRow():
            return Doorbell(row.cluster, "notice", row.instance_id)
        case NominationRow():
            return Doorbell(row.cluster, "nomination", row.claim)


def _ring_expiring(bells: DoorbellPort, cluster: str, claims: tuple[NodeClaim, ...], now: datetime) -> None:
    """Ring for each claim that expires before the next scheduled poll, at the second at which it does.

    Thousands that were launched at once expire at once.
    """
    expiring = (
        (claim.name, math.ceil((at - now).total_seconds()))
        for claim in claims
        if claim.metadata.deletion_timestamp is None and (at := liveness.expiration_time(claim)) is not None
    )
    _ring_together(
        bells,
        (
            ("lifecycle", max(0, delay), Doorbell(cluster, "claim", name))
            for name, delay in expiring
            if delay <= HORIZON_SECONDS
        ),
    )


def _ring_lost_instances(ports: SweepPorts, view: ClusterView) -> None:
    """Ring for claims whose instance is not among those that run, which were listed after the claims.

    An instance whose Node is Ready runs: where all are, EC2 is not asked.
    """
    launched = {
        instance: claim.name
        for claim in view.claims
        if (instance := instance_id(claim.provider_id))
        and instance not in view.ready_instances
        and claim.is_managed
        and claim.metadata.deletion_timestamp is None
    }
    if not launched:
        return
    running = {instance.id for instance in ports.ec2.instances_of_cluster() if instance.state in ("pending", "running")}
    lost = [
        Doorbell(ports.cluster.name, "claim-instance", launched[gone]) for gone in sorted(launched.keys() - running)
    ]
    if lost:
        ports.doorbells.ring("lifecycle", lost)


def _ring_unhealthy_instances(
    ports: SweepPorts, claims: tuple[NodeClaim, ...], now: datetime
) -> tuple[dict[str, int], str]:
    """Ring if an instance of a claim is in trouble for about as long as is tolerated; how many are, by what it is.

    Or EC2's error: the rest of the sweep counts all the same, and the next one asks again.
    """
    launched = {instance_id(claim.provider_id) for claim in claims if claim.is_managed} - {""}
    try:
        statuses = [status for status in ports.ec2.unhealthy_instances() if status.instance_id in launched]
    except ApiError as failure:
        return {}, f"{failure.code}: {failure}"
    if any(
        status.events
        or node_repair.is_due(instance_health.failing_check(status), now)
        or instance_health.volumes_impaired_since(status, now) is not None
        for status in statuses
    ):
        ports.doorbells.ring("lifecycle", [Doorbell(ports.cluster.name, "repair")])
    troubles = Counter(impairment.check.value for status in statuses for impairment in status.impairments)
    troubles[SCHEDULED_EVENT] = sum(bool(status.events) for status in statuses)
    return dict(troubles), ""


def _ring_reserved(
    bells: DoorbellPort, cluster: str, claims: tuple[NodeClaim, ...], classes: tuple[EC2NodeClass, ...]
) -> None:
    """Ring for classes with reservations, which are counted again, and for claims whose reservation ends."""
    selecting = [nodeclass.name for nodeclass in classes if nodeclass.capacity_reservation_selector_terms]
    if selecting:
        bells.ring("catalog", [Doorbell(cluster, "nodeclasses", name) for name in selecting])
    by_name = {nodeclass.name: nodeclass for nodeclass in classes}
    ending = [
        nodeclaim
        for nodeclaim in claims
        if reservation_expiration.has_ending_reservation(nodeclaim, by_name.get(nodeclaim.node_class_ref.name))
    ]
    if ending:
        bells.ring("lifecycle", [Doorbell(cluster, "claim", nodeclaim.name) for nodeclaim in ending])


def _is_miscounted(pools: tuple[NodePool, ...], claims: tuple[NodeClaim, ...]) -> bool:
    """Whether the status of a pool has another number of nodes than it has claims that are not being deleted."""
    nodes = Counter(claim.nodepool for claim in claims if claim.metadata.deletion_timestamp is None)
    return any(pool.node_count != nodes[pool.name] for pool in pools)


def _is_off_target(pools: tuple[NodePool, ...], claims: tuple[NodeClaim, ...]) -> bool:
    """Whether a static pool has more or fewer nodes than its replicas; nodes that are being deleted do not count."""
    nodes = Counter(claim.nodepool for claim in claims if claim.metadata.deletion_timestamp is None)
    return any(pool.replicas not in (None, nodes[pool.name]) for pool in pools)


def _ring_unready(
    ports: SweepPorts,
    classes: tuple[EC2NodeClass, ...],
    pools: tuple[NodePool, ...],
    now: datetime,
    *,
    scheduled: bool,
) -> None:
    """Ring for classes and pools that are not ready, or whose status is not of their generation.

    A class that has not been ready for NEWLY_UNREADY is rung for by the poll of each minute alone.
    """
    name = ports.cluster.name
    unready = [
        Doorbell(name, "nodeclasses", nodeclass.name, RUNG_ANYWAY)
        for nodeclass in classes
        if (since := _unready_since(nodeclass, now)) is not None and (scheduled or now - since < NEWLY_UNREADY)
    ]
    if unready:
        ports.doorbells.ring("catalog", unready)
    is_unready = any(_is_unready(pool.conditions, pool.metadata.generation) for pool in pools)
    if is_unready or (scheduled and _has_unseen_overlay(ports)):
        ports.doorbells.ring("lifecycle", [Doorbell(name, "nodepools")])


def _has_unseen_overlay(ports: SweepPorts) -> bool:
    """Whether a NodeOverlay has a status of an earlier generation, or none."""
    if NODE_OVERLAY not in ports.settings.feature_gates:
        return False
    return any(
        all(condition.observed_generation < overlay.metadata.generation for condition in overlay.conditions)
        for overlay in ports.cluster.nodeoverlays()
    )


def _unready_since(nodeclass: EC2NodeClass, now: datetime) -> datetime | None:
    """Since when the class has been deleted or not ready; now for a change that no status shows. None: it is ready."""
    if nodeclass.metadata.deletion_timestamp is not None:
        return nodeclass.metadata.deletion_timestamp
    ready = find_condition(nodeclass.conditions, "Ready")
    if ready is None or ready.observed_generation < nodeclass.metadata.generation:
        return now
    return None if ready.status == "True" else ready.last_transition_time or now


def _is_unready(conditions: tuple[Condition, ...], generation: int) -> bool:
    ready = find_condition(conditions, "Ready")
    return ready is None or ready.status != "True" or ready.observed_generation < generation


def _is_unsettled(claim: NodeClaim, tainted_nodes: Collection[str]) -> bool:
    """Whether the claim waits for a further step, or its node is tainted though nothing disrupts it: the forwarder does
    not ring for that taint, which lifecycle mostly sets itself.
    """
    if claim.metadata.deletion_timestamp is not None or not claim.is_condition_true("Initialized"):
        return True
    return claim.node_name in tainted_nodes and not claim.is_condition_true("DisruptionReason")


def _changed_recently(claim: NodeClaim, now: datetime) -> bool:
    """Whether its conditions changed, or it was created or deleted, a moment ago. A time of the future says nothing."""
    metadata = claim.metadata
    times = [metadata.creation_timestamp, metadata.deletion_timestamp]
    times += [condition.last_transition_time for condition in claim.conditions]
    return any(time is not None and abs((now - time).total_seconds()) < RECENT_SECONDS for time in times)


def _unplanned(state: StatePort, row: ClusterRow, pods: tuple[Pod, ...], now: int) -> tuple[Pod, ...]:
    """Of pending pods those that no node was planned for; none while lifecycle has yet to act.

    Without a cluster state each plan lists the whole cluster, which need not be done every few seconds for pods that
    wait for their node. A promise that does not hold any more is found by the poll of each minute, which asks for none.
    """
    if not pods or row.pending_decisions:
        return ()
    planned = {
        identity for nomination in state.nominations() if now < nomination.due for identity in nomination.pods.items()
    }
    return tuple(pod for pod in pods if (pod.key, pod.metadata.uid) not in planned)
