"""Handing instances over to their claims, ending the claims that got none, and collecting what is too much."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from spotwright.aws.launch import launched_status
from spotwright.aws.nodeclass import hashes
from spotwright.lifecycle import instance_assignment
from spotwright.lifecycle.steps import Deletion, true_condition
from spotwright.model import labels, resources
from spotwright.model.ec2.fleet import Instance
from spotwright.model.ec2.instance_type import InstanceType, find_instance_type
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.requirements import Requirements
from spotwright.scheduling.plan import NewNode
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import (
    delete_claim,
    log,
    request_planning,
    ring_lifecycle,
    ring_next_tick,
    update_conditions,
    without_resource_version,
)
from spotwright.workflows.lifecycle.launch.instance_types import instance_types_for
from spotwright.workflows.lifecycle.termination.instances import terminate_instances
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import LaunchRow, epoch_ms

CLAIMS_AT_ONCE: Final = 100
ENDED_STATES: Final = ("shutting-down", "terminated")
# Where nothing tells the next plan from this one, it waits a little.
REPLAN_SECONDS: Final = 10
# Surplus is terminated this long after the answer, milliseconds: until then a late worker may still adopt it.
SETTLING_MS: Final = 60_000


def complete_launch(ports: LifecyclePorts, row: LaunchRow, now: datetime) -> LaunchRow | None:
    """Every claim with an instance learns it, every other one ends; then the row is history but for its surplus."""
    if not write_assignments(ports, row, now):
        ring_lifecycle(ports, "launch", [row.id], delay_seconds=1)
        return None
    _delete_unlaunched(ports, row, now)
    return ports.state.save(msgspec.structs.replace(row, phase="done", due=epoch_ms(now) + SETTLING_MS))


def write_assignments(ports: LifecyclePorts, row: LaunchRow, now: datetime) -> bool:
    """Write to claims what their instances are; False when some are left for another pass.

    A claim that is being deleted learns its instance too: its finalizer then takes it down. Instances whose claims
    are gone are terminated here; those that EC2 would not end now are surplus a minute later.
    """
    unclaimed: list[Instance] = []
    complete = _write_assignments(ports, row, unclaimed, now)
    _terminate(ports, unclaimed, "its NodeClaim was deleted", now)
    return complete


def _write_assignments(ports: LifecyclePorts, row: LaunchRow, unclaimed: list[Instance], now: datetime) -> bool:
    """False when claims are left for another pass. Instances whose claim is gone are put on ``unclaimed``."""
    known = {one.id: one for one in ports.ec2.instances_of_launch(row.id)}
    node = msgspec.json.decode(row.node, type=NewNode)
    types = instance_types_for(ports, node) if row.instances else ()
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
            if instance.state not in ENDED_STATES:
                unclaimed.append(instance)
        else:
            work += 1
            # EC2 may show the reservation of an instance that it has just made later than the instance.
            instance = instance_assignment.with_reservation(instance, row.reservations)
            learnt = _launched_instance(instance, node, types)
            _write_claim(ports, claim, instance, learnt, annotations, now)
            _log_launched(row, claim, instance, now)
            ring_next_tick(ports, claim.name, 1)
    return True


def _launched_instance(
    instance: Instance, node: NewNode, types: Iterable[InstanceType]
) -> launched_status.LaunchedStatus:
    instance_type = find_instance_type(
        types,
        instance.instance_type,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        reservation=instance.reservation_id,
    )
    return launched_status.launched_status(
        instance_id=instance.id,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        instance_type=instance_type or InstanceType(instance.instance_type, Requirements(), {}, {}, ()),
        node=node,
        reservation_id=instance.reservation_id,
        partition_number=instance.partition_number,
    )


def _write_claim(
    ports: LifecyclePorts,
    claim: NodeClaim,
    instance: Instance,
    learnt: launched_status.LaunchedStatus,
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
    ports.cluster.patch_status("nodeclaims", without_resource_version(claim.metadata), status)
    update_conditions(ports, claim, [true_condition("Launched")], now=now)


def _log_launched(row: LaunchRow, claim: NodeClaim, instance: Instance, now: datetime) -> None:
    log_line(
        log,
        log_lines.LAUNCHED_NODECLAIM,
        nodeclaim=claim.name,
        provider_id=f"aws:///{instance.zone}/{instance.id}",
        instance_type=instance.instance_type,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        seconds=(epoch_ms(now) - row.created) / 1000,
    )


def _class_annotations(ports: LifecyclePorts, row: LaunchRow, node: NewNode) -> Mapping[str, str]:
    """What drift is measured against later: the class that the request was made of, or as it is if nobody knows."""
    nodeclass = next((one for one in ports.cluster.nodeclasses() if one.name == node.nodeclass), None)
    if nodeclass is None:
        return {}
    kept = (labels.EC2NODECLASS_HASH, labels.EC2NODECLASS_HASH_VERSION)
    stamped = {key: nodeclass.metadata.annotations[key] for key in kept if key in nodeclass.metadata.annotations}
    if row.nodeclass_hash:
        stamped = dict(zip(kept, (row.nodeclass_hash, hashes.NODECLASS_VERSION), strict=True))
    return stamped | {labels.INSTANCE_PROFILE_NAME: nodeclass.resolved_instance_profile}


def _delete_unlaunched(ports: LifecyclePorts, row: LaunchRow, now: datetime) -> None:
    """Claims without an instance: the event says why, their pods are planned again elsewhere."""
    ended = 0
    for name in row.claims:
        claim = None if name in row.instances else ports.cluster.nodeclaim(name)
        if claim is None or claim.metadata.uid != row.uids.get(name) or claim.provider_id:
            continue
        error = row.failure or "EC2 launched no instance"
        reason = "insufficient_capacity" if row.insufficient_capacity else "nodeclass_not_ready"
        if row.insufficient_capacity:
            event = events.INSUFFICIENT_CAPACITY(nodeclaim=name, reason=error)
            ports.cluster.record_event("nodeclaims", claim.metadata, event, now=now)
        log_line(log, log_lines.FAILED_LAUNCHING_NODECLAIM, nodeclaims=[name], reason=reason, error=error)
        delete_claim(ports, claim, Deletion(reason, error))
        ended += 1
    if ended:
        request_planning(ports, delay_seconds=0 if row.offerings_closed else REPLAN_SECONDS)


def terminate_surplus(ports: LifecyclePorts, row: LaunchRow, now: datetime) -> None:
    """Terminate the launch's instances that no claim holds; a minute after it was answered nobody adopts them."""
    held = {instance_id(claim.provider_id) for claim in ports.cluster.nodeclaims()}
    launched = ports.ec2.instances_of_launch(row.id)
    surplus = [instance for instance in launched if instance.id not in held and instance.state not in ENDED_STATES]
    wait = _terminate(ports, surplus, "no NodeClaim uses it", now)
    ports.state.save(msgspec.structs.replace(row, due=epoch_ms(now) + wait * 1000 if wait else 0))
    if wait:
        ring_lifecycle(ports, "launch", [row.id], delay_seconds=wait)


def _terminate(ports: LifecyclePorts, surplus: Iterable[Instance], why: str, now: datetime) -> int:
    """In how many seconds to ask again for those that EC2 would not end now, 0 = there are none."""
    ended = terminate_instances(ports, surplus, now)
    for id in sorted(ended.terminated_ids):
        log_line(log, log_lines.TERMINATED_SURPLUS_INSTANCE, instance=id, reason=why)
    return ended.wait_seconds
