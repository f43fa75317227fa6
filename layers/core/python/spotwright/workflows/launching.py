"""Launching: committed decisions become rows, rows become NodeClaims, and NodeClaims get instances.

Each phase is a one-way door that is saved under the row's version before the next begins; whatever comes after a door
is derived from the row alone, so a crash, a late or a second worker repeats steps that change nothing.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws.nodeclass import hashes
from spotwright.failures import Conflict, Failure, NotFound
from spotwright.lifecycle import nodeclaim_creation
from spotwright.lifecycle.retry import retry_seconds
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.scheduling.plan import NewNode
from spotwright.workflows import decisions, launching_fleet, launching_handover, lifecycle_nominations
from spotwright.workflows.decisions import Decision
from spotwright.workflows.lifecycle_acting import Acting, log, milliseconds, request_planning, ring
from spotwright.workflows.rows import CommandRow, LaunchRow

# A decision that nobody acted on for this long is not bought any more; its pods are planned again.
STALE_AFTER: Final = timedelta(minutes=10)
# Until a worker is done with a phase, the row's own timer is set this far ahead.
PHASE_TIMEOUT: Final = timedelta(seconds=60)
# A replacement must be Initialized within this time, or the disruption is given up (Karpenter's ten minutes).
REPLACEMENT_TIMEOUT: Final = timedelta(minutes=10)
CLAIMS_AT_ONCE: Final = 100


def act(ports: Acting, *, now: datetime) -> tuple[LaunchRow, ...]:
    """Turn every committed decision into rows, oldest first; those of its launches as they are now."""
    rows: list[LaunchRow] = []
    for key in ports.state.cluster().unacted:
        decision = _read(ports, key)
        if decision is not None:
            rows += _become_rows(ports, decision, now)
        ports.state.acted(key)
    return tuple(rows)


def _become_rows(ports: Acting, decision: Decision, now: datetime) -> list[LaunchRow]:
    made = [_created_row(ports, _launch_row(decision, launch, now)) for launch in decision.launches]
    lifecycle_nominations.promise(ports, decision)
    if decision.disruption is not None:
        _command(ports, decision, now)
        ring(ports, "command", [decision.disruption.id])
    return [row for row in made if row is not None]


def _created_row(ports: Acting, row: LaunchRow) -> LaunchRow | None:
    """The row, or the one that an earlier worker made of the same launch."""
    return row if ports.state.create(row) else ports.state.launch(row.id)


def _read(ports: Acting, key: str) -> Decision | None:
    """A committed decision's body; None when it is gone or unreadable: then it is dropped, and planned anew."""
    try:
        return decisions.decode(ports.blobs.get(key))
    except (NotFound, msgspec.DecodeError) as error:
        log.error("decision dropped", extra={"decision": key, "error": str(error)})
        request_planning(ports)
        return None


def _launch_row(decision: Decision, launch: decisions.Launch, now: datetime) -> LaunchRow:
    return LaunchRow(
        id=launch.id,
        cluster=decision.cluster,
        decision=decision.id,
        claims=launch.claims,
        node=msgspec.json.encode(launch.node, order="deterministic").decode(),
        replaces=launch.replaces,
        reason=launch.reason,
        created=milliseconds(decision.now),
        due=milliseconds(now + PHASE_TIMEOUT),
    )


def _command(ports: Acting, decision: Decision, now: datetime) -> None:
    """The command of a disruption; one that was proposed before becomes planned."""
    wanted = decision.disruption
    assert wanted is not None
    deadline = wanted.deadline or milliseconds(now + REPLACEMENT_TIMEOUT)
    row = CommandRow(
        id=wanted.id,
        cluster=decision.cluster,
        decision=decision.id,
        reason=wanted.reason,
        candidates=wanted.candidates,
        candidate_uids=wanted.uids,
        replacements=wanted.replacements + (_on_their_way(ports, decision) if wanted.deadline else ()),
        forced=wanted.deadline > 0,
        deadline=deadline,
        created=milliseconds(now),
        due=milliseconds(now + PHASE_TIMEOUT),
    )
    if not ports.state.create(row):
        existing = ports.state.command(wanted.id)
        if existing is not None and existing.phase == "proposed":
            ports.state.save(msgspec.structs.replace(row, version=existing.version, created=existing.created))


