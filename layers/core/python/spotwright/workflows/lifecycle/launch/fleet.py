"""Buying: the CreateFleet request of a launch, stored before it is sent, and what its answer means."""

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

# After an answer the instances are looked for once more, in case another worker's call made some too.
SETTLING_PERIOD: Final = timedelta(seconds=60)
INSUFFICIENT: Final = "InsufficientCapacity"


def create_fleet(ports: LifecyclePorts, row: LaunchRow, now: datetime) -> LaunchRow | None:
    """Ask EC2 for the instances that are still missing; phase launched once every claim's fate is known.

    A request without a definite answer is repeated as it stands, under its client token; instances that carry the
    launch's tag are adopted first when there may be any.
    """
    uncertain = bool(row.request) or row.attempt > 0
    with ThreadPoolExecutor(1) as meanwhile:
        offered = None if row.request else meanwhile.submit(gather_options, ports, row, now)
        claims = {claim.name: claim for claim in ports.cluster.nodeclaims()}
    waiting = tuple(
        claims[name]
        for name in row.claims
        if name in claims
        and name not in row.instances
        and instance_assignment.is_awaiting_instance(claims[name], row.uids[name])
    )
    held = {instance_id(claim.provider_id) for claim in claims.values()}
    tagged = ports.ec2.instances_of_launch(row.id) if uncertain else ()
    instances = tuple(instance for instance in tagged if instance.id not in held)
    if not waiting:
        if _is_answered(row, now):
            return _finish(ports, row, now)
        _wait(ports, row, row.attempt, now)
        return None
    if offered is not None:
        row = _assign(row, waiting, instances)
        waiting = tuple(claim for claim in waiting if claim.name not in row.instances)
        if not waiting:
            return _finish(ports, row, now)
        prepared = _prepare(ports, row, waiting, offered.result(), now)
        if prepared is None or prepared.phase != "claimed":
            return prepared
        row = prepared
    return _send(ports, row, waiting, instances, now)


def _prepare(
    ports: LifecyclePorts, row: LaunchRow, waiting: tuple[NodeClaim, ...], offered: LaunchOptions, now: datetime
) -> LaunchRow | None:
    """The row with a stored request for the claims that wait; None or another phase when there can be none."""
    made = build_request(ports, row, waiting, offered, now)
    if isinstance(made, Refusal):
        return _handle_refusal(ports, row, waiting, made, offered, now)
    if isinstance(made, int):
        _pause(ports, row, made, now)
        return None
    wait = rate_limits.acquire(ports.state, rate_limits.STARTED_INSTANCES, caller=row.id, now=now, calls=len(waiting))
    if wait:
        # Asked once for a request, which may be sent several times: EC2 starts its instances once.
        _pause(ports, row, wait, now)
        return None
    request, fleet = made
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
    """False while another worker may be inside the call: whoever asked a minute ago has ended since."""
    return not row.request or epoch_ms(now) - row.requested_at >= SETTLING_PERIOD.total_seconds() * 1000


def _handle_refusal(
    ports: LifecyclePorts,
    row: LaunchRow,
    waiting: tuple[NodeClaim, ...],
    refusal: Refusal,
    offered: LaunchOptions,
    now: datetime,
) -> LaunchRow | None:
    """Nothing was asked of EC2. Without capacity, or from a class that is not ready, the claims end; else we wait.

    What no memory of offerings explains, the next plan would decide again: then the claims stay until liveness ends
    them, so that the same nodes are not made and refused every few seconds.
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
        # No definite answer: the same request under the same token, later.
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
    """What the answer says of offerings and of our pace, kept for all clusters of the account; and each error said."""
    node = msgspec.json.decode(row.node, type=NewNode)
    types = ports.catalogs.read(ports.state.catalog_key()).instance_types(node.nodeclass)
    sizes = {instance_type.name: instance_type.capacity.get(resources.CPU, 0) for instance_type in types}
    marked = offering_health_store.record_fleet_response(
        ports.state, result.instances, result.errors,
        now_ms=epoch_ms(now), cpu_millicores=sizes, scope=row.placement_group,
    )  # fmt: skip
    for error in (fleet_error for fleet_error in result.errors if fleet_error.code in fleet_errors.THROTTLING_CODES):
        _slow_down(ports, error.message, now)
    for failed in fleet_errors.count_failures(result.errors):
        known = failed.reason != fleet_errors.UNKNOWN_FAILURE
        line = log_lines.REFUSED_OFFERINGS if known else log_lines.UNKNOWN_FLEET_ERROR
        log_line(log, line, launch=row.id, **msgspec.structs.asdict(failed))
    return msgspec.structs.replace(row, offerings_closed=marked)


def _slow_down(ports: LifecyclePorts, error: str, now: datetime) -> None:
    """EC2 says whether it counted calls or the instances in them."""
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
    """A definite answer: instances are dealt out; for what is missing the errors say whether to try again."""
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
    """Nobody waits (any more): what was bought is handed over, what is too much collected after a minute."""
    return ports.state.save(msgspec.structs.replace(row, phase="launched", due=epoch_ms(now + SETTLING_PERIOD)))


def _assign(row: LaunchRow, waiting: Iterable[NodeClaim], instances: Iterable[Instance]) -> LaunchRow:
    alive = (instance.id for instance in instances if instance.state not in ("shutting-down", "terminated"))
    return msgspec.structs.replace(
        row, instances=instance_assignment.assign_instances([claim.name for claim in waiting], row.instances, alive)
    )


def _retry(
    ports: LifecyclePorts, row: LaunchRow, waiting: tuple[NodeClaim, ...], reason: str, message: str, now: datetime
) -> None:
    """A definite no that may pass: said on the claims, tried again with a new token until liveness ends them."""
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
    """Nothing more of this launch for so long, whoever rings; the row's timer stands in for a lost message."""
    at = epoch_ms(now + timedelta(seconds=seconds))
    after = ports.state.save(msgspec.structs.replace(row, not_before=at, due=at))
    ring_lifecycle(ports, "launch", [row.id], delay_seconds=seconds)
    return after
