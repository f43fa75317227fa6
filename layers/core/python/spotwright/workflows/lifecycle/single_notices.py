"""One interruption notice alone: EC2 confirms it or not, and its NodeClaim goes at once, or is left to others.

Nodes that EC2 takes back, with pods on them, are replaced together: ``interruptions``.
"""

from datetime import datetime
from typing import Final

import msgspec

from spotwright.aws.interruption_messages import REPLACED_KINDS, NoticeKind
from spotwright.errors import ApiError
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import log, ring_lifecycle, ring_notices
from spotwright.workflows.lifecycle.commands import EARLY_MS
from spotwright.workflows.lifecycle.interruption_decisions import (
    AnnouncedOffering,
    Interrupted,
    mark_offerings,
    taken_at,
)
from spotwright.workflows.lifecycle.interruption_facts import (
    LAST_HOUR_MS,
    RUNNING,
    Answer,
    Facts,
    asks_ec2,
    is_last_hour,
)
from spotwright.workflows.lifecycle.interruption_writes import (
    EVENTS,
    delete_announced,
    record_event_of_claim,
    remember_offerings,
    save_notice,
)
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import RECOMMENDED, SCHEDULED, NoticeRow, epoch_ms

# The notice of a new instance waits this long for the instance to be assigned to its claim, and one that EC2 has to
# confirm for EC2's answer. After that the sweep's comparison of NodeClaims with instances is enough.
UNCLAIMED_MS: Final = 60_000
# EC2 may show the state of an instance that changes a few seconds after its message.
STATE_SHOWN_MS: Final = 10_000
# Until EC2's status is read again, in the last hour before what it has scheduled.
STATUS_SECONDS: Final = 60
# For how long ``disrupt`` may act on a recommendation.
RECOMMENDATION_MS: Final = 2 * 60 * 60 * 1000
# Between looks at what is being replaced, or has to wait.
LOOK_SECONDS: Final = 2


def end_unclaimed(ports: LifecyclePorts, row: NoticeRow, found: Answer, may_come: bool, now: datetime) -> None:
    """No claim has the instance: it is not Spotwright's, or it is being assigned, or its node registered, right now, or
    its claim has gone. Then its offering was interrupted all the same. ``found``: what EC2 says of the instance.
    """
    if row.phase == "new" and may_come and _is_young(row, now, UNCLAIMED_MS):
        _look_again(ports, row, now)
        return
    if row.phase == "new" and isinstance(found, Instance) and found.may_be_of(ports.cluster.name):
        offering = AnnouncedOffering(
            row, found.capacity_type, found.instance_type, found.zone, reservation=found.reservation_id
        )
        remember_offerings(ports, [offering])
    save_notice(ports, row, phase="done", due=0)


