"""Buying: the CreateFleet request of a launch, stored before it is sent, and what its answer means."""

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws import token_bucket
from spotwright.aws.instance_types.unavailable_offerings import UnavailableOfferings
from spotwright.aws.launch import fleet_errors, fleet_plan
from spotwright.aws.launch.fleet_plan import FleetPlan
from spotwright.aws.launch.template import LaunchTemplateRequest
from spotwright.aws.nodeclass import hashes
from spotwright.aws.refusal import Refusal
from spotwright.failures import Failure, Throttled, Unavailable
from spotwright.lifecycle import nodeclaim_creation
from spotwright.lifecycle.retry import retry_seconds
from spotwright.lifecycle.steps import unknown_condition, warning_event
from spotwright.model import labels, resources
from spotwright.model.ec2.fleet import FleetError, FleetResult, Instance
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.kubernetes.node import instance_id
from spotwright.scheduling.plan import NewNode
from spotwright.workflows import offering_memory, pacing
from spotwright.workflows.launching_handover import give
from spotwright.workflows.lifecycle_acting import Acting, log, milliseconds, note, record, ring
from spotwright.workflows.lifecycle_overlays import types_for
from spotwright.workflows.rows import LaunchRow

# After an answer the instances are looked for once more, in case another worker's call made some too.
SETTLING: Final = timedelta(seconds=60)
INSUFFICIENT: Final = "InsufficientCapacity"


def buy(ports: Acting, row: LaunchRow, now: datetime) -> LaunchRow | None:
    """Ask EC2 for the instances that are still missing; phase launched once every claim's fate is known.

    A request without a definite answer is repeated as it stands, under its client token; instances that carry the
    launch's tag are adopted first when there may be any.
    """
    uncertain = bool(row.request) or row.attempt > 0
    with ThreadPoolExecutor(1) as meanwhile:
        offered = None if row.request else meanwhile.submit(_offered, ports, row, now)
        claims = {claim.name: claim for claim in ports.cluster.nodeclaims()}
    waiting = tuple(
        claims[name]
        for name in row.claims
        if name in claims
        and name not in row.instances
        and nodeclaim_creation.is_awaiting_instance(claims[name], row.uids[name])
    )
    held = {instance_id(claim.provider_id) for claim in claims.values()}
    tagged = ports.ec2.instances_of_launch(row.id) if uncertain else ()
    found = tuple(one for one in tagged if one.id not in held)
    if not waiting:
        if _is_answered(row, now):
            return _settled(ports, row, now)
        _wait(ports, row, row.attempt, now)
        return None
    if offered is not None:
        row = _dealt(row, waiting, found)
        waiting = tuple(claim for claim in waiting if claim.name not in row.instances)
        if not waiting:
            return _settled(ports, row, now)
        prepared = _prepared(ports, row, waiting, offered.result(), now)
        if prepared is None or prepared.phase != "claimed":
            return prepared
        row = prepared
    return _sent(ports, row, waiting, found, now)


class Offered(msgspec.Struct, frozen=True):
    """What a launch chooses from: its class, if it is there; what is known to be empty; what the class can buy."""

    node_class: EC2NodeClass | None
    known: UnavailableOfferings
    types: tuple[InstanceType, ...]


def _offered(ports: Acting, row: LaunchRow, now: datetime) -> Offered:
    node = msgspec.json.decode(row.node, type=NewNode)
    with ThreadPoolExecutor(2) as meanwhile:
        classes = meanwhile.submit(ports.cluster.nodeclasses)
        known = meanwhile.submit(offering_memory.recalled, ports.state, now_ms=milliseconds(now))
        types = types_for(ports, node)
    found = next((one for one in classes.result() if one.name == node.nodeclass), None)
    return Offered(found, known.result(), types)


