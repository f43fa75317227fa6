"""Handing instances over to their claims, ending the claims that got none, and collecting what is too much."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from spotwright.aws.launch import fleet_plan
from spotwright.aws.nodeclass import hashes
from spotwright.lifecycle import nodeclaim_creation
from spotwright.lifecycle.steps import Deletion, true_condition, warning_event
from spotwright.model import labels, resources
from spotwright.model.ec2.fleet import Instance
from spotwright.model.ec2.instance_type import InstanceType, find_instance_type
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.requirements import Requirements
from spotwright.scheduling.plan import NewNode
from spotwright.workflows import terminations
from spotwright.workflows.lifecycle_acting import (
    Acting,
    delete_claim,
    log,
    milliseconds,
    note,
    record,
    request_planning,
    ring,
    tick,
    unlocked,
)
from spotwright.workflows.lifecycle_overlays import types_for
from spotwright.workflows.rows import LaunchRow

CLAIMS_AT_ONCE: Final = 100
GONE: Final = ("shutting-down", "terminated")
# Where nothing tells the next plan from this one, it waits a little.
REPLAN_SECONDS: Final = 10
# Surplus is terminated this long after the answer, milliseconds: until then a late worker may still adopt it.
SETTLING_MS: Final = 60_000


def hand_over(ports: Acting, row: LaunchRow, now: datetime) -> LaunchRow | None:
    """Every claim with an instance learns it, every other one ends; then the row is history but for its surplus."""
    if not give(ports, row, now):
        ring(ports, "launch", [row.id], delay_seconds=1)
        return None
    _end_the_rest(ports, row, now)
    return ports.state.save(msgspec.structs.replace(row, phase="done", due=milliseconds(now) + SETTLING_MS))


def give(ports: Acting, row: LaunchRow, now: datetime) -> bool:
    """Write to claims what their instances are; False when some are left for another pass.

    A claim that is being deleted learns its instance too: its finalizer then takes it down. Instances whose claims
    are gone are terminated here; those that EC2 would not end now are surplus a minute later.
    """
    unclaimed: list[Instance] = []
    complete = _given(ports, row, unclaimed, now)
    _terminate(ports, unclaimed, "its NodeClaim is gone", now)
    return complete


def _given(ports: Acting, row: LaunchRow, unclaimed: list[Instance], now: datetime) -> bool:
    """False when claims are left for another pass. Instances whose claim is gone are put on ``unclaimed``."""
    known = {one.id: one for one in ports.ec2.instances_of_launch(row.id)}
    node = msgspec.json.decode(row.node, type=NewNode)
    types = types_for(ports, node) if row.instances else ()
    annotations = _class_annotations(ports, row, node) if row.instances else {}
    work = 0
    for name in sorted(row.instances):
        claim = ports.cluster.nodeclaim(name)
        if claim is not None and claim.metadata.uid == row.uids[name] and claim.is_condition_true("Launched"):
            continue
        if work == CLAIMS_AT_ONCE:
            return False
        instance = known.get(row.instances[name]) or ports.ec2.instance(row.instances[name])
        if instance is None:
            # EC2 answers an id it has just made with NotFound for a while.
            return False
        if claim is None or claim.metadata.uid != row.uids[name]:
            if instance.state not in GONE:
                unclaimed.append(instance)
        else:
            work += 1
            # EC2 may show the reservation of an instance that it has just made later than the instance.
            instance = nodeclaim_creation.with_reservation(instance, row.reservations)
            learnt = _learnt(instance, node, types)
            _launched(ports, claim, instance, learnt, annotations, now)
            _say_launched(row, claim, instance, now)
            tick(ports, claim.name, 1)
    return True


def _learnt(instance: Instance, node: NewNode, types: Iterable[InstanceType]) -> fleet_plan.LaunchedStatus:
    known = find_instance_type(
        types,
        instance.instance_type,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        reservation=instance.reservation_id,
    )
    return fleet_plan.launched_status(
        instance_id=instance.id,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        instance_type=known or InstanceType(instance.instance_type, Requirements(), {}, {}, ()),
        node=node,
        reservation_id=instance.reservation_id,
        partition_number=instance.partition_number,
    )


def _launched(
    ports: Acting,
    claim: NodeClaim,
    instance: Instance,
    learnt: fleet_plan.LaunchedStatus,
    annotations: Mapping[str, str],
    now: datetime,
) -> None:
    """Labels and annotations first, the conditions last: Launched=True says that all of it is written."""
    given = learnt.labels | {labels.INSTANCE_TYPE: instance.instance_type} | claim.metadata.labels
    given |= {labels.ZONE: instance.zone, labels.CAPACITY_TYPE: instance.capacity_type}
    ports.cluster.patch_metadata("nodeclaims", claim.metadata, {"labels": given, "annotations": dict(annotations)})
    status: dict[str, Any] = {
        "providerID": learnt.provider_id,
        "imageID": instance.image_id,
        "capacity": resources.text(learnt.capacity),
        "allocatable": resources.text(learnt.allocatable),
    }
    ports.cluster.patch_status("nodeclaims", unlocked(claim.metadata), status)
    record(ports, claim, [true_condition("Launched")], now=now)


def _say_launched(row: LaunchRow, claim: NodeClaim, instance: Instance, now: datetime) -> None:
    log.info(
        "launched nodeclaim",
        extra={
            "NodeClaim": claim.name,
            "provider-id": f"aws:///{instance.zone}/{instance.id}",
            "instance-type": instance.instance_type,
            "zone": instance.zone,
            "capacity-type": instance.capacity_type,
            "seconds": (milliseconds(now) - row.created) / 1000,
        },
    )


def _class_annotations(ports: Acting, row: LaunchRow, node: NewNode) -> Mapping[str, str]:
    """What drift is measured against later: the class that the request was made of, or as it is if nobody knows."""
    found = next((one for one in ports.cluster.nodeclasses() if one.name == node.nodeclass), None)
    if found is None:
        return {}
    kept = (labels.EC2NODECLASS_HASH, labels.EC2NODECLASS_HASH_VERSION)
    stamped = {key: found.metadata.annotations[key] for key in kept if key in found.metadata.annotations}
    if row.class_hash:
        stamped = dict(zip(kept, (row.class_hash, hashes.NODECLASS_VERSION), strict=True))
    return stamped | {labels.INSTANCE_PROFILE_NAME: found.resolved_instance_profile}


def _end_the_rest(ports: Acting, row: LaunchRow, now: datetime) -> None:
    """Claims without an instance: the event says why, their pods are planned again elsewhere."""
    ended = 0
    for name in row.claims:
        claim = None if name in row.instances else ports.cluster.nodeclaim(name)
        if claim is None or claim.metadata.uid != row.uids.get(name) or claim.provider_id:
            continue
        why = row.failure or "EC2 gave no instance"
        if row.insufficient:
            message = f"NodeClaim {name} event: {why}"
            note(ports, "nodeclaims", claim.metadata, [warning_event("InsufficientCapacityError", message)], now=now)
        log.error("failed launching nodeclaim", extra={"NodeClaim": name, "error": why})
        reason = "insufficient_capacity" if row.insufficient else "nodeclass_not_ready"
        delete_claim(ports, claim, Deletion(reason, why))
        ended += 1
    if ended:
        request_planning(ports, delay_seconds=0 if row.marked else REPLAN_SECONDS)


def collect_surplus(ports: Acting, row: LaunchRow, now: datetime) -> None:
    """Terminate the launch's instances that no claim holds; a minute after it was answered nobody adopts them."""
    held = {instance_id(claim.provider_id) for claim in ports.cluster.nodeclaims()}
    launched = ports.ec2.instances_of_launch(row.id)
    surplus = [one for one in launched if one.id not in held and one.state not in GONE]
    wait = _terminate(ports, surplus, "no NodeClaim holds it", now)
    ports.state.save(msgspec.structs.replace(row, due=milliseconds(now) + wait * 1000 if wait else 0))
    if wait:
        ring(ports, "launch", [row.id], delay_seconds=wait)


def _terminate(ports: Acting, surplus: Iterable[Instance], why: str, now: datetime) -> int:
    """In how many seconds to ask again for those that EC2 would not end now, 0 = there are none."""
    ended = terminations.terminate(ports, surplus, now)
    for id in sorted(ended.ids):
        log.info("terminated surplus instance", extra={"instance": id, "why": why})
    return ended.wait_seconds
