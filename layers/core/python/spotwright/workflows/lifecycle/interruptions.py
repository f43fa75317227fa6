"""Acting on interruption notices. After a spot interruption, the replacement is launched before the first eviction.

All open notices of a cluster are one plan: the pods of a node are planned knowing which other nodes go. Source:
Karpenter's AWS provider ``pkg/controllers/interruption``, which deletes the claim at once; we commit a decision for the
pods first, and delete when the nodes that take them are Initialized or the deadline forces it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws.interruption_messages import REPLACED_KINDS, NoticeKind
from spotwright.disruption.scheduled_change import LAST_HOUR_MS
from spotwright.errors import ApiError, Conflict, NotFound
from spotwright.lifecycle.retry import TERMINATION_TICKS
from spotwright.lifecycle.steps import Deletion
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import format_time, parse_time
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.telemetry.rows import Event
from spotwright.workflows.lifecycle.actions import (
    claims_of_instances,
    cordon,
    delete_claim,
    log,
    nodes_of,
    ring_lifecycle,
    ring_next_tick,
    ring_notices,
)
from spotwright.workflows.lifecycle.commands import EARLY_MS
from spotwright.workflows.lifecycle.interruption_decisions import (
    Interrupted,
    decide_replacements,
    mark_offerings,
    taken_at,
)
from spotwright.workflows.lifecycle.launch.decisions import act_on_decisions
from spotwright.workflows.lifecycle.other_provisioners import not_left_alone
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.planning import planner_at_work
from spotwright.workflows.planning.time_budget import LAST_SECONDS, SecondsLeft
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import RECOMMENDED, SCHEDULED, CommandRow, NoticeRow, epoch_ms
from spotwright.workflows.rows_together import write_rows

# The notice of a new instance waits this long for the instance to be assigned to its claim.
UNCLAIMED_MS: Final = 60_000
WORK: Final = "notices"
# Of two minutes that EC2 gives, so many may be waited for an invocation that died while it planned.
PLANNER_SECONDS: Final = 15
REPLACEMENTS_TRIED: Final = 3
# EC2 takes many instances back within a second or two, each with a message of its own: while the newest notice is so
# young, more may follow, which are waited for until the oldest is that old. Less than the second until the next look,
# so that the last of many waits for one look and not for two.
GATHER_IDLE_MS: Final = 600
GATHER_MAXIMUM_MS: Final = 3_000
# For how long ``disrupt`` may act on a recommendation.
RECOMMENDATION_MS: Final = 2 * 60 * 60 * 1000
# Until new notices are looked at again that came while another invocation planned.
AGAIN_SECONDS: Final = 1
# Between looks at what is being replaced.
LOOK_SECONDS: Final = 2
# The next look of a chain is not refused where its clock is this much behind.
CLOCKS_DIFFER_MS: Final = 500
# Of such a row, if no look comes.
TIMER_MS: Final = 20_000
# The key of a doorbell for all notices that are due.
ALL: Final = ""

_EVENTS: Final = {
    NoticeKind.SPOT_INTERRUPTED: events.SPOT_INTERRUPTED,
    NoticeKind.CAPACITY_RESERVATION_INTERRUPTED: events.CAPACITY_RESERVATION_INTERRUPTED,
    NoticeKind.REBALANCE_RECOMMENDATION: events.SPOT_REBALANCE_RECOMMENDATION,
    NoticeKind.INSTANCE_STOPPED: events.INSTANCE_STOPPING,
    NoticeKind.INSTANCE_TERMINATED: events.INSTANCE_TERMINATING,
    NoticeKind.SCHEDULED_CHANGE: events.INSTANCE_UNHEALTHY,
}


class ClaimsByInstance(msgspec.Struct, frozen=True):
    """Managed NodeClaims by the id of their instance; ``unassigned``: instances that may be some claim's soon."""

    managed: dict[str, NodeClaim]
    unassigned: frozenset[str] = frozenset()


