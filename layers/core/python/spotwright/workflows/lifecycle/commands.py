"""Carrying out a disruption: candidates marked, replacements awaited, candidates deleted; or all of it taken back.

Source: Karpenter v1.14 ``pkg/controllers/disruption/queue.go``. A forced command (an interruption) goes on at its
deadline without its replacements; any other is given up then.
"""

from datetime import datetime
from typing import Final

import msgspec

from spotwright.disruption import emptiness
from spotwright.errors import ApiError, Conflict, NotFound
from spotwright.lifecycle.steps import ConditionChange, Deletion, false_condition
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_context, log_line
from spotwright.workflows.lifecycle.actions import (
    cordon,
    delete_claim,
    for_each,
    log,
    log_claim,
    nodes_of,
    ring_lifecycle,
    uncordon,
    update_conditions,
)
from spotwright.workflows.lifecycle.other_provisioners import not_left_alone
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import CommandRow, epoch_ms

INTERRUPTED: Final = "Interrupted"
# A doorbell this much before the row's time counts as on time: clocks differ.
EARLY_MS: Final = 1000
# Between looks at replacements that are on their way, at first; then a tenth of the time since the decision.
LOOK_SECONDS: Final = 2
LONGEST_LOOK_SECONDS: Final = 15
# A command that was not begun within this time was validated too long ago.
STALE_MS: Final = 5 * 60 * 1000


def step_command(ports: LifecyclePorts, id: str, *, now: datetime) -> None:
    """One step of a command. A concurrent change or an API that fails means that it is tried again soon."""
    row = ports.state.command(id)
    if row is None or row.phase in ("proposed", "done", "aborted"):
        return
    with log_context(decision=row.decision):
        _step(ports, row, now)


def _step(ports: LifecyclePorts, row: CommandRow, now: datetime) -> None:
    id = row.id
    try:
        if row.phase == "planned":
            row = _taint_candidates(ports, row, now)
            if row.phase == "waiting":
                _await_replacements(ports, row, now)
        elif epoch_ms(now) >= row.due - EARLY_MS:
            # A doorbell that rings earlier is ignored: a newer chain of doorbells handles this row.
            _await_replacements(ports, row, now)
    except (Conflict, NotFound) as lost:
        log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="command", object=id, conflict=str(lost))
        ring_lifecycle(ports, "command", [id], delay_seconds=1)
    except ApiError as failure:
        log_line(log, log_lines.STEP_FAILED, kind="command", object=id, code=failure.code, error=str(failure))
        ring_lifecycle(ports, "command", [id], delay_seconds=LOOK_SECONDS)


def _taint_candidates(ports: LifecyclePorts, row: CommandRow, now: datetime) -> CommandRow:
    """Taint the candidates and set DisruptionReason; a node that received a pod since it was empty is kept.

    One that cannot be tainted keeps the others only where replacements were bought for all of them.
    """
    if not row.forced and epoch_ms(now) - row.created > STALE_MS:
        return _abort(ports, row, "it was not begun within 5 minutes", now)
    claims: list[NodeClaim] = []
    try:
        for_each(
            "nodeclaim",
            _candidates(ports, row),
            lambda claim: claims.append(claim) if _taint_candidate(ports, row, claim, now) else None,
        )
    except ApiError:
        if row.replacements or not claims:
            raise
    if not claims:
        return _finish(ports, row, "aborted")
    names = tuple(claim.name for claim in claims)
    log_line(
        log, log_lines.DISRUPTING_NODES,
        command_id=row.id, reason=row.reason.lower(), nodeclaims=names, replacements=row.replacements,
    )  # fmt: skip
    waiting = msgspec.structs.replace(row, candidates=names, phase="waiting", due=_next(row, now))
    return ports.state.save(waiting)


def _taint_candidate(ports: LifecyclePorts, row: CommandRow, claim: NodeClaim, now: datetime) -> bool:
    """Whether the candidate is marked. It is tainted before its pods are read, so that none can come in between."""
    for node in nodes_of(ports, claim):
        node = cordon(ports, node)
        pods = ports.cluster.pods(node=node.name)
        if row.reason == emptiness.REASON and any(emptiness.keeps_node(pod, ports.settings) for pod in pods):
            with log_claim(claim):
                log_line(log, log_lines.NODE_NOT_EMPTY, nodeclaim=claim.name, node=node.name)
            uncordon(ports, node)
            return False
    update_conditions(ports, claim, [ConditionChange("DisruptionReason", "True", row.reason)], now=now)
    return True


