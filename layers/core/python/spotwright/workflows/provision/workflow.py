"""Provisioning: gather a snapshot, decide, commit. It buys nothing: what was committed is acted on by lifecycle."""

import logging
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.decisions.decide import decide
from spotwright.decisions.decision import SCALED_DOWN, Decision, Disruption, derived_id
from spotwright.errors import ApiError, Unavailable
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.plurals import counted
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.provisionable import ignore_reason
from spotwright.scheduling.plan import Plan
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.planning import planner_at_work, repeated_plan, time_budget
from spotwright.workflows.planning.commit import commit_plan
from spotwright.workflows.planning.confirmation import decide_on_read_nodes, longest_waiting_pods
from spotwright.workflows.planning.launch_bounds import with_launch_bounds
from spotwright.workflows.planning.near_limits import NearLimitsError, decide_for_others
from spotwright.workflows.planning.overlay import BehindError
from spotwright.workflows.planning.snapshot import NotListedError, gather, gather_listed
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.planning.waiting_pods import are_waiting_pods_alike
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import ClusterRow, epoch_ms
from spotwright.workflows.ports.state import FAILED_PLANS, LISTED_FOR_PODS
from spotwright.workflows.provision.events import record_events

log: Final = logging.getLogger("spotwright.planning")

WORK: Final = "provision"
# How often an invocation plans again after it lost the commit to another one.
COMMIT_ATTEMPTS: Final = 5
# The row of a cluster names them all, and each plan reads them.
MAXIMUM_PENDING_DECISIONS: Final = 100
# A command's row stays below DynamoDB's 400 KB, however long names are.
MAXIMUM_EXCESS: Final = 500
# A further round is begun only with so much time left: about what a snapshot and a plan of 10,000 pods take.
ROUND_SECONDS: Final = 20
# Until postponed pods are tried, where the others got no node either.
RETRY_SECONDS: Final = 10
# A pod without a plan for it may wait so long before the cluster is listed for it, and for all, so often at most.
LONG_WAIT: Final = timedelta(minutes=3)
LISTING_SECONDS: Final = 600
# The code of a BehindError that says so.
PODS_WAIT: Final = "PodsWait"
# How often the sweep looks for pending pods while a forwarder lives.
SWEEP_SECONDS: Final = 60


class ProvisionResult(msgspec.Struct, frozen=True):
    """What one invocation decided. ``plans`` and the ``decisions`` committed for them, in order.

    ``pod_wait_seconds``: for each decision, from the newest of its pods to its snapshot. ``postponed_pods``: pods for
    which there was no time; they follow in the next round.
    """

    plans: tuple[Plan, ...] = ()
    decisions: tuple[Decision, ...] = ()
    pod_wait_seconds: tuple[float, ...] = ()
    postponed_pods: int = 0


