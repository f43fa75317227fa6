"""What a step found out about a NodeClaim, written to its status, with events and a log line."""

from datetime import datetime

import msgspec

from spotwright.lifecycle import consistency
from spotwright.lifecycle.steps import ConditionChange, StepResult
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.telemetry import events
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import log, record_events, update_conditions
from spotwright.workflows.ports.bundles import LifecyclePorts


def write_result(ports: LifecyclePorts, claim: NodeClaim, step_result: StepResult, now: datetime) -> NodeClaim:
    """The claim afterwards."""
    changes: list[ConditionChange] = [
        condition_change for condition_change in step_result.condition_changes if not _same(claim, condition_change)
    ]
    after = update_conditions(ports, claim, changes, now=now, status=step_result.status)
    record_events(ports, "nodeclaims", claim.metadata, step_result.events, now=now)
    if step_result.log is not None:
        node = step_result.status.get("nodeName") or claim.node_name
        launched = find_condition(claim.conditions, "Launched")
        since = (launched.last_transition_time if launched else None) or now
        log_line(
            log, step_result.log,
            nodeclaim=claim.name, provider_id=claim.provider_id, node=node, seconds=(now - since).total_seconds(),
        )  # fmt: skip
    return after


def _same(claim: NodeClaim, change: ConditionChange) -> bool:
    before = find_condition(claim.conditions, change.type)
    return before is not None and (before.status, before.reason, before.message) == (
        change.status, change.reason, change.message,
    )  # fmt: skip


def with_consistency(claim: NodeClaim, node: Node, step_result: StepResult) -> StepResult:
    """Together with whether the node is as large as the claim says."""
    found = consistency.inconsistencies(claim, node)
    return msgspec.structs.replace(
        step_result,
        condition_changes=(*step_result.condition_changes, consistency.consistency_condition(found)),
        events=(*step_result.events, *(events.FAILED_CONSISTENCY_CHECK(details=details) for details in found)),
    )
