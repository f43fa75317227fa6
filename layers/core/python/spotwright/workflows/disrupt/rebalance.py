"""Replacing nodes that EC2 recommends to leave: read live and committed at once, a command for each node."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from spotwright.aws.interruption_messages import NoticeKind
from spotwright.decisions.decision import Decision, Disruption, decode_decision, derived_id
from spotwright.disruption import breaker, rebalance
from spotwright.disruption.candidates import Blocked
from spotwright.disruption.rebalance import Rebalance
from spotwright.errors import Conflict
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.telemetry import events
from spotwright.workflows.disrupt.inputs import DisruptResult, admit, buying, gather_and_plan, locked_claims
from spotwright.workflows.planning.commit import commit_plan
from spotwright.workflows.planning.launch_bounds import with_launch_bounds
from spotwright.workflows.planning.snapshot import gather_live
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import epoch_ms

# Replacements named in a message.
NAMES_SHOWN: Final = 5


def rebalance_nodes(
    ports: ProvisionPorts,
    snapshot: Snapshot,
    plan: Plan,
    locked: frozenset[str],
    *,
    now: datetime,
    seconds_left: SecondsLeft,
) -> tuple[DisruptResult, tuple[Blocked, ...]]:
    """Replace what may be replaced now; and why other recommended nodes stay."""
    instances = recommended_instances(ports)
    if not instances:
        return DisruptResult(), ()
    found = _find(ports, snapshot, plan, instances, locked)
    if not found.candidates:
        return DisruptResult(details=_reasons(found)), found.blocked
    return _commit(ports, now=now, seconds_left=seconds_left), found.blocked


def recommended_instances(ports: ProvisionPorts) -> frozenset[str]:
    """Instances that EC2 recommends to leave."""
    return frozenset(
        row.instance_id for row in ports.state.notices() if row.kind == NoticeKind.REBALANCE_RECOMMENDATION
    )


def _find(
    ports: ProvisionPorts, snapshot: Snapshot, plan: Plan, instances: frozenset[str], locked: frozenset[str]
) -> Rebalance:
    total, percent = sum(claim.is_managed for claim in snapshot.nodeclaims), snapshot.settings.breaker_percent
    admitted = breaker.remaining(ports.state.breaker(), total=total, percent=percent, now=epoch_ms(snapshot.now))
    left = max(0, rebalance.nodes_per_hour(total) - _lately_replaced(ports, snapshot.now))
    catalog = ports.catalogs.read(snapshot.catalog_key)
    return rebalance.replace_recommended(snapshot, plan, catalog, instances, locked=locked, maximum=min(left, admitted))


def _lately_replaced(ports: ProvisionPorts, now: datetime) -> int:
    """Nodes that commands or decisions of the last hour replace for recommendations, with those that were given up."""
    decisions = [decode_decision(ports.blobs.get(key)) for key in ports.state.cluster().pending_decisions]
    since = epoch_ms(now) - rebalance.WINDOW_MS
    commands = ports.state.commands(created_after=since)
    ids = {row.id for row in commands if row.reason == rebalance.REASON and row.created > since}
    return len(ids | {disruption.id for disruption in _disruptions(decisions)})


def _disruptions(decisions: Iterable[Decision]) -> Iterable[Disruption]:
    return (
        disruption
        for decision in decisions
        for disruption in decision.disruptions
        if disruption.reason == rebalance.REASON
    )


def _commit(ports: ProvisionPorts, *, now: datetime, seconds_left: SecondsLeft) -> DisruptResult:
    """Read candidates and destinations from the API server, and commit what is replaced."""
    cluster = ports.state.cluster()
    snapshot, plan, obstacle = gather_and_plan(ports, gather_live, now, seconds_left)
    if obstacle := obstacle or buying(plan):
        return DisruptResult(obstacle)
    snapshot = with_launch_bounds(snapshot, cluster, ports.state)
    locked = locked_claims(ports, snapshot)
    found = _find(ports, snapshot, plan, recommended_instances(ports), locked)
    if found.snapshot is None:
        return DisruptResult(details=_reasons(found))
    uids = {candidate.name: candidate.claim.metadata.uid for candidate in found.candidates}
    id = derived_id(snapshot.cluster, rebalance.REASON, *sorted(uids.values()))
    try:
        admitted, breaker_open = admit(ports, snapshot, id, len(uids))
    except Conflict:
        return DisruptResult("another invocation counted disruptions meanwhile")
    if admitted < len(uids):
        return DisruptResult("the breaker admits fewer nodes", breaker_open)
    said = _sentences(found, snapshot)
    decision = commit_plan(
        state=ports.state,
        blobs=ports.blobs,
        snapshot=found.snapshot,
        cluster_version=cluster.version,
        plan=found.plan,
        kind="disrupt",
        message="; ".join(list(dict.fromkeys(said.values()))[:NAMES_SHOWN]),
        disruptions=tuple(
            Disruption(
                derived_id(id, now.isoformat(), name),
                rebalance.REASON,
                (name,),
                {name: uid},
                locked_claims=tuple(sorted(locked)),
            )
            for name, uid in uids.items()
        ),
        launched=cluster.launched,
    )
    if decision is None:
        return DisruptResult("another decision was committed first")
    ports.doorbells.ring("lifecycle", [Doorbell(snapshot.cluster, "decision", decision.id)])
    for candidate in found.candidates:
        event = events.REBALANCE_APPROVED(replacement=said[candidate.name])
        ports.cluster.record_event("nodeclaims", candidate.claim.metadata, event, now=now)
    return DisruptResult(
        breaker_open=breaker_open,
        reason=rebalance.REASON,
        committed=tuple(uids),
        details=tuple(list(dict.fromkeys(said.values()))[:NAMES_SHOWN]),
    )


def _sentences(found: Rebalance, snapshot: Snapshot) -> dict[str, str]:
    """Why each candidate goes and what takes its place, by name."""
    histories = rebalance.histories_of(found.candidates, snapshot)
    return {
        name: replacement.describe({other: histories[other] for other in replacement.candidates})
        for replacement in found.replacements
        for name in replacement.candidates
    }


def _reasons(found: Rebalance) -> tuple[str, ...]:
    return tuple(f"{blocked.claim}: {blocked.reason}" for blocked in found.blocked[:10])
