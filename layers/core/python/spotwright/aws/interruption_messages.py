"""EventBridge messages about instances, as typed notices.

Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html, monitor-instance-
state-changes and https://docs.aws.amazon.com/health/latest/ug/aws-health-events-json-schema.html (event shapes).
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from spotwright.errors import InvalidRequest
from spotwright.model.quoting import quote

# EC2 takes a spot instance back two minutes after its warning.
SPOT_WARNING: Final = timedelta(seconds=120)
# A message whose time is further ahead of the clock here was not sent by EventBridge.
CLOCKS_DIFFER: Final = timedelta(days=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# EC2's are 17 hexadecimal digits, formerly 8.
_INSTANCE_ID: Final = re.compile(r"i-[0-9A-Za-z-]{1,64}")
# EventBridge's are UUIDs.
_LONGEST_ID: Final = 128
_LONGEST_NAME: Final = 80


class NoticeKind(StrEnum):
    SPOT_INTERRUPTED = "spot_interrupted"
    CAPACITY_RESERVATION_INTERRUPTED = "capacity_reservation_interrupted"
    INSTANCE_STOPPED = "instance_stopped"
    INSTANCE_TERMINATED = "instance_terminated"
    REBALANCE_RECOMMENDATION = "rebalance_recommendation"
    SCHEDULED_CHANGE = "scheduled_change"


ENDED_KINDS: Final = frozenset((NoticeKind.INSTANCE_STOPPED, NoticeKind.INSTANCE_TERMINATED))
# EC2 takes the instance back at a time that it names: a replacement is launched before.
REPLACED_KINDS: Final = frozenset((NoticeKind.SPOT_INTERRUPTED, NoticeKind.CAPACITY_RESERVATION_INTERRUPTED))


class LeftOut(msgspec.Struct, frozen=True):
    """What a message of AWS Health names and nothing begins for, and why.

    ``entities``: in the message's order, empty where it names none. ``is_unreadable``: it is not as documented;
    otherwise it is over, or concerns no instance.
    """

    reason: str
    entities: tuple[str, ...] = ()
    is_unreadable: bool = False


class Notice(msgspec.Struct, frozen=True):
    """What was announced. ``at``: when EventBridge took it, never later than when it was received.

    ``deadline``: when it happens, None = not said; of a scheduled change it is always said. ``instance_ids``: in the
    message's order; empty only where all that it names is in ``left_out``. ``event``: EventBridge's id, the same in a
    redelivery. ``ended``: the instance has stopped or terminated; before, it was about to. ``code``: the event type
    code of AWS Health, "" = none.
    """

    kind: NoticeKind
    instance_ids: tuple[str, ...]
    at: datetime
    event: str
    deadline: datetime | None = None
    ended: bool = False
    code: str = ""
    left_out: tuple[LeftOut, ...] = ()


_STATES: Final = {
    "stopping": NoticeKind.INSTANCE_STOPPED,
    "stopped": NoticeKind.INSTANCE_STOPPED,
    "shutting-down": NoticeKind.INSTANCE_TERMINATED,
    "terminated": NoticeKind.INSTANCE_TERMINATED,
}
_ENDED: Final = ("stopped", "terminated")
# Statuses of an event of AWS Health, and of an entity in it, in which the change is still to come; where none is
# stated it is, too. Then those in which it is over.
_EVENT_TO_COME: Final = (None, "open", "upcoming")
_EVENT_OVER: Final = ("closed",)
_ENTITY_TO_COME: Final = (None, "IMPAIRED", "PENDING", "UNKNOWN")
_ENTITY_OVER: Final = ("RESOLVED", "UNIMPAIRED")


def parse_notice(envelope: Mapping[str, Any], *, now: datetime) -> Notice | None:
    """The notice in an EventBridge envelope; None for a message that concerns no instance of ours.

    ``now``: when it was received. Raises InvalidRequest naming the field for an envelope, or one of the five messages,
    that is not as documented.
    """
    match (_text(envelope, "source"), _text(envelope, "detail-type")):
        case ("aws.ec2", "EC2 Spot Instance Interruption Warning"):
            return _instance(envelope, now, NoticeKind.SPOT_INTERRUPTED, SPOT_WARNING)
        case ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"):
            return _instance(envelope, now, NoticeKind.CAPACITY_RESERVATION_INTERRUPTED, SPOT_WARNING)
        case ("aws.ec2", "EC2 Instance Rebalance Recommendation"):
            return _instance(envelope, now, NoticeKind.REBALANCE_RECOMMENDATION)
        case ("aws.ec2", "EC2 Instance State-change Notification"):
            state = _text(_detail(envelope), "state", "detail.")
            kind = _STATES.get(state)
            return _instance(envelope, now, kind, ended=state in _ENDED) if kind else None
        case ("aws.health", "AWS Health Event"):
            return _health(envelope, now)
    return None


def _instance(
    envelope: Mapping[str, Any],
    now: datetime,
    kind: NoticeKind,
    notice_period: timedelta | None = None,
    *,
    ended: bool = False,
) -> Notice:
    at = _time(envelope, now)
    instance_id = _text(_detail(envelope), "instance-id", "detail.")
    if not _INSTANCE_ID.fullmatch(instance_id):
        raise InvalidRequest(f"detail.instance-id: must be the id of an instance, found {quote(instance_id)}")
    deadline = at + notice_period if notice_period else None
    return Notice(kind, (instance_id,), at, _id(envelope), deadline, ended)


def _health(envelope: Mapping[str, Any], now: datetime) -> Notice | None:
    """Only scheduled changes to EC2 instances; the event says when, in its own time format."""
    detail = _detail(envelope)
    if [_text(detail, name, "detail.") for name in ("service", "eventTypeCategory")] != ["EC2", "scheduledChange"]:
        return None
    start, entities = _health_time(detail.get("startTime")), _entities(detail)
    found: dict[_Why | None, list[str]] = {} if entities else {_Why("it names no entities"): []}
    for entity in entities:
        found.setdefault(_why_left_out(detail, entity, start), []).append(_entity_name(entity))
    return Notice(
        kind=NoticeKind.SCHEDULED_CHANGE,
        instance_ids=tuple(found.get(None, ())),
        at=_time(envelope, now),
        event=_id(envelope),
        deadline=start,
        code=_shown(detail.get("eventTypeCode", "")),
        left_out=tuple(LeftOut(why.reason, tuple(names), why.is_unreadable) for why, names in found.items() if why),
    )


class _Why(NamedTuple):
    """Why nothing begins for an entity."""

    reason: str
    is_unreadable: bool = False


def _why_left_out(detail: Mapping[str, Any], entity: object, start: datetime | None) -> _Why | None:
    """None: it is an instance that a change is still to come for, at a time that is known.

    Nothing is guessed: what EC2 has scheduled is in its status of the instance, too, which is read every minute.
    """
    if not isinstance(entity, Mapping) or not isinstance(entity.get("entityValue"), str):
        return _Why("it is not an object with an entityValue", is_unreadable=True)
    if not _INSTANCE_ID.fullmatch(entity["entityValue"]):
        return _Why("it is not an instance")
    return (
        _why_not_to_come("statusCode of the event", detail.get("statusCode"), _EVENT_TO_COME, _EVENT_OVER)
        or _why_not_to_come("status of the entity", entity.get("status"), _ENTITY_TO_COME, _ENTITY_OVER)
        or (None if start else _Why(f"startTime cannot be read: {quote(detail.get('startTime'))}", is_unreadable=True))
    )


def _why_not_to_come(name: str, status: object, to_come: Sequence[object], over: Sequence[object]) -> _Why | None:
    return None if status in to_come else _Why(f"{name} is {quote(status)}", is_unreadable=status not in over)


def _entities(detail: Mapping[str, Any]) -> Sequence[object]:
    """Events about a whole account name none."""
    entities = detail.get("affectedEntities")
    if entities is None:
        return ()
    if not isinstance(entities, list | tuple):
        raise InvalidRequest(f"detail.affectedEntities: must be a list, found {quote(entities)}")
    return entities


def _entity_name(entity: object) -> str:
    return _shown(entity.get("entityValue", entity) if isinstance(entity, Mapping) else entity)


def _shown(value: object) -> str:
    """A name as it is, anything else as messages quote it."""
    is_name = isinstance(value, str) and value.isprintable() and len(value) <= _LONGEST_NAME
    return str(value) if is_name else quote(value)


def _health_time(text: object) -> datetime | None:
    """None where it is not a time with its offset, in the format of RFC 1123 or in that of ISO 8601."""
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            at = parse(str(text))
            if at.tzinfo is not None and at > _EPOCH:
                return at.astimezone(UTC)
        except (ValueError, OverflowError):
            continue
    return None


def _detail(envelope: Mapping[str, Any]) -> Mapping[str, Any]:
    detail = envelope.get("detail")
    if not isinstance(detail, Mapping):
        raise InvalidRequest(f"detail: must be an object, found {quote(detail)}")
    return detail


def _text(where: Mapping[str, Any], field: str, path: str = "") -> str:
    value = where.get(field)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{path}{field}: must be a text that is not empty, found {quote(value)}")
    return value


def _id(envelope: Mapping[str, Any]) -> str:
    id = _text(envelope, "id")
    if len(id) > _LONGEST_ID:
        raise InvalidRequest(f"id: must be at most {_LONGEST_ID} characters, found {quote(id)}")
    return id


def _time(envelope: Mapping[str, Any], now: datetime) -> datetime:
    """When EventBridge took it; if that is a moment ahead of the clock here, now."""
    text = _text(envelope, "time")
    try:
        at = datetime.fromisoformat(text)
        at = at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest(f"time: must be an ISO 8601 time, found {quote(text)}") from None
    if not _EPOCH < at < now + CLOCKS_DIFFER:
        raise InvalidRequest(f"time: must be after 1970 and at most a day in the future, found {quote(text)}")
    return min(at, now)
