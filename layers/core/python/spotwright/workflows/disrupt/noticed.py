"""Replacing nodes of which EC2 announced something: read live and committed at once, a command for each node."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Final

from spotwright.decisions.decision import Decision, Disruption, decode_decision, derived_id
from spotwright.disruption import breaker, rebalance, scheduled_change
from spotwright.disruption.candidates import Blocked
from spotwright.disruption.noticed import Noticed
from spotwright.errors import Conflict
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.telemetry import events
from spotwright.workflows.disrupt.inputs import DisruptResult, admit, buying, gather_and_plan, locked_claims
from spotwright.workflows.disrupt.pauses import commit_after_pause, digest_of_candidates
from spotwright.workflows.planning.commit import commit_plan
from spotwright.workflows.planning.snapshot import gather_live
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import RECOMMENDED, SCHEDULED, epoch_ms

# Nodes named in a message.
NAMES_SHOWN: Final = 5
# Nodes that are replaced at once for what EC2 has scheduled; others follow in the next evaluation.
MAXIMUM_SCHEDULED: Final = 100

# Which nodes go by what is known: of a snapshot, the plan for its pending pods, and claims that are locked.
type _Find = Callable[[Snapshot, Plan, frozenset[str]], Noticed]


def replace_noticed(
    ports: ProvisionPorts,
    snapshot: Snapshot,
    plan: Plan,
    locked: frozenset[str],
    *,
    clock: Callable[[], datetime],
    seconds_left: SecondsLeft,
) -> tuple[DisruptResult, tuple[Blocked, ...]]:
    """Replace what may be replaced now, for what EC2 has scheduled first; and why other nodes with a notice stay."""
    result, blocked = DisruptResult(), list[Blocked]()
    for phase, reason, find in (
        (SCHEDULED, scheduled_change.REASON, _find_scheduled),
        (RECOMMENDED, rebalance.REASON, _find_recommended),
    ):
        if not _instances(ports, phase):
            continue
        found = find(ports, snapshot, plan, locked)
        blocked += found.blocked
        if found.candidates:
            digest = digest_of_candidates(snapshot, {candidate.name for candidate in found.candidates})
            commit = partial(_commit, ports, reason, partial(find, ports), now=snapshot.now, seconds_left=seconds_left)
            result = commit_after_pause(ports, reason, digest, commit, clock)
        if result.committed:
            break
    return result, tuple(blocked)


def _instances(ports: ProvisionPorts, phase: str) -> frozenset[str]:
    """Instances with a notice in this phase."""
    return frozenset(row.instance_id for row in ports.state.notices() if row.phase == phase)


def _find_scheduled(ports: ProvisionPorts, snapshot: Snapshot, plan: Plan, locked: frozenset[str]) -> Noticed:
    return scheduled_change.replace_scheduled(
        snapshot,
        plan,
        ports.catalogs.read(snapshot.catalog_key),
        _instances(ports, SCHEDULED),
        locked=locked,
        maximum=MAXIMUM_SCHEDULED,
        admitted=_admitted(ports, snapshot),
    )


def _find_recommended(ports: ProvisionPorts, snapshot: Snapshot, plan: Plan, locked: frozenset[str]) -> Noticed:
    left = max(0, rebalance.nodes_per_hour(_staying(snapshot)) - _lately_replaced(ports, snapshot.now))
    return rebalance.replace_recommended(
        snapshot,
        plan,
        ports.catalogs.read(snapshot.catalog_key),
        _instances(ports, RECOMMENDED),
        locked=locked,
        maximum=left,
        admitted=_admitted(ports, snapshot),
    )


def _managed(snapshot: Snapshot) -> int:
    return sum(claim.is_managed for claim in snapshot.nodeclaims)


def _staying(snapshot: Snapshot) -> int:
    """Managed NodeClaims without those on their way out, whose replacements are counted."""
    going = {*snapshot.nodeclaims_to_delete, *snapshot.nodeclaims_to_replace}
    return sum(
        claim.is_managed and claim.metadata.deletion_timestamp is None and claim.name not in going
        for claim in snapshot.nodeclaims
    )


def _admitted(ports: ProvisionPorts, snapshot: Snapshot) -> int:
    """How many nodes the breaker has left."""
    total, percent = _managed(snapshot), snapshot.settings.breaker_percent
    return breaker.remaining(ports.state.breaker(), total=total, percent=percent, now=epoch_ms(snapshot.now))


def _lately_replaced(ports: ProvisionPorts, now: datetime) -> int:
    """Nodes that commands or decisions of the last hour replace for recommendations, with those that were given up."""
    decisions = [decode_decision(ports.blobs.get(key)) for key in ports.state.cluster().pending_decisions]
    since = epoch_ms(now) - rebalance.WINDOW_MS
    commands = ports.state.commands(created_after=since)
    ids = {row.id for row in commands if row.reason == rebalance.REASON and row.created > since}
    return len(ids | {disruption.id for disruption in _recommended_disruptions(decisions)})


def _recommended_disruptions(decisions: Iterable[Decision]) -> Iterable[Disruption]:
    return (
        disruption
        for decision in decisions
        for disruption in decision.disruptions
        if disruption.reason == rebalance.REASON
    )


def _commit(
    ports: ProvisionPorts, reason: str, find: _Find, *, now: datetime, seconds_left: SecondsLeft
) -> DisruptResult:
    """Read candidates and destinations from the API server, and commit what is replaced."""
    cluster = ports.state.cluster()
    snapshot, plan, obstacle = gather_and_plan(ports, gather_live, now, seconds_left)
    if obstacle := obstacle or buying(plan):
        return DisruptResult(obstacle)
    locked = locked_claims(ports, snapshot)
    found = find(snapshot, plan, locked)
    if found.snapshot is None:
        return DisruptResult()
    uids = {candidate.name: candidate.claim.metadata.uid for candidate in found.candidates}
    id = derived_id(snapshot.cluster, reason, *sorted(uids.values()))
    try:
        admitted, breaker_open = admit(ports, snapshot, id, len(uids))
    except Conflict:
        return DisruptResult("another invocation counted disruptions meanwhile")
    if admitted < len(uids):
        return DisruptResult("the breaker admits fewer nodes", breaker_open)
    details = tuple(dict.fromkeys(found.sentences.values()))[:NAMES_SHOWN]
    decision = commit_plan(
        state=ports.state,
        blobs=ports.blobs,
        snapshot=found.snapshot,
        cluster_version=cluster.version,
        plan=found.plan,
        kind="disrupt",
        message="; ".join(details),
        disruptions=tuple(
            Disruption(
                derived_id(id, now.isoformat(), name), reason, (name,), {name: uid}, locked_claims=tuple(sorted(locked))
            )
            for name, uid in uids.items()
        ),
        launched=cluster.launched,
    )
    if decision is None:
        return DisruptResult("another decision was committed first")
    ports.doorbells.ring("lifecycle", [Doorbell(snapshot.cluster, "decision", decision.id)])
    for candidate in found.candidates if reason == rebalance.REASON else ():
        event = events.REBALANCE_APPROVED(replacement=found.sentences[candidate.name])
        ports.cluster.record_event("nodeclaims", candidate.claim.metadata, event, now=now)
    return DisruptResult(breaker_open=breaker_open, reason=reason, committed=tuple(uids), details=details)