def step_notices(
    ports: LifecyclePorts, instances: Collection[str], *, now: datetime, seconds_left: SecondsLeft = None
) -> None:
    """One step of the notices of these instances, ``ALL`` = of those that are due.

    With them go all new notices of instances that EC2 takes back, which are replaced by one plan, before anything else.
    A concurrent change or an API that fails means that it is tried again soon.
    """
    rows = [row for row in ports.state.notices() if row.instance_id in instances or row.kind in REPLACED_KINDS]
    new = [row for row in rows if row.kind in REPLACED_KINDS and row.phase == "new"]
    replacing = [row for row in rows if row.kind in REPLACED_KINDS and row.phase != "new"]
    others = [row for row in rows if row.kind not in REPLACED_KINDS]
    with _trying_again(ports, instances, ", ".join(sorted(instances))):
        if new:
            _step_new(ports, new, now, seconds_left)
        if replacing:
            _step_replacing(ports, replacing, instances, now, seconds_left)
        if others:
            _step_others(ports, others, now, seconds_left)


def _step_new(ports: LifecyclePorts, rows: Sequence[NoticeRow], now: datetime, seconds_left: SecondsLeft) -> None:
    """Replace the nodes of these notices: have launched, then taint, then tell.

    While another invocation replaces nodes of this cluster, nothing is read or written: what that one decides is seen
    when it has ended, and one doorbell is enough for all new notices, however many invocations leave one.
    """
    if _may_grow(rows, now):
        _ring_again(ports, rows, now)
        return
    with planner_at_work.noted(
        ports.state, WORK, now=now, seconds_left=seconds_left, maximum_seconds=PLANNER_SECONDS
    ) as is_alone:
        if not is_alone:
            _ring_again(ports, rows, now)
            return
        nodes = _to_replace(ports, rows, now)
        failure = _replace(ports, nodes, now, seconds_left) if nodes else None
    # Tainting two hundred nodes takes seconds, for which no replacement waits; pods that come to a node meanwhile move
    # as its others do. Where nothing can be bought now, the nodes are tainted all the same.
    tainted = in_parallel(lambda node: _cordon(ports, node.claim), nodes)
    if failure is not None:
        raise failure
    nodes_by_claim = {node.claim.name: there for node, there in zip(nodes, tainted, strict=True)}

    def tell(node: Interrupted) -> None:
        event = _EVENTS[NoticeKind(node.notice.kind)]()
        _record_event(ports, node.claim, event, now, nodes_by_claim[node.claim.name])

    in_parallel(tell, [node for node in nodes if not node.notice.attempt])


def _ring_again(ports: LifecyclePorts, rows: Sequence[NoticeRow], now: datetime) -> None:
    """Leave a doorbell for all new notices, unless somebody has just left one."""
    if not _throttle(ports, "notices_again", now, AGAIN_SECONDS):
        ring_notices(ports, [rows[0].instance_id], delay_seconds=AGAIN_SECONDS)


def _may_grow(rows: Sequence[NoticeRow], now: datetime) -> bool:
    """Whether more notices of the same moment are likely to come within a second."""
    ages = [epoch_ms(now) - row.created for row in rows if not row.attempt]
    return bool(ages) and min(ages) < GATHER_IDLE_MS and max(ages) < GATHER_MAXIMUM_MS


def _to_replace(ports: LifecyclePorts, rows: Iterable[NoticeRow], now: datetime) -> list[Interrupted]:
    """What is to be replaced; the notices of other instances take their step. The nearest deadline comes first."""
    in_order = sorted(rows, key=lambda row: (row.deadline, row.instance_id))
    claims = _read_claims(ports, [row.instance_id for row in in_order])
    steps = in_parallel(lambda row: _step(ports, row, claims, None, now), in_order)
    return [step for step in steps if step is not None]


def _step_replacing(
    ports: LifecyclePorts,
    rows: Sequence[NoticeRow],
    instances: Collection[str],
    now: datetime,
    seconds_left: SecondsLeft,
) -> None:
    """Those that are asked for; all of them in a look, of which there is a chain as long as notices are replaced.

    A further chain of doorbells ends here, since somebody has just looked. A row that is due shows that no chain came,
    or that looks are late, beside which more of them would not help.
    """
    is_due = any(epoch_ms(now) >= row.due - EARLY_MS for row in rows)
    is_look = (is_due or ALL in instances) and not _throttle(ports, "looks", now, LOOK_SECONDS)
    asked = [row for row in rows if is_look or row.instance_id in instances]
    if not asked:
        return
    claims = _read_claims(ports, [row.instance_id for row in asked])
    commands = {command.id: command for command in ports.state.commands_by_id({row.command for row in asked})}
    in_parallel(lambda row: _step(ports, row, claims, commands.get(row.command), now, is_seen_again=is_look), asked)
    if is_look:
        _act(ports, now, seconds_left)
        ring_notices(ports, [ALL], delay_seconds=LOOK_SECONDS)


