"""EventBridge's messages about instances become notice rows; lifecycle acts on those whose instance has a NodeClaim.

A notice concerns the cluster that its instance is tagged for. The tags of a batch are read in a single call, which is
given up after two seconds: where they are not known, every cluster of the cell has a row and is rung for, as each would
have to be without the call. Tags are there as soon as the instance is; a row for each instance would have to be written
at every launch, and a notice that comes before it would find none. Only an instance that Spotwright terminates has a
row before EC2 tells of its end: in a cell of a single cluster EC2 is not asked about it.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final, NamedTuple

import msgspec

from spotwright.aws import interruption_messages
from spotwright.aws.interruption_messages import ENDED_KINDS, REPLACED_KINDS, Notice, NoticeKind
from spotwright.errors import ApiError, Conflict, Unavailable
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.bundles import InterruptPorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.ec2 import InstanceTagsPort
from spotwright.workflows.ports.rows import EXPECTED, FINAL_PHASES, NoticeRow, epoch_ms
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
# So many ids of EventBridge's events are kept in a row: of an instance there are a few in its life.
EVENTS_KEPT: Final = 8


def interrupt(
    clusters: Mapping[str, InterruptPorts], instances: InstanceTagsPort, envelope: Mapping[str, Any], *, now: datetime
) -> Notice | None:
    """Record the notice of a message; None when it is none. Raises InvalidRequest for a malformed one.

    ``clusters``: the ports of the cell's clusters, by name.
    """
    notice = interruption_messages.parse_notice(envelope, now=now)
    if notice is not None:
        for failure in record_batch(clusters, instances, {"": notice}, now=now).values():
            raise failure
    return notice


def record_batch(
    clusters: Mapping[str, InterruptPorts],
    instances: InstanceTagsPort,
    notices: Mapping[str, Notice],
    *,
    now: datetime,
    may_begin: Callable[[], bool] = lambda: True,
) -> dict[str, ApiError]:
    """``record_notices`` for the clusters that the instances of these messages may belong to."""
    named = {instance for notice in notices.values() for instance in notice.instance_ids}
    known = _rows_beside_ends(clusters, notices.values(), named)
    expected = {row.instance_id: tuple(clusters) for row in known.values() if row.phase == EXPECTED}
    others = named - expected.keys()
    concerned = {**find_clusters(clusters, instances, others), **expected}
    # While EC2 was asked, any of the rows may have changed.
    return record_notices(clusters, concerned, notices, now=now, may_begin=may_begin, known={} if others else known)


# Rows of the only cluster of a cell, by instance; not of an instance whose row was not read, or that has none.
type _KnownRows = Mapping[str, NoticeRow]


def _rows_beside_ends(
    clusters: Mapping[str, InterruptPorts], notices: Iterable[Notice], instances: Collection[str]
) -> _KnownRows:
    """What is stored of the instances of a batch in which EC2 tells of an end: mostly Spotwright terminates the
    instance, and its row says so, which saves the call of EC2. Of several clusters each would have to be read.
    """
    if len(clusters) != 1 or not any(notice.kind in ENDED_KINDS for notice in notices):
        return {}
    ((_, ports),) = clusters.items()
    try:
        return {row.instance_id: row for row in ports.state.notices_of(sorted(instances))}
    except ApiError:
        # Each row is read again before it is written.
        return {}


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
    known: _KnownRows | None = None,
) -> dict[str, ApiError]:
    """A row for each instance of a batch and each cluster that it may belong to; then each cluster is rung for once.

    Where Spotwright terminates the instance there is a row already: that it shuts down is known, and rings for nothing.

    ``notices``: by message; ``concerned``: clusters by instance; ``may_begin``: whether time is left for a further row;
    ``known``: rows as they were read a moment ago.
    The answer: messages that must come back, and why. A message fails with any row of its instances, and with the ring
    of any of their clusters.
    """
    targets = {message: _targets(notice, concerned) for message, notice in notices.items()}
    outcomes = _write_rows(clusters, _severest_first(notices, targets), now, may_begin, known or {})
    rung = _ring(clusters, {target: notice for target, notice in outcomes.items() if isinstance(notice, Notice)})
    failures = {target: failure for target, failure in outcomes.items() if isinstance(failure, ApiError)}
    return {
        message: failed[0]
        for message, rows in targets.items()
        if (failed := [failure for row in rows if (failure := failures.get(row) or rung[row.cluster]) is not None])
    }


class _Target(NamedTuple):
    """Where a row is written."""

    cluster: str
    instance: str


def _targets(notice: Notice, concerned: Mapping[str, Iterable[str]]) -> list[_Target]:
    return [_Target(cluster, instance) for instance in notice.instance_ids for cluster in concerned[instance]]


def _severest_first(
    notices: Mapping[str, Notice], targets: Mapping[str, Iterable[_Target]]
) -> dict[_Target, list[Notice]]:
    """The notices of each row, equally severe ones in the order of their messages."""
    by_target: dict[_Target, list[Notice]] = {}
    for message, notice in notices.items():
        for target in dict.fromkeys(targets[message]):
            by_target.setdefault(target, []).append(notice)
    return {target: sorted(several, key=_order, reverse=True) for target, several in by_target.items()}


def _write_rows(
    clusters: Mapping[str, InterruptPorts],
    notices: Mapping[_Target, Sequence[Notice]],
    now: datetime,
    may_begin: Callable[[], bool],
    known: _KnownRows,
) -> dict[_Target, Notice | ApiError | None]:
    """Those of a cluster together, and where that is refused side by side; of each row the notice that counts, None =
    it is known already, or why it could not be written."""

    def write_together(cluster: str) -> dict[_Target, Notice | None]:
        own = {target: several for target, several in notices.items() if target.cluster == cluster}
        # A message may name any number of instances.
        if 1 < len(own) <= ROWS_TOGETHER:
            with suppress(ApiError):
                return _write_together(clusters[cluster].state, own, now, may_begin, known)
        return {}

    def write(target: _Target) -> Notice | ApiError | None:
        if not may_begin():
            return Unavailable("no time was left to write the row of its notice", code="NoTimeLeft")
        try:
            return _write_notice(clusters[target.cluster].state, target, notices[target], now, known)
        except ApiError as failure:
            return failure

    outcomes: dict[_Target, Notice | ApiError | None] = {}
    for written in in_parallel(write_together, sorted({target.cluster for target in notices})):
        outcomes |= written
    alone = [target for target in notices if target not in outcomes]
    if len(notices) > 1:
        # Where rows were refused together, another may have written one of them since it was read.
        known = {}
    return outcomes | dict(zip(alone, in_parallel(write, alone), strict=True))


def _ring(clusters: Mapping[str, InterruptPorts], written: Mapping[_Target, Notice]) -> dict[str, ApiError | None]:
    """Ring once for all rows of a cluster. By cluster of the cell, why it failed, None also where there is no row.

    All that EC2 takes back is replaced by one plan, whichever of it a doorbell names: one of them is enough.
    """
    bells_by_cluster: dict[str, list[Doorbell]] = {}
    replaced: set[str] = set()
    for target in sorted(written):
        if written[target].kind in REPLACED_KINDS:
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


def _notice_row(
    target: _Target, notice: Notice, notices: Iterable[Notice], now: datetime, replaced: NoticeRow | None = None
) -> NoticeRow:
    """If the doorbell that follows is lost, the row's timer rings. ``notices``: those that came together with it."""
    row = NoticeRow(
        instance_id=target.instance,
        cluster=target.cluster,
        kind=notice.kind,
        ended=notice.ended,
        deadline=epoch_ms(notice.deadline) if notice.deadline else 0,
        events=_with_event(replaced.events if replaced else (), notice),
        created=epoch_ms(now),
        due=epoch_ms(now + TIMER),
        version=replaced.version if replaced else 0,
    )
    if notice.kind not in ENDED_KINDS:
        return row
    kept = _warning_of(replaced) if replaced is not None and replaced.phase not in FINAL_PHASES else ""
    if replaced is not None and kept in REPLACED_KINDS:
        # What is done about the warning goes on from here if EC2 does not confirm the end.
        return msgspec.structs.replace(
            replaced, kind=row.kind, ended=row.ended, warning=kept, phase="new", events=row.events, due=row.due
        )
    if replaced is not None and kept:
        row = msgspec.structs.replace(row, warning=kept, deadline=replaced.deadline, claim=replaced.claim)
    return _with_warning(row, notices)