def _prepared(
    ports: Acting, row: LaunchRow, waiting: tuple[NodeClaim, ...], offered: Offered, now: datetime
) -> LaunchRow | None:
    """The row with a stored request for the claims that wait; None or another phase when there can be none."""
    made = _request(ports, row, waiting, offered, now)
    if isinstance(made, Refusal):
        return _refused(ports, row, waiting, made, offered, now)
    if isinstance(made, int):
        _pause(ports, row, made, now)
        return None
    wait = pacing.wait_seconds(ports.state, pacing.STARTED, key=row.id, now=now, calls=len(waiting))
    if wait:
        # Asked once for a request, which may be sent several times: EC2 starts its instances once.
        _pause(ports, row, wait, now)
        return None
    request, fleet = made
    return ports.state.save(
        msgspec.structs.replace(
            row,
            request=request,
            reservations=fleet_plan.reservations_by_pool(fleet),
            group=fleet.placement_scope,
            class_hash=_class_hash(ports, offered),
            token=fleet_plan.client_token(row.id, row.attempt),
            failure="",
            asked=milliseconds(now),
            due=milliseconds(now + SETTLING),
        )
    )


def _class_hash(ports: Acting, offered: Offered) -> str:
    return hashes.nodeclass_hash(offered.node_class, ports.facts.certificate_authority) if offered.node_class else ""


def _is_answered(row: LaunchRow, now: datetime) -> bool:
    """False while another worker may be inside the call: whoever asked a minute ago has ended since."""
    return not row.request or milliseconds(now) - row.asked >= SETTLING.total_seconds() * 1000


def _request(
    ports: Acting, row: LaunchRow, waiting: Sequence[NodeClaim], offered: Offered, now: datetime
) -> tuple[str, FleetPlan] | int | Refusal:
    """The request as text, or in how many seconds EC2 may be asked for its templates, or why there can be none."""
    node = msgspec.json.decode(row.node, type=NewNode)
    readiness = nodeclaim_creation.nodeclass_readiness(offered.node_class, node.nodeclass)
    if offered.node_class is None or readiness.reason:
        return Refusal(readiness.reason, readiness.message)
    gates = ports.settings.feature_gates
    planned = fleet_plan.plan_fleet(
        node, offered.node_class, offered.types, ports.facts, offered.known, feature_gates=gates
    )
    if isinstance(planned, Refusal):
        return planned
    # With fewer kinds of instances than were asked for, the class's context would not mean what it was made for.
    relaxed = any(one.metadata.annotations.get(labels.MIN_VALUES_RELAXED) == "true" for one in waiting)
    context = "" if relaxed else planned.context
    planned = msgspec.structs.replace(planned, prioritized=node.price_overlay_applied, context=context)
    versions = _versions(ports, row, planned.templates, now)
    if isinstance(versions, int):
        return versions
    token = fleet_plan.client_token(row.id, row.attempt)
    body = fleet_plan.create_fleet_request(planned, versions, launch_id=row.id, count=len(waiting), client_token=token)
    return fleet_plan.encode_request(body), planned


def _versions(
    ports: Acting, row: LaunchRow, templates: Iterable[LaunchTemplateRequest], now: datetime
) -> dict[str, tuple[str, str]] | int:
    """Template name → (id, version); missing ones are made, or in how many seconds that may be."""
    wanted = tuple(templates)
    with ThreadPoolExecutor(len(wanted) or 1) as beside:
        versions = beside.map(lambda one: ports.ec2.launch_template(one.name, one.data), wanted)
        found = dict(zip((one.name for one in wanted), versions, strict=True))
    missing = [one for one in wanted if found[one.name] is None]
    if missing:
        wait = pacing.wait_seconds(ports.state, pacing.CREATE_TEMPLATE, key=row.id, now=now, calls=len(missing))
        if wait:
            return wait
    made = {one.name: _made(ports, one, now) for one in missing}
    return {name: version for name, version in found.items() if version is not None} | made