def _throttle(ports: LifecyclePorts, work: str, now: datetime, seconds: int) -> bool:
    """Whether somebody has done it a moment ago, and it comes again in so many seconds."""
    until = epoch_ms(now) + seconds * 1000 - CLOCKS_DIFFER_MS
    return bool(ports.state.throttle(work, now=epoch_ms(now), until=until))


def _step_others(ports: LifecyclePorts, rows: Sequence[NoticeRow], now: datetime, seconds_left: SecondsLeft) -> None:
    """Notices of instances that are not replaced."""
    claims = _read_claims(ports, [row.instance_id for row in rows])
    for number, row in enumerate(rows):
        if seconds_left is not None and seconds_left() < LAST_SECONDS:
            ring_notices(ports, [waiting.instance_id for waiting in rows[number:]])
            return
        _step(ports, row, claims, None, now)


def _read_claims(ports: LifecyclePorts, instances: Sequence[str]) -> ClaimsByInstance:
    """The claims of these instances, by their labels. All claims are listed only for an instance of this cluster that
    no label names."""
    claims = [claim for claim in claims_of_instances(ports, instances) if claim.provider_id]
    found = {instance_id(claim.provider_id) for claim in claims}
    unassigned = [id for id in instances if id not in found and _may_be_ours(ports, id)]
    if unassigned:
        claims += [claim for claim in ports.cluster.nodeclaims() if instance_id(claim.provider_id) in unassigned]
    touchable = not_left_alone(ports, (claim for claim in claims if claim.is_managed))
    managed = {instance_id(claim.provider_id): claim for claim in touchable}
    return ClaimsByInstance(managed, frozenset(unassigned))


def _may_be_ours(ports: LifecyclePorts, id: str) -> bool:
    """False when EC2 shows that the instance is not of this cluster; a new one may not be shown yet."""
    instance = ports.ec2.instance(id)
    return instance is None or instance.may_be_of(ports.cluster.name)


def _step(
    ports: LifecyclePorts,
    row: NoticeRow,
    claims: ClaimsByInstance,
    command: CommandRow | None,
    now: datetime,
    *,
    is_seen_again: bool = False,
) -> Interrupted | None:
    """One step of a notice alone; what is to be replaced. ``command``: of the replacement, if there is one.

    ``is_seen_again``: where it fails, it is not rung for, because the next look comes in any case.
    """
    claim = claims.managed.get(row.instance_id)
    with _trying_again(ports, () if is_seen_again else (row.instance_id,), row.instance_id):
        if claim is None:
            _unclaimed(ports, row, row.instance_id in claims.unassigned, now)
        elif row.phase in (RECOMMENDED, SCHEDULED):
            _end_waiting(ports, row, claim, now)
        elif row.phase != "new":
            _follow(ports, row, claim, command, now)
        elif (notice := _start(ports, row, claim, now)) is not None:
            return Interrupted(notice, claim)
    return None


@contextmanager
def _trying_again(ports: LifecyclePorts, instances: Iterable[str], names: str) -> Iterator[None]:
    """Ring for these notices once more when their step fails."""
    try:
        yield
    except (Conflict, NotFound) as lost:
        log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="notice", object=names, conflict=str(lost))
        ring_notices(ports, instances, delay_seconds=1)
    except ApiError as failure:
        log_line(log, log_lines.STEP_FAILED, kind="notice", object=names, code=failure.code, error=str(failure))
        ring_notices(ports, instances, delay_seconds=LOOK_SECONDS)


def _unclaimed(ports: LifecyclePorts, row: NoticeRow, may_come: bool, now: datetime) -> None:
    """No claim has the instance: it is not Spotwright's, or it is being assigned right now."""
    if row.phase == "new" and may_come and epoch_ms(now) - row.created < UNCLAIMED_MS:
        ring_notices(ports, [row.instance_id], delay_seconds=LOOK_SECONDS)
        return
    _save(ports, row, phase="done", due=0)


