"""Consolidation: moves that are worth it are proposed, and after fifteen seconds judged again on the live cluster."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from spotwright.decisions.decision import Disruption, derived_id
from spotwright.disruption import breaker, consolidation
from spotwright.disruption.candidates import Blocked, Candidate
from spotwright.disruption.cheaper_nodes import dollars
from spotwright.disruption.consolidation import Consolidation
from spotwright.disruption.consolidation_moves import Move
from spotwright.errors import Conflict
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.telemetry import events
from spotwright.telemetry.rows import Event
from spotwright.workflows.disrupt.eviction_limit import EvictionLimit, read_eviction_limit
from spotwright.workflows.disrupt.inputs import (
    PROPOSAL_MS,
    VALIDATION_SECONDS,
    DisruptResult,
    abort_proposal,
    admit,
    buying,
    gather_and_plan,
    locked_claims,
)
from spotwright.workflows.disrupt.pauses import digest_of_candidates, is_pausing, pausing
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.planning.commit import commit_plan
from spotwright.workflows.planning.snapshot import gather_live
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import CommandRow, ProposedMove, epoch_ms

# No trial is begun with less time left: what was found is proposed then.
SEARCH_SECONDS: Final = 30
# What the commit of moves needs: nothing is judged with less time left.
COMMIT_SECONDS: Final = 10
# Reasons named in the log line of an evaluation.
REASONS_SHOWN: Final = 10
# NodeClaims and new nodes named in a sentence.
NAMES_SHOWN: Final = 5
_OVERTAKEN: Final = "another decision was made first"


def propose_consolidation(
    ports: ProvisionPorts, snapshot: Snapshot, plan: Plan, *, locked: frozenset[str], seconds_left: SecondsLeft
) -> tuple[DisruptResult, Consolidation]:
    """Propose the moves that are worth it now, all in one row, and ring for their validation.

    No more nodes than the breaker admits, which consolidation never opens.
    """
    total, percent = sum(claim.is_managed for claim in snapshot.nodeclaims), snapshot.settings.breaker_percent
    now = epoch_ms(snapshot.now)
    found = consolidation.consolidate(
        snapshot,
        plan,
        ports.catalogs.read(snapshot.catalog_key),
        locked=locked,
        maximum=breaker.remaining(ports.state.breaker(), total=total, percent=percent, now=now),
        most_evictions=read_eviction_limit(ports, snapshot).left,
        has_time=lambda: seconds_left is None or seconds_left() > SEARCH_SECONDS,
    )
    candidates = tuple(sorted(name for move in found.moves for name in move.candidates))
    if not candidates:
        return DisruptResult(details=_reasons(found)), found
    digest = digest_of_candidates(snapshot, candidates)
    if is_pausing(ports, consolidation.REASON, digest, now=snapshot.now):
        return DisruptResult(), found
    uids = {claim.name: claim.metadata.uid for claim in snapshot.nodeclaims if claim.name in candidates}
    row = CommandRow(
        id=derived_id(snapshot.cluster, consolidation.REASON, snapshot.now.isoformat(), *sorted(uids.values())),
        cluster=snapshot.cluster,
        decision="",
        reason=consolidation.REASON,
        candidates=candidates,
        candidate_uids=uids,
        evictions=sum(move.evictions for move in found.moves),
        moves=tuple(
            ProposedMove(move.candidates, _describe_change(move), move.saving_picousd_per_hour) for move in found.moves
        ),
        digest=digest,
        phase="proposed",
        created=epoch_ms(snapshot.now),
    )
    ports.state.create(row)
    bell = Doorbell(snapshot.cluster, "validate", row.id)
    ports.doorbells.ring("disrupt", [bell], delay_seconds=VALIDATION_SECONDS)
    _record_candidates(ports, row, now=snapshot.now)
    details = tuple(_describe(move) for move in found.moves[:REASONS_SHOWN])
    return DisruptResult(reason=consolidation.REASON, proposed=candidates, details=details), found


def validate_consolidation(
    ports: ProvisionPorts, row: CommandRow, *, clock: Callable[[], datetime], seconds_left: SecondsLeft
) -> DisruptResult:
    """Commit the moves of a proposal that are still legal and still worth it; abort it when none is.

    When another invocation committed a decision meanwhile, it is validated again after a pause, or given up where that
    is longer than it may wait.
    """
    with pausing(ports, consolidation.REASON, row.digest, clock) as pause_now:
        return _validate(ports, row, clock(), seconds_left, lambda: validate_again(ports, row, clock(), pause_now()))


def validate_again(ports: ProvisionPorts, row: CommandRow, now: datetime, pause_seconds: int) -> None:
    """Ring for a proposal whose commit was lost, or give it up where the pause is longer than it may wait."""
    delay_seconds = max(1, pause_seconds)
    if epoch_ms(now) + delay_seconds * 1000 <= row.created + PROPOSAL_MS:
        again = Doorbell(row.cluster, "validate", row.id)
        ports.doorbells.ring("disrupt", [again], delay_seconds=delay_seconds)
    elif abort_proposal(ports, row):
        record_rejections(ports, row, dict.fromkeys(row.candidates, _OVERTAKEN), now=now)


def _validate(
    ports: ProvisionPorts,
    row: CommandRow,
    now: datetime,
    seconds_left: SecondsLeft,
    again: Callable[[], None],
) -> DisruptResult:
    cluster = ports.state.cluster()
    snapshot, plan, obstacle = gather_and_plan(ports, gather_live, now, seconds_left)
    obstacle = obstacle or buying(plan)
    if obstacle:
        if abort_proposal(ports, row):
            there = [claim.name for claim in snapshot.nodeclaims]
            record_rejections(ports, row, dict.fromkeys(there, obstacle), now=now)
        return DisruptResult(obstacle)
    catalog = ports.catalogs.read(snapshot.catalog_key)
    locked = locked_claims(ports, snapshot, but=row.id)
    limit = read_eviction_limit(ports, snapshot, but=row.id)
    chosen, kept = consolidation.still_allowed(
        snapshot, plan, catalog, row.candidate_uids, locked=locked, most_evictions=limit.left
    )
    found = consolidation.judge(snapshot, plan, catalog, chosen, has_time=lambda: _has_time(seconds_left))
    kept += found.refused
    try:
        wanted = sum(len(move.candidates) for move in found.moves)
        admitted, breaker_open = admit(ports, snapshot, row.id, wanted)
    except Conflict:
        again()
        return DisruptResult()
    if admitted < wanted:
        first = _first(found.moves, chosen, admitted)
        names = {candidate.name for candidate in first}
        going = (name for move in found.moves for name in move.candidates)
        kept += [Blocked(name, breaker.NOT_ADMITTED) for name in going if name not in names]
        found = consolidation.judge(snapshot, plan, catalog, first, has_time=lambda: _has_time(seconds_left))
        kept += found.refused
    reasons = {stays.claim: stays.reason for stays in kept}
    if not found.moves or found.snapshot is None:
        if abort_proposal(ports, row):
            record_rejections(ports, row, reasons, now=now)
        return DisruptResult(breaker_open=breaker_open, details=_reasons(found))
    decision = commit_plan(
        state=ports.state,
        blobs=ports.blobs,
        snapshot=found.snapshot,
        cluster_version=cluster.version,
        plan=found.plan,
        kind="disrupt",
        message="; ".join(_describe(move) for move in found.moves[:REASONS_SHOWN]),
        disruptions=_disruptions(row, found.moves, chosen, locked),
        launched=cluster.launched,
    )
    if decision is None:
        again()
        return DisruptResult()
    ports.doorbells.ring("lifecycle", [Doorbell(row.cluster, "decision", decision.id)])
    _record_approvals(ports, snapshot, found.moves, limit)
    record_rejections(ports, row, reasons, now=now)
    committed = tuple(sorted(name for move in found.moves for name in move.candidates))
    details = tuple(_describe(move) for move in found.moves[:REASONS_SHOWN])
    return DisruptResult(breaker_open=breaker_open, reason=consolidation.REASON, committed=committed, details=details)


def _has_time(seconds_left: SecondsLeft) -> bool:
    return seconds_left is None or seconds_left() > COMMIT_SECONDS


def _first(moves: Sequence[Move], candidates: Sequence[Candidate], admitted: int) -> list[Candidate]:
    """The candidates of as many moves as the breaker admits whole."""
    names = set[str]()
    for move in moves:
        if len(names) + len(move.candidates) <= admitted:
            names |= set(move.candidates)
    return [candidate for candidate in candidates if candidate.name in names]


def _disruptions(
    row: CommandRow, moves: Sequence[Move], candidates: Sequence[Candidate], locked: frozenset[str]
) -> tuple[Disruption, ...]:
    """A command for each node, which waits for the new nodes of its own pods; the first is the proposal's own row.

    The saving of a move is divided among its nodes by their price.
    """
    prices = {candidate.name: candidate.price for candidate in candidates}
    evictions = {candidate.name: candidate.evictions for candidate in candidates}
    savings = {
        name: move.saving_picousd_per_hour * prices[name] // move.price_picousd_per_hour
        for move in moves
        for name in move.candidates
    }
    return tuple(
        Disruption(
            row.id if number == 0 else derived_id(row.id, name),
            consolidation.REASON,
            (name,),
            {name: row.candidate_uids[name]},
            savings_picousd_per_hour=savings[name],
            locked_claims=tuple(sorted(locked)),
            evictions=evictions[name],
        )
        for number, name in enumerate(savings)
    )


def _record_candidates(ports: ProvisionPorts, row: CommandRow, *, now: datetime) -> None:
    told = {
        name: events.CONSOLIDATION_CANDIDATE(move=proposed.move, savings=_savings(proposed))
        for proposed in row.moves
        for name in proposed.candidates
    }
    _record(ports, row, told, now)


def record_rejections(ports: ProvisionPorts, row: CommandRow, reasons: Mapping[str, str], *, now: datetime) -> None:
    """Tell NodeClaims of a proposal why they stay. ``reasons``: by name; of others nothing is said."""
    told = {
        name: events.CONSOLIDATION_REJECTED(move=proposed.move, reason=reasons[name], savings=_savings(proposed))
        for proposed in row.moves
        for name in proposed.candidates
        if name in reasons
    }
    _record(ports, row, told, now)


def _record(ports: ProvisionPorts, row: CommandRow, told: Mapping[str, Event], now: datetime) -> None:
    """``told``: by name of the NodeClaim."""

    def record(name: str) -> None:
        about = ObjectMeta(name, uid=row.candidate_uids[name])
        ports.cluster.record_event("nodeclaims", about, told[name], now=now)

    in_parallel(record, told)


def _savings(proposed: ProposedMove) -> str:
    """With four digits: Karpenter's two are $0.00 for a small node."""
    return f"{dollars(proposed.saving_picousd_per_hour)}/h"


