"""CreateFleet: the request of a launch is stored before it is sent."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final

import msgspec

from spotwright.aws.launch.create_fleet import client_token, market, reservations_by_pool
from spotwright.aws.refusal import Refusal
from spotwright.errors import ApiError, Throttled, Unavailable
from spotwright.lifecycle import instance_assignment
from spotwright.model.ec2.fleet import FleetError, FleetResult, Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.account import rate_limits
from spotwright.workflows.lifecycle.actions import assigned_instances, claims_by_name, log
from spotwright.workflows.lifecycle.launch.fleet_request import (
    LaunchOptions,
    build_request,
    gather_options,
    is_refused_regardless,
    nodeclass_hash,
    record_subnets,
)
from spotwright.workflows.lifecycle.launch.fleet_response import (
    SETTLING_PERIOD,
    finish_launch,
    handle_response,
    pause_launch,
    record_health,
    retry_later,
    retry_refused,
    slow_down,
    with_assignments,
)
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import LaunchRow, epoch_ms

INSUFFICIENT: Final = "InsufficientCapacity"


def create_fleet(
    ports: LifecyclePorts, row: LaunchRow, now: datetime, *, created: Mapping[str, NodeClaim]
) -> LaunchRow | None:
    """Launch the instances that are missing; phase launched once every claim has one or will not get one.

    ``created``: NodeClaims as they were created a moment ago, by name; the others are read. A request without a
    definite response is repeated unchanged, under its client token; existing instances with the launch's tag are
    adopted first.
    """
    may_have_instances = bool(row.request) or row.attempt > 0
    with ThreadPoolExecutor(1) as thread:
        options = None if row.request else thread.submit(gather_options, ports, row, now)
        claims = dict(created) | claims_by_name(ports, [name for name in row.claims if name not in created])
    waiting = _waiting(row, claims)
    instances = _unassigned_instances(ports, row, claims) if may_have_instances else ()
    if not waiting:
        if _is_answered(row, now):
            return finish_launch(ports, row, now)
        retry_later(ports, row, row.attempt, now)
        return None
    if options is not None:
        row = with_assignments(row, waiting, instances)
        waiting = tuple(claim for claim in waiting if claim.name not in row.instances)
        if not waiting:
            return finish_launch(ports, row, now)
        prepared = _prepare(ports, row, waiting, options.result(), now)
        if prepared is None or prepared.phase != "claimed":
            return prepared
        row = prepared
    return _send(ports, row, waiting, instances, now)


def with_instances_of_request(ports: LifecyclePorts, row: LaunchRow) -> LaunchRow:
    """The row with the instances that its request launched, though no answer to it was saved. It is saved with them."""
    if not row.request:
        return row
    claims = claims_by_name(ports, row.claims)
    after = with_assignments(row, _waiting(row, claims), _unassigned_instances(ports, row, claims))
    return row if after == row else ports.state.save(after)


def _waiting(row: LaunchRow, claims: Mapping[str, NodeClaim]) -> tuple[NodeClaim, ...]:
    """The claims of the launch that get an instance yet. ``claims``: those that exist, by name."""
    return tuple(
        claims[name]
        for name in row.claims
        if name in claims
        and name not in row.instances
        and instance_assignment.is_awaiting_instance(claims[name], row.uids[name])
    )


def _unassigned_instances(
    ports: LifecyclePorts, row: LaunchRow, claims: Mapping[str, NodeClaim]
) -> tuple[Instance, ...]:
    """The instances with the launch's tag that no claim has."""
    tagged = ports.ec2.instances_of_launch(row.id)
    assigned = assigned_instances(ports, tagged, claims.values())
    return tuple(instance for instance in tagged if instance.id not in assigned)


def _prepare(
    ports: LifecyclePorts, row: LaunchRow, waiting: tuple[NodeClaim, ...], offered: LaunchOptions, now: datetime
) -> LaunchRow | None:
    """The row with the stored request for ``waiting``; None or another phase when there is no request."""
    prepared = build_request(ports, row, waiting, offered, now)
    if isinstance(prepared, Refusal):
        return _handle_refusal(ports, row, waiting, prepared, offered, now)
    if isinstance(prepared, int):
        pause_launch(ports, row, prepared, now)
        return None
    wait_seconds = _acquire_instances(ports, row, len(waiting), now)
    if wait_seconds:
        pause_launch(ports, msgspec.structs.replace(row, failure=""), wait_seconds, now)
        return None
    request, fleet = prepared
    record_subnets(ports, row, fleet, offered, nodes=len(waiting), now=now)
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


def _acquire_instances(ports: LifecyclePorts, row: LaunchRow, count: int, now: datetime) -> int:
    """Seconds until so many instances may be started; 0 = now. Once for a request, however often it is sent: EC2
    launches its instances once. After EC2 refused it for their number it is done again.
    """
    return rate_limits.acquire(ports.state, rate_limits.STARTED_INSTANCES, caller=row.id, now=now, calls=count)


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
    retry_refused(ports, row, waiting, refusal.reason, refusal.message, now)
    return None


def _send(
    ports: LifecyclePorts,
    row: LaunchRow,
    waiting: tuple[NodeClaim, ...],
    instances: tuple[Instance, ...],
    now: datetime,
) -> LaunchRow | None:
    if not row.requested_at:
        wait_seconds = _acquire_instances(ports, row, len(waiting), now)
        if wait_seconds:
            pause_launch(ports, row, wait_seconds, now)
            return None
        row = ports.state.save(msgspec.structs.replace(row, requested_at=epoch_ms(now)))
    wait_seconds = rate_limits.acquire(ports.state, rate_limits.CREATE_FLEET, caller=row.id, now=now)
    if wait_seconds:
        pause_launch(ports, row, wait_seconds, now)
        return None
    request = json.loads(row.request)
    try:
        result = ports.ec2.create_fleet(request)
    except (Throttled, Unavailable) as error:
        # No definite response: the same request under the same token, later.
        requested_at = epoch_ms(now)
        if not isinstance(error, Throttled):
            log_line(log, log_lines.CALL_UNANSWERED, call="CreateFleet", code=error.code, error=str(error))
        elif slow_down(ports, str(error), now) == rate_limits.STARTED_INSTANCES:
            requested_at = 0
        retry_later(ports, msgspec.structs.replace(row, requested_at=requested_at), row.attempt, now)
        return None
    except ApiError as error:
        result = FleetResult(errors=(FleetError(error.code, str(error), capacity_type=market(request)),))
    result = instance_assignment.attribute_reservations(result, row.reservations)
    return handle_response(
        ports, record_health(ports, row, result, now), waiting, (*instances, *result.instances), result, now
    )
