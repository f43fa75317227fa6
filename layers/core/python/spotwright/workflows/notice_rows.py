"""What becomes of the row of an instance by what EC2 says of it: the severest counts, and what is known is no news."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Final, NamedTuple

import msgspec

from spotwright.aws.interruption_messages import ENDED_KINDS, REPLACED_KINDS, Notice, NoticeKind
from spotwright.workflows.ports.rows import EXPECTED, FINAL_PHASES, NoticeRow, epoch_ms

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


class Target(NamedTuple):
    """Where a row is written."""

    cluster: str
    instance: str


def notice_row(
    target: Target, notice: Notice, notices: Iterable[Notice], now: datetime, replaced: NoticeRow | None = None
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


def is_end(notices: Sequence[Notice]) -> bool:
    """Whether the severest of these is that the instance ends: mostly there is a row then, which is read first."""
    return notices[0].kind in ENDED_KINDS


class Change(NamedTuple):
    """The notice that counts, None = it is known already; and the row that is to be written, None = what is stored says
    all of it."""

    notice: Notice | None
    row: NoticeRow | None


def change_of(target: Target, notices: Sequence[Notice], now: datetime, existing: NoticeRow | None) -> Change:
    """What becomes of a row by these notices, the severest of them first. ``existing``: None = there is no row yet."""
    if existing is None:
        return Change(notices[0], notice_row(target, notices[0], notices, now))
    if existing.phase == EXPECTED:
        if any(notice.kind != existing.kind for notice in notices):
            # Something else became of the instance, or EC2 had announced something before.
            return Change(notices[0], notice_row(target, notices[0], notices, now, existing))
        return Change(notices[0] if notices[0].ended else None, None)
    for notice in notices:
        if _is_news(notice, existing):
            return Change(notice, notice_row(target, notice, notices, now, existing))
    if existing.phase in FINAL_PHASES:
        # Nothing is left to do about it, whoever rings.
        return Change(None, None)
    if existing.kind in ENDED_KINDS and existing.phase == "new":
        warned = _with_warning(existing, notices)
        if warned != existing:
            return Change(notices[0], warned)
    return Change(notices[0], None)


def _is_news(notice: Notice, existing: NoticeRow) -> bool:
    """Whether the row is of a lighter notice, or of a later time of what EC2 has scheduled, or finished and older.

    A finished row is lighter than whatever EC2 announced after it was written. Messages of before, which come late or
    again, were true when it was acted on: of them only a severer one is news, and a warning of an instance that was
    said to end: it may run on, and its offering was interrupted.
    """
    if notice.event in existing.events:
        return False
    if existing.phase not in FINAL_PHASES:
        return severity_order(notice) > severity_order(existing)
    is_unheard = notice.kind in REPLACED_KINDS and existing.kind in ENDED_KINDS
    return is_unheard or epoch_ms(notice.at) > existing.created or _severity(notice) > _severity(existing)


def severity_order(notice: NoticeRow | Notice) -> tuple[int, bool, float]:
    """The severest is the last; of changes that EC2 has scheduled the earliest, and after none of unknown time."""
    if notice.kind != NoticeKind.SCHEDULED_CHANGE:
        return *_severity(notice), 0
    at = notice.deadline.timestamp() if isinstance(notice.deadline, datetime) else (notice.deadline or 0) / 1000
    return *_severity(notice), -at if at else -inf


def _severity(notice: NoticeRow | Notice) -> tuple[int, bool]:
    """Of an instance's end it is severer that it has ended."""
    return _SEVERITY[NoticeKind(notice.kind)], notice.ended