def _record_approvals(ports: ProvisionPorts, snapshot: Snapshot, moves: Sequence[Move], limit: EvictionLimit) -> None:
    claims = {claim.name: claim for claim in snapshot.nodeclaims}
    of_hour = limit.describe(sum(move.evictions for move in moves))
    for move in moves:
        event = events.CONSOLIDATION_APPROVED(move="; ".join(filter(None, (_describe(move), of_hour))))
        for name in move.candidates:
            ports.cluster.record_event("nodeclaims", claims[name].metadata, event, now=snapshot.now)


def _describe(move: Move) -> str:
    """For example: ``saves $0.0770/h; … earned back in 47 minutes: NodeClaim a is replaced with spot m5.large``."""
    return f"{move.describe()}: {_describe_change(move)}"


def _describe_change(move: Move) -> str:
    named = (
        f"NodeClaim {move.candidates[0]} is" if len(move.candidates) == 1 else f"NodeClaims {_few(move.candidates)} are"
    )
    kinds = [f"{node.capacity_type} {node.instance_types[0]}" for node in move.new_nodes]
    return f"{named} " + (f"replaced with {_few(kinds)}" if kinds else "deleted")


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def _reasons(found: Consolidation) -> tuple[str, ...]:
    return tuple(f"{blocked.claim}: {blocked.reason}" for blocked in found.refused[:REASONS_SHOWN])