def _start(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, now: datetime) -> NoticeRow | None:
    kind = NoticeKind(row.kind)
    if claim.metadata.deletion_timestamp is not None and kind not in REPLACED_KINDS:
        # Most likely the finalizer terminated the instance: no event is needed, and it waits until that has ended.
        if row.ended or not claim.is_condition_true("InstanceTerminating"):
            ring_lifecycle(ports, "claim", [claim.name])
        _save(ports, row, claim=claim.name, phase="done", due=0)
        return None
    if kind in REPLACED_KINDS and claim.metadata.deletion_timestamp is None and claim.is_condition_true("Registered"):
        return row
    if kind == NoticeKind.REBALANCE_RECOMMENDATION:
        _recommend(ports, row, claim, now)
    elif kind == NoticeKind.SCHEDULED_CHANGE and _has_time(row, claim, now):
        _schedule(ports, row, claim, now)
    else:
        _delete_claim(ports, row, claim, now)
        _record_event(ports, claim, _EVENTS[kind](), now)
    return None


def _recommend(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, now: datetime) -> None:
    """Leave a recommendation to ``disrupt``, which replaces the node if the NodePool's policy says so."""
    mark_offerings(ports, [Interrupted(row, claim)])
    _record_event(ports, claim, _EVENTS[NoticeKind.REBALANCE_RECOMMENDATION](), now)
    _save(ports, row, claim=claim.name, phase=RECOMMENDED, due=row.created + RECOMMENDATION_MS)
    ports.doorbells.ring("disrupt", [Doorbell(ports.cluster.name, "evaluate")])


def _has_time(row: NoticeRow, claim: NodeClaim, now: datetime) -> bool:
    """Whether a change that EC2 has scheduled is so far ahead that its node need not go at once."""
    return claim.is_condition_true("Registered") and epoch_ms(now) < row.deadline - LAST_HOUR_MS


def _schedule(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, now: datetime) -> None:
    """Leave the node to ``disrupt``, which replaces it when budgets have room; in the last hour it goes anyway."""
    _record_event(ports, claim, _EVENTS[NoticeKind.SCHEDULED_CHANGE](), now)
    _save(ports, row, claim=claim.name, phase=SCHEDULED, due=row.deadline - LAST_HOUR_MS)
    ports.doorbells.ring("disrupt", [Doorbell(ports.cluster.name, "evaluate")])


def _end_waiting(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, now: datetime) -> None:
    """A notice that ``disrupt`` did not act on in time: what EC2 has scheduled cannot wait any longer, and an old
    recommendation says nothing of the instance any more."""
    if claim.metadata.deletion_timestamp is not None:
        _save(ports, row, phase="done", due=0)
    elif epoch_ms(now) >= row.due - EARLY_MS:
        if row.phase == SCHEDULED:
            _delete_claim(ports, row, claim, now)
        else:
            _save(ports, row, phase="done", due=0)


def _delete_claim(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, now: datetime) -> None:
    """Delete the claim at once; its finalizer drains the node as far as possible.

    Where it has been draining for long, its ticks are a minute apart, or have ended: they begin again.
    """
    if row.kind in REPLACED_KINDS:
        _bound_termination(ports, row, claim, now)
    mark_offerings(ports, [Interrupted(row, claim)])
    delete_claim(ports, claim, Deletion(row.kind, f"EC2 announced {row.kind}"))
    if row.kind in REPLACED_KINDS and claim.metadata.deletion_timestamp is not None:
        ring_next_tick(ports, claim.name, TERMINATION_TICKS + 1)
    _save(ports, row, claim=claim.name, phase="done", due=0)
    _record_event(ports, claim, events.TERMINATING_ON_INTERRUPTION(), now)


def _replace(
    ports: LifecyclePorts, nodes: Sequence[Interrupted], now: datetime, seconds_left: SecondsLeft
) -> ApiError | None:
    """Commit a decision for the pods of these nodes and ring for its launches; why it failed, if it did."""
    try:
        mark_offerings(ports, nodes)
        decide_replacements(ports, nodes, now, seconds_left)
        if not _act(ports, now, seconds_left):
            # An invocation that ended here may have left launches that nobody has begun.
            planned = [launch.id for launch in ports.state.launches() if launch.phase == "planned"]
            ring_lifecycle(ports, "launch", planned, queue="notices")
        rows = [_replacing(ports, node, now) for node in nodes]
        write_rows(ports.state.save_together, lambda row: _save_replacing(ports, row), rows)
        ring_notices(ports, [ALL], delay_seconds=LOOK_SECONDS)
    except ApiError as failure:
        return failure
    return None