def _await_replacements(ports: LifecyclePorts, row: CommandRow, now: datetime) -> None:
    """Delete the candidates once every replacement is Initialized; at the deadline abort, or go on if it is forced."""
    row, lost = _check_replacements(ports, row)
    ready = set(row.replacements) <= set(row.initialized_replacements)
    late = epoch_ms(now) >= row.deadline
    if not ready and lost and not (row.forced and late):
        _abort(ports, row, f"replacement {lost} was lost", now)
    elif not ready and late and not row.forced:
        _abort(ports, row, "replacements were not initialized in time", now)
    elif ready or late:
        _delete(ports, row, now)
    else:
        row = ports.state.save(msgspec.structs.replace(row, due=_next(row, now)))
        delay = max(1, -(-(row.due - epoch_ms(now)) // 1000))
        ring_lifecycle(ports, "command", [row.id], delay_seconds=delay)


def _check_replacements(ports: LifecyclePorts, row: CommandRow) -> tuple[CommandRow, str]:
    """The row with the replacements that are or were Initialized, and one that was lost, "" = none.

    A replacement is lost when its claim is deleted, or when somebody else's claim has its name. Without a claim it is
    expected as long as its launch is open.
    """
    initialized, lost = set(row.initialized_replacements), ""
    own = row.replacements[: row.own_replacements]
    for name in row.replacements:
        if name in initialized:
            continue
        claim, is_expected = ports.cluster.nodeclaim(name), True
        if claim is None:
            # Then the claim once more: one that is created meanwhile is seen in either.
            is_expected = _is_expected(ports, name)
            claim = ports.cluster.nodeclaim(name)
        if claim is not None and name in own and claim.metadata.annotations.get(labels.DECISION) != row.decision:
            lost = name
        elif claim is not None and claim.is_condition_true("Initialized"):
            initialized.add(name)
        elif (claim is None and not is_expected) or (claim and claim.metadata.deletion_timestamp):
            lost = name
    return msgspec.structs.replace(row, initialized_replacements=tuple(sorted(initialized))), lost


def _is_expected(ports: LifecyclePorts, name: str) -> bool:
    """Whether a launch that is open, or will be made of a decision, creates a NodeClaim of this name."""
    # Decisions before launches: one that is acted on meanwhile is seen in either.
    return bool(ports.state.cluster().pending_decisions) or any(
        name in launch.claims and name not in launch.uids for launch in ports.state.launches()
    )


def _delete(ports: LifecyclePorts, row: CommandRow, now: datetime) -> None:
    for_each("nodeclaim", _candidates(ports, row), lambda claim: _delete_candidate(ports, row, claim, now))
    log_line(log, log_lines.COMMAND_SUCCEEDED, command_id=row.id)
    _finish(ports, row, "done")


def _delete_candidate(ports: LifecyclePorts, row: CommandRow, claim: NodeClaim, now: datetime) -> None:
    delete_claim(ports, claim, Deletion(row.reason.lower(), f"command {row.id}"))
    event = events.DISRUPTION_TERMINATING(kind="NodeClaim", reason=row.reason)
    ports.cluster.record_event("nodeclaims", claim.metadata, event, now=now)
    for node in nodes_of(ports, claim):
        event = events.DISRUPTION_TERMINATING(kind="Node", reason=row.reason)
        ports.cluster.record_event("nodes", node.metadata, event, now=now)


def _abort(ports: LifecyclePorts, row: CommandRow, reason: str, now: datetime) -> CommandRow:
    """Remove taint and DisruptionReason; replacements that exist stay, and are consolidated later."""
    log_line(log, log_lines.FAILED_TO_DISRUPT, command_id=row.id, reason=reason)
    if row.reason != INTERRUPTED:
        for_each("nodeclaim", _candidates(ports, row), lambda claim: _give_back(ports, claim, reason, now))
    return _finish(ports, row, "aborted")


def _give_back(ports: LifecyclePorts, claim: NodeClaim, reason: str, now: datetime) -> None:
    for node in nodes_of(ports, claim):
        uncordon(ports, node)
    if claim.is_condition_true("DisruptionReason"):
        update_conditions(ports, claim, [false_condition("DisruptionReason", "DisruptionFailed", reason)], now=now)


def _finish(ports: LifecyclePorts, row: CommandRow, phase: str) -> CommandRow:
    return ports.state.save(msgspec.structs.replace(row, phase=phase, due=0))


def _candidates(ports: LifecyclePorts, row: CommandRow) -> tuple[NodeClaim, ...]:
    """The candidates that still exist with the uid of the decision, are not being deleted, and may be touched."""
    nodeclaims = (ports.cluster.nodeclaim(name) for name in row.candidates)
    there = (
        claim
        for claim in nodeclaims
        if claim is not None
        and claim.metadata.uid == row.candidate_uids.get(claim.name)
        and claim.metadata.deletion_timestamp is None
    )
    return not_left_alone(ports, there)


def _next(row: CommandRow, now: datetime) -> int:
    """When to look again, at the latest at the deadline; if the doorbell is lost, the sweep finds the row then."""
    age_ms = epoch_ms(now) - row.created
    look_ms = min(max(LOOK_SECONDS * 1000, age_ms // 10), LONGEST_LOOK_SECONDS * 1000)
    return min(row.deadline, epoch_ms(now) + look_ms)
