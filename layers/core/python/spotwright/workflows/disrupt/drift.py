"""Replacing drifted nodes: read live and committed at once, since nobody has to be waited for."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from spotwright.decisions.decision import Disruption, derived_id
from spotwright.disruption import budgets, drift, static_drift
from spotwright.disruption.drift import DriftReplacement
from spotwright.disruption.rollouts import Phase, Rollout, rollout_key
from spotwright.errors import Conflict
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.workflows.disrupt.inputs import DisruptResult, admit, buying, gather_and_plan, locked_claims
from spotwright.workflows.disrupt.rollouts import read_rollouts
from spotwright.workflows.planning.commit import commit_plan
from spotwright.workflows.planning.snapshot import gather_live
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.doorbells import Doorbell

# No further trial is begun with less time left.
TRIAL_SECONDS: Final = 30


def find_drifted(
    ports: ProvisionPorts,
    snapshot: Snapshot,
    plan: Plan,
    locked: frozenset[str],
    rollouts: Mapping[str, Rollout],
    *,
    only: Collection[str] | None = None,
    seconds_left: SecondsLeft = None,
) -> DriftReplacement:
    """What would be replaced by what is known; nothing is replaced by it alone. ``only``: names, None = any."""
    if not any(claim.is_condition_true(drift.REASON) for claim in snapshot.nodeclaims):
        return DriftReplacement()
    catalog = ports.catalogs.read(snapshot.catalog_key)
    return drift.replace_drifted(
        snapshot,
        plan,
        catalog,
        locked=locked,
        only=only,
        rollouts=rollouts,
        has_time=lambda: seconds_left is None or seconds_left() > TRIAL_SECONDS,
    )


def commit_drift(ports: ProvisionPorts, *, now: datetime, seconds_left: SecondsLeft) -> DisruptResult:
    """Read candidates and destinations from the API server, and commit what is replaced; a command for each node."""
    cluster = ports.state.cluster()
    snapshot, plan, obstacle = gather_and_plan(ports, gather_live, now, seconds_left)
    if obstacle := obstacle or buying(plan):
        return DisruptResult(obstacle)
    locked = locked_claims(ports, snapshot)
    rollouts = read_rollouts(ports, snapshot, locked)
    found = find_drifted(ports, snapshot, plan, locked, rollouts, seconds_left=seconds_left)
    uids, uncounted = _uids(found), _uncounted(found, snapshot, rollouts)
    counted = [name for name in uids if name not in uncounted]
    # The same nodes count once for the breaker, however often their commit is tried.
    id = derived_id(snapshot.cluster, drift.REASON, *sorted(uids.values()))
    try:
        admitted, breaker_open = admit(ports, snapshot, id, len(counted))
    except Conflict:
        return DisruptResult("another invocation counted disruptions meanwhile")
    if breaker_open and not admitted:
        # It may have opened since the evaluation began. Then those stay as well that do not count.
        return DisruptResult(breaker_open=True, details=_reasons(found))
    if admitted < len(counted):
        # The others wait until the breaker is closed again. Those that it has counted go, or it would open for nothing.
        only = uncounted.union(counted[:admitted])
        found = find_drifted(ports, snapshot, plan, locked, rollouts, only=only, seconds_left=seconds_left)
        uids = _uids(found)
    if found.snapshot is None:
        return DisruptResult(breaker_open=breaker_open, details=_reasons(found))
    keys = _rollout_keys(found, snapshot)
    decision = commit_plan(
        state=ports.state,
        blobs=ports.blobs,
        snapshot=found.snapshot,
        cluster_version=cluster.version,
        plan=found.plan,
        kind="disrupt",
        message=f"{len(uids)} drifted nodes are replaced: {', '.join(uids)}",
        disruptions=tuple(
            Disruption(
                derived_id(id, now.isoformat(), name),
                drift.REASON,
                (name,),
                {name: uid},
                locked_claims=tuple(sorted(locked)),
                rollout=keys[name],
            )
            for name, uid in uids.items()
        ),
        launched=cluster.launched,
    )
    if decision is None:
        return DisruptResult("another decision was committed first")
    ports.doorbells.ring("lifecycle", [Doorbell(snapshot.cluster, "decision", decision.id)])
    return DisruptResult(breaker_open=breaker_open, reason=drift.REASON, committed=tuple(uids), details=_reasons(found))


def _uncounted(found: DriftReplacement, snapshot: Snapshot, rollouts: Mapping[str, Rollout]) -> frozenset[str]:
    """Candidates that do not count for the breaker, by name: of NodePools whose budgets let all nodes go at once.

    New nodes are there before each of them goes, and a canary has shown that these come. It counts itself, and so does
    what goes without any.
    """
    open_pools = {
        pool.name
        for pool in snapshot.nodepools
        if pool.name in rollouts
        and rollouts[pool.name].phase == Phase.REPLACING
        and budgets.allows_all(pool, drift.REASON, snapshot.nodeclaims, snapshot.now)
    }
    replacements = static_drift.replacements(found.candidates, found.plan.new_nodes)
    return frozenset(
        candidate.name
        for candidate in found.candidates
        if candidate.pool.name in open_pools and replacements[candidate.name]
    )


def _uids(found: DriftReplacement) -> dict[str, str]:
    return {candidate.name: candidate.claim.metadata.uid for candidate in found.candidates}


def _rollout_keys(found: DriftReplacement, snapshot: Snapshot) -> dict[str, str]:
    """By NodeClaim."""
    classes = {nodeclass.name: nodeclass for nodeclass in snapshot.nodeclasses}
    pools = {candidate.pool.name: candidate.pool for candidate in found.candidates}
    keys = {name: rollout_key(pool, classes.get(pool.node_class_ref.name)) for name, pool in pools.items()}
    return {candidate.name: keys[candidate.pool.name] for candidate in found.candidates}


def _reasons(found: DriftReplacement) -> tuple[str, ...]:
    return tuple(f"{blocked.claim}: {blocked.reason}" for blocked in found.blocked[:10])
