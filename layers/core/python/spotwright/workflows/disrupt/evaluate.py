"""Disruption: propose, validate after fifteen seconds, commit. Lifecycle carries out what was committed.

A proposal may come of the cluster state that the forwarder ships. Before the commit what it is about is read from the
API server: a state alone disrupts nothing, and no forwarder is needed.
While an API does not answer, a launch is under way, there is no catalog, the breaker is open, the cluster is paused or
another provisioner runs in it, nothing is proposed, and no proposal is committed.
"""

import math
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from spotwright.decisions.decision import derived_id
from spotwright.disruption import blockers, breaker, drift, emptiness
from spotwright.disruption.blockers import BlockedEvent
from spotwright.disruption.candidates import Blocked
from spotwright.disruption.rollouts import Phase
from spotwright.errors import ApiError
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.telemetry import events
from spotwright.telemetry.rows import EventRow
from spotwright.workflows.disrupt.consolidate import propose_consolidation, record_rejections
from spotwright.workflows.disrupt.drift import commit_drift, find_drifted
from spotwright.workflows.disrupt.inputs import (
    PROPOSAL_MS,
    VALIDATION_SECONDS,
    DisruptResult,
    Gather,
    abort_proposal,
    buying,
    gather_and_plan,
    locked_claims,
)
from spotwright.workflows.disrupt.noticed import replace_noticed
from spotwright.workflows.disrupt.pauses import commit_after_pause, digest_of_candidates, is_pausing
from spotwright.workflows.disrupt.rollouts import read_rollouts, show_held_rollouts, show_rollouts
from spotwright.workflows.planning import overlay
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import CommandRow, epoch_ms

_NOT_VALIDATED: Final = "it was not validated within two minutes"
# A command's row stays below DynamoDB's 400 KB, however long names are. Further nodes are proposed a minute later.
MAXIMUM_CANDIDATES: Final = 500
# Between looks at a canary that has not proved itself yet.
CANARY_SECONDS: Final = 10
# Between doorbells for NodeClaims whose condition Consolidatable is outdated: where hundreds of nodes join, evaluations
# follow each other in seconds, and lifecycle takes longer for the same NodeClaims. Less than the schedule's minute.
TIMERS_SECONDS: Final = 50
# An evaluation for nodes that are nominated no more comes so much later at least: nodes join one after another.
NOMINATIONS_SECONDS: Final = 5
# Events recorded in one evaluation; the others follow in the next minutes.
EVENTS_AT_ONCE: Final = 100


def evaluate(
    ports: ProvisionPorts, *, gather: Gather, clock: Callable[[], datetime], seconds_left: SecondsLeft = None
) -> DisruptResult:
    """Propose to remove empty nodes; ring for validation. One proposal at a time holds a claim.

    ``gather``: reads the cluster.
    """
    now = clock()
    _abort_stale(ports, now)
    snapshot, plan, obstacle = gather_and_plan(ports, gather, now, seconds_left)
    _ring_stale_claims(ports, snapshot)
    current_breaker = ports.state.breaker()
    if breaker.is_open(current_breaker, epoch_ms(now)):
        _record_breaker_open(ports, snapshot, current_breaker)
        return DisruptResult(f"the breaker is open: {current_breaker.reason}", breaker_open=True)
    if obstacle:
        if obstacle == ports.state.cluster().disruption_held_by:
            show_held_rollouts(ports, snapshot, obstacle)
        return DisruptResult(obstacle)
    locked = locked_claims(ports, snapshot)
    _record_obstacles(ports, snapshot, blockers.annotation_events(snapshot))
    _record_obstacles(ports, snapshot, blockers.blocked_events(snapshot, plan, locked=locked, reason=emptiness.REASON))
    empty_nodes = emptiness.find_empty_nodes(snapshot, plan, locked=locked)
    _ring_when_nominations_end(ports, snapshot, {blocked.claim for blocked in empty_nodes.blocked})
    candidates, digest = _propose(ports, snapshot, empty_nodes.claims)
    if not candidates:
        result = _disrupt_with_pods(ports, snapshot, plan, locked, clock, seconds_left)
        return msgspec.structs.replace(result, emptiness=empty_nodes)
    uids = {claim.name: claim.metadata.uid for claim in snapshot.nodeclaims if claim.name in candidates}
    row = CommandRow(
        id=derived_id(snapshot.cluster, emptiness.REASON, now.isoformat(), *sorted(uids.values())),
        cluster=snapshot.cluster,
        decision="",
        reason=emptiness.REASON,
        candidates=candidates,
        candidate_uids=uids,
        digest=digest,
        phase="proposed",
        created=epoch_ms(now),
    )
    ports.state.create(row)
    bell = Doorbell(snapshot.cluster, "validate", row.id)
    ports.doorbells.ring("disrupt", [bell], delay_seconds=VALIDATION_SECONDS)
    return DisruptResult(reason=emptiness.REASON, proposed=candidates, emptiness=empty_nodes)