def _with_event(events: tuple[str, ...], notice: Notice) -> tuple[str, ...]:
    return (*events, notice.event)[-EVENTS_KEPT:]


def _warning_of(row: NoticeRow) -> str:
    """The kind of what EC2 announced before the instance ends, "" = nothing."""
    return row.warning if row.kind in ENDED_KINDS else row.kind


def _with_warning(row: NoticeRow, notices: Iterable[Notice]) -> NoticeRow:
    """The row of an instance's end with the severest warning of these that is not in it yet.

    A state change may be wrong or long past, and then the warning counts; and the offering was interrupted in any case.
    """
    for notice in notices:
        is_known = notice.kind in ENDED_KINDS or notice.event in row.events
        if not is_known and (not row.warning or _SEVERITY[notice.kind] > _SEVERITY[NoticeKind(row.warning)]):
            events = _with_event(row.events[:-1], notice) + row.events[-1:]
            deadline = epoch_ms(notice.deadline) if notice.deadline else 0
            return msgspec.structs.replace(row, warning=notice.kind, deadline=deadline, events=events[-EVENTS_KEPT:])
    return row


def _is_end(notices: Sequence[Notice]) -> bool:
    """Whether the severest of these is that the instance ends: mostly there is a row then, which is read first."""
    return notices[0].kind in ENDED_KINDS


