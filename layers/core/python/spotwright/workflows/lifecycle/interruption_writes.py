"""What steps of interruption notices write: the deletion of a NodeClaim, Events, offerings, the notice itself."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws.interruption_messages import REPLACED_KINDS, NoticeKind
from spotwright.errors import ApiError
from spotwright.lifecycle.retry import TERMINATION_TICKS
from spotwright.lifecycle.steps import Deletion
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import format_time, parse_time
from spotwright.model.kubernetes.node import Node
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.telemetry.rows import Event
from spotwright.workflows.lifecycle.actions import (
    delete_claim,
    log,
    nodes_of,
    ring_lifecycle,
    ring_next_tick,
)
from spotwright.workflows.lifecycle.interruption_decisions import (
    AnnouncedOffering,
    Interrupted,
    mark_offerings,
    taken_at,
)
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import NoticeRow

EVENTS: Final = {
    NoticeKind.SPOT_INTERRUPTED: events.SPOT_INTERRUPTED,
    NoticeKind.CAPACITY_RESERVATION_INTERRUPTED: events.CAPACITY_RESERVATION_INTERRUPTED,
    NoticeKind.REBALANCE_RECOMMENDATION: events.SPOT_REBALANCE_RECOMMENDATION,
    NoticeKind.INSTANCE_STOPPED: events.INSTANCE_STOPPING,
    NoticeKind.INSTANCE_TERMINATED: events.INSTANCE_TERMINATING,
    NoticeKind.SCHEDULED_CHANGE: events.INSTANCE_UNHEALTHY,
}


def delete_announced(
    ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, now: datetime, *, as_read: bool = False
) -> None:
    """Delete the claim at once; its finalizer drains the node as far as possible. ``as_read``: Conflict when it has
    changed since it was read.

    Where it has been draining for long, its ticks are a minute apart, or have ended: they begin again.
    """
    if row.kind in REPLACED_KINDS:
        claim = bound_termination(ports, row, claim, now, as_read=as_read)
    remember_offerings(ports, [Interrupted(row, claim).offering])
    delete_claim(ports, claim, Deletion(row.kind, f"EC2 announced {row.kind}"), as_read=as_read)
    if row.kind in REPLACED_KINDS and claim.metadata.deletion_timestamp is not None:
        ring_next_tick(ports, claim.name, TERMINATION_TICKS + 1)
    save_notice(ports, row, claim=claim.name, phase="done", due=0)
    record_event_of_claim(ports, claim, events.TERMINATING_ON_INTERRUPTION(), now)


def bound_termination(
    ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, now: datetime, *, as_read: bool = False
) -> NodeClaim:
    """The claim, whose termination ends when EC2 takes the instance, unless it ends earlier: then no pod can be kept
    there. ``as_read``: it is written only if it has not changed since it was read, and is as it was written.

    A pod that a PodDisruptionBudget or do-not-disrupt would keep is deleted when its grace period only just fits.
    """
    deadline, stated = taken_at(row, now), parse_time(claim.metadata.annotations.get(labels.TERMINATION_TIMESTAMP, ""))
    grace_seconds = claim.termination_grace_period_seconds
    ends_earlier = grace_seconds is not None and now + timedelta(seconds=grace_seconds) < deadline
    if ends_earlier or (stated is not None and stated <= deadline):
        return claim
    change = {"annotations": {labels.TERMINATION_TIMESTAMP: format_time(deadline)}}
    if as_read:
        return ports.cluster.patch_nodeclaim(claim, change)
    ports.cluster.patch_metadata("nodeclaims", claim.metadata.without_resource_version(), change)
    if claim.metadata.deletion_timestamp is not None:
        # Its drain goes by that time from now on.
        ring_lifecycle(ports, "claim", [claim.name])
    return claim


def remember_offerings(ports: LifecyclePorts, announced: Sequence[AnnouncedOffering]) -> None:
    """What the account remembers of its offerings keeps no replacement waiting, and no drain."""
    try:
        mark_offerings(ports, announced)
    except ApiError as failure:
        names = ", ".join(sorted(offering.notice.instance_id for offering in announced))
        log_line(log, log_lines.STEP_FAILED, kind="offering", object=names, code=failure.code, error=str(failure))


def record_event_of_claim(
    ports: LifecyclePorts, claim: NodeClaim, event: Event, now: datetime, nodes: Iterable[Node] | None = None
) -> None:
    """An event of the claim and of its nodes, which are read unless they are known."""
    ports.cluster.record_event("nodeclaims", claim.metadata, event, now=now)
    for node in nodes_of(ports, claim) if nodes is None else nodes:
        ports.cluster.record_event("nodes", node.metadata, event, now=now)


def save_notice(ports: LifecyclePorts, row: NoticeRow, **fields: object) -> NoticeRow:
    return ports.state.save(msgspec.structs.replace(row, **fields))