def _on_their_way(ports: Acting, decision: Decision) -> tuple[str, ...]:
    """Claims that were bought before, are not ready yet, and that the plan gives pods to; by name."""
    hosts = {node.name for node in decision.plan.existing_nodes}
    coming = {
        claim.name
        for claim in ports.cluster.nodeclaims()
        if not claim.is_condition_true("Initialized") and not hosts.isdisjoint((claim.name, claim.node_name))
    }
    promised = {name for row in ports.state.launches() for name in row.claims if name not in row.uids}
    mine = {name for launch in decision.launches for name in launch.claims}
    return tuple(sorted((coming | promised & hosts) - mine))


def advance(ports: Acting, launch: str, *, now: datetime) -> None:
    """Take a launch as far as it goes now."""
    row = ports.state.launch(launch)
    if row is not None:
        proceed(ports, row, now=now)


def proceed(ports: Acting, row: LaunchRow, *, now: datetime) -> None:
    """The same from a row just read or made. A lost race ends quietly; an API in trouble sets the row's timer."""
    if row.not_before > milliseconds(now):
        return
    launch = row.id
    after: LaunchRow | None = row
    try:
        while after is not None:
            after = _step(ports, after, now)
    except Conflict as conflict:
        log.info("launch is in other hands", extra={"launch": launch, "conflict": str(conflict)})
        ring(ports, "launch", [launch], delay_seconds=1)
    except Failure as failure:
        log.warning("launch interrupted", extra={"launch": launch, "code": failure.code, "error": str(failure)})
        _later(ports, launch, now)


def _later(ports: Acting, launch: str, now: datetime) -> None:
    """Try again soon, once however often it is rung; the row's timer stands in for a lost message."""
    row = ports.state.launch(launch)
    if row is None:
        return
    delay = retry_seconds(2)
    at = milliseconds(now + timedelta(seconds=delay))
    ports.state.save(msgspec.structs.replace(row, not_before=at, due=at))
    ring(ports, "launch", [launch], delay_seconds=delay)


def _step(ports: Acting, row: LaunchRow, now: datetime) -> LaunchRow | None:
    """The row after its next phase; None when there is nothing to do now."""
    match row.phase:
        case "planned":
            return _claim(ports, row, now)
        case "claimed":
            return launching_fleet.buy(ports, row, now)
        case "launched":
            return launching_handover.hand_over(ports, row, now)
    if row.due and row.due <= milliseconds(now):
        launching_handover.collect_surplus(ports, row, now)
    return None


def _claim(ports: Acting, row: LaunchRow, now: datetime) -> LaunchRow | None:
    """Create each NodeClaim once and record its uid; phase claimed when all have one."""
    node = msgspec.json.decode(row.node, type=NewNode)
    pool = next((one for one in ports.cluster.nodepools() if one.name == node.nodepool), None)
    stale = milliseconds(now) - row.created > STALE_AFTER.total_seconds() * 1000
    if pool is None or pool.metadata.deletion_timestamp is not None or (stale and not row.uids):
        _give_up(ports, row, "the decision is too old" if stale else f"NodePool {node.nodepool} is gone")
        return None
    uids = dict(row.uids)
    missing = [name for name in row.claims if name not in uids]
    for name in missing[:CLAIMS_AT_ONCE]:
        uids[name] = _created(ports, row, node, pool, name).metadata.uid
    complete = len(uids) == len(row.claims)
    return ports.state.save(
        msgspec.structs.replace(
            row, uids=uids, phase="claimed" if complete else "planned", due=milliseconds(now + PHASE_TIMEOUT)
        )
    )


