"""What a decision about interruption notices is: the plan for all their nodes, and what it says of their offerings."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from spotwright.aws.interruption_messages import NoticeKind
from spotwright.decisions.decide import decide
from spotwright.decisions.decision import Disruption, decode_decision, derived_id
from spotwright.disruption import interruption
from spotwright.errors import ApiError, Conflict
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim, nodes_of_claims
from spotwright.model.kubernetes.pod import Pod, PodDisruptionBudget
from spotwright.model.plurals import counted
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.account.offering_health_store import (
    record_interruption,
    record_rebalance,
    record_reservation_loss,
)
from spotwright.workflows.lifecycle.actions import log
from spotwright.workflows.lifecycle.commands import INTERRUPTED
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.planning import time_budget
from spotwright.workflows.planning.commit import commit_plan
from spotwright.workflows.planning.confirmation import decide_on_read_nodes
from spotwright.workflows.planning.launch_bounds import with_launch_bounds
from spotwright.workflows.planning.overlay import BehindError
from spotwright.workflows.planning.snapshot import gather, gather_listed
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import ClusterRow, NoticeRow, epoch_ms

COMMIT_ATTEMPTS: Final = 5
# So long notices that come at the same moment are waited for at most.
GATHER_MAXIMUM_MS: Final = 3_000
# Of two minutes that EC2 gives, so many may be waited for an invocation that died while it planned.
PLANNER_SECONDS: Final = 15
# So many NodeClaims are named in the message of a decision.
NAMES_SHOWN: Final = 5


class AnnouncedOffering(msgspec.Struct, frozen=True):
    """What the instance of a notice was launched as; "" = not known."""

    notice: NoticeRow
    capacity_type: str
    instance_type: str
    zone: str
    reservation: str = ""


class Interrupted(msgspec.Struct, frozen=True):
    """A notice of a NodeClaim that is to be replaced."""

    notice: NoticeRow
    claim: NodeClaim

    @property
    def offering(self) -> AnnouncedOffering:
        keys = (labels.CAPACITY_TYPE, labels.INSTANCE_TYPE, labels.ZONE, labels.RESERVATION_ID)
        return AnnouncedOffering(self.notice, *(self.claim.metadata.labels.get(key, "") for key in keys))

    def command(self, cluster: str) -> str:
        return derived_id(cluster, "interrupt", self.notice.instance_id, str(self.notice.attempt))


def decide_replacements(
    ports: LifecyclePorts, nodes: Sequence[Interrupted], now: datetime, seconds_left: SecondsLeft
) -> None:
    """Plan for the pods of these nodes as if they were deleted, and commit; plan again when another was first.

    Pending pods for which there is no time are left to ``provision``.
    """
    for _ in range(COMMIT_ATTEMPTS):
        before = ports.state.cluster()
        undecided = _undecided(ports, nodes, before)
        if not undecided:
            return
        snapshot, plan = _plan(ports, before, undecided, now, seconds_left)
        decision = commit_plan(
            state=ports.state,
            blobs=ports.blobs,
            snapshot=snapshot,
            cluster_version=before.version,
            plan=plan,
            kind="interrupt",
            message=_message(undecided),
            disruptions=_disruptions(snapshot, undecided, now),
            launched=before.launched,
        )
        if decision is not None:
            log_line(
                log, log_lines.DECIDED_ON_INTERRUPTION,
                decision=decision.id, summary=decision.message, nodeclaims=len(undecided),
            )  # fmt: skip
            return
    raise Conflict("other invocations committed first in every attempt", code="Conflict")


def _plan(
    ports: LifecyclePorts, row: ClusterRow, nodes: Sequence[Interrupted], now: datetime, seconds_left: SecondsLeft
) -> tuple[Snapshot, Plan]:
    """What is launched for the pods of these nodes, and the snapshot that says so.

    They are evicted for the room that it shows on other Nodes, which are read; of lists where these are not as a
    cluster state shows them, or where by it pods have no place at all. When a notice is late, a cluster state is relied
    on all the same, but for limits: a cluster that cannot be listed in time keeps no pods from their places. When they
    are evicted depends on PodDisruptionBudgets, which are read as well.
    """
    names = {node.claim.node_name for node in nodes} - {""}

    def marked(gathered: Snapshot) -> Snapshot:
        going = interruption.mark_interrupted(gathered, [node.claim for node in nodes])
        return time_budget.fit(with_launch_bounds(going, row, ports.state), seconds_left)[0]

    snapshot = _with_budgets(ports, marked(gather(ports, row, now=now, nodes_read=names)))
    moving = frozenset(pod.key for pod in snapshot.pods if pod.node_name in names)
    try:
        return _decide_on_state(ports, snapshot, nodes, moving, seconds_left)
    except BehindError as behind:
        snapshot = marked(gather_listed(ports, row, behind, now=now))
        return snapshot, decide(snapshot, ports.catalogs.read(snapshot.catalog_key))


def _decide_on_state(
    ports: LifecyclePorts,
    snapshot: Snapshot,
    nodes: Iterable[Interrupted],
    moving: Collection[str],
    seconds_left: SecondsLeft,
) -> tuple[Snapshot, Plan]:
    """``moving``: pods of the nodes. Raises BehindError."""
    catalog = ports.catalogs.read(snapshot.catalog_key)

    def fit(read: Snapshot) -> Snapshot:
        return time_budget.fit(read, seconds_left)[0]

    try:
        read, plan = decide_on_read_nodes(snapshot, catalog, ports, moving, fit=fit)
        _check_places(plan, moving)
    except BehindError:
        if not any(is_late(node.notice, snapshot.now) for node in nodes):
            raise
        return decide_on_read_nodes(fit(snapshot), catalog, ports, ())
    return read, plan


def is_late(row: NoticeRow, now: datetime) -> bool:
    """Whether others had the time to plan for the notice: they failed, or were cut off while they waited."""
    return epoch_ms(now) - row.created > GATHER_MAXIMUM_MS + PLANNER_SECONDS * 1000


def _check_places(plan: Plan, moving: Collection[str]) -> None:
    """Pods that get no node are evicted without one, which no cluster state alone does. Raises BehindError."""
    placeless = sorted(unplaced.pod for unplaced in plan.unschedulable_pods if unplaced.pod in moving)
    if placeless:
        pods = f"{counted(len(placeless), 'pod')} of nodes that EC2 takes back, {placeless[0]} among them,"
        raise BehindError(f"{pods} got no node of it", code="PodsWait")


def _with_budgets(ports: LifecyclePorts, snapshot: Snapshot) -> Snapshot:
    """With the PodDisruptionBudgets of the API server; with those that it shows while they cannot be read."""
    try:
        budgets = ports.cluster.pod_disruption_budgets()
    except ApiError as failure:
        log_line(log, log_lines.STEP_FAILED, kind="notice", object="", code=failure.code, error=str(failure))
        return snapshot
    return msgspec.structs.replace(snapshot, pod_disruption_budgets=budgets)


def _undecided(ports: LifecyclePorts, nodes: Sequence[Interrupted], cluster: ClusterRow) -> list[Interrupted]:
    """Those for which no decision is committed yet."""
    bodies = (decode_decision(ports.blobs.get(key)) for key in cluster.pending_decisions)
    committed = {disruption.id for decision in bodies for disruption in decision.disruptions}
    commands = [node.command(ports.cluster.name) for node in nodes]
    committed |= {row.id for row in ports.state.commands_by_id(commands)}
    return [node for node, command in zip(nodes, commands, strict=True) if command not in committed]


def _message(nodes: Sequence[Interrupted]) -> str:
    if len(nodes) == 1:
        (node,) = nodes
        instance = node.notice.instance_id
        return f"EC2 announced {node.notice.kind} for instance {instance} of NodeClaim {node.claim.name}"
    kinds = ", ".join(sorted({node.notice.kind for node in nodes}))
    names = ", ".join(node.claim.name for node in nodes[:NAMES_SHOWN])
    more = f" and {len(nodes) - NAMES_SHOWN} more" if len(nodes) > NAMES_SHOWN else ""
    return f"EC2 announced {kinds} for {len(nodes)} instances, those of NodeClaims {names}{more}"


def _disruptions(snapshot: Snapshot, nodes: Iterable[Interrupted], now: datetime) -> tuple[Disruption, ...]:
    """A disruption for each node, which goes when the nodes for its own pods are there, or at its own deadline."""
    pods_by_node: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        pods_by_node.setdefault(snapshot.moving_pods.get(pod.key, pod.node_name), []).append(pod)
    nodes_by_claim = nodes_of_claims(snapshot.nodeclaims, snapshot.nodes)

    def pods_of(claim: str) -> list[Pod]:
        return [pod for there in nodes_by_claim.get(claim, ()) for pod in pods_by_node.get(there.name, ())]

    return tuple(
        Disruption(
            id=node.command(snapshot.cluster),
            reason=INTERRUPTED,
            candidates=(node.claim.name,),
            candidate_uids={node.claim.name: node.claim.metadata.uid},
            deadline=force_at(
                pods_of(node.claim.name),
                snapshot.pod_disruption_budgets,
                node.notice,
                now,
            ),
        )
        for node in nodes
    )


def force_at(pods: Iterable[Pod], budgets: Iterable[PodDisruptionBudget], row: NoticeRow, now: datetime) -> int:
    """When the node of the notice goes without its replacements, so that its pods have stopped in time: epoch
    milliseconds. ``pods``: of the node.
    """
    return epoch_ms(interruption.eviction_start(pods, budgets, taken_at(row, now), now))


def taken_at(row: NoticeRow, now: datetime) -> datetime:
    """When EC2 takes the instance of the notice."""
    return datetime.fromtimestamp(row.deadline / 1000, now.tzinfo)


def mark_offerings(ports: LifecyclePorts, announced: Iterable[AnnouncedOffering]) -> None:
    """The interrupted offerings are unavailable for all clusters of the account, from the time of the notice; those
    that EC2 recommends to leave count dearer.

    Many instances that EC2 takes out of one pool at the same time are one interruption of it.
    """
    pools: dict[tuple[str, str], int] = {}
    left: dict[tuple[str, str], int] = {}
    reservations: dict[str, int] = {}
    for offering in announced:
        is_spot, at = offering.capacity_type == labels.SPOT, offering.notice.created
        kind = offering.notice.warning or offering.notice.kind
        if kind == NoticeKind.SPOT_INTERRUPTED and is_spot:
            pools[offering.instance_type, offering.zone] = at
        elif offering.notice.kind == NoticeKind.REBALANCE_RECOMMENDATION and is_spot:
            left[offering.instance_type, offering.zone] = at
        elif kind == NoticeKind.CAPACITY_RESERVATION_INTERRUPTED and offering.reservation:
            reservations[offering.reservation] = at
    records: list[Callable[[], None]] = [
        *(partial(record_interruption, ports.state, *pool, now_ms=at) for pool, at in pools.items()),
        *(partial(record_rebalance, ports.state, *pool, now_ms=at) for pool, at in left.items()),
        *(partial(record_reservation_loss, ports.state, id, now_ms=at) for id, at in reservations.items()),
    ]
    in_parallel(lambda record: record(), records)