def _made(ports: Acting, one: LaunchTemplateRequest, now: datetime) -> tuple[str, str]:
    try:
        return ports.ec2.ensure_launch_template(one.name, one.data, one.tags)
    except Throttled:
        pacing.slow_down(ports.state, pacing.CREATE_TEMPLATE, now=now)
        raise


def _refused(
    ports: Acting,
    row: LaunchRow,
    waiting: tuple[NodeClaim, ...],
    refusal: Refusal,
    offered: Offered,
    now: datetime,
) -> LaunchRow | None:
    """Nothing was asked of EC2. Without capacity, or from a class that is not ready, the claims end; else we wait.

    What no memory of offerings explains, the next plan would decide again: then the claims stay until liveness ends
    them, so that the same nodes are not made and refused every few seconds.
    """
    if refusal.reason == INSUFFICIENT and row.decision and _is_lasting(ports, row, offered):
        for claim in waiting:
            message = f"NodeClaim {claim.name} event: {refusal.message}; nothing that is sold out explains it"
            note(ports, "nodeclaims", claim.metadata, [warning_event("InsufficientCapacityError", message)], now=now)
    elif refusal.reason in (INSUFFICIENT, "NodeClassNotReady"):
        return ports.state.save(
            msgspec.structs.replace(
                row, phase="launched", failure=f"{refusal.reason}: {refusal.message}",
                insufficient=refusal.reason == INSUFFICIENT,
            )
        )  # fmt: skip
    _again(ports, row, waiting, refusal.reason, refusal.message, now)
    return None


def _is_lasting(ports: Acting, row: LaunchRow, offered: Offered) -> bool:
    """Whether a launch that was refused would be even if nothing were known to be empty."""
    if offered.node_class is None or offered.node_class.metadata.deletion_timestamp is not None:
        return False
    node, gates = msgspec.json.decode(row.node, type=NewNode), ports.settings.feature_gates
    return isinstance(
        fleet_plan.plan_fleet(
            node, offered.node_class, offered.types, ports.facts, UnavailableOfferings(), feature_gates=gates
        ),
        Refusal,
    )


def _sent(
    ports: Acting, row: LaunchRow, waiting: tuple[NodeClaim, ...], found: tuple[Instance, ...], now: datetime
) -> LaunchRow | None:
    wait = pacing.wait_seconds(ports.state, pacing.CREATE_FLEET, key=row.id, now=now)
    if wait:
        _pause(ports, row, wait, now)
        return None
    try:
        result = ports.ec2.create_fleet(json.loads(row.request))
    except (Throttled, Unavailable) as error:
        # No definite answer: the same request under the same token, later.
        log.warning("CreateFleet had no answer", extra={"launch": row.id, "code": error.code, "error": str(error)})
        if isinstance(error, Throttled):
            _throttled(ports, row, str(error), now)
        _wait(ports, msgspec.structs.replace(row, asked=milliseconds(now)), row.attempt, now)
        return None
    except Failure as error:
        result = FleetResult(errors=(FleetError(error.code, str(error)),))
    result = nodeclaim_creation.attribute_reservations(result, row.reservations)
    return _answered(ports, _learnt(ports, row, result, now), waiting, (*found, *result.instances), result, now)


def _learnt(ports: Acting, row: LaunchRow, result: FleetResult, now: datetime) -> LaunchRow:
    """What the answer says of offerings and of our pace, kept for all clusters of the account; and each error said."""
    node = msgspec.json.decode(row.node, type=NewNode)
    types = ports.catalogs.read(ports.state.catalog_key()).instance_types(node.nodeclass)
    sizes = {one.name: one.capacity.get(resources.CPU, 0) for one in types}
    marked = offering_memory.answered(
        ports.state, result.instances, result.errors,
        now_ms=milliseconds(now), cpu_millicores=sizes, scope=row.group,
    )  # fmt: skip
    for error in (one for one in result.errors if one.code in fleet_errors.THROTTLING_CODES):
        _throttled(ports, row, error.message, now)
    for failed in fleet_errors.count_failures(result.errors):
        known = failed.reason != fleet_errors.UNKNOWN_FAILURE
        said = "CreateFleet refused offerings" if known else "CreateFleet answered an unknown error"
        log.warning(said, extra={"launch": row.id} | msgspec.structs.asdict(failed))
    return msgspec.structs.replace(row, marked=marked)