def _look_again(ports: LifecyclePorts, row: NoticeRow, now: datetime) -> None:
    """Ring for a new notice that has to wait, later and later. For all of those that are replaced a doorbell was left
    before.
    """
    if row.kind not in REPLACED_KINDS:
        age = abs(epoch_ms(now) - row.created) // 1000
        ring_notices(ports, [row.instance_id], delay_seconds=max(LOOK_SECONDS, age // 2))


def _is_young(row: NoticeRow, now: datetime, maximum_ms: int) -> bool:
    """A row from a time to come, of a clock that is wrong, does not stay so for longer than twice that."""
    return abs(epoch_ms(now) - row.created) < maximum_ms


def start(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, facts: Facts, now: datetime) -> NoticeRow | None:
    """The first step of a notice; the row of one whose node is to be replaced, None = it took its step here."""
    kind = NoticeKind(row.kind)
    if claim.metadata.deletion_timestamp is not None and kind not in REPLACED_KINDS:
        # Most likely the finalizer terminated the instance: no event is needed, and it waits until that has ended.
        if row.ended:
            ring_lifecycle(ports, "claim", [claim.name])
        if row.warning in REPLACED_KINDS and kind == NoticeKind.INSTANCE_STOPPED:
            # It may be running again, and then its drain has the time that EC2 announced.
            _go_by_warning(ports, row)
            return None
        remember_offerings(ports, [Interrupted(row, claim).offering] if row.warning else [])
        save_notice(ports, row, claim=claim.name, phase="done", due=0)
        return None
    if asks_ec2(row, claim, now) and not _is_confirmed(ports, row, claim, facts, now):
        return None
    if kind in REPLACED_KINDS and claim.metadata.deletion_timestamp is None and claim.is_condition_true("Registered"):
        return row
    if kind == NoticeKind.REBALANCE_RECOMMENDATION:
        _recommend(ports, row, claim, now)
    elif kind == NoticeKind.SCHEDULED_CHANGE and _has_time(row, claim, now):
        record_event_of_claim(ports, claim, EVENTS[kind](), now)
        _schedule(ports, row, claim, row.deadline)
    elif not is_last_hour(row, now) or _is_still_scheduled(ports, row, claim, facts, now):
        # One that has been registered meanwhile is replaced first.
        delete_announced(
            ports, row, claim, now, as_read=kind in REPLACED_KINDS and claim.metadata.deletion_timestamp is None
        )
        record_event_of_claim(ports, claim, EVENTS[kind](), now)
    return None


def _is_confirmed(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, facts: Facts, now: datetime) -> bool:
    """Whether EC2 says, too, that the instance goes or has gone. If not, the notice waits a moment, then it ends.

    An instance that EC2 does not find is left to the check by id, which looks twice.
    """
    found = facts.instances[row.instance_id]
    if isinstance(found, Instance) and found.state not in RUNNING:
        return True
    if found is None:
        ring_lifecycle(ports, "claim-instance", [claim.name])
        _end(ports, row, claim, "EC2 does not find the instance")
    elif _is_young(row, now, _patience_ms(row, found)):
        _look_again(ports, row, now)
    elif isinstance(found, Instance):
        _end(ports, row, claim, f"EC2 says that the instance is {found.state}")
    else:
        _end(ports, row, claim, f"EC2 does not say what became of the instance: {found}")
    return False


def _patience_ms(row: NoticeRow, found: Instance | ApiError) -> int:
    """How old the notice gets before it ends, unless EC2 says something else of its instance."""
    if isinstance(found, ApiError):
        return 0 if row.warning in REPLACED_KINDS else UNCLAIMED_MS
    return 0 if row.warning in REPLACED_KINDS or row.kind in REPLACED_KINDS else STATE_SHOWN_MS


def _end(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, why: str) -> None:
    """Nothing is removed, and the node takes pods again, unless there was a warning as well."""
    if row.warning:
        _go_by_warning(ports, row)
    else:
        # What is scheduled anew, for whatever time, is another notice.
        save_notice(ports, row, deadline=0, phase="done", due=0)
        ring_lifecycle(ports, "claim", [claim.name])
    # Of two workers the one that saved the row says so.
    log_line(
        log, log_lines.NOTICE_NOT_CONFIRMED,
        kind=row.kind, instance=row.instance_id, nodeclaim=claim.name, details=why,
    )  # fmt: skip


def _go_by_warning(ports: LifecyclePorts, row: NoticeRow) -> None:
    """What EC2 announced before holds, for all that is known: its replacement begins, or goes on."""
    phase = "replacing" if row.command else "new"
    save_notice(ports, row, kind=row.warning, warning="", ended=False, phase=phase)
    ring_notices(ports, [row.instance_id])


def _recommend(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, now: datetime) -> None:
    """Leave a recommendation to ``disrupt``, which replaces the node if the NodePool's policy says so.

    One that was left to it before, until the instance seemed to end, is no second recommendation.
    """
    if not row.claim:
        mark_offerings(ports, [Interrupted(row, claim).offering])
        record_event_of_claim(ports, claim, EVENTS[NoticeKind.REBALANCE_RECOMMENDATION](), now)
    save_notice(
        ports, row, claim=claim.name, phase=RECOMMENDED, due=min(row.created, epoch_ms(now)) + RECOMMENDATION_MS
    )
    ports.doorbells.ring("disrupt", [Doorbell(ports.cluster.name, "evaluate")])


def _has_time(row: NoticeRow, claim: NodeClaim, now: datetime) -> bool:
    """Whether a change that EC2 has scheduled is so far ahead that its node need not go at once."""
    return claim.is_condition_true("Registered") and not is_last_hour(row, now)


def _schedule(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, deadline: int) -> None:
    """Leave the node to ``disrupt``, which replaces it when budgets have room; in the last hour it goes anyway."""
    save_notice(ports, row, claim=claim.name, phase=SCHEDULED, deadline=deadline, due=deadline - LAST_HOUR_MS)
    ports.doorbells.ring("disrupt", [Doorbell(ports.cluster.name, "evaluate")])


def end_waiting(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, facts: Facts, now: datetime) -> None:
    """A notice that ``disrupt`` did not act on in time: what EC2 has scheduled cannot wait any longer, and an old
    recommendation says nothing of the instance any more."""
    if claim.metadata.deletion_timestamp is not None:
        save_notice(ports, row, phase="done", due=0)
    elif row.phase == SCHEDULED:
        if is_last_hour(row, now) and _is_still_scheduled(ports, row, claim, facts, now):
            delete_announced(ports, row, claim, now)
    elif epoch_ms(now) >= row.due - EARLY_MS:
        save_notice(ports, row, phase="done", due=0)


def _is_still_scheduled(ports: LifecyclePorts, row: NoticeRow, claim: NodeClaim, facts: Facts, now: datetime) -> bool:
    """Whether EC2's status has the event, in its last hour too. Otherwise the notice ends, or waits for another time.

    While EC2 does not answer, it waits as well, until the time itself has come.
    """
    if isinstance(facts.events, ApiError):
        if epoch_ms(now) >= row.deadline:
            return True
        due = min(row.deadline, epoch_ms(now) + STATUS_SECONDS * 1000)
        save_notice(ports, row, claim=claim.name, phase=SCHEDULED, due=due)
        ring_notices(ports, [row.instance_id], delay_seconds=STATUS_SECONDS)
        return False
    event = facts.events.get(row.instance_id)
    if event is None:
        _end(ports, row, claim, "EC2 has no event scheduled for the instance")
        return False
    moved = msgspec.structs.replace(row, deadline=event.deadline_ms)
    if is_last_hour(moved, now):
        return True
    not_before = taken_at(moved, now).isoformat()
    _schedule(ports, row, claim, moved.deadline)
    # Of two workers the one that saved the row says so.
    log_line(log, log_lines.EVENT_POSTPONED, instance=row.instance_id, nodeclaim=claim.name, not_before=not_before)
    return False
