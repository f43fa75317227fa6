"""The response of CreateFleet: instances are assigned to claims, and errors say whether to try again, and when."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from spotwright.aws import token_bucket
from spotwright.aws.launch import create_fleet, fleet_errors
from spotwright.lifecycle import instance_assignment
from spotwright.lifecycle.nodeclass_readiness import CLASS_NOT_RESOLVED
from spotwright.lifecycle.retry import retry_seconds
from spotwright.lifecycle.steps import unknown_condition
from spotwright.model import resources
from spotwright.model.ec2.fleet import FleetResult, Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.scheduling.plan import NewNode
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.account import offering_health_store, rate_limits
from spotwright.workflows.lifecycle.actions import log, ring_lifecycle, update_conditions
from spotwright.workflows.lifecycle.launch.assignment import write_assignments
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import LaunchRow, epoch_ms

# After a response instances are looked for once more: a concurrent invocation may have launched some too.
SETTLING_PERIOD: Final = timedelta(seconds=60)
# How many times sooner a launch is tried again whose template EC2 does not know yet.
TEMPLATE_RETRIES_ARE_SOONER: Final = 4
# How long a launch waits at most for an EC2NodeClass that was not resolved yet; it asks the API server alone.
CLASS_SECONDS: Final = 4


def handle_response(
    ports: LifecyclePorts,
    row: LaunchRow,
    waiting: tuple[NodeClaim, ...],
    instances: tuple[Instance, ...],
    result: FleetResult,
    now: datetime,
) -> LaunchRow | None:
    """A definite response: instances are assigned; the errors say whether to try again for missing ones.

    Where they close no offering that was open, the next plan would be the same: the launch waits, ever longer.
    """
    row = with_assignments(row, waiting, instances)
    missing = tuple(claim for claim in waiting if claim.name not in row.instances)
    verdict = fleet_errors.launch_failure(result.errors, scope=row.placement_group)
    if missing and verdict.reason == fleet_errors.LAUNCH_TEMPLATE_NOT_FOUND and not row.templates_recreated:
        return ports.state.save(
            msgspec.structs.replace(row, request="", attempt=row.attempt + 1, templates_recreated=True)
        )
    if missing and not (verdict.insufficient_capacity and row.offerings_closed):
        retry_refused(ports, msgspec.structs.replace(row, request=""), missing, verdict.reason, verdict.message, now)
        return None
    failure = f"{verdict.reason}: {verdict.message}" if missing else ""
    return ports.state.save(
        msgspec.structs.replace(
            row,
            phase="launched",
            failure=failure,
            insufficient_capacity=bool(missing),
            due=epoch_ms(now + SETTLING_PERIOD),
        )
    )


def finish_launch(ports: LifecyclePorts, row: LaunchRow, now: datetime) -> LaunchRow:
    """No claim waits any more: instances are written to their claims, surplus ones terminated after a minute."""
    return ports.state.save(msgspec.structs.replace(row, phase="launched", due=epoch_ms(now + SETTLING_PERIOD)))


def with_assignments(row: LaunchRow, waiting: Iterable[NodeClaim], instances: Iterable[Instance]) -> LaunchRow:
    running = (instance.id for instance in instances if instance.state not in ("shutting-down", "terminated"))
    return msgspec.structs.replace(
        row, instances=instance_assignment.assign_instances([claim.name for claim in waiting], row.instances, running)
    )


def record_health(ports: LifecyclePorts, row: LaunchRow, result: FleetResult, now: datetime) -> LaunchRow:
    """Record for all clusters of the account which offerings failed and whether EC2 throttled; log each error."""
    node = msgspec.json.decode(row.node, type=NewNode)
    types = ports.catalogs.read(ports.state.catalog_key()).instance_types(node.nodeclass)
    sizes = {instance_type.name: instance_type.capacity.get(resources.CPU, 0) for instance_type in types}
    offerings_closed = offering_health_store.record_fleet_response(
        ports.state, result.instances, result.errors,
        now_ms=epoch_ms(now), cpu_millicores=sizes, scope=row.placement_group, launch=row.id,
        node_addresses={instance_type.name: instance_type.capacity.get(resources.PODS, 1) for instance_type in types},
        was_asked_for=partial(create_fleet.names_what_is_asked_for, request=json.loads(row.request)),
    )  # fmt: skip
    for error in (fleet_error for fleet_error in result.errors if fleet_error.code in fleet_errors.THROTTLING_CODES):
        slow_down(ports, error.message, now)
    for failed in fleet_errors.count_failures(result.errors):
        is_known = failed.reason != fleet_errors.UNKNOWN_FAILURE
        line = log_lines.REFUSED_OFFERINGS if is_known else log_lines.UNKNOWN_FLEET_ERROR
        log_line(log, line, launch=row.id, **msgspec.structs.asdict(failed))
    return msgspec.structs.replace(row, offerings_closed=offerings_closed)


def slow_down(ports: LifecyclePorts, error: str, now: datetime) -> str:
    """What is slowed down: the message says whether calls or the instances in them were too many."""
    log_line(log, log_lines.CALL_THROTTLED, call="CreateFleet", error=error)
    counts_instances = token_bucket.INSTANCE_LIMIT_MESSAGE in error
    action = rate_limits.STARTED_INSTANCES if counts_instances else rate_limits.CREATE_FLEET
    rate_limits.slow_down(ports.state, action, now=now)
    return action


def retry_refused(
    ports: LifecyclePorts, row: LaunchRow, waiting: tuple[NodeClaim, ...], reason: str, message: str, now: datetime
) -> None:
    """A refusal that may pass: written to the claims' conditions, and tried again until liveness deletes them."""
    names = [claim.name for claim in waiting]
    log_line(log, log_lines.FAILED_LAUNCHING_NODECLAIM, nodeclaims=names, reason=reason, error=message)
    shown = message if len(message) <= 300 else message[:300] + "..."
    for claim in waiting:
        update_conditions(ports, claim, [unknown_condition("Launched", reason, shown)], now=now)
    attempt = row.attempt + 1
    after = pause_launch(ports, msgspec.structs.replace(row, attempt=attempt), _refusal_seconds(reason, attempt), now)
    if after.instances:
        write_assignments(ports, after, now)


def _refusal_seconds(reason: str, attempt: int) -> int:
    """How long the launch waits. EC2 knows a new template within a second or two, a class is resolved in some more."""
    seconds = retry_seconds(attempt)
    if reason == fleet_errors.LAUNCH_TEMPLATE_NOT_FOUND:
        return max(1, seconds // TEMPLATE_RETRIES_ARE_SOONER)
    return min(seconds, CLASS_SECONDS) if reason == CLASS_NOT_RESOLVED else seconds


def retry_later(ports: LifecyclePorts, row: LaunchRow, attempt: int, now: datetime) -> LaunchRow:
    return pause_launch(ports, msgspec.structs.replace(row, attempt=attempt), retry_seconds(attempt), now)


def pause_launch(ports: LifecyclePorts, row: LaunchRow, seconds: int, now: datetime) -> LaunchRow:
    """Pause the launch for ``seconds``, whatever rings; if the doorbell is lost, the row's timer rings."""
    at = epoch_ms(now + timedelta(seconds=seconds))
    after = ports.state.save(msgspec.structs.replace(row, not_before=at, due=at))
    ring_lifecycle(ports, "launch", [row.id], delay_seconds=seconds)
    return after