def _propose(ports: ProvisionPorts, snapshot: Snapshot, empty: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Which NodeClaims of empty nodes are proposed, and the digest of them: no more than are read by name while lists
    of the cluster for them pause."""
    candidates = empty[:MAXIMUM_CANDIDATES]
    digest = digest_of_candidates(snapshot, candidates)
    read_by_name = candidates[: overlay.MAXIMUM_CANDIDATES]
    if read_by_name == candidates or not is_pausing(ports, emptiness.REASON, digest, now=snapshot.now):
        return candidates, digest
    return read_by_name, digest_of_candidates(snapshot, read_by_name)


def _disrupt_with_pods(
    ports: ProvisionPorts,
    snapshot: Snapshot,
    plan: Plan,
    locked: frozenset[str],
    clock: Callable[[], datetime],
    seconds_left: SecondsLeft,
) -> DisruptResult:
    """Nodes of which EC2 announced something first, then drifted ones, then nodes that are worth replacing.

    The first reason that begins something ends the evaluation.
    """
    if obstacle := buying(plan):
        return DisruptResult(obstacle)
    result, noticed = replace_noticed(ports, snapshot, plan, locked, clock=clock, seconds_left=seconds_left)
    _record_obstacles(ports, snapshot, _blocked_events(snapshot, noticed, events.DISRUPTION_BLOCKED))
    if result.committed:
        return result
    rollouts = read_rollouts(ports, snapshot, locked)
    show_rollouts(ports, snapshot, rollouts)
    if any(rollout.phase == Phase.WAITING for rollout in rollouts.values()):
        _look_at_canaries_soon(ports, snapshot.now)
    drifted = find_drifted(ports, snapshot, plan, locked, rollouts, seconds_left=seconds_left)
    _record_obstacles(ports, snapshot, _blocked_events(snapshot, drifted.blocked, events.DISRUPTION_BLOCKED))
    if drifted.candidates:
        digest = digest_of_candidates(snapshot, {candidate.name for candidate in drifted.candidates})
        commit = partial(commit_drift, ports, now=snapshot.now, seconds_left=seconds_left)
        result = commit_after_pause(ports, drift.REASON, digest, commit, clock)
        if result.committed or result.obstacle:
            return result
    result, found = propose_consolidation(ports, snapshot, plan, locked=locked, seconds_left=seconds_left)
    refused = _past_consolidate_after(snapshot, found.refused)
    _record_obstacles(ports, snapshot, _blocked_events(snapshot, refused, events.CANNOT_CONSOLIDATE))
    return result


def _look_at_canaries_soon(ports: ProvisionPorts, now: datetime) -> None:
    """Evaluate again before the schedule does, in a single chain of doorbells."""
    until = epoch_ms(now) + (CANARY_SECONDS - 1) * 1000
    if not ports.state.throttle("canaries", now=epoch_ms(now), until=until):
        ports.doorbells.ring("disrupt", [Doorbell(ports.cluster.name, "evaluate")], delay_seconds=CANARY_SECONDS)


def _ring_when_nominations_end(ports: ProvisionPorts, snapshot: Snapshot, empty: Collection[str]) -> None:
    """Evaluate again when the first drifted node counts as nominated no more, or the first one of the ``empty`` claims
    that are consolidatable, once for all of them.
    """
    now = snapshot.now
    to_go = (
        claim
        for claim in snapshot.nodeclaims
        if claim.is_condition_true(drift.REASON) or (claim.name in empty and claim.is_condition_true("Consolidatable"))
    )
    ends = [end for end in map(blockers.nominated_until, to_go) if end > now]
    if not ends:
        return
    seconds = max(NOMINATIONS_SECONDS, math.ceil((min(ends) - now).total_seconds()))
    until = epoch_ms(now) + seconds * 1000
    # Without it the schedule evaluates up to a minute later, no more.
    with suppress(ApiError):
        if not ports.state.throttle("nominations", now=epoch_ms(now), until=until):
            ports.doorbells.ring("disrupt", [Doorbell(ports.cluster.name, "evaluate")], delay_seconds=seconds)


def _blocked_events(snapshot: Snapshot, blocked: Iterable[Blocked], row: EventRow) -> tuple[BlockedEvent, ...]:
    """Why nodes stay that would otherwise go; what keeps them from any disruption was said before."""
    claims = {claim.name: claim for claim in snapshot.nodeclaims}
    nodes = blockers.nodes_by_provider_id(snapshot.nodes)
    said: list[BlockedEvent] = []
    for refusal in blocked:
        claim = claims[refusal.claim]
        node = nodes.get(claim.provider_id)
        if node is not None and refusal.reason:
            said += blockers.claim_and_node_events(claim, node, row(reason=refusal.reason))
    return tuple(said)


def _past_consolidate_after(snapshot: Snapshot, refused: Iterable[Blocked]) -> tuple[Blocked, ...]:
    """Those whose consolidateAfter has passed. As in Karpenter nothing is said of others; Never was said before."""
    pools, pods = {pool.name: pool for pool in snapshot.nodepools}, blockers.pods_by_node(snapshot.pods)
    claims = {claim.name: claim for claim in snapshot.nodeclaims}

    def has_passed(claim: NodeClaim) -> bool:
        pool, on_node = pools.get(claim.nodepool), pods.get(claim.node_name, [])
        return not emptiness.consolidate_after_reason(claim, pool, on_node, snapshot.now)

    return tuple(refusal for refusal in refused if has_passed(claims[refusal.claim]))


def _ring_stale_claims(ports: ProvisionPorts, snapshot: Snapshot) -> None:
    """Ring lifecycle, which alone writes claims, for those whose Consolidatable condition is outdated.

    Lifecycle rings for timers that end within two minutes itself: it is for others, and for doorbells that were lost.
    """
    stale = emptiness.stale_consolidation_timers(snapshot)
    now = epoch_ms(snapshot.now)
    if stale and not ports.state.throttle("consolidation timers", now=now, until=now + TIMERS_SECONDS * 1000):
        ports.doorbells.ring("lifecycle", [Doorbell(snapshot.cluster, "claim", name) for name in stale])


def _record_breaker_open(ports: ProvisionPorts, snapshot: Snapshot, current_breaker: breaker.Breaker) -> None:
    until = datetime.fromtimestamp(current_breaker.open_until_ms / 1000, snapshot.now.tzinfo).isoformat(
        timespec="seconds"
    )
    event = events.BLOCKED_BY_BREAKER(until=until, reason=current_breaker.reason)
    obstacles = tuple(BlockedEvent("nodepools", pool.metadata, event) for pool in snapshot.nodepools)
    _record_obstacles(ports, snapshot, obstacles)


def _record_obstacles(ports: ProvisionPorts, snapshot: Snapshot, obstacles: tuple[BlockedEvent, ...]) -> None:
    """Record why nodes may not be disrupted; of many Events, another part every minute."""
    turns = max(1, -(-len(obstacles) // EVENTS_AT_ONCE))
    turn = int(snapshot.now.timestamp()) // 60 % turns
    for obstacle in obstacles[turn * EVENTS_AT_ONCE : (turn + 1) * EVENTS_AT_ONCE]:
        ports.cluster.record_event(obstacle.kind, obstacle.about, obstacle.event, now=snapshot.now)


def _abort_stale(ports: ProvisionPorts, now: datetime) -> None:
    for row in ports.state.commands():
        if row.phase == "proposed" and epoch_ms(now) - row.created > PROPOSAL_MS:
            _give_up(ports, row, now)


def _give_up(ports: ProvisionPorts, row: CommandRow, now: datetime) -> None:
    """Give up a proposal that nobody judged, for example because its doorbell was lost."""
    if abort_proposal(ports, row):
        record_rejections(ports, row, dict.fromkeys(row.candidates, _NOT_VALIDATED), now=now)
