"""Whether an instance still exists: only direct reads of its id say so, and not finding it once proves nothing."""

from datetime import datetime, timedelta
from typing import Final

from spotwright.lifecycle.steps import Deletion
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import format_time, parse_time
from spotwright.model.kubernetes.node import instance_id
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import (
    delete_claim,
    log,
    log_claim,
    nodes_of,
    record_events,
    request_planning,
    ring_lifecycle,
)
from spotwright.workflows.lifecycle.other_provisioners import not_left_alone
from spotwright.workflows.lifecycle.zonal_shifts import shifted_zones
from spotwright.workflows.ports.bundles import LifecyclePorts

# Two reads in a row, this far apart, must not find an instance before it counts as terminated.
NOT_FOUND_INTERVAL: Final = timedelta(seconds=60)
# An older read says nothing: the instance may have been listed since, and nobody had a reason to read it by its id.
NOT_FOUND_HOLDS: Final = timedelta(minutes=10)
_STOPPED: Final = ("stopping", "stopped")
_RUNNING: Final = ("pending", "running")


def read_instance(
    ports: LifecyclePorts, claim: NodeClaim, now: datetime, *, shown: Instance | None = None
) -> tuple[Instance | None, bool]:
    """The instance with the claim's provider id, and whether it is certain that it is terminated. ``shown``: as EC2 has
    just shown it.

    What EC2 reports of a zone with shifted traffic proves nothing: it is not asked.
    """
    if claim.metadata.labels.get(labels.ZONE) in shifted_zones(ports):
        return None, False
    instance = shown or ports.ec2.instance(instance_id(claim.provider_id))
    if instance is not None:
        _forget_not_found(ports, claim)
        return instance, instance.state == "terminated"
    first = parse_time(claim.metadata.annotations.get(labels.INSTANCE_NOT_FOUND, ""))
    if first is None or not timedelta(0) <= now - first <= NOT_FOUND_HOLDS:
        stamp = {labels.INSTANCE_NOT_FOUND: format_time(now)}
        ports.cluster.patch_metadata("nodeclaims", claim.metadata, {"annotations": stamp})
        return None, False
    return None, now - first >= NOT_FOUND_INTERVAL


def _forget_not_found(ports: LifecyclePorts, claim: NodeClaim) -> None:
    """What was found again was not gone: the next time that it is not found counts as the first one."""
    if labels.INSTANCE_NOT_FOUND in claim.metadata.annotations:
        ports.cluster.patch_metadata("nodeclaims", claim.metadata, {"annotations": {labels.INSTANCE_NOT_FOUND: None}})


def check_instance(ports: LifecyclePorts, name: str, *, now: datetime) -> None:
    """Delete a claim whose instance stopped or is gone, for the case that EC2's message about it was lost.

    Source: Karpenter v1.14 ``pkg/controllers/nodeclaim/garbagecollection``. A node that is Ready keeps its claim while
    EC2 only does not find the instance.
    """
    claim = ports.cluster.nodeclaim(name)
    if claim is None or not claim.is_managed or not instance_id(claim.provider_id):
        return
    if claim.metadata.deletion_timestamp is not None or not not_left_alone(ports, [claim]):
        return
    instance, is_terminated = read_instance(ports, claim, now)
    if instance is not None:
        if instance.state not in _RUNNING:
            _collect(ports, claim, f"instance {instance.id} is {instance.state}", instance.state in _STOPPED, now)
    elif not is_terminated and claim.metadata.labels.get(labels.ZONE) not in shifted_zones(ports):
        ring_lifecycle(ports, "claim-instance", [name], delay_seconds=int(NOT_FOUND_INTERVAL.total_seconds()) + 1)
    elif not any(node.is_ready for node in nodes_of(ports, claim, now=now)):
        _collect(ports, claim, f"EC2 does not find instance {instance_id(claim.provider_id)}", False, now)


def _collect(ports: LifecyclePorts, claim: NodeClaim, what: str, has_stopped: bool, now: datetime) -> None:
    with log_claim(claim):
        log_line(log, log_lines.GARBAGE_COLLECTING_NODECLAIM, nodeclaim=claim.name, details=what)
    delete_claim(ports, claim, Deletion("garbage_collected", what))
    event = events.INSTANCE_STOPPING() if has_stopped else events.INSTANCE_TERMINATING()
    record_events(ports, "nodeclaims", claim.metadata, [event], now=now)
    request_planning(ports)
