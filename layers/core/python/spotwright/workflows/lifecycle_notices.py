"""What a notice about an instance leads to. A spot interruption buys the replacement before the first eviction.

Source: Karpenter's AWS provider ``pkg/controllers/interruption``, which deletes the claim at once; we commit a
decision for the pods first, and delete when its nodes are Initialized or the deadline forces it.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws.interruption_messages import NoticeKind
from spotwright.disruption import interruption
from spotwright.failures import Conflict, Failure, NotFound
from spotwright.lifecycle.steps import Deletion, Event, normal_event, warning_event
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.snapshot import Snapshot
from spotwright.workflows import decisions, launching, offering_memory, planning_time
from spotwright.workflows.decisions import Disruption
from spotwright.workflows.lifecycle_acting import (
    Acting,
    cordon,
    delete_claim,
    log,
    milliseconds,
    nodes_of,
    note,
    ring,
)
from spotwright.workflows.lifecycle_commands import EARLY_MS, INTERRUPTED
from spotwright.workflows.planning_time import SecondsLeft
from spotwright.workflows.provision import commit_plan, decide, gather
from spotwright.workflows.rows import NoticeRow

# An instance this young may be on its way into its claim; until then its notice waits.
UNCLAIMED_MS: Final = 60_000
COMMIT_ATTEMPTS: Final = 5
REPLACEMENTS_TRIED: Final = 3
LOOK_SECONDS: Final = 2

_EVENTS: Final = {
    NoticeKind.SPOT_INTERRUPTED: warning_event("SpotInterrupted", "Spot interruption warning was triggered"),
    NoticeKind.CAPACITY_RESERVATION_INTERRUPTED: warning_event(
        "CapacityReservationInstanceInterrupted", "Capacity reservation interruption warning was triggered"
    ),
    NoticeKind.REBALANCE_RECOMMENDATION: normal_event(
        "SpotRebalanceRecommendation", "Spot rebalance recommendation was triggered"
    ),
    NoticeKind.INSTANCE_STOPPED: warning_event("InstanceStopping", "Instance is stopping"),
    NoticeKind.INSTANCE_TERMINATED: warning_event("InstanceTerminating", "Instance is terminating"),
    NoticeKind.SCHEDULED_CHANGE: warning_event(
        "InstanceUnhealthy", "An unhealthy warning was triggered for the instance"
    ),
}
_REPLACED: Final = (NoticeKind.SPOT_INTERRUPTED, NoticeKind.CAPACITY_RESERVATION_INTERRUPTED)


def step(ports: Acting, instance: str, *, now: datetime, seconds_left: SecondsLeft = None) -> None:
    """One step of a notice. A lost race ends quietly; an API in trouble is tried again shortly."""
    row = ports.state.notice(instance)
    if row is None or row.phase == "done":
        return
    try:
        _advance(ports, row, now, seconds_left)
    except (Conflict, NotFound) as lost:
        log.info("notice is in other hands", extra={"instance": instance, "conflict": str(lost)})
        ring(ports, "notice", [instance], delay_seconds=1)
    except Failure as failure:
        log.warning("notice interrupted", extra={"instance": instance, "code": failure.code, "error": str(failure)})
        ring(ports, "notice", [instance], delay_seconds=LOOK_SECONDS)


def _advance(ports: Acting, row: NoticeRow, now: datetime, seconds_left: SecondsLeft) -> None:
    claims = ports.cluster.nodeclaims()
    claim = next((one for one in claims if instance_id(one.provider_id) == row.instance_id and one.is_managed), None)
    if claim is None:
        _unclaimed(ports, row, any(not one.provider_id for one in claims), now)
    elif row.phase == "new":
        _begin(ports, row, claim, now, seconds_left)
    else:
        _follow(ports, row, claim, now, seconds_left)


def _unclaimed(ports: Acting, row: NoticeRow, may_come: bool, now: datetime) -> None:
    """No claim of ours holds it: somebody else's instance, or one that is being handed over right now."""
    if row.phase == "new" and may_come and milliseconds(now) - row.created < UNCLAIMED_MS:
        ring(ports, "notice", [row.instance_id], delay_seconds=LOOK_SECONDS)
        return
    _save(ports, row, phase="done", due=0)


def _begin(ports: Acting, row: NoticeRow, claim: NodeClaim, now: datetime, seconds_left: SecondsLeft) -> None:
    kind = NoticeKind(row.kind)
    if claim.metadata.deletion_timestamp is not None and kind not in _REPLACED:
        # Most likely our own doing: the instance of a claim that is being finalized has ended. No news for anybody.
        ring(ports, "claim", [claim.name])
        _save(ports, row, claim=claim.name, phase="done", due=0)
        return
    _tell(ports, claim, _EVENTS[kind], now)
    if kind == NoticeKind.REBALANCE_RECOMMENDATION:
        _save(ports, row, claim=claim.name, phase="done", due=0)
    elif kind in _REPLACED and claim.metadata.deletion_timestamp is None and claim.is_condition_true("Registered"):
        _replace(ports, row, claim, now, seconds_left)
    else:
        _end(ports, row, claim, now)


def _end(ports: Acting, row: NoticeRow, claim: NodeClaim, now: datetime) -> None:
    """Delete the claim at once; its finalizer drains what can still be drained."""
    terminating = warning_event("TerminatingOnInterruption", "Interruption triggered termination for the NodeClaim")
    _tell(ports, claim, terminating, now)
    _mark_offering(ports, row, claim)
    delete_claim(ports, claim, Deletion(row.kind, f"EC2 announced {row.kind}"))
    _save(ports, row, claim=claim.name, phase="done", due=0)


