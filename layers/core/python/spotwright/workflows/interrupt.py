"""EventBridge's messages about instances become notice rows; lifecycle acts on those whose instance has a NodeClaim.

A notice concerns the cluster that its instance is tagged for. The tags of a batch are read in a single call, which is
given up after two seconds: where they are not known, every cluster of the cell has a row and is rung for, as each would
have to be without the call. Tags are there as soon as the instance is; a row for each instance would have to be written
at every launch, and a notice that comes before it would find none.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from spotwright.aws import interruption_messages
from spotwright.aws.interruption_messages import Notice, NoticeKind
from spotwright.errors import ApiError, Conflict, Unavailable
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.bundles import InterruptPorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.ec2 import InstanceTagsPort
from spotwright.workflows.ports.rows import NoticeRow, epoch_ms
from spotwright.workflows.ports.state import ROWS_TOGETHER, StatePort

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
    notice = interruption_messages.parse_notice(envelope, now=now)
    if notice is not None:
        concerned = find_clusters(clusters, instances, notice.instance_ids)
        for failure in record_notices(clusters, concerned, {"": notice}, now=now).values():
            raise failure
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


def record_notices(
    clusters: Mapping[str, InterruptPorts],
    concerned: Mapping[str, Iterable[str]],
    notices: Mapping[str, Notice],
    *,
    now: datetime,
    may_begin: Callable[[], bool] = lambda: True,
) -> dict[str, ApiError]:
    """A row for each instance of a batch and each cluster that it may belong to; then each cluster is rung for once.

    ``notices``: by message; ``concerned``: clusters by instance; ``may_begin``: whether time is left for a further row.
    The answer: messages that must come back, and why. A message fails with any row of its instances, and with the ring
    of any of their clusters.
    """
    targets = {message: _targets(notice, concerned) for message, notice in notices.items()}
    severest = _severest(notices, targets)
    written = _write_rows(clusters, severest, now, may_begin)
    rung = _ring(clusters, {target: severest[target] for target, failure in written.items() if failure is None})
    return {
        message: failures[0]
        for message, rows in targets.items()
        if (failures := [failure for row in rows if (failure := written[row] or rung[row.cluster]) is not None])
    }


class _Target(NamedTuple):
    """Where a row is written."""

    cluster: str
    instance: str


def _targets(notice: Notice, concerned: Mapping[str, Iterable[str]]) -> list[_Target]:
    return [_Target(cluster, instance) for instance in notice.instance_ids for cluster in concerned[instance]]


def _severest(notices: Mapping[str, Notice], targets: Mapping[str, Iterable[_Target]]) -> dict[_Target, Notice]:
    """Of several notices of an instance the severest, of equal ones the first, is written."""
    severest: dict[_Target, Notice] = {}
    for message, notice in notices.items():
        for target in targets[message]:
            before = severest.setdefault(target, notice)
            severest[target] = notice if _order(notice) > _order(before) else before
    return severest


def _write_rows(
    clusters: Mapping[str, InterruptPorts],
    notices: Mapping[_Target, Notice],
    now: datetime,
    may_begin: Callable[[], bool],
) -> dict[_Target, ApiError | None]:
    """Those of a cluster together, and where that is refused side by side; why those failed that did."""
    rows = {target: _notice_row(target, notice, now) for target, notice in notices.items()}

    def write(target: _Target) -> ApiError | None:
        if not may_begin():
            return Unavailable("no time was left to write the row of its notice", code="NoTimeLeft")
        return _failure_of(lambda: _write_notice(clusters[target.cluster].state, rows[target]))

    def write_together(cluster: str) -> bool:
        of_cluster = [row for target, row in rows.items() if target.cluster == cluster]
        # A message may name any number of instances.
        with suppress(ApiError):
            return 1 < len(of_cluster) <= ROWS_TOGETHER and clusters[cluster].state.create_together(of_cluster)
        return False

    names = sorted({target.cluster for target in rows})
    together = dict(zip(names, in_parallel(write_together, names), strict=True))
    alone = [target for target in rows if not together[target.cluster]]
    return dict.fromkeys(rows) | dict(zip(alone, in_parallel(write, alone), strict=True))


def _ring(clusters: Mapping[str, InterruptPorts], written: Mapping[_Target, Notice]) -> dict[str, ApiError | None]:
    """Ring once for all rows of a cluster. By cluster of the cell, why it failed, None also where there is no row.

    All that EC2 takes back is replaced by one plan, whichever of it a doorbell names: one of them is enough.
    """
    bells_by_cluster: dict[str, list[Doorbell]] = {}
    replaced: set[str] = set()
    for target in sorted(written):
        if written[target].kind in interruption_messages.REPLACED_KINDS:
            if target.cluster in replaced:
                continue
            replaced.add(target.cluster)
        bells_by_cluster.setdefault(target.cluster, []).append(Doorbell(target.cluster, "notice", target.instance))

    def ring(cluster: str) -> ApiError | None:
        return _failure_of(lambda: clusters[cluster].doorbells.ring("notices", bells_by_cluster[cluster]))

    rung = dict(zip(bells_by_cluster, in_parallel(ring, bells_by_cluster), strict=True))
    return {cluster: rung.get(cluster) for cluster in clusters}


def _failure_of(work: Callable[[], None]) -> ApiError | None:
    try:
        work()
    except ApiError as failure:
        return failure
    return None


def _notice_row(target: _Target, notice: Notice, now: datetime) -> NoticeRow:
    """If the doorbell that follows is lost, the row's timer rings."""
    return NoticeRow(
        instance_id=target.instance,
        cluster=target.cluster,
        kind=notice.kind,
        ended=notice.ended,
        deadline=epoch_ms(notice.deadline) if notice.deadline else 0,
        created=epoch_ms(now),
        due=epoch_ms(now + TIMER),
    )


def _write_notice(state: StatePort, row: NoticeRow) -> None:
    if not state.create(row):
        _replace_lighter(state, row)


def _replace_lighter(state: StatePort, row: NoticeRow) -> None:
    """Replace the row of a lighter notice, or of a later time of what EC2 has scheduled; another one is left."""
    try:
        _replace_once(state, row)
    except Conflict:
        # Another invocation wrote the row meanwhile: one more attempt, then SQS delivers the message again.
        _replace_once(state, row)


def _replace_once(state: StatePort, row: NoticeRow) -> None:
    existing = state.notice(row.instance_id)
    if existing is not None and _order(row) > _order(existing):
        state.save(msgspec.structs.replace(row, version=existing.version))


def _order(notice: NoticeRow | Notice) -> tuple[int, bool, float]:
    """The severest is the last, and of an instance's end that it has ended; of changes that EC2 has scheduled the
    earliest, or of which no time is known.
    """
    kind = NoticeKind(notice.kind)
    at = notice.deadline.timestamp() if isinstance(notice.deadline, datetime) else (notice.deadline or 0) / 1000
    return _SEVERITY[kind], notice.ended, -at if kind == NoticeKind.SCHEDULED_CHANGE else 0
