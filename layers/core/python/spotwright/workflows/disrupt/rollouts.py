"""Roll-outs of NodePools: read from the commands of the last day, and shown on the NodePools."""

from collections.abc import Mapping
from datetime import datetime

from spotwright.decisions.decision import DRIFTED
from spotwright.disruption import rollouts
from spotwright.disruption.rollouts import Attempt, Rollout
from spotwright.errors import ApiError
from spotwright.lifecycle import conditions
from spotwright.lifecycle.steps import ConditionChange, transition_events
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.snapshot import Snapshot
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.disrupt.inputs import locked_claims
from spotwright.workflows.planning.snapshot import log
from spotwright.workflows.ports.bundles import ProvisionPorts
from spotwright.workflows.ports.rows import CommandRow, epoch_ms


def read_rollouts(ports: ProvisionPorts, snapshot: Snapshot, locked: frozenset[str]) -> dict[str, Rollout]:
    """By NodePool; of NodePools without drifted nodes there is none."""
    if not any(claim.is_condition_true(DRIFTED) for claim in snapshot.nodeclaims):
        return {}
    rows = ports.state.commands(created_after=epoch_ms(snapshot.now - rollouts.REMEMBERED))
    attempts = [_attempt(row, snapshot.now) for row in rows if row.rollout]
    return rollouts.find_rollouts(snapshot, attempts, locked)


def _attempt(row: CommandRow, now: datetime) -> Attempt:
    failed_at = datetime.fromtimestamp(row.failed / 1000, now.tzinfo) if row.failed else None
    lost = [name for name in row.replacements if name not in row.initialized_replacements]
    done = len(row.candidates) if row.phase == "done" else 0
    return Attempt(row.rollout, done, failed_at, lost[0] if lost else "")


def show_rollouts(ports: ProvisionPorts, snapshot: Snapshot, found: Mapping[str, Rollout]) -> None:
    """Write the condition DriftProgressing of NodePools whose roll-out moved on; an event when one stopped.

    A NodePool that cannot be written now is written a minute later.
    """
    for pool in snapshot.nodepools:
        change = _condition(pool, found.get(pool.name))
        if change is None or _is_said(pool, change):
            continue
        try:
            _write(ports, pool.name, change, snapshot.now)
        except ApiError as failure:
            log_line(
                log, log_lines.STEP_FAILED, kind="nodepool", object=pool.name, code=failure.code, error=str(failure)
            )


def show_held_rollouts(ports: ProvisionPorts, snapshot: Snapshot, why: str) -> None:
    """Say of all roll-outs that nothing is disrupted by choice now, and why."""
    found = read_rollouts(ports, snapshot, locked_claims(ports, snapshot))
    show_rollouts(ports, snapshot, {pool: rollouts.held(rollout, why) for pool, rollout in found.items()})


def _condition(pool: NodePool, rollout: Rollout | None) -> ConditionChange | None:
    """None: there is nothing to say of the NodePool."""
    if rollout is not None:
        status = "True" if rollout.goes_on else "False"
        return ConditionChange(rollouts.CONDITION, status, rollout.phase.value, rollout.message)
    before = find_condition(pool.conditions, rollouts.CONDITION)
    if before is None or before.reason == rollouts.COMPLETE:
        return None
    return ConditionChange(rollouts.CONDITION, "True", rollouts.COMPLETE, "no node is drifted")


def _is_said(pool: NodePool, change: ConditionChange) -> bool:
    before = find_condition(pool.conditions, change.type)
    return before is not None and (before.status, before.reason, before.message) == (
        change.status, change.reason, change.message,
    )  # fmt: skip


def _write(ports: ProvisionPorts, name: str, change: ConditionChange, now: datetime) -> None:
    pool = ports.cluster.nodepool(name)
    if pool is None or _is_said(pool, change):
        return
    written = tuple(
        condition
        for condition in conditions.conditions_to_write(
            pool.metadata, pool.conditions, (change,), dependents=(), now=now
        )
        if condition.type == change.type
    )
    ports.cluster.set_conditions("nodepools", pool.metadata, written)
    for event in transition_events(pool.conditions, written):
        ports.cluster.record_event("nodepools", pool.metadata, event, now=now)
    if change.reason in rollouts.STOPPED:
        event = events.DRIFT_ROLLOUT_STOPPED(message=change.message)
        ports.cluster.record_event("nodepools", pool.metadata, event, now=now)
