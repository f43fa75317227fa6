"""Acting on interruption notices. After a spot interruption, the replacement is launched before the first eviction.

Source: Karpenter's AWS provider ``pkg/controllers/interruption``, which deletes the claim at once; we commit a
decision for the pods first, and delete when its nodes are Initialized or the deadline forces it.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws.interruption_messages import NoticeKind
from spotwright.decisions.decide import decide
from spotwright.decisions.decision import Disruption, decode_decision, derived_id
from spotwright.disruption import interruption
from spotwright.errors import ApiError, Conflict, NotFound
from spotwright.lifecycle.steps import Deletion
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.snapshot import Snapshot
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.telemetry.rows import Event
from spotwright.workflows.account import offering_health_store
from spotwright.workflows.lifecycle.actions import cordon, delete_claim, log, nodes_of, ring_lifecycle
from spotwright.workflows.lifecycle.commands import EARLY_MS, INTERRUPTED
from spotwright.workflows.lifecycle.launch.decisions import act_on_decisions
from spotwright.workflows.lifecycle.launch.phases import proceed
from spotwright.workflows.planning import time_budget
from spotwright.workflows.planning.commit import commit_plan
from spotwright.workflows.planning.snapshot import gather
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import NoticeRow, epoch_ms

# The notice of a new instance waits this long for the instance to be assigned to its claim.
UNCLAIMED_MS: Final = 60_000
COMMIT_ATTEMPTS: Final = 5
REPLACEMENTS_TRIED: Final = 3
LOOK_SECONDS: Final = 2

_EVENTS: Final = {
    NoticeKind.SPOT_INTERRUPTED: events.SPOT_INTERRUPTED,
    NoticeKind.CAPACITY_RESERVATION_INTERRUPTED: events.CAPACITY_RESERVATION_INTERRUPTED,
    NoticeKind.REBALANCE_RECOMMENDATION: events.SPOT_REBALANCE_RECOMMENDATION,
    NoticeKind.INSTANCE_STOPPED: events.INSTANCE_STOPPING,
    NoticeKind.INSTANCE_TERMINATED: events.INSTANCE_TERMINATING,
    NoticeKind.SCHEDULED_CHANGE: events.INSTANCE_UNHEALTHY,
}
_REPLACED: Final = (NoticeKind.SPOT_INTERRUPTED, NoticeKind.CAPACITY_RESERVATION_INTERRUPTED)


def step_notice(ports: LifecyclePorts, instance: str, *, now: datetime, seconds_left: SecondsLeft = None) -> None:
    """One step of a notice. A concurrent change or an API that fails means that it is tried again soon."""
    row = ports.state.notice(instance)
    if row is None or row.phase == "done":
        return
    try:
        _advance(ports, row, now, seconds_left)
    except (Conflict, NotFound) as lost:
        log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="notice", object=instance, conflict=str(lost))
        ring_lifecycle(ports, "notice", [instance], delay_seconds=1)
    except ApiError as failure:
        log_line(log, log_lines.STEP_FAILED, kind="notice", object=instance, code=failure.code, error=str(failure))
        ring_lifecycle(ports, "notice", [instance], delay_seconds=LOOK_SECONDS)


def _advance(ports: LifecyclePorts, row: NoticeRow, now: datetime, seconds_left: SecondsLeft) -> None:
    claims = ports.cluster.nodeclaims()
    claim = next(
        (
            nodeclaim
            for nodeclaim in claims
            if instance_id(nodeclaim.provider_id) == row.instance_id and nodeclaim.is_managed
        ),
        None,
    )
    if claim is None:
        _unclaimed(ports, row, any(not nodeclaim.provider_id for nodeclaim in claims), now)
    elif row.phase == "new":
        _start(ports, row, claim, now, seconds_left)
    else:
        _follow(ports, row, claim, now, seconds_left)


def _unclaimed(ports: LifecyclePorts, row: NoticeRow, may_come: bool, now: datetime) -> None:
    """No claim has the instance: it is not Spotwright's, or it is being assigned right now."""
    if row.phase == "new" and may_come and epoch_ms(now) - row.created < UNCLAIMED_MS:
        ring_lifecycle(ports, "notice", [row.instance_id], delay_seconds=LOOK_SECONDS)
        return
    _save(ports, row, phase="done", due=0)


def _start(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, now: datetime, seconds_left: SecondsLeft) -> None:
    kind = NoticeKind(row.kind)
    if claim.metadata.deletion_timestamp is not None and kind not in _REPLACED:
        # Most likely the finalizer terminated the instance: no event is needed.
        ring_lifecycle(ports, "claim", [claim.name])
        _save(ports, row, claim=claim.name, phase="done", due=0)
        return
    _record_event(ports, claim, _EVENTS[kind](), now)
    if kind == NoticeKind.REBALANCE_RECOMMENDATION:
        _save(ports, row, claim=claim.name, phase="done", due=0)
    elif kind in _REPLACED and claim.metadata.deletion_timestamp is None and claim.is_condition_true("Registered"):
        _replace(ports, row, claim, now, seconds_left)
    else:
        _delete_claim(ports, row, claim, now)


def _delete_claim(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, now: datetime) -> None:
    """Delete the claim at once; its finalizer drains the node as far as possible."""
    _record_event(ports, claim, events.TERMINATING_ON_INTERRUPTION(), now)
    _mark_offering(ports, row, claim)
    delete_claim(ports, claim, Deletion(row.kind, f"EC2 announced {row.kind}"))
    _save(ports, row, claim=claim.name, phase="done", due=0)