class _Rounds:
    """What the rounds of an invocation came to so far."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.decisions: list[Decision] = []
        self.pod_wait_seconds: list[float] = []
        self.postponed = 0
        self.told: list[tuple[Snapshot, Plan, Decision | None]] = []
        # When the round that is made now began to list the cluster; None = it has not, or there is none.
        self.list_began: datetime | None = None
        # Whether it leaves something to the next invocation, which lists the cluster.
        self.leaves_to_list = False
        # The end of the note that it lists for pods that wait long; 0 = it does not.
        self.list_for_pods_until = 0

    def result(self) -> ProvisionResult:
        return ProvisionResult(tuple(self.plans), tuple(self.decisions), tuple(self.pod_wait_seconds), self.postponed)


def unserved_request(bells: Iterable[Doorbell]) -> int:
    """The number of the request that all of these doorbells are for; 0 = they are requests of their own."""
    numbers = [bell.epoch for bell in bells]
    return max(numbers) if all(numbers) else 0


def provision(
    ports: ProvisionPorts,
    *,
    clock: Callable[[], datetime],
    seconds_left: SecondsLeft = None,
    unserved_request: int = 0,
) -> ProvisionResult:
    """Plan until every request that was made before the last snapshot is served; ring lifecycle for each decision.

    Beside an invocation at work no other one begins: it leaves its request, which that one serves before it ends, or
    the sweep rings for. Where two plan all the same, who loses the commit plans again on what the other decided. Pods
    for which there is no time are left to the next invocation, for which it rings. Events come last, when all is
    committed. ``unserved_request``: nothing is to be done if so many requests are served already; 0 = the invocation
    is a request of its own.
    """
    state = ports.state
    if unserved_request and state.cluster().served_requests >= unserved_request:
        return ProvisionResult()
    requested = state.request_planning()
    until = planner_at_work.begin(state, WORK, now=clock(), seconds_left=seconds_left)
    if not until:
        return ProvisionResult()
    rounds = _Rounds()
    try:
        _plan_rounds(ports, rounds, until, clock, seconds_left)
    except NotListedError as left:
        log_line(log, log_lines.LEFT_PLAN, cluster=ports.cluster.name, reason=str(left))
        state.end_planning(WORK, until=until)
        _ring_after_pause(ports, clock())
    except ApiError:
        if rounds.list_began is not None:
            _pause_lists(ports, rounds.list_began, clock())
        _end_list_for_pods(ports, rounds, clock(), 0)
        _end_early(ports, requested, until)
        raise
    record_events(ports.cluster, rounds.told, seconds_left)
    return rounds.result()


def _plan_rounds(
    ports: ProvisionPorts, rounds: _Rounds, until: int, clock: Callable[[], datetime], seconds_left: SecondsLeft
) -> None:
    """Rounds until no request is left; for those that are left when rounds or time end, ring.

    The note of this planner is taken back in one write with the check that no request came since the last round.
    """
    state = ports.state
    for attempt in range(COMMIT_ATTEMPTS):
        row = state.cluster()
        if row.held_by:
            state.end_planning(WORK, until=until)
            return
        if row.served_requests < row.planning_requests:
            if attempt and seconds_left is not None and seconds_left() < ROUND_SECONDS:
                break
            is_done = _plan_round(ports, rounds, row, clock, seconds_left)
            _end_list_for_pods(ports, rounds, clock(), LISTING_SECONDS if is_done else 0)
            rounds.list_began = None
            if not is_done:
                continue
            if rounds.postponed or rounds.leaves_to_list:
                break
        if state.end_planning(WORK, until=until, served=row.planning_requests):
            return
    state.end_planning(WORK, until=until)
    delay = RETRY_SECONDS if rounds.postponed and not rounds.decisions else 0
    ports.doorbells.ring("provision", [Doorbell(ports.cluster.name, "pods")], delay_seconds=delay)


def _plan_round(
    ports: ProvisionPorts,
    rounds: _Rounds,
    row: ClusterRow,
    clock: Callable[[], datetime],
    seconds_left: SecondsLeft,
) -> bool:
    """Gather, decide, commit; False when it is to be done again: another decision was first, or one of two is made."""
    if len(row.pending_decisions) >= MAXIMUM_PENDING_DECISIONS:
        raise Unavailable(
            f"{len(row.pending_decisions)} committed decisions of {ports.cluster.name} wait for lifecycle; no other"
            " is made until it has acted on them",
            code="TooManyPendingDecisions",
        )
    now = clock()
    snapshot, plan = _plan(ports, rounds, row, now, clock, seconds_left)
    is_listed = rounds.list_began is not None
    if plan.excess_nodeclaims and is_listed:
        _scale_down(ports, snapshot, row, plan)
        return False
    rounds.plans.append(plan)
    # What is planned later is not known here.
    alike = (
        bool(plan.new_nodes or row.pods_alike)
        and not (rounds.postponed or rounds.leaves_to_list)
        and are_waiting_pods_alike(snapshot)
    )
    decision = _commit(ports, snapshot, row, plan, alike) if plan.new_nodes else None
    if plan.new_nodes and decision is None:
        return False
    if not plan.new_nodes and row.pods_alike and not alike:
        ports.state.note_other_pods()
    if decision is not None:
        rounds.decisions.append(decision)
        rounds.pod_wait_seconds.append(_pod_wait_seconds(snapshot, plan))
        ports.doorbells.ring("lifecycle", [Doorbell(ports.cluster.name, "decision", decision.id)])
    rounds.told.append((snapshot, plan, decision))
    if rounds.leaves_to_list:
        # Its new nodes are on their way, and told of whatever becomes of the list. The requests are not served: a
        # doorbell for them may come at the end of a pause.
        return True
    if decision is not None or rounds.postponed or plan.nodes_held_back:
        ports.state.mark_served(row.planning_requests)
    else:
        until, digest = repeated_plan.pause_until(now, clock()), repeated_plan.digest_of_snapshot(snapshot)
        ports.state.mark_served(row.planning_requests, pause_until=until, pause_digest=digest)
    _ring_when_launches_resume(ports, plan, now)
    return True


def _plan(
    ports: ProvisionPorts,
    rounds: _Rounds,
    row: ClusterRow,
    now: datetime,
    clock: Callable[[], datetime],
    seconds_left: SecondsLeft,
) -> tuple[Snapshot, Plan]:
    """What to do, and the snapshot that says so; of lists where a cluster state must not be relied on.

    Raises NotListedError where it would list the cluster while that pauses.
    """

    def begin_list() -> None:
        if seconds := repeated_plan.seconds_until_list(row, now=clock()):
            raise NotListedError(f"the last list of the cluster failed; the next one begins in {seconds} s")
        rounds.list_began = clock()

    snapshot = _fit(ports, rounds, gather(ports, row, now=now, before_list=begin_list), row, seconds_left)
    catalog = ports.catalogs.read(snapshot.catalog_key)
    try:
        snapshot, plan = _decide_by_state(ports, rounds, snapshot, catalog, now, seconds_left)
        _check_reliance(row, snapshot, plan, now)
    except BehindError as behind:
        begin_list()
        if behind.code == PODS_WAIT:
            _begin_list_for_pods(ports, rounds, clock())
        snapshot = _fit(ports, rounds, gather_listed(ports, row, behind, now=now), row, seconds_left)
        plan, rounds.leaves_to_list = decide(snapshot, ports.catalogs.read(snapshot.catalog_key)), False
    return snapshot, plan


def _decide_by_state(
    ports: ProvisionPorts,
    rounds: _Rounds,
    snapshot: Snapshot,
    catalog: Catalog,
    now: datetime,
    seconds_left: SecondsLeft,
) -> tuple[Snapshot, Plan]:
    """The plan, which may leave something to a list: pods near the limits of a NodePool, and nodes that are to go,
    which keep no others from their nodes. Raises BehindError.
    """
    doubted = longest_waiting_pods(snapshot, now)

    def fit(read: Snapshot) -> Snapshot:
        fitted, left_out = time_budget.fit(read, seconds_left)
        rounds.postponed += left_out
        return fitted

    try:
        snapshot, plan = decide_on_read_nodes(snapshot, catalog, ports, doubted, may_wait=True, fit=fit)
    except NearLimitsError as near:
        snapshot, plan, left_out = decide_for_others(near, catalog, ports, seconds_left)
        rounds.leaves_to_list, rounds.postponed = True, rounds.postponed + left_out
    else:
        rounds.leaves_to_list = bool(plan.excess_nodeclaims)
    return snapshot, plan


def _fit(
    ports: ProvisionPorts, rounds: _Rounds, gathered: Snapshot, row: ClusterRow, seconds_left: SecondsLeft
) -> Snapshot:
    """Within the ceilings of launches, with the pods there is time for."""
    snapshot, rounds.postponed = time_budget.fit(with_launch_bounds(gathered, row, ports.state), seconds_left)
    return snapshot


def _check_reliance(row: ClusterRow, snapshot: Snapshot, plan: Plan, now: datetime) -> None:
    """A cluster state alone removes no node, and does not keep pods waiting for longer than it takes to find that it
    lies: once in so many minutes the cluster is listed for them. Also where they get a new node by it: it may be
    another one each time, on which they have no place. While lists pause, they get it, and nodes that are to go keep
    them from none. Raises BehindError.
    """
    pauses = repeated_plan.seconds_until_list(row, now=now) > 0
    if plan.excess_nodeclaims and not (pauses and plan.new_nodes):
        raise BehindError(f"by it {len(plan.excess_nodeclaims)} NodeClaims of static NodePools go", code="RemovesNodes")
    pauses = pauses or repeated_plan.milliseconds_left(row.listed_for_pods_until, now, LISTING_SECONDS) > 0
    late = [] if pauses else [pod.key for pod in snapshot.pods if _waits_long(pod, now)]
    if late:
        raise BehindError(f"{counted(len(late), 'pod')}, {min(late)} among them, still have no node", code=PODS_WAIT)


def _begin_list_for_pods(ports: ProvisionPorts, rounds: _Rounds, now: datetime) -> None:
    """Where it is cut off, further plans do without it for a while."""
    rounds.list_for_pods_until = epoch_ms(now) + repeated_plan.LONGEST_PAUSE_SECONDS * 1000
    _note_list_for_pods(ports, now, rounds.list_for_pods_until)


def _end_list_for_pods(ports: ProvisionPorts, rounds: _Rounds, now: datetime, enough_for_seconds: int) -> None:
    """``enough_for_seconds``: no further list for them is needed."""
    if rounds.list_for_pods_until:
        with suppress(ApiError):
            ports.state.end_planning(LISTED_FOR_PODS, until=rounds.list_for_pods_until)
        rounds.list_for_pods_until = 0
        if enough_for_seconds:
            _note_list_for_pods(ports, now, epoch_ms(now) + enough_for_seconds * 1000)


def _note_list_for_pods(ports: ProvisionPorts, now: datetime, until: int) -> None:
    # Without it the next plan lists for them, no more.
    with suppress(ApiError):
        ports.state.begin_planning(LISTED_FOR_PODS, now=epoch_ms(now), until=until)


def _waits_long(pod: Pod, now: datetime) -> bool:
    created = pod.metadata.creation_timestamp
    return not pod.node_name and created is not None and now - created > LONG_WAIT and not ignore_reason(pod)


def _commit(
    ports: ProvisionPorts, snapshot: Snapshot, row: ClusterRow, plan: Plan, pods_alike: bool
) -> Decision | None:
    return commit_plan(
        state=ports.state,
        blobs=ports.blobs,
        snapshot=snapshot,
        cluster_version=row.version,
        plan=plan,
        kind="provision",
        message=_message(snapshot, plan),
        launched=row.launched,
        pods_alike=pods_alike,
    )


def _ring_when_launches_resume(ports: ProvisionPorts, plan: Plan, now: datetime) -> None:
    """Within the next minute here; the sweep rings every minute."""
    seconds = [math.ceil((held_back.resumes_at - now).total_seconds()) for held_back in plan.nodes_held_back]
    if seconds and min(seconds) <= SWEEP_SECONDS:
        ports.doorbells.ring("provision", [Doorbell(ports.cluster.name, "pods")], delay_seconds=max(0, min(seconds)))


def _pause_lists(ports: ProvisionPorts, began: datetime, ended: datetime) -> None:
    # Without it the next plan lists sooner, no more.
    with suppress(ApiError):
        until = repeated_plan.pause_until(began, ended)
        ports.state.begin_planning(FAILED_PLANS, now=epoch_ms(ended), until=until)


def _ring_after_pause(ports: ProvisionPorts, now: datetime) -> None:
    """Ring for the requests that are left, once for all of them."""
    row = ports.state.cluster()
    seconds, until = repeated_plan.seconds_until_list(row, now=now), row.failed_plans_pause_until
    if not ports.state.throttle("plans_again", now=epoch_ms(now), until=until):
        bell = Doorbell(ports.cluster.name, "pods", epoch=row.planning_requests)
        ports.doorbells.ring("provision", [bell], delay_seconds=seconds)


def _end_early(ports: ProvisionPorts, requested: int, until: int) -> None:
    """The own message returns in minutes; the requests that others left meanwhile are rung for sooner."""
    with suppress(ApiError):
        if ports.state.end_planning(WORK, until=until) and ports.state.cluster().planning_requests > requested:
            ports.doorbells.ring("provision", [Doorbell(ports.cluster.name, "pods")], delay_seconds=RETRY_SECONDS)


def _scale_down(ports: ProvisionPorts, snapshot: Snapshot, row: ClusterRow, plan: Plan) -> None:
    """Commit that static pools lose what they have beyond their replicas, and ring lifecycle for it.

    What is beyond the bound of a command's row is committed next.
    """
    excess = plan.excess_nodeclaims[:MAXIMUM_EXCESS]
    uids = {nodeclaim.name: nodeclaim.metadata.uid for nodeclaim in snapshot.nodeclaims if nodeclaim.name in excess}
    id = derived_id(snapshot.cluster, SCALED_DOWN, str(row.version), *sorted(uids.values()))
    decision = commit_plan(
        state=ports.state,
        blobs=ports.blobs,
        snapshot=snapshot,
        cluster_version=row.version,
        plan=Plan(excess_nodeclaims=plan.excess_nodeclaims),
        kind="scale-down",
        message=f"static NodePools have {counted(len(uids), 'node')} more than their replicas",
        disruptions=(Disruption(id, SCALED_DOWN, excess, uids),),
    )
    if decision is not None:
        ports.doorbells.ring("lifecycle", [Doorbell(ports.cluster.name, "decision", decision.id)])


def _pod_wait_seconds(snapshot: Snapshot, plan: Plan) -> float:
    pods = snapshot.pods_by_key()
    placed = (pods[key] for node in plan.new_nodes for key in node.pods if key in pods)
    created = [
        pod.metadata.creation_timestamp for pod in placed if not pod.node_name and pod.metadata.creation_timestamp
    ]
    return (snapshot.now - max(created)).total_seconds() if created else 0.0


def _message(snapshot: Snapshot, plan: Plan) -> str:
    known = snapshot.pods_by_key()
    placed = [bool(known[key].node_name) for node in plan.new_nodes for key in node.pods if key in known]
    pods = [counted(placed.count(False), "pending pod")] if False in placed else []
    pods += [f"{counted(placed.count(True), 'pod')} of nodes on their way out"] if True in placed else []
    price = plan.price_picousd_per_hour / 10**12
    need = " and ".join(pods) or "static NodePools and CapacityBuffers"
    verb = "needs" if len(placed) == 1 else "need"
    return f"{need} {verb} {counted(len(plan.new_nodes), 'new node')} for ${price:.4f} per hour"
