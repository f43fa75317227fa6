"""Carrying out a disruption: candidates marked, replacements awaited, candidates deleted; or all of it taken back.

Source: Karpenter v1.14 ``pkg/controllers/disruption/queue.go``. A forced command (an interruption) goes on at its
deadline without its replacements; any other is given up then, and as soon as disruption is paused.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from spotwright.decisions.decision import DRIFTED, SCALED_DOWN, is_derived_id
from spotwright.disruption import blockers, emptiness
from spotwright.errors import ApiError, Conflict, NotFound, OutOfTime
from spotwright.lifecycle.steps import ConditionChange, Deletion, false_condition
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import Node
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_context, log_line
from spotwright.workflows.lifecycle.actions import (
    claims_by_name,
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
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import CommandRow, epoch_ms

INTERRUPTED: Final = "Interrupted"
# A doorbell this much before the row's time counts as on time: clocks differ.
EARLY_MS: Final = 1000
# Between looks at replacements, at first, once one of them has joined, and while they boot; later a tenth of the time
# since the decision.
LOOK_SECONDS: Final = 2
BOOTING_LOOK_SECONDS: Final = 5
LONGEST_LOOK_SECONDS: Final = 15
# So many commands are told when a NodeClaim that they wait for is Initialized; others look.
COMMANDS_TOLD: Final = 20
# The epoch of doorbells for commands of which a replacement became Initialized, or is going, and of those whose look
# failed: they do not wait for their next look.
REPLACEMENT_CHANGED: Final = 1
# A command that was not begun within this time was validated too long ago.
STALE_MS: Final = 5 * 60 * 1000
# Of a command, beside other commands: a thousand empty nodes are one.
CANDIDATES_AT_ONCE: Final = 5


class Claims(msgspec.Struct, frozen=True):
    """What commands look at. ``by_name``: candidates of commands that begin, and replacements that are waited for.

    ``expected``: of those that do not exist, the ones that a launch will create; None = each may be one.
    """

    by_name: dict[str, NodeClaim]
    expected: frozenset[str] | None = frozenset()

    def is_expected(self, name: str) -> bool:
        return self.expected is None or name in self.expected


def ring_commands(ports: LifecyclePorts, claim: NodeClaim) -> None:
    """Ring for the commands that wait for the claim: it became Initialized, or is going."""
    ring_lifecycle(ports, "command", _told(claim), epoch=REPLACEMENT_CHANGED)


def _told(claim: NodeClaim) -> list[str]:
    """The commands that are told of the claim. Users may write anything there: it rings for ids only, and for few."""
    written = claim.metadata.annotations.get(labels.COMMANDS, "").split(",")
    return [id for id in written[:COMMANDS_TOLD] if is_derived_id(id)]


def step_commands(
    ports: LifecyclePorts, ids: Collection[str], *, now: datetime, early: Collection[str] = ()
) -> dict[str, Exception]:
    """One step of each of these commands, side by side; id → what else than an API failed. ``early``: those of which a
    replacement changed.

    A concurrent change or an API that fails means that the command is tried again soon.
    """
    rows = [row for row in ports.state.commands_by_id(ids) if _has_step(row, now) or _is_early(row, early)]
    between = {row.id for row in rows if not _has_step(row, now)}
    try:
        pause = ports.state.cluster() if any(map(_is_by_choice, rows)) else None
        claims = _read_claims(ports, rows)
    except ApiError as failure:
        names = ", ".join(row.id for row in rows)
        log_line(log, log_lines.STEP_FAILED, kind="command", object=names, code=failure.code, error=str(failure))
        _try_again(ports, rows, LOOK_SECONDS)
        return {}
    held_by = pause.disruption_held_by if pause and (pause.paused or pause.disruption_paused) else ""
    failures = in_parallel(lambda row: _step(ports, row, claims, held_by, now, is_between=row.id in between), rows)
    return {row.id: failure for row, failure in zip(rows, failures, strict=True) if failure is not None}


def _has_step(row: CommandRow, now: datetime) -> bool:
    """A doorbell that rings earlier than the row says is ignored: a newer chain of doorbells handles this row."""
    return row.phase == "planned" or (row.phase == "waiting" and epoch_ms(now) >= row.due - EARLY_MS)


def _is_early(row: CommandRow, early: Collection[str]) -> bool:
    return row.phase == "waiting" and row.id in early


def _try_again(ports: LifecyclePorts, rows: Iterable[CommandRow], seconds: int) -> None:
    """Looks that failed are taken again, even if another worker has put off the next ones meanwhile: it may have read
    the replacements before they changed.
    """
    ring_lifecycle(ports, "command", [row.id for row in rows], delay_seconds=seconds, epoch=REPLACEMENT_CHANGED)


def _read_claims(ports: LifecyclePorts, rows: Iterable[CommandRow]) -> Claims:
    """Claims, then what will create the missing ones, then these once more: what comes meanwhile is seen in either."""
    replacements = {name for row in rows for name in row.replacements if name not in row.initialized_replacements}
    names = replacements | {name for row in rows if row.phase == "planned" for name in row.candidates}
    by_name = claims_by_name(ports, sorted(names))
    missing = replacements - by_name.keys()
    if not missing:
        return Claims(by_name)
    # Decisions before launches: one that is acted on meanwhile is seen in either.
    undecided = bool(ports.state.cluster().pending_decisions)
    uncreated = {name for row in ports.state.launches() for name in row.claims if name not in row.uids}
    return Claims(
        by_name | claims_by_name(ports, sorted(missing)), None if undecided else frozenset(uncreated & missing)
    )


def _is_by_choice(row: CommandRow) -> bool:
    """Whether a pause ends it. Fewer replicas are what a user asked for."""
    return not row.forced and row.reason != SCALED_DOWN


def _step(
    ports: LifecyclePorts, row: CommandRow, claims: Claims, held_by: str, now: datetime, *, is_between: bool
) -> Exception | None:
    """One step of a command; what else than an API failed. ``held_by``: why nothing is disrupted by choice.

    ``is_between``: two looks, of which the next one is to come.
    """
    id = row.id
    try:
        with log_context(decision=row.decision):
            if held_by and _is_by_choice(row):
                row = _abort(ports, row, held_by, now)
            if row.phase == "planned":
                row = _taint_candidates(ports, row, claims, now)
            if row.phase == "waiting":
                _await_replacements(ports, row, claims, now, is_between=is_between)
    except (Conflict, NotFound) as lost:
        log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="command", object=id, conflict=str(lost))
        _try_again(ports, [row], 1)
    except ApiError as failure:
        log_line(log, log_lines.STEP_FAILED, kind="command", object=id, code=failure.code, error=str(failure))
        _try_again(ports, [row], LOOK_SECONDS)
    except Exception as failure:  # noqa: BLE001 the loop over commands: one of them must not keep the others
        return failure
    return None


def _taint_candidates(ports: LifecyclePorts, row: CommandRow, found: Claims, now: datetime) -> CommandRow:
    """Taint the candidates and set DisruptionReason; a node that received a pod since it was empty is kept.

    One that cannot be tainted keeps the others only where replacements were bought for all of them.
    """
    if not row.forced and epoch_ms(now) - row.created > STALE_MS:
        return _abort(ports, row, "it was not begun within 5 minutes", now)
    candidates, marked = _candidates(ports, row, found.by_name), set[str]()
    try:
        for_each(
            "nodeclaim",
            candidates,
            lambda claim: marked.add(claim.name) if _taint_candidate(ports, row, claim, now) else None,
            at_once=CANDIDATES_AT_ONCE,
        )
    except ApiError as failure:
        if row.replacements or not marked or isinstance(failure, OutOfTime):
            raise
    if not marked:
        return _finish(ports, row, "aborted")
    names = tuple(claim.name for claim in candidates if claim.name in marked)
    waiting = msgspec.structs.replace(row, candidates=names, phase="waiting", due=epoch_ms(now) + LOOK_SECONDS * 1000)
    # Of two workers the one that saves the row says so.
    after = ports.state.save(waiting)
    log_line(
        log, log_lines.DISRUPTING_NODES,
        command_id=row.id, reason=row.reason.lower(), nodeclaims=names, replacements=row.replacements,
    )  # fmt: skip
    return after


def _taint_candidate(ports: LifecyclePorts, row: CommandRow, claim: NodeClaim, now: datetime) -> bool:
    """Whether the candidate is marked. It is tainted before its pods are read, so that none can come in between.

    One that was protected since the decision is kept.
    """
    for node in nodes_of(ports, claim):
        if _is_by_choice(row) and (why := blockers.node_protection(node)):
            _say_why_kept(ports, row, claim, node, why, now)
            return False
        node = cordon(ports, node)
        counts_pods = _is_by_choice(row) and (row.reason != DRIFTED or claim.termination_grace_period_seconds is None)
        pods = ports.cluster.pods(node=node.name) if counts_pods else ()
        if counts_pods and (why := blockers.pod_protection(pods, now)):
            uncordon(ports, node)
            _say_why_kept(ports, row, claim, node, why, now)
            return False
        if row.reason == emptiness.REASON and any(emptiness.keeps_node(pod, ports.settings) for pod in pods):
            with log_claim(claim):
                log_line(log, log_lines.NODE_NOT_EMPTY, nodeclaim=claim.name, node=node.name)
            uncordon(ports, node)
            return False
    update_conditions(ports, claim, [ConditionChange("DisruptionReason", "True", row.reason)], now=now)
    return True


def _say_why_kept(
    ports: LifecyclePorts, row: CommandRow, claim: NodeClaim, node: Node, why: str, now: datetime
) -> None:
    with log_claim(claim):
        log_line(log, log_lines.FAILED_TO_DISRUPT, command_id=row.id, reason=why)
    event = events.DISRUPTION_BLOCKED(reason=why[0].upper() + why[1:])
    ports.cluster.record_event("nodeclaims", claim.metadata, event, now=now)
    ports.cluster.record_event("nodes", node.metadata, event, now=now)


def _await_replacements(
    ports: LifecyclePorts, stored: CommandRow, claims: Claims, now: datetime, *, is_between: bool
) -> None:
    """Delete the candidates once every replacement is Initialized; at the deadline abort, or go on if it is forced."""
    row, lost = _check_replacements(stored, claims)
    ready = set(row.replacements) <= set(row.initialized_replacements)
    late = epoch_ms(now) >= row.deadline
    if not ready and lost and not (row.forced and late):
        _abort(ports, row, f"replacement {lost} was lost", now)
    elif not ready and late and not row.forced:
        failed = msgspec.structs.replace(row, failed=epoch_ms(now))
        _abort(ports, failed, "replacements were not initialized in time", now)
    elif ready or late:
        _delete(ports, row, now)
    elif not is_between:
        awaited = [claim for name in row.replacements if (claim := claims.by_name.get(name)) and _is_news(row, claim)]
        names = (*row.awaited_replacements, *(claim.name for claim in awaited))
        row = ports.state.save(msgspec.structs.replace(row, awaited_replacements=names, due=_next(row, claims, now)))
        delay = max(1, -(-(row.due - epoch_ms(now)) // 1000))
        ring_lifecycle(ports, "command", [row.id], delay_seconds=delay)
        for claim in awaited:
            event = events.DISRUPTION_WAITING_READINESS()
            ports.cluster.record_event("nodeclaims", claim.metadata, event, now=now)
    elif row != stored:
        ports.state.save(row)


def _is_news(row: CommandRow, claim: NodeClaim) -> bool:
    """Whether the claim is waited for, and was not told so."""
    return claim.name not in row.initialized_replacements and claim.name not in row.awaited_replacements


def _check_replacements(row: CommandRow, claims: Claims) -> tuple[CommandRow, str]:
    """The row with the replacements that are or were Initialized, and one that was lost, "" = none.

    A replacement is lost when its claim is deleted, or when somebody else's claim has its name. Without a claim it is
    expected as long as its launch is open.
    """
    initialized, lost = set(row.initialized_replacements), ""
    own = row.replacements[: row.own_replacements]
    for name in row.replacements:
        if name in initialized:
            continue
        claim = claims.by_name.get(name)
        if claim is not None and name in own and claim.metadata.annotations.get(labels.DECISION) != row.decision:
            lost = name
        elif claim is not None and claim.is_condition_true("Initialized"):
            initialized.add(name)
        elif (claim is None and not claims.is_expected(name)) or (claim and claim.metadata.deletion_timestamp):
            lost = name
    return msgspec.structs.replace(row, initialized_replacements=tuple(sorted(initialized))), lost


def _delete(ports: LifecyclePorts, row: CommandRow, now: datetime) -> None:
    def delete(claim: NodeClaim) -> None:
        _delete_candidate(ports, row, claim, now)

    for_each("nodeclaim", _read_candidates(ports, row), delete, at_once=CANDIDATES_AT_ONCE)
    _finish(ports, row, "done")
    log_line(log, log_lines.COMMAND_SUCCEEDED, command_id=row.id)


def _delete_candidate(ports: LifecyclePorts, row: CommandRow, claim: NodeClaim, now: datetime) -> None:
    delete_claim(ports, claim, Deletion(row.reason.lower(), f"command {row.id}"))
    event = events.DISRUPTION_TERMINATING(kind="NodeClaim", reason=row.reason)
    ports.cluster.record_event("nodeclaims", claim.metadata, event, now=now)
    for node in nodes_of(ports, claim):
        event = events.DISRUPTION_TERMINATING(kind="Node", reason=row.reason)
        ports.cluster.record_event("nodes", node.metadata, event, now=now)


def _abort(ports: LifecyclePorts, row: CommandRow, reason: str, now: datetime) -> CommandRow:
    """Remove taint and DisruptionReason; replacements that exist stay, and are consolidated later."""
    if row.reason != INTERRUPTED:
        for_each(
            "nodeclaim",
            _read_candidates(ports, row),
            lambda claim: _give_back(ports, claim, reason, now),
            at_once=CANDIDATES_AT_ONCE,
        )
    aborted = _finish(ports, row, "aborted")
    log_line(log, log_lines.FAILED_TO_DISRUPT, command_id=row.id, reason=reason)
    return aborted


def _give_back(ports: LifecyclePorts, claim: NodeClaim, reason: str, now: datetime) -> None:
    for node in nodes_of(ports, claim):
        uncordon(ports, node)
    if claim.is_condition_true("DisruptionReason"):
        update_conditions(ports, claim, [false_condition("DisruptionReason", "DisruptionFailed", reason)], now=now)


def _finish(ports: LifecyclePorts, row: CommandRow, phase: str) -> CommandRow:
    """Of two workers one saves the row, and says then what became of the command. Raises Conflict for the other."""
    return ports.state.save(msgspec.structs.replace(row, phase=phase, due=0))


def _read_candidates(ports: LifecyclePorts, row: CommandRow) -> tuple[NodeClaim, ...]:
    return _candidates(ports, row, claims_by_name(ports, row.candidates))


def _candidates(ports: LifecyclePorts, row: CommandRow, claims: Mapping[str, NodeClaim]) -> tuple[NodeClaim, ...]:
    """The candidates that still exist with the uid of the decision, are not being deleted, and may be touched."""
    nodeclaims = (claims.get(name) for name in row.candidates)
    there = (
        claim
        for claim in nodeclaims
        if claim is not None
        and claim.metadata.uid == row.candidate_uids.get(claim.name)
        and claim.metadata.deletion_timestamp is None
    )
    return not_left_alone(ports, there)


def _next(row: CommandRow, claims: Claims, now: datetime) -> int:
    """When to look again, at the latest at the deadline; if the doorbell is lost, the sweep finds the row then."""
    age_ms = epoch_ms(now) - row.created
    awaited = [claims.by_name.get(name) for name in row.replacements if name not in row.initialized_replacements]
    if all(claim is not None and _tells(row, claim) for claim in awaited):
        return min(row.deadline, epoch_ms(now) + LONGEST_LOOK_SECONDS * 1000)
    is_joining = any(claim is not None and claim.is_condition_true("Registered") for claim in awaited)
    shortest = LOOK_SECONDS if is_joining or not row.replacements else BOOTING_LOOK_SECONDS
    look_ms = min(max(shortest * 1000, age_ms // 10), LONGEST_LOOK_SECONDS * 1000)
    return min(row.deadline, epoch_ms(now) + look_ms)


def _tells(row: CommandRow, claim: NodeClaim) -> bool:
    """Whether the command is rung for when the claim, which has an instance, is Initialized or goes."""
    return row.id in _told(claim) and claim.is_condition_true("Launched")
