"""The phases of a launch: its NodeClaims are created, then its instances, then it is completed.

Each phase is saved under the row's version before the next begins, and depends on the row alone: after a crash, or in
a second invocation, a step is repeated and changes nothing.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws.nodeclass import hashes
from spotwright.errors import ApiError, Conflict
from spotwright.lifecycle import nodeclaim_creation
from spotwright.lifecycle.retry import retry_seconds
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.scheduling.plan import NewNode
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_context, log_line
from spotwright.workflows.lifecycle.actions import log, request_planning, ring_lifecycle
from spotwright.workflows.lifecycle.launch import assignment
from spotwright.workflows.lifecycle.launch.decisions import PHASE_TIMEOUT
from spotwright.workflows.lifecycle.launch.fleet import create_fleet
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import FINAL_PHASES, PROVISIONED, LaunchRow, epoch_ms

# A decision that was not acted on for this long is not launched any more; its pods are planned again.
STALE_AFTER: Final = timedelta(minutes=10)
# Of an error in a row: it may quote a whole template.
FAILURE_CHARACTERS: Final = 500

CLAIMS_AT_ONCE: Final = 100


def advance(ports: LifecyclePorts, launch: str, *, now: datetime) -> None:
    """Take a launch as many phases on as possible now."""
    row = ports.state.launch(launch)
    if row is not None:
        proceed(ports, row, now=now)


def proceed(ports: LifecyclePorts, row: LaunchRow, *, now: datetime) -> None:
    """The same from a row that was just read. A concurrent change or an API that fails means that it is tried again."""
    if row.not_before > epoch_ms(now):
        return
    with log_context(launch=row.id, decision=row.decision):
        _proceed(ports, row, now)


def _proceed(ports: LifecyclePorts, row: LaunchRow, now: datetime) -> None:
    created: dict[str, NodeClaim] = {}
    _take_steps(ports, row, created, now)
    _say_what_for(ports, row, created.values(), now)


def _say_what_for(ports: LifecyclePorts, row: LaunchRow, created: Iterable[NodeClaim], now: datetime) -> None:
    """Tell NodeClaims that were created for a disruption, after EC2 was asked for their instances and before the launch
    is history, from which nobody goes on.

    Those that were created before are told as well: an invocation that ended since told nobody. An Event that was
    recorded is not recorded again.
    """
    if row.reason == PROVISIONED or row.phase in FINAL_PHASES:
        return
    event = events.DISRUPTION_LAUNCHING(reason=row.reason)
    uids = row.uids | {claim.name: claim.metadata.uid for claim in created}
    awaited = [ObjectMeta(name, uid=uid) for name, uid in sorted(uids.items()) if name in row.commands]
    in_parallel(lambda about: ports.cluster.record_event("nodeclaims", about, event, now=now), awaited)


def _take_steps(ports: LifecyclePorts, row: LaunchRow, created: dict[str, NodeClaim], now: datetime) -> None:
    """Adds the NodeClaims that are created to ``created``."""
    launch = row.id
    after: LaunchRow | None = row
    try:
        while after is not None:
            after = _step(ports, after, created, now)
    except Conflict as conflict:
        log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="launch", object=launch, conflict=str(conflict))
        ring_lifecycle(ports, "launch", [launch], delay_seconds=1)
    except ApiError as failure:
        log_line(log, log_lines.STEP_FAILED, kind="launch", object=launch, code=failure.code, error=str(failure))
        _retry_later(ports, launch, failure, now)


def _retry_later(ports: LifecyclePorts, launch: str, failure: ApiError, now: datetime) -> None:
    """Try again soon, once however many doorbells ring; if the message is lost, the row's timer rings. The row says why
    there is no request yet: its claims do not wait for their turn alone.
    """
    row = ports.state.launch(launch)
    if row is None:
        return
    delay = retry_seconds(2)
    at = epoch_ms(now + timedelta(seconds=delay))
    lacks_request = row.phase in ("planned", "claimed") and not row.request
    why = f"{failure.code}: {failure}"[:FAILURE_CHARACTERS] if lacks_request else row.failure
    ports.state.save(msgspec.structs.replace(row, failure=why, not_before=at, due=at))
    ring_lifecycle(ports, "launch", [launch], delay_seconds=delay)


def _step(ports: LifecyclePorts, row: LaunchRow, created: dict[str, NodeClaim], now: datetime) -> LaunchRow | None:
    """The row after its next phase; None when there is nothing to do now.

    ``created``: NodeClaims that this invocation has created, by name, which need not be read.
    """
    match row.phase:
        case "planned":
            return _create_claims(ports, row, created, now)
        case "claimed":
            return create_fleet(ports, row, now, created=created)
        case "launched":
            return _complete(ports, row, created, now)
    if row.due and row.due <= epoch_ms(now):
        assignment.terminate_surplus(ports, row, now)
    return None


def _complete(ports: LifecyclePorts, row: LaunchRow, created: dict[str, NodeClaim], now: datetime) -> LaunchRow | None:
    if not assignment.complete_launch(ports, row, now, created=created):
        ring_lifecycle(ports, "launch", [row.id], delay_seconds=1)
        return None
    _say_what_for(ports, row, created.values(), now)
    return ports.state.save(msgspec.structs.replace(row, phase="done", due=epoch_ms(now) + assignment.SETTLING_MS))


def _create_claims(
    ports: LifecyclePorts, row: LaunchRow, created: dict[str, NodeClaim], now: datetime
) -> LaunchRow | None:
    """Create each NodeClaim once and record its uid; phase claimed when all have one. Adds them to ``created``."""
    node = msgspec.json.decode(row.node, type=NewNode)
    pool = ports.cluster.nodepool(node.nodepool)
    if pool is None or pool.metadata.deletion_timestamp is not None:
        _abandon(ports, row, f"NodePool {node.nodepool} was deleted")
        return None
    missing = [name for name in dict.fromkeys(row.claims) if name not in row.uids]
    if epoch_ms(now) - row.created > STALE_AFTER.total_seconds() * 1000:
        return _without_claims(ports, row, missing, "the decision is older than 10 minutes")
    names = missing[:CLAIMS_AT_ONCE]
    claims = in_parallel(lambda name: _create_claim(ports, row, node, pool, name), names)
    taken = {name for name, claim in zip(names, claims, strict=True) if claim is None}
    created.update((claim.name, claim) for claim in claims if claim is not None)
    uids = row.uids | {claim.name: claim.metadata.uid for claim in claims if claim is not None}
    due = epoch_ms(now + PHASE_TIMEOUT)
    if taken:
        row = msgspec.structs.replace(row, uids=uids, due=due)
        return _without_claims(ports, row, taken, "others have the names of its NodeClaims")
    complete = len(missing) <= CLAIMS_AT_ONCE
    return ports.state.save(
        msgspec.structs.replace(row, uids=uids, phase="claimed" if complete else "planned", due=due)
    )


def _without_claims(ports: LifecyclePorts, row: LaunchRow, dropped: Collection[str], reason: str) -> LaunchRow | None:
    """Launch without the ``dropped`` NodeClaims, which were never created: their pods are planned again."""
    claims = tuple(name for name in row.claims if name not in dropped)
    if not claims:
        _abandon(ports, row, reason)
        return None
    after = ports.state.save(
        msgspec.structs.replace(row, claims=claims, phase="claimed" if set(claims) <= row.uids.keys() else "planned")
    )
    log_line(log, log_lines.DROPPED_NODECLAIMS, launch=row.id, nodeclaims=sorted(dropped), reason=reason)
    request_planning(ports)
    return after


def _abandon(ports: LifecyclePorts, row: LaunchRow, reason: str) -> None:
    log_line(log, log_lines.ABANDONED_LAUNCH, launch=row.id, reason=reason)
    ports.state.save(msgspec.structs.replace(row, phase="failed", failure=reason, due=0))
    request_planning(ports)


def _create_claim(ports: LifecyclePorts, row: LaunchRow, node: NewNode, pool: NodePool, name: str) -> NodeClaim | None:
    """The claim of that name, created now or before; None when the name belongs to a claim of somebody else."""
    node = msgspec.structs.replace(node, requests=row.requests.get(name, node.requests))
    claim = nodeclaim_creation.to_nodeclaim(
        name,
        node,
        pool,
        decision_id=row.decision,
        launch_id=row.id,
        annotations={
            labels.NODEPOOL_HASH: hashes.nodepool_hash(nodeclaim_creation.decided_nodepool(node, pool)),
            labels.NODEPOOL_HASH_VERSION: hashes.NODEPOOL_VERSION,
        }
        | ({labels.COMMANDS: ",".join(row.commands[name])} if name in row.commands else {}),
    )
    try:
        nodeclaim = ports.cluster.create_nodeclaim(claim)
    except Conflict:
        existing = ports.cluster.nodeclaim(name)
        if existing is None:
            raise
        return existing if existing.metadata.annotations.get(labels.LAUNCH) == row.id else None
    log_line(log, log_lines.CREATED_NODECLAIM, nodepool=pool.name, nodeclaim=name, requests=dict(node.requests))
    return nodeclaim
