"""EventBridge's messages about instances become notice rows; lifecycle acts on those whose instance has a NodeClaim.

This function reaches neither cluster nor EC2: it writes a row for every cluster of the cell and rings lifecycle.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from spotwright.aws import interruption_messages
from spotwright.aws.interruption_messages import Notice, NoticeKind
from spotwright.errors import Conflict
from spotwright.workflows.ports.bundles import InterruptPorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import NoticeRow, epoch_ms
from spotwright.workflows.ports.state import StatePort

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


def interrupt(clusters: Mapping[str, InterruptPorts], envelope: Mapping[str, Any], *, now: datetime) -> Notice | None:
    """Record a notice; None when the message concerns no instance. Raises InvalidRequest for a malformed message.

    ``clusters``: the ports of the cell's clusters, by name.
    """
    notice = interruption_messages.parse_notice(envelope)
    if notice is not None:
        for name, ports in sorted(clusters.items()):
            for instance in notice.instance_ids:
                _write_notice(ports, name, instance, notice, now)
    return notice


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
