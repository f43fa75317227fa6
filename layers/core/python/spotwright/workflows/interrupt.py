"""EventBridge's messages about instances become notice rows; lifecycle acts on those whose instance has a NodeClaim.

A notice concerns the cluster that its instance is tagged for. The tags of a batch are read in a single call, which is
given up after two seconds: where they are not known, every cluster of the cell has a row and is rung for, as each would
have to be without the call. Tags are there as soon as the instance is; a row for each instance would have to be written
at every launch, and a notice that comes before it would find none.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from spotwright.aws import interruption_messages
from spotwright.aws.interruption_messages import Notice, NoticeKind
from spotwright.errors import ApiError, Conflict
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.ports.bundles import InterruptPorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.ec2 import InstanceTagsPort
from spotwright.workflows.ports.rows import NoticeRow, epoch_ms
from spotwright.workflows.ports.state import StatePort

log: Final = logging.getLogger("spotwright.interrupt")

# The severer notice of an instance replaces the lighter one.
_SEVERITY: Final = {
    NoticeKind.REBALANCE_RECOMMENDATION: 0,
    NoticeKind.SCHEDULED_CHANGE: 1,
    NoticeKind.CAPACITY_RESERVATION_INTERRUPTED: 2,
    NoticeKind.SPOT_INTERRUPTED: 2,
    NoticeKind.INSTANCE_STOPPED: 3,
    NoticeKind.INSTANCE_TERMINATED: 3,
}
# If the doorbell is lost, the row's timer rings.
TIMER: Final = timedelta(seconds=20)


def interrupt(
    clusters: Mapping[str, InterruptPorts], instances: InstanceTagsPort, envelope: Mapping[str, Any], *, now: datetime
) -> Notice | None:
    """Record the notice of a message; None when it concerns no instance. Raises InvalidRequest for a malformed one.

    ``clusters``: the ports of the cell's clusters, by name.
    """
    notice = interruption_messages.parse_notice(envelope)
    if notice is not None:
        record_notice(clusters, find_clusters(clusters, instances, notice.instance_ids), notice, now=now)
    return notice


def find_clusters(
    clusters: Collection[str], instances: InstanceTagsPort, instance_ids: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    """Instance → those of ``clusters`` that it may belong to: all of them where EC2 does not say. Never raises.

    No cluster where the instance is tagged for none of them.
    """
    ids = frozenset(instance_ids)
    every = dict.fromkeys(ids, tuple(sorted(clusters)))
    if not ids:
        return every
    try:
        listed = instances.instances_by_id(ids)
    except ApiError as failure:
        log_line(log, log_lines.INSTANCES_NOT_LOOKED_UP, instances=len(ids), code=failure.code, error=str(failure))
        return every
    return every | {
        instance.id: tuple(name for name in sorted(clusters) if instance.may_be_of(name)) for instance in listed
    }


def record_notice(
    clusters: Mapping[str, InterruptPorts], concerned: Mapping[str, Iterable[str]], notice: Notice, *, now: datetime
) -> None:
    """A row and a doorbell for each instance and each cluster that it may belong to. ``concerned``: those, by instance.

    Raises ApiError.
    """
    for instance in notice.instance_ids:
        for name in concerned[instance]:
            _write_notice(clusters[name], name, instance, notice, now)


def _write_notice(ports: InterruptPorts, cluster: str, instance: str, notice: Notice, now: datetime) -> None:
    """The row first, then the doorbell: if it is lost, the row's timer rings."""
    row = NoticeRow(
        instance_id=instance,
        cluster=cluster,
        kind=notice.kind,
        deadline=epoch_ms(notice.deadline) if notice.deadline else 0,
        created=epoch_ms(now),
        due=epoch_ms(now + TIMER),
    )
    if not ports.state.create(row):
        _replace_lighter(ports.state, row)
    ports.doorbells.ring("notices", [Doorbell(cluster, "notice", instance)])


def _replace_lighter(state: StatePort, row: NoticeRow) -> None:
    """Replace the row of a lighter notice; a notice that is not severer changes nothing."""
    existing = state.notice(row.instance_id)
    if existing is None or _SEVERITY[NoticeKind(row.kind)] <= _SEVERITY[NoticeKind(existing.kind)]:
        return
    try:
        state.save(msgspec.structs.replace(row, version=existing.version))
    except Conflict:
        # lifecycle wrote the row meanwhile: one more attempt, then SQS delivers the message again.
        current = state.notice(row.instance_id)
        if current is not None:
            state.save(msgspec.structs.replace(row, version=current.version))
