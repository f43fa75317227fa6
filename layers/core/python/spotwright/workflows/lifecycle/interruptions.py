"""Acting on interruption notices. After a spot interruption, the replacement is launched before the first eviction.

All open notices of a cluster are one plan: the pods of a node are planned knowing which other nodes go. Source:
Karpenter's AWS provider ``pkg/controllers/interruption``, which deletes the claim at once; we commit a decision for the
pods first, and delete when the nodes that take them are Initialized or the deadline forces it.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from spotwright.aws.interruption_messages import REPLACED_KINDS, NoticeKind
from spotwright.errors import ApiError
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import PodDisruptionBudget
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import cordon, log, nodes_of, ring_lifecycle, ring_notices
from spotwright.workflows.lifecycle.commands import EARLY_MS
from spotwright.workflows.lifecycle.ended_instances import as_heard, end_claims, is_expected
from spotwright.workflows.lifecycle.interruption_attempts import trying_again
from spotwright.workflows.lifecycle.interruption_decisions import (
    GATHER_MAXIMUM_MS,
    PLANNER_SECONDS,
    Interrupted,
    decide_replacements,
    force_at,
    is_late,
)
from spotwright.workflows.lifecycle.interruption_facts import Facts, claim_of, read_facts
from spotwright.workflows.lifecycle.interruption_writes import (
    EVENTS,
    bound_termination,
    delete_announced,
    record_event_of_claim,
    remember_offerings,
    save_notice,
)
from spotwright.workflows.lifecycle.launch.decisions import act_on_decisions
from spotwright.workflows.lifecycle.single_notices import LOOK_SECONDS, end_unclaimed, end_waiting, start
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.planning import planner_at_work
from spotwright.workflows.planning.time_budget import LAST_SECONDS, SecondsLeft
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import RECOMMENDED, SCHEDULED, CommandRow, NoticeRow, epoch_ms
from spotwright.workflows.rows_together import write_rows

WORK: Final = "notices"
REPLACEMENTS_TRIED: Final = 3
# EC2 takes many instances back within a second or two, each with a message of its own: while the newest notice is so
# young, more may follow, which are waited for until the oldest is GATHER_MAXIMUM_MS old. Less than the second until the
# next look, so that the last of many waits for one look and not for two.
GATHER_IDLE_MS: Final = 600
# Until new notices are looked at again that came while another invocation planned.
AGAIN_SECONDS: Final = 1
# The next look of a chain is not refused where its clock is this much behind.
CLOCKS_DIFFER_MS: Final = 500
# Of such a row, if no look comes.
TIMER_MS: Final = 20_000
# The key of a doorbell for all notices that are due.
ALL: Final = ""


def step_notices(
    ports: LifecyclePorts, instances: Collection[str], *, now: datetime, seconds_left: SecondsLeft = None
) -> None:
    """One step of the notices of these instances, ``ALL`` = of those that are due.

    With them go all new notices of instances that EC2 takes back, which are replaced by one plan, before anything else.
    A concurrent change or an API that fails means that it is tried again soon, and keeps no notices of another kind.
    """
    names = ", ".join(sorted(instances))
    with trying_again(ports, instances, names):
        open_rows = (as_heard(row) for row in ports.state.notices())
        rows = [row for row in open_rows if row.instance_id in instances or row.kind in REPLACED_KINDS]
        new = [row for row in rows if row.kind in REPLACED_KINDS and row.phase == "new"]
        replacing = [row for row in rows if row.kind in REPLACED_KINDS and row.phase != "new"]
        others = [row for row in rows if row.kind not in REPLACED_KINDS]
        if new:
            _step_new(ports, new, now, seconds_left)
        with trying_again(ports, instances, names):
            if replacing:
                _step_replacing(ports, replacing, instances, now, seconds_left)
        if others:
            _step_others(ports, others, now, seconds_left)


def _step_new(ports: LifecyclePorts, rows: Sequence[NoticeRow], now: datetime, seconds_left: SecondsLeft) -> None:
    """Replace the nodes of these notices: have launched, then taint, then tell.

    While another invocation replaces nodes of this cluster, nothing is read or written: what that one decides is seen
    when it has ended, and one doorbell is enough for all new notices, however many invocations leave one. It is left
    before anything is planned, so that somebody looks whether this fails or ends here; without it the plan is made all
    the same.
    """
    unrung = _ring_again(ports, rows, now)
    with trying_again(ports, [rows[0].instance_id] if unrung else (), ", ".join(row.instance_id for row in rows)):
        is_planned = not _may_grow(rows, now) and _plan_new(ports, rows, now, seconds_left)
        if unrung and not is_planned:
            raise unrung


def _plan_new(ports: LifecyclePorts, rows: Sequence[NoticeRow], now: datetime, seconds_left: SecondsLeft) -> bool:
    """False while another invocation plans."""
    nodes = _drain_late(ports, [row for row in rows if is_late(row, now)], now)
    with planner_at_work.noted(
        ports.state, WORK, now=now, seconds_left=seconds_left, maximum_seconds=PLANNER_SECONDS
    ) as is_alone:
        if not is_alone:
            return False
        nodes += _to_replace(ports, [row for row in rows if not is_late(row, now)], now)
        failure = _replace(ports, nodes, now, seconds_left) if nodes else None
    # Tainting two hundred nodes takes seconds, for which no replacement waits; pods that come to a node meanwhile move
    # as its others do. Where nothing can be bought now, the nodes are tainted all the same.
    tainted = in_parallel(lambda node: _cordon(ports, node.claim), nodes)
    if failure is not None:
        _drain_unplanned(ports, nodes, now)
        raise failure
    nodes_by_claim = {node.claim.name: there for node, there in zip(nodes, tainted, strict=True)}

    def tell(node: Interrupted) -> None:
        event = EVENTS[NoticeKind(node.notice.kind)]()
        record_event_of_claim(ports, node.claim, event, now, nodes_by_claim[node.claim.name])

    in_parallel(tell, [node for node in nodes if not node.notice.attempt])
    return True


def _drain_late(ports: LifecyclePorts, rows: Sequence[NoticeRow], now: datetime) -> list[Interrupted]:
    """Drain what can wait for no further plan, before this one is cut off as well; what is still to be replaced."""
    return _drain_unplanned(ports, _to_replace(ports, rows, now), now) if rows else []


def _drain_unplanned(ports: LifecyclePorts, nodes: Sequence[Interrupted], now: datetime) -> list[Interrupted]:
    """While no replacement can be decided, for want of the bucket for example: a node whose pods need all the time that
    is left to stop is drained without one. The other nodes.
    """
    budgets = _budgets(ports)

    def is_drained(node: Interrupted) -> bool:
        with trying_again(ports, (), node.notice.instance_id):
            pods = [pod for there in nodes_of(ports, node.claim) for pod in ports.cluster.pods(node=there.name)]
            if epoch_ms(now) >= force_at(pods, budgets, node.notice, now):
                delete_announced(ports, node.notice, node.claim, now)
                return True
        return False

    drained = in_parallel(is_drained, nodes)
    return [node for node, is_going in zip(nodes, drained, strict=True) if not is_going]


def _budgets(ports: LifecyclePorts) -> tuple[PodDisruptionBudget, ...]:
    """None where they cannot be read: pods then count as if they could all stop together."""
    try:
        return ports.cluster.pod_disruption_budgets()
    except ApiError as failure:
        log_line(log, log_lines.STEP_FAILED, kind="notice", object="", code=failure.code, error=str(failure))
        return ()


def _ring_again(ports: LifecyclePorts, rows: Sequence[NoticeRow], now: datetime) -> ApiError | None:
    """Leave a doorbell for all new notices, unless somebody has just left one; why it failed, if it did."""
    try:
        if not _throttle(ports, "notices_again", now, AGAIN_SECONDS):
            ring_notices(ports, [rows[0].instance_id], delay_seconds=AGAIN_SECONDS)
    except ApiError as failure:
        return failure
    return None


def _may_grow(rows: Sequence[NoticeRow], now: datetime) -> bool:
    """Whether more notices of the same moment are likely to come within a second.

    A row from a time to come, of a clock that is wrong, is waited with no longer.
    """
    ages = [epoch_ms(now) - row.created for row in rows if not row.attempt]
    if not ages or min(ages) < -CLOCKS_DIFFER_MS:
        return False
    return min(ages) < GATHER_IDLE_MS and max(ages) < GATHER_MAXIMUM_MS


def _to_replace(ports: LifecyclePorts, rows: Iterable[NoticeRow], now: datetime) -> list[Interrupted]:
    """What is to be replaced; the notices of other instances take their step. The nearest deadline comes first.

    For what has to wait nothing is rung: a doorbell for all new notices was left, and each one steps them all.
    """
    in_order = sorted(rows, key=lambda row: (row.deadline, row.instance_id))
    facts = read_facts(ports, in_order, now)
    steps = in_parallel(lambda row: _step(ports, row, facts, None, now, is_seen_again=True), in_order)
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
    facts = read_facts(ports, asked, now)
    commands = {command.id: command for command in ports.state.commands_by_id({row.command for row in asked})}
    in_parallel(lambda row: _step(ports, row, facts, commands.get(row.command), now, is_seen_again=is_look), asked)
    if is_look:
        _act(ports, now, seconds_left)
        ring_notices(ports, [ALL], delay_seconds=LOOK_SECONDS)


def _throttle(ports: LifecyclePorts, work: str, now: datetime, seconds: int) -> bool:
    """Whether somebody has done it a moment ago, and it comes again in so many seconds."""
    until = epoch_ms(now) + seconds * 1000 - CLOCKS_DIFFER_MS
    return bool(ports.state.throttle(work, now=epoch_ms(now), until=until))


def _step_others(ports: LifecyclePorts, rows: Sequence[NoticeRow], now: datetime, seconds_left: SecondsLeft) -> None:
    """Notices of instances that are not replaced."""
    facts = read_facts(ports, rows, now)
    expected = [row for row in rows if is_expected(row, facts)]
    end_claims(ports, expected, facts, now, seconds_left)
    others = [row for row in rows if row not in expected]
    for number, row in enumerate(others):
        if seconds_left is not None and seconds_left() < LAST_SECONDS:
            ring_notices(ports, [waiting.instance_id for waiting in others[number:]])
            return
        _step(ports, row, facts, None, now)


def _step(
    ports: LifecyclePorts,
    row: NoticeRow,
    facts: Facts,
    command: CommandRow | None,
    now: datetime,
    *,
    is_seen_again: bool = False,
) -> Interrupted | None:
    """One step of a notice alone; what is to be replaced. ``command``: of the replacement, if there is one.

    ``is_seen_again``: where it fails, it is not rung for, because the next look comes in any case.
    """
    claims = facts.claims.get(row.instance_id, ())
    with trying_again(ports, () if is_seen_again else (row.instance_id,), row.instance_id):
        claim = claim_of(ports, claims)
        if claim is None:
            may_come = bool(claims) or row.instance_id in facts.unassigned
            end_unclaimed(ports, row, facts.instances.get(row.instance_id), may_come, now)
        elif row.phase in (RECOMMENDED, SCHEDULED):
            end_waiting(ports, row, claim, facts, now)
        elif row.phase != "new":
            _follow(ports, row, claim, command, now)
        elif (notice := start(ports, row, claim, facts, now)) is not None:
            return Interrupted(notice, claim)
    return None


def _replace(
    ports: LifecyclePorts, nodes: Sequence[Interrupted], now: datetime, seconds_left: SecondsLeft
) -> ApiError | None:
    """Commit a decision for the pods of these nodes and ring for its launches; why it failed, if it did."""
    try:
        remember_offerings(ports, [node.offering for node in nodes])
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
    with trying_again(ports, [row.instance_id], row.instance_id):
        ports.state.save(row)


def _follow(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, command: CommandRow | None, now: datetime) -> None:
    """Wait for the command of the replacement; it is planned again when it was aborted and there is time."""
    bound_termination(ports, row, claim, now)
    if claim.metadata.deletion_timestamp is not None:
        save_notice(ports, row, phase="done", due=0)
    elif command is not None and command.phase == "aborted":
        if row.attempt + 1 < REPLACEMENTS_TRIED and epoch_ms(now) < row.deadline:
            save_notice(ports, row, phase="new", command="", attempt=row.attempt + 1, due=_due(now))
            ring_notices(ports, [row.instance_id])
        else:
            delete_announced(ports, row, claim, now)
    elif epoch_ms(now) >= row.deadline:
        delete_announced(ports, row, claim, now)
    elif row.due - epoch_ms(now) < TIMER_MS // 2:
        # Looks go on without a write each; only when they end is the row due.
        save_notice(ports, row, due=_due(now))


def _due(now: datetime) -> int:
    """When the sweep looks at a row that is being replaced, if the chain of looks has ended."""
    return epoch_ms(now) + TIMER_MS
