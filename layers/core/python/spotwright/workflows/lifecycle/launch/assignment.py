"""Writing launched instances to their NodeClaims, deleting claims without one, and terminating surplus instances."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

import msgspec

from spotwright.aws.launch import launched_status
from spotwright.aws.nodeclass import hashes
from spotwright.errors import Conflict, NotFound
from spotwright.lifecycle import instance_assignment
from spotwright.lifecycle.retry import NODE_TICK_SECONDS, tick_seconds
from spotwright.lifecycle.steps import Deletion, true_condition
from spotwright.model import labels, resources
from spotwright.model.ec2.fleet import Instance
from spotwright.model.ec2.instance_type import InstanceType, find_instance_type
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.requirements import Requirements
from spotwright.scheduling.plan import NewNode
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import (
    assigned_instances,
    claims_by_name,
    delete_claim,
    delete_claim_and_say_why,
    log,
    request_planning,
    ring_lifecycle,
    update_conditions,
)
from spotwright.workflows.lifecycle.launch.instance_types import instance_types_for
from spotwright.workflows.lifecycle.termination.instances import terminate_instances
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.planning.heartbeat import is_forwarder_alive
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import LaunchRow, epoch_ms

CLAIMS_AT_ONCE: Final = 100
ENDED_STATES: Final = ("shutting-down", "terminated")
# When the next plan would be the same, it waits a little.
REPLAN_SECONDS: Final = 10
# No node joins sooner after its launch.
BOOT_TIME: Final = timedelta(seconds=10)
# Surplus instances are terminated this long after the response: a concurrent invocation may adopt them until then.
SETTLING_MS: Final = 60_000


def complete_launch(ports: LifecyclePorts, row: LaunchRow, now: datetime, *, created: Mapping[str, NodeClaim]) -> bool:
    """Write instances to their claims and delete claims without one; then only surplus instances are left to do. False
    when claims are left for another pass.

    ``created``: NodeClaims as they were created a moment ago, by name; the others are read.
    """
    if not write_assignments(ports, row, now, created=created):
        return False
    _delete_unlaunched(ports, row, now)
    return True


def write_assignments(
    ports: LifecyclePorts, row: LaunchRow, now: datetime, *, created: Mapping[str, NodeClaim] = MappingProxyType({})
) -> bool:
    """Write instances to their claims; False when claims are left for another pass.

    Claims that are being deleted receive their instance too, so that the finalizer terminates it. Instances whose
    claims are gone are terminated here, or as surplus a minute later.
    """
    unclaimed: list[Instance] = []
    complete = _write_assignments(ports, row, created, unclaimed, now)
    _terminate(ports, unclaimed, "its NodeClaim was deleted", now)
    return complete


def _write_assignments(
    ports: LifecyclePorts,
    row: LaunchRow,
    created: Mapping[str, NodeClaim],
    unclaimed: list[Instance],
    now: datetime,
) -> bool:
    """False when claims are left for another pass. Adds instances whose claim is gone to ``unclaimed``."""
    names = sorted(row.instances)
    unread = [name for name in names if name not in created]
    claims: dict[str, NodeClaim | None] = dict(zip(unread, in_parallel(ports.cluster.nodeclaim, unread), strict=True))
    claims |= created
    waiting = [name for name in names if not _is_written(row, name, claims[name])]
    if not waiting:
        return True
    launched = {instance.id: instance for instance in ports.ec2.instances_of_launch(row.id)}
    node = msgspec.json.decode(row.node, type=NewNode)
    types = instance_types_for(ports, node)
    nodeclass = next((candidate for candidate in ports.cluster.nodeclasses() if candidate.name == node.nodeclass), None)
    annotations = _class_annotations(row, nodeclass)

    def write(name: str) -> bool:
        """False when EC2 does not find the id of a new instance, as for a while after its launch."""
        claim, id = claims[name], row.instances[name]
        instance = launched.get(id) or ports.ec2.instance(id)
        if instance is None:
            return False
        if claim is None or claim.metadata.uid != row.uids[name]:
            if instance.state not in ENDED_STATES:
                unclaimed.append(instance)
            return True
        # EC2 may show the reservation of a new instance later than the instance.
        instance = instance_assignment.with_reservation(instance, row.reservations)
        status = _launched_instance(instance, node, nodeclass, types)
        try:
            is_written = _write_claim(ports, claim, instance, status, annotations, now)
        except (Conflict, NotFound):
            # It is not as it was created any more: the next pass reads it.
            if name in created:
                return False
            raise
        if is_written:
            _log_launched(row, claim, instance, now)
        return True

    written = waiting[:CLAIMS_AT_ONCE]
    # Before the claims are written: those of a pass that ends in the middle are looked at all the same. Nodes that join
    # ring themselves, and did so in vain if they joined before this.
    rings_itself = is_forwarder_alive(ports.state, now=now) and not any(
        instance.launch_time is not None and now - instance.launch_time > BOOT_TIME for instance in launched.values()
    )
    first_tick = NODE_TICK_SECONDS if rings_itself else tick_seconds(1)
    ring_lifecycle(ports, "claim", written, delay_seconds=first_tick, epoch=1)
    return all(in_parallel(write, written)) and len(written) == len(waiting)


def _is_written(row: LaunchRow, name: str, claim: NodeClaim | None) -> bool:
    return claim is not None and claim.metadata.uid == row.uids[name] and claim.is_condition_true("Launched")


def _launched_instance(
    instance: Instance, node: NewNode, nodeclass: EC2NodeClass | None, types: Iterable[InstanceType]
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
        network_interfaces=nodeclass.network_interfaces if nodeclass else (),
    )


def _write_claim(
    ports: LifecyclePorts,
    claim: NodeClaim,
    instance: Instance,
    launched: launched_status.LaunchedStatus,
    annotations: Mapping[str, str],
    now: datetime,
) -> bool:
    """Labels and annotations first: Launched=True says that everything is written.

    False when another invocation wrote the same meanwhile.
    """
    claim_labels = launched.labels | {labels.INSTANCE_TYPE: instance.instance_type} | claim.metadata.labels
    claim_labels |= {labels.ZONE: instance.zone, labels.CAPACITY_TYPE: instance.capacity_type}
    claim_labels[labels.INSTANCE_ID] = instance.id
    expected = {labels.EXPECTED_NODE: instance.private_dns_name} if instance.private_dns_name else {}
    change = {"labels": claim_labels, "annotations": {**annotations, **expected}}
    claim = ports.cluster.patch_nodeclaim(claim, change)
    claim_status = {
        "providerID": launched.provider_id,
        "imageID": instance.image_id,
        "capacity": resources.text(launched.capacity),
        "allocatable": resources.text(launched.allocatable),
    }
    try:
        is_launched = true_condition("Launched", launched.description)
        update_conditions(ports, claim, [is_launched], now=now, status=claim_status)
    except Conflict:
        current = ports.cluster.nodeclaim(claim.name)
        if current is None or not current.is_condition_true("Launched"):
            raise
        return False
    return True


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


def _class_annotations(row: LaunchRow, nodeclass: EC2NodeClass | None) -> Mapping[str, str]:
    """The hash of the class at the time of the request, for drift; the present hash if the row has none."""
    if nodeclass is None:
        return {}
    keys = (labels.EC2NODECLASS_HASH, labels.EC2NODECLASS_HASH_VERSION)
    stamped = {key: nodeclass.metadata.annotations[key] for key in keys if key in nodeclass.metadata.annotations}
    if row.nodeclass_hash:
        stamped = dict(zip(keys, (row.nodeclass_hash, hashes.NODECLASS_VERSION), strict=True))
    return stamped | {labels.INSTANCE_PROFILE_NAME: nodeclass.resolved_instance_profile}


def _delete_unlaunched(ports: LifecyclePorts, row: LaunchRow, now: datetime) -> None:
    """Delete claims without an instance, with an event that says why; their pods are planned again."""
    deleted = 0
    for name in row.claims:
        claim = None if name in row.instances else ports.cluster.nodeclaim(name)
        if claim is None or claim.metadata.uid != row.uids.get(name) or claim.provider_id:
            continue
        error = row.failure or "EC2 launched no instance"
        reason = "insufficient_capacity" if row.insufficient_capacity else "nodeclass_not_ready"
        log_line(log, log_lines.FAILED_LAUNCHING_NODECLAIM, nodeclaims=[name], reason=reason, error=error)
        if row.insufficient_capacity:
            event = events.INSUFFICIENT_CAPACITY(nodeclaim=name, reason=error)
            ports.cluster.record_event("nodeclaims", claim.metadata, event, now=now)
            delete_claim(ports, claim, Deletion(reason, error))
        else:
            delete_claim_and_say_why(ports, claim, Deletion(reason, error), now=now)
        deleted += 1
    if deleted:
        request_planning(ports, delay_seconds=0 if row.offerings_closed else REPLAN_SECONDS)


def terminate_surplus(ports: LifecyclePorts, row: LaunchRow, now: datetime) -> None:
    """Terminate the launch's instances without a claim, a minute after the response, when none is adopted any more."""
    launched = [instance for instance in ports.ec2.instances_of_launch(row.id) if instance.state not in ENDED_STATES]
    held = assigned_instances(ports, launched, claims_by_name(ports, row.claims).values()) if launched else ()
    surplus = [instance for instance in launched if instance.id not in held]
    wait = _terminate(ports, surplus, "no NodeClaim uses it", now)
    # Every plan passes over the launches of the last day: what is history needs no request.
    due, request = (epoch_ms(now) + wait * 1000, row.request) if wait else (0, "")
    ports.state.save(msgspec.structs.replace(row, due=due, request=request))
    if wait:
        ring_lifecycle(ports, "launch", [row.id], delay_seconds=wait)


def _terminate(ports: LifecyclePorts, surplus: Iterable[Instance], reason: str, now: datetime) -> int:
    """The seconds until instances that EC2 did not terminate are tried again, 0 = there are none."""
    result = terminate_instances(ports, {instance.id: instance.zone for instance in surplus}, now)
    for id in sorted(result.terminated_ids):
        log_line(log, log_lines.TERMINATED_SURPLUS_INSTANCE, instance=id, reason=reason)
    return result.wait_seconds