def _act(ports: LifecyclePorts, now: datetime, seconds_left: SecondsLeft) -> bool:
    """Act on what is committed; whether there are launches to begin.

    Other invocations launch: CreateFleet takes seconds, in which notices that came meanwhile can be planned for.
    """
    return act_on_decisions(ports, now=now, buy=None, seconds_left=seconds_left, queue="notices")


def _cordon(ports: LifecyclePorts, claim: NodeClaim) -> tuple[Node, ...]:
    """Taint the claim's node; the node. Where that fails, its command does it, and no other node waits for it."""
    nodes: tuple[Node, ...] = ()
    try:
        nodes = nodes_of(ports, claim)
        return tuple(cordon(ports, node) for node in nodes)
    except ApiError as failure:
        name = claim.node_name
        log_line(log, log_lines.STEP_FAILED, kind="node", object=name, code=failure.code, error=str(failure))
        return nodes


def _replacing(ports: LifecyclePorts, node: Interrupted, now: datetime) -> NoticeRow:
    command = node.command(ports.cluster.name)
    return msgspec.structs.replace(
        node.notice, claim=node.claim.name, phase="replacing", command=command, due=_due(now)
    )


def _save_replacing(ports: LifecyclePorts, row: NoticeRow) -> None:
    with _trying_again(ports, [row.instance_id], row.instance_id):
        ports.state.save(row)


def _follow(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, command: CommandRow | None, now: datetime) -> None:
    """Wait for the command of the replacement; it is planned again when it was aborted and there is time."""
    _bound_termination(ports, row, claim, now)
    if claim.metadata.deletion_timestamp is not None:
        _save(ports, row, phase="done", due=0)
    elif command is not None and command.phase == "aborted":
        if row.attempt + 1 < REPLACEMENTS_TRIED and epoch_ms(now) < row.deadline:
            _save(ports, row, phase="new", attempt=row.attempt + 1, due=_due(now))
            ring_notices(ports, [row.instance_id])
        else:
            _delete_claim(ports, row, claim, now)
    elif epoch_ms(now) >= row.deadline:
        _delete_claim(ports, row, claim, now)
    elif row.due - epoch_ms(now) < TIMER_MS // 2:
        # Looks go on without a write each; only when they end is the row due.
        _save(ports, row, due=_due(now))


def _bound_termination(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, now: datetime) -> None:
    """The termination ends when EC2 takes the instance, unless it ends earlier: then no pod can be kept there.

    A pod that a PodDisruptionBudget or do-not-disrupt would keep is deleted when its grace period only just fits.
    """
    deadline, stated = taken_at(row, now), parse_time(claim.metadata.annotations.get(labels.TERMINATION_TIMESTAMP, ""))
    grace_seconds = claim.termination_grace_period_seconds
    ends_earlier = grace_seconds is not None and now + timedelta(seconds=grace_seconds) < deadline
    if ends_earlier or (stated is not None and stated <= deadline):
        return
    change = {"annotations": {labels.TERMINATION_TIMESTAMP: format_time(deadline)}}
    ports.cluster.patch_metadata("nodeclaims", claim.metadata.without_resource_version(), change)
    if claim.metadata.deletion_timestamp is not None:
        # Its drain goes by that time from now on.
        ring_lifecycle(ports, "claim", [claim.name])


def _record_event(
    ports: LifecyclePorts, claim: NodeClaim, event: Event, now: datetime, nodes: Iterable[Node] | None = None
) -> None:
    """An event of the claim and of its nodes, which are read unless they are known."""
    ports.cluster.record_event("nodeclaims", claim.metadata, event, now=now)
    for node in nodes_of(ports, claim) if nodes is None else nodes:
        ports.cluster.record_event("nodes", node.metadata, event, now=now)


def _due(now: datetime) -> int:
    """When the sweep looks at a row that is being replaced, if the chain of looks has ended."""
    return epoch_ms(now) + TIMER_MS


def _save(ports: LifecyclePorts, row: NoticeRow, **fields: object) -> NoticeRow:
    return ports.state.save(msgspec.structs.replace(row, **fields))