def _write_together(
    state: StatePort,
    notices: Mapping[_Target, Sequence[Notice]],
    now: datetime,
    may_begin: Callable[[], bool],
    known: _KnownRows,
) -> dict[_Target, Notice | None]:
    """The rows of a cluster by a single write, after a read where some may exist; of each row the notice that counts,
    None = it is known already. Empty where that is refused, or no time is left for the second call.
    """
    is_read_first = any(map(_is_end, notices.values()))
    if not is_read_first:
        rows = [_notice_row(target, several[0], several, now) for target, several in notices.items()]
        if state.create_together(rows):
            return {target: several[0] for target, several in notices.items()}
        if not may_begin():
            return {}
    unread = [target.instance for target in notices if target.instance not in known]
    read = {row.instance_id: row for row in state.notices_of(unread)} if unread else {}
    existing = {**read, **known}
    changes = {
        target: _change(target, several, now, existing.get(target.instance)) for target, several in notices.items()
    }
    rows = [change.row for change in changes.values() if change.row is not None]
    saved = [row for row in rows if row.instance_id in existing]
    created = [row for row in rows if row.instance_id not in existing]
    if rows and is_read_first and not may_begin():
        return {}
    if rows and not state.save_together(saved, created=created):
        return {}
    return {target: change.notice for target, change in changes.items()}


def _write_notice(
    state: StatePort, target: _Target, notices: Sequence[Notice], now: datetime, known: _KnownRows
) -> Notice | None:
    """The row of the severest of these notices that is news; the notice that was written, or the severest of all, None
    = it is known already."""
    try:
        return _write_once(state, target, notices, now, known)
    except Conflict:
        # Another invocation wrote the row meanwhile: one more attempt, then SQS delivers the message again.
        return _write_once(state, target, notices, now, {})


def _write_once(
    state: StatePort, target: _Target, notices: Sequence[Notice], now: datetime, known: _KnownRows
) -> Notice | None:
    new = _notice_row(target, notices[0], notices, now)
    if not _is_end(notices) and state.create(new):
        return notices[0]
    existing = known.get(target.instance) or state.notice(target.instance)
    if existing is None:
        if state.create(new):
            return notices[0]
        raise Conflict("another invocation wrote the row of a notice meanwhile", code="Conflict")
    change = _change(target, notices, now, existing)
    if change.row is not None:
        state.save(change.row)
    return change.notice


class _Change(NamedTuple):
    """The notice that counts, None = it is known already; and the row that is to be written, None = what is stored says
    all of it."""

    notice: Notice | None
    row: NoticeRow | None


def _change(target: _Target, notices: Sequence[Notice], now: datetime, existing: NoticeRow | None) -> _Change:
    """What becomes of a row by these notices, the severest of them first. ``existing``: None = there is no row yet."""
    if existing is None:
        return _Change(notices[0], _notice_row(target, notices[0], notices, now))
    if existing.phase == EXPECTED:
        if any(notice.kind != existing.kind for notice in notices):
            # Something else became of the instance, or EC2 had announced something before.
            return _Change(notices[0], _notice_row(target, notices[0], notices, now, existing))
        return _Change(notices[0] if notices[0].ended else None, None)
    for notice in notices:
        if _is_news(notice, existing):
            return _Change(notice, _notice_row(target, notice, notices, now, existing))
    if existing.kind in ENDED_KINDS and existing.phase == "new":
        warned = _with_warning(existing, notices)
        if warned != existing:
            return _Change(notices[0], warned)
    return _Change(notices[0], None)


def _is_news(notice: Notice, existing: NoticeRow) -> bool:
    """Whether the row is of a lighter notice, or of a later time of what EC2 has scheduled, or finished and older.

    A finished row is lighter than whatever EC2 announced after it was written. Messages of before, which come late or
    again, were true when it was acted on: of them only a severer one is news, and a warning of an instance that was
    said to end: it may run on, and its offering was interrupted.
    """
    if notice.event in existing.events:
        return False
    if existing.phase not in FINAL_PHASES:
        return _order(notice) > _order(existing)
    is_unheard = notice.kind in REPLACED_KINDS and existing.kind in ENDED_KINDS
    return is_unheard or epoch_ms(notice.at) > existing.created or _severity(notice) > _severity(existing)


def _order(notice: NoticeRow | Notice) -> tuple[int, bool, float]:
    """The severest is the last; of changes that EC2 has scheduled the earliest, and after none of unknown time."""
    if notice.kind != NoticeKind.SCHEDULED_CHANGE:
        return *_severity(notice), 0
    at = notice.deadline.timestamp() if isinstance(notice.deadline, datetime) else (notice.deadline or 0) / 1000
    return *_severity(notice), -at if at else -inf


def _severity(notice: NoticeRow | Notice) -> tuple[int, bool]:
    """Of an instance's end it is severer that it has ended."""
    return _SEVERITY[NoticeKind(notice.kind)], notice.ended