def _throttled(ports: Acting, row: LaunchRow, said: str, now: datetime) -> None:
    """EC2 says whether it counted calls or the instances in them."""
    log.warning("CreateFleet was throttled", extra={"launch": row.id, "error": said})
    action = pacing.STARTED if token_bucket.INSTANCE_LIMIT_MESSAGE in said else pacing.CREATE_FLEET
    pacing.slow_down(ports.state, action, now=now)


def _answered(
    ports: Acting,
    row: LaunchRow,
    waiting: tuple[NodeClaim, ...],
    instances: tuple[Instance, ...],
    result: FleetResult,
    now: datetime,
) -> LaunchRow | None:
    """A definite answer: instances are dealt out; for what is missing the errors say whether to try again."""
    row = _dealt(row, waiting, instances)
    missing = tuple(claim for claim in waiting if claim.name not in row.instances)
    verdict = fleet_errors.launch_failure(result.errors)
    if missing and verdict.reason == fleet_errors.LAUNCH_TEMPLATE_NOT_FOUND and not row.remade:
        return ports.state.save(msgspec.structs.replace(row, request="", attempt=row.attempt + 1, remade=True))
    if missing and not verdict.insufficient_capacity:
        _again(ports, msgspec.structs.replace(row, request=""), missing, verdict.reason, verdict.message, now)
        return None
    failure = f"{verdict.reason}: {verdict.message}" if missing else ""
    return ports.state.save(
        msgspec.structs.replace(
            row, phase="launched", failure=failure, insufficient=bool(missing), due=milliseconds(now + SETTLING)
        )
    )


def _settled(ports: Acting, row: LaunchRow, now: datetime) -> LaunchRow:
    """Nobody waits (any more): what was bought is handed over, what is too much collected after a minute."""
    return ports.state.save(msgspec.structs.replace(row, phase="launched", due=milliseconds(now + SETTLING)))


def _dealt(row: LaunchRow, waiting: Iterable[NodeClaim], instances: Iterable[Instance]) -> LaunchRow:
    alive = (one.id for one in instances if one.state not in ("shutting-down", "terminated"))
    return msgspec.structs.replace(
        row, instances=nodeclaim_creation.assign_instances([claim.name for claim in waiting], row.instances, alive)
    )


def _again(
    ports: Acting, row: LaunchRow, waiting: tuple[NodeClaim, ...], reason: str, message: str, now: datetime
) -> None:
    """A definite no that may pass: said on the claims, tried again with a new token until liveness ends them."""
    log.error(
        "failed launching nodeclaim",
        extra={"NodeClaims": [claim.name for claim in waiting], "reason": reason, "error": message},
    )
    shown = message if len(message) <= 300 else message[:300] + "..."
    for claim in waiting:
        record(ports, claim, [unknown_condition("Launched", reason, shown)], now=now)
    after = _wait(ports, row, row.attempt + 1, now)
    if after.instances:
        give(ports, after, now)


def _wait(ports: Acting, row: LaunchRow, attempt: int, now: datetime) -> LaunchRow:
    return _pause(ports, msgspec.structs.replace(row, attempt=attempt), retry_seconds(attempt), now)


def _pause(ports: Acting, row: LaunchRow, seconds: int, now: datetime) -> LaunchRow:
    """Nothing more of this launch for so long, whoever rings; the row's timer stands in for a lost message."""
    at = milliseconds(now + timedelta(seconds=seconds))
    after = ports.state.save(msgspec.structs.replace(row, not_before=at, due=at))
    ring(ports, "launch", [row.id], delay_seconds=seconds)
    return after
