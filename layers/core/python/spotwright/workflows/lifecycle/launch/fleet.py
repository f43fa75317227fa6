"""CreateFleet: the request of a launch is stored before it is sent, and its response says what comes next."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws import token_bucket
from spotwright.aws.launch import fleet_errors
from spotwright.aws.launch.create_fleet import client_token, reservations_by_pool
from spotwright.aws.refusal import Refusal
from spotwright.errors import ApiError, Throttled, Unavailable
from spotwright.lifecycle import instance_assignment
from spotwright.lifecycle.retry import retry_seconds
from spotwright.lifecycle.steps import unknown_condition
from spotwright.model import resources
from spotwright.model.ec2.fleet import FleetError, FleetResult, Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.scheduling.plan import NewNode
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.account import offering_health_store, rate_limits
from spotwright.workflows.lifecycle.actions import log, ring_lifecycle, update_conditions
from spotwright.workflows.lifecycle.launch.assignment import write_assignments
from spotwright.workflows.lifecycle.launch.fleet_request import (
    LaunchOptions,
    build_request,
    gather_options,
    is_refused_regardless,
    nodeclass_hash,
)
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import LaunchRow, epoch_ms

# After a response instances are looked for once more: a concurrent invocation may have launched some too.
SETTLING_PERIOD: Final = timedelta(seconds=60)
INSUFFICIENT: Final = "InsufficientCapacity"


def create_fleet(ports: LifecyclePorts, row: LaunchRow, now: datetime) -> LaunchRow | None:
    """Launch the instances that are missing; phase launched once every claim has one or will not get one.

    A request without a definite response is repeated unchanged, under its client token; existing instances with the
    launch's tag are adopted first.
    """
    may_have_instances = bool(row.request) or row.attempt > 0
    with ThreadPoolExecutor(1) as thread:
        options = None if row.request else thread.submit(gather_options, ports, row, now)
        claims = {claim.name: claim for claim in ports.cluster.nodeclaims()}
    waiting = tuple(
        claims[name]
        for name in row.claims
        if name in claims
        and name not in row.instances
        and instance_assignment.is_awaiting_instance(claims[name], row.uids[name])
    )
    assigned = {instance_id(claim.provider_id) for claim in claims.values()}
    tagged = ports.ec2.instances_of_launch(row.id) if may_have_instances else ()
    instances = tuple(instance for instance in tagged if instance.id not in assigned)
    if not waiting:
        if _is_answered(row, now):
            return _finish(ports, row, now)
        _wait(ports, row, row.attempt, now)
        return None
    if options is not None:
        row = _assign(row, waiting, instances)
        waiting = tuple(claim for claim in waiting if claim.name not in row.instances)
        if not waiting:
            return _finish(ports, row, now)
        prepared = _prepare(ports, row, waiting, options.result(), now)
        if prepared is None or prepared.phase != "claimed":
            return prepared
        row = prepared
    return _send(ports, row, waiting, instances, now)


def _prepare(
    ports: LifecyclePorts, row: LaunchRow, waiting: tuple[NodeClaim, ...], offered: LaunchOptions, now: datetime
) -> LaunchRow | None:
    """The row with the stored request for ``waiting``; None or another phase when there is no request."""
    prepared = build_request(ports, row, waiting, offered, now)
    if isinstance(prepared, Refusal):
        return _handle_refusal(ports, row, waiting, prepared, offered, now)
    if isinstance(prepared, int):
        _pause(ports, row, prepared, now)
        return None
    wait = rate_limits.acquire(ports.state, rate_limits.STARTED_INSTANCES, caller=row.id, now=now, calls=len(waiting))
    if wait:
        # Acquired once for a request, however often it is sent: EC2 launches its instances once.
        _pause(ports, row, wait, now)
        return None
    request, fleet = prepared
    return ports.state.save(
        msgspec.structs.replace(
            row,
            request=request,
            reservations=reservations_by_pool(fleet),
            placement_group=fleet.placement_scope,
            nodeclass_hash=nodeclass_hash(ports, offered),
            token=client_token(row.id, row.attempt),
            failure="",
            requested_at=epoch_ms(now),
            due=epoch_ms(now + SETTLING_PERIOD),
        )
    )


def _is_answered(row: LaunchRow, now: datetime) -> bool:
    """False while another invocation may still wait for the response: within a minute of the request."""
    return not row.request or epoch_ms(now) - row.requested_at >= SETTLING_PERIOD.total_seconds() * 1000


def _handle_refusal(
    ports: LifecyclePorts,
    row: LaunchRow,
    waiting: tuple[NodeClaim, ...],
    refusal: Refusal,
    offered: LaunchOptions,
    now: datetime,
) -> LaunchRow | None:
    """Nothing was asked of EC2. Without capacity or a ready class the claims are deleted; else the launch waits.

    When unavailable offerings do not explain the refusal, the next plan would decide the same: then the claims stay
    until liveness deletes them, so that the same launch is not refused every few seconds.
    """
    if refusal.reason == INSUFFICIENT and row.decision and is_refused_regardless(ports, row, offered):
        for claim in waiting:
            reason = f"{refusal.message}; no offering is known to be without capacity"
            event = events.INSUFFICIENT_CAPACITY(nodeclaim=claim.name, reason=reason)
            ports.cluster.record_event("nodeclaims", claim.metadata, event, now=now)
    elif refusal.reason in (INSUFFICIENT, "NodeClassNotReady"):
        return ports.state.save(
            msgspec.structs.replace(
                row, phase="launched", failure=f"{refusal.reason}: {refusal.message}",
                insufficient_capacity=refusal.reason == INSUFFICIENT,
            )
        )  # fmt: skip
    _retry(ports, row, waiting, refusal.reason, refusal.message, now)
    return None


def _send(
    ports: LifecyclePorts,
    row: LaunchRow,
    waiting: tuple[NodeClaim, ...],
    instances: tuple[Instance, ...],
    now: datetime,
) -> LaunchRow | None:
    wait = rate_limits.acquire(ports.state, rate_limits.CREATE_FLEET, caller=row.id, now=now)
    if wait:
        _pause(ports, row, wait, now)
        return None
    try:
        result = ports.ec2.create_fleet(json.loads(row.request))
    except (Throttled, Unavailable) as error:
        # No definite response: the same request under the same token, later.
        if isinstance(error, Throttled):
            _slow_down(ports, str(error), now)
        else:
            log_line(log, log_lines.CALL_UNANSWERED, call="CreateFleet", code=error.code, error=str(error))
        _wait(ports, msgspec.structs.replace(row, requested_at=epoch_ms(now)), row.attempt, now)
        return None
    except ApiError as error:
        result = FleetResult(errors=(FleetError(error.code, str(error)),))
    result = instance_assignment.attribute_reservations(result, row.reservations)
    return _handle_response(
        ports, _record_health(ports, row, result, now), waiting, (*instances, *result.instances), result, now
    )


def _record_health(ports: LifecyclePorts, row: LaunchRow, result: FleetResult, now: datetime) -> LaunchRow:
    """Record for all clusters of the account which offerings failed and whether EC2 throttled; log each error."""
    node = msgspec.json.decode(row.node, type=NewNode)
    types = ports.catalogs.read(ports.state.catalog_key()).instance_types(node.nodeclass)
    sizes = {instance_type.name: instance_type.capacity.get(resources.CPU, 0) for instance_type in types}
    offerings_closed = offering_health_store.record_fleet_response(
        ports.state, result.instances, result.errors,
        now_ms=epoch_ms(now), cpu_millicores=sizes, scope=row.placement_group,
    )  # fmt: skip
    for error in (fleet_error for fleet_error in result.errors if fleet_error.code in fleet_errors.THROTTLING_CODES):
        _slow_down(ports, error.message, now)
    for failed in fleet_errors.count_failures(result.errors):
        is_known = failed.reason != fleet_errors.UNKNOWN_FAILURE
        line = log_lines.REFUSED_OFFERINGS if is_known else log_lines.UNKNOWN_FLEET_ERROR
        log_line(log, line, launch=row.id, **msgspec.structs.asdict(failed))
    return msgspec.structs.replace(row, offerings_closed=offerings_closed)


def _slow_down(ports: LifecyclePorts, error: str, now: datetime) -> None:
    """The message says whether calls or the instances in them were too many."""
    log_line(log, log_lines.CALL_THROTTLED, call="CreateFleet", error=error)
    counts_instances = token_bucket.INSTANCE_LIMIT_MESSAGE in error
    action = rate_limits.STARTED_INSTANCES if counts_instances else rate_limits.CREATE_FLEET
    rate_limits.slow_down(ports.state, action, now=now)


def _handle_response(
    ports: LifecyclePorts,
    row: LaunchRow,
    waiting: tuple[NodeClaim, ...],
    instances: tuple[Instance, ...],
    result: FleetResult,
    now: datetime,
) -> LaunchRow | None:
    """A definite response: instances are assigned; the errors say whether to try again for missing ones."""
    row = _assign(row, waiting, instances)
    missing = tuple(claim for claim in waiting if claim.name not in row.instances)
    verdict = fleet_errors.launch_failure(result.errors)
    if missing and verdict.reason == fleet_errors.LAUNCH_TEMPLATE_NOT_FOUND and not row.templates_recreated:
        return ports.state.save(
            msgspec.structs.replace(row, request="", attempt=row.attempt + 1, templates_recreated=True)
        )
    if missing and not verdict.insufficient_capacity:
        _retry(ports, msgspec.structs.replace(row, request=""), missing, verdict.reason, verdict.message, now)
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


def _finish(ports: LifecyclePorts, row: LaunchRow, now: datetime) -> LaunchRow:
    """No claim waits any more: instances are written to their claims, surplus ones terminated after a minute."""
    return ports.state.save(msgspec.structs.replace(row, phase="launched", due=epoch_ms(now + SETTLING_PERIOD)))


def _assign(row: LaunchRow, waiting: Iterable[NodeClaim], instances: Iterable[Instance]) -> LaunchRow:
    running = (instance.id for instance in instances if instance.state not in ("shutting-down", "terminated"))
    return msgspec.structs.replace(
        row, instances=instance_assignment.assign_instances([claim.name for claim in waiting], row.instances, running)
    )


def _retry(
    ports: LifecyclePorts, row: LaunchRow, waiting: tuple[NodeClaim, ...], reason: str, message: str, now: datetime
) -> None:
    """A refusal that may pass: written to the claims' conditions, and tried again until liveness deletes them."""
    names = [claim.name for claim in waiting]
    log_line(log, log_lines.FAILED_LAUNCHING_NODECLAIM, nodeclaims=names, reason=reason, error=message)
    shown = message if len(message) <= 300 else message[:300] + "..."
    for claim in waiting:
        update_conditions(ports, claim, [unknown_condition("Launched", reason, shown)], now=now)
    after = _wait(ports, row, row.attempt + 1, now)
    if after.instances:
        write_assignments(ports, after, now)


def _wait(ports: LifecyclePorts, row: LaunchRow, attempt: int, now: datetime) -> LaunchRow:
    return _pause(ports, msgspec.structs.replace(row, attempt=attempt), retry_seconds(attempt), now)


def _pause(ports: LifecyclePorts, row: LaunchRow, seconds: int, now: datetime) -> LaunchRow:
    """Pause the launch for ``seconds``, whatever rings; if the doorbell is lost, the row's timer rings."""
    at = epoch_ms(now + timedelta(seconds=seconds))
    after = ports.state.save(msgspec.structs.replace(row, not_before=at, due=at))
    ring_lifecycle(ports, "launch", [row.id], delay_seconds=seconds)
    return after