def _replace(ports: Acting, row: NoticeRow, claim: NodeClaim, now: datetime, seconds_left: SecondsLeft) -> None:
    """No new pods, a committed decision for those that run there, and its instances asked for: in this order."""
    _mark_offering(ports, row, claim)
    for node in nodes_of(ports, claim):
        cordon(ports, node)
    command = decisions.identifier(ports.cluster.name, "interrupt", row.instance_id, str(row.attempt))
    if not _is_committed(ports, command):
        _commit(ports, row, claim, command, now, seconds_left)
    launches = launching.act(ports, now=now)
    _save(ports, row, claim=claim.name, phase="replacing", replacement=command, due=_soon(now))
    for launch in launches:
        launching.proceed(ports, launch, now=now)
    ring(ports, "command", [command])
    ring(ports, "notice", [row.instance_id], delay_seconds=LOOK_SECONDS)


def _is_committed(ports: Acting, command: str) -> bool:
    if ports.state.command(command) is not None:
        return True
    bodies = (decisions.decode(ports.blobs.get(key)) for key in ports.state.cluster().unacted)
    return any(one.disruption is not None and one.disruption.id == command for one in bodies)


def _commit(
    ports: Acting, row: NoticeRow, claim: NodeClaim, command: str, now: datetime, seconds_left: SecondsLeft
) -> None:
    """Plan for the pods of the doomed node as if it were gone, and commit; a faster planner means planning again.

    Pending pods for which there is no time are left to ``provision``, which is rung for them anyway.
    """
    for _ in range(COMMIT_ATTEMPTS):
        before = ports.state.cluster()
        doomed = interruption.mark_deleting(gather(ports, before, now=now), claim)
        snapshot, _ = planning_time.fitted(doomed, seconds_left)
        plan = decide(snapshot, ports.catalogs.read(snapshot.catalog_key))
        decision = commit_plan(
            state=ports.state,
            blobs=ports.blobs,
            snapshot=snapshot,
            based_on=before.version,
            plan=plan,
            kind="interrupt",
            why=f"EC2 takes {row.instance_id} of NodeClaim {claim.name} back ({row.kind})",
            disruption=Disruption(
                id=command,
                reason=INTERRUPTED,
                candidates=(claim.name,),
                uids={claim.name: claim.metadata.uid},
                deadline=_force_at(snapshot, row, claim, now),
            ),
        )
        if decision is not None:
            log.info("decided on interruption", extra={"decision": decision.id, "why": decision.why})
            return
    raise Conflict("other planners were faster every time", code="Conflict")


def _force_at(snapshot: Snapshot, row: NoticeRow, claim: NodeClaim, now: datetime) -> int:
    names = {node.name for node in snapshot.nodes if node.provider_id == claim.provider_id}
    pods = (pod for pod in snapshot.pods if pod.node_name in names)
    deadline = datetime.fromtimestamp(row.deadline / 1000, now.tzinfo)
    return milliseconds(interruption.eviction_start(pods, deadline, now))


def _follow(ports: Acting, row: NoticeRow, claim: NodeClaim, now: datetime, seconds_left: SecondsLeft) -> None:
    """After the replacement was asked for: wait for its command; plan anew when it failed and there is time."""
    command = ports.state.command(row.replacement)
    if claim.metadata.deletion_timestamp is not None:
        _save(ports, row, phase="done", due=0)
    elif command is not None and command.phase == "aborted":
        if row.attempt + 1 < REPLACEMENTS_TRIED and milliseconds(now) < row.deadline:
            again = _save(ports, row, phase="new", attempt=row.attempt + 1, due=_soon(now))
            _begin(ports, again, claim, now, seconds_left)
        else:
            _end(ports, row, claim, now)
    elif milliseconds(now) >= row.deadline:
        _end(ports, row, claim, now)
    elif milliseconds(now) >= row.due - EARLY_MS:
        # A bell before the row's time belongs to a chain that another has overtaken.
        launching.act(ports, now=now)
        _save(ports, row, due=_soon(now))
        ring(ports, "notice", [row.instance_id], delay_seconds=LOOK_SECONDS)


def _mark_offering(ports: Acting, row: NoticeRow, claim: NodeClaim) -> None:
    """What takes instances back has none to give: said to all clusters, as of the notice."""
    known = claim.metadata.labels
    kind, reservation = known.get(labels.CAPACITY_TYPE), known.get(labels.RESERVATION_ID, "")
    if row.kind == NoticeKind.SPOT_INTERRUPTED and kind == labels.SPOT:
        instance_type, zone = known.get(labels.INSTANCE_TYPE, ""), known.get(labels.ZONE, "")
        offering_memory.interrupted(ports.state, instance_type, zone, now_ms=row.created)
    elif row.kind == NoticeKind.CAPACITY_RESERVATION_INTERRUPTED and reservation:
        offering_memory.reservation_gone(ports.state, reservation, now_ms=row.created)


def _tell(ports: Acting, claim: NodeClaim, said: Event, now: datetime) -> None:
    note(ports, "nodeclaims", claim.metadata, [said], now=now)
    for node in nodes_of(ports, claim):
        note(ports, "nodes", node.metadata, [said], now=now)


def _soon(now: datetime) -> int:
    return milliseconds(now + timedelta(seconds=LOOK_SECONDS))


def _save(ports: Acting, row: NoticeRow, **fields: object) -> NoticeRow:
    return ports.state.save(msgspec.structs.replace(row, **fields))