def _give_up(ports: Acting, row: LaunchRow, why: str) -> None:
    log.info("launch given up", extra={"launch": row.id, "why": why})
    ports.state.save(msgspec.structs.replace(row, phase="failed", failure=why, due=0))
    request_planning(ports)


def _created(ports: Acting, row: LaunchRow, node: NewNode, pool: NodePool, name: str) -> NodeClaim:
    """The claim of that name, made now or by an earlier worker; Conflict when the name is somebody else's."""
    wanted = nodeclaim_creation.to_nodeclaim(
        name,
        node,
        pool,
        decision_id=row.decision,
        launch_id=row.id,
        annotations={
            labels.NODEPOOL_HASH: hashes.nodepool_hash(nodeclaim_creation.decided_nodepool(node, pool)),
            labels.NODEPOOL_HASH_VERSION: hashes.NODEPOOL_VERSION,
        },
    )
    try:
        made = ports.cluster.create_nodeclaim(wanted)
    except Conflict:
        found = ports.cluster.nodeclaim(name)
        if found is None or found.metadata.annotations.get(labels.LAUNCH) != row.id:
            raise
        return found
    log.info("created nodeclaim", extra={"NodePool": pool.name, "NodeClaim": name, "requests": dict(node.requests)})
    return made


def adopt(ports: Acting, claim: NodeClaim, *, now: datetime) -> str:
    """The launch of a claim that none is known for: made by hand, or its row is lost. "" when it must wait.

    A lost launch is taken up again with all its claims that have no instance yet; instances that carry its tag are
    adopted before any is bought.
    """
    lost = claim.metadata.annotations.get(labels.LAUNCH, "")
    id = lost or decisions.identifier("nodeclaim", claim.metadata.uid)
    if ports.state.launch(id) is not None:
        return id
    if (
        lost
        and claim.metadata.creation_timestamp is not None
        and now - claim.metadata.creation_timestamp < PHASE_TIMEOUT
    ):
        return ""
    claims = _siblings(ports, claim, lost)
    types = ports.catalogs.read(ports.state.catalog_key()).instance_types(claim.node_class_ref.name)
    node = nodeclaim_creation.to_new_node(claim, (one.name for one in types))
    ports.state.create(
        LaunchRow(
            id=id,
            cluster=ports.cluster.name,
            decision=claim.metadata.annotations.get(labels.DECISION, ""),
            claims=tuple(one.name for one in claims),
            uids={one.name: one.metadata.uid for one in claims},
            node=msgspec.json.encode(node, order="deterministic").decode(),
            phase="claimed",
            attempt=1 if lost else 0,
            created=milliseconds(now),
            due=milliseconds(now + PHASE_TIMEOUT),
        )
    )
    return id


def _siblings(ports: Acting, claim: NodeClaim, launch: str) -> Iterable[NodeClaim]:
    """The claims of a launch that wait for an instance, by name; just this one when it has no launch."""
    if not launch:
        return [claim]
    return [
        one
        for one in sorted(ports.cluster.nodeclaims(), key=lambda one: one.name)
        if one.metadata.annotations.get(labels.LAUNCH) == launch
        and nodeclaim_creation.is_awaiting_instance(one, one.metadata.uid)
    ]


def release(ports: Acting, claim: NodeClaim) -> bool:
    """Whether a claim that is deleted without an instance may go: no launch can give it one any more.

    The row is written either way, so that a worker who still counts on the claim loses its race and looks again.
    """
    row = ports.state.launch(claim.metadata.annotations.get(labels.LAUNCH, "")) or ports.state.launch(
        decisions.identifier("nodeclaim", claim.metadata.uid)
    )
    if row is None or row.phase in ("done", "failed"):
        return True
    if row.request or row.phase == "launched":
        ring(ports, "launch", [row.id])
        return False
    try:
        ports.state.save(msgspec.structs.replace(row, uids=dict(row.uids) | {claim.name: claim.metadata.uid}))
    except (Conflict, NotFound):
        return False
    return True