def _replace(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, now: datetime, seconds_left: SecondsLeft) -> None:
    """Taint the node, commit a decision for its pods, and launch its instances, in this order."""
    _mark_offering(ports, row, claim)
    for node in nodes_of(ports, claim):
        cordon(ports, node)
    command = derived_id(ports.cluster.name, "interrupt", row.instance_id, str(row.attempt))
    if not _is_committed(ports, command):
        _commit(ports, row, claim, command, now, seconds_left)
    launches = act_on_decisions(ports, now=now)
    _save(ports, row, claim=claim.name, phase="replacing", command=command, due=_next_look(now))
    for launch in launches:
        proceed(ports, launch, now=now)
    ring_lifecycle(ports, "command", [command])
    ring_lifecycle(ports, "notice", [row.instance_id], delay_seconds=LOOK_SECONDS)


def _is_committed(ports: LifecyclePorts, command: str) -> bool:
    if ports.state.command(command) is not None:
        return True
    bodies = (decode_decision(ports.blobs.get(key)) for key in ports.state.cluster().pending_decisions)
    return any(decision.disruption is not None and decision.disruption.id == command for decision in bodies)


def _commit(
    ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, command: str, now: datetime, seconds_left: SecondsLeft
) -> None:
    """Plan for the node's pods as if it were deleted, and commit; plan again when another decision was first.

    Pending pods for which there is no time are left to ``provision``.
    """
    for _ in range(COMMIT_ATTEMPTS):
        before = ports.state.cluster()
        without_node = interruption.mark_deleting(gather(ports, before, now=now), claim)
        snapshot, _ = time_budget.fit(without_node, seconds_left)
        plan = decide(snapshot, ports.catalogs.read(snapshot.catalog_key))
        decision = commit_plan(
            state=ports.state,
            blobs=ports.blobs,
            snapshot=snapshot,
            cluster_version=before.version,
            plan=plan,
            kind="interrupt",
            message=f"EC2 announced {row.kind} for instance {row.instance_id} of NodeClaim {claim.name}",
            disruption=Disruption(
                id=command,
                reason=INTERRUPTED,
                candidates=(claim.name,),
                candidate_uids={claim.name: claim.metadata.uid},
                deadline=_force_at(snapshot, row, claim, now),
            ),
        )
        if decision is not None:
            log_line(log, log_lines.DECIDED_ON_INTERRUPTION, decision=decision.id, summary=decision.message)
            return
    raise Conflict("other invocations committed first in every attempt", code="Conflict")


def _force_at(snapshot: Snapshot, row: NoticeRow, claim: NodeClaim, now: datetime) -> int:
    names = {node.name for node in snapshot.nodes if node.provider_id == claim.provider_id}
    pods = (pod for pod in snapshot.pods if pod.node_name in names)
    deadline = datetime.fromtimestamp(row.deadline / 1000, now.tzinfo)
    return epoch_ms(interruption.eviction_start(pods, deadline, now))


def _follow(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, now: datetime, seconds_left: SecondsLeft) -> None:
    """Wait for the command of the replacement; plan again when it was aborted and there is time."""
    command = ports.state.command(row.command)
    if claim.metadata.deletion_timestamp is not None:
        _save(ports, row, phase="done", due=0)
    elif command is not None and command.phase == "aborted":
        if row.attempt + 1 < REPLACEMENTS_TRIED and epoch_ms(now) < row.deadline:
            again = _save(ports, row, phase="new", attempt=row.attempt + 1, due=_next_look(now))
            _start(ports, again, claim, now, seconds_left)
        else:
            _delete_claim(ports, row, claim, now)
    elif epoch_ms(now) >= row.deadline:
        _delete_claim(ports, row, claim, now)
    elif epoch_ms(now) >= row.due - EARLY_MS:
        # A doorbell that rings earlier is ignored: a newer chain of doorbells handles this row.
        act_on_decisions(ports, now=now)
        _save(ports, row, due=_next_look(now))
        ring_lifecycle(ports, "notice", [row.instance_id], delay_seconds=LOOK_SECONDS)


def _mark_offering(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim) -> None:
    """The interrupted offering is unavailable for all clusters of the account, from the time of the notice."""
    claim_labels = claim.metadata.labels
    kind, reservation = claim_labels.get(labels.CAPACITY_TYPE), claim_labels.get(labels.RESERVATION_ID, "")
    if row.kind == NoticeKind.SPOT_INTERRUPTED and kind == labels.SPOT:
        instance_type, zone = claim_labels.get(labels.INSTANCE_TYPE, ""), claim_labels.get(labels.ZONE, "")
        offering_health_store.record_interruption(ports.state, instance_type, zone, now_ms=row.created)
    elif row.kind == NoticeKind.CAPACITY_RESERVATION_INTERRUPTED and reservation:
        offering_health_store.record_reservation_loss(ports.state, reservation, now_ms=row.created)


def _record_event(ports: LifecyclePorts, claim: NodeClaim, event: Event, now: datetime) -> None:
    ports.cluster.record_event("nodeclaims", claim.metadata, event, now=now)
    for node in nodes_of(ports, claim):
        ports.cluster.record_event("nodes", node.metadata, event, now=now)


def _next_look(now: datetime) -> int:
    return epoch_ms(now + timedelta(seconds=LOOK_SECONDS))


def _save(ports: LifecyclePorts, row: NoticeRow, **fields: object) -> NoticeRow:
    return ports.state.save(msgspec.structs.replace(row, **fields))
