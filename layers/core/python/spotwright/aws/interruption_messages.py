"""EventBridge messages about instances, as typed notices.

Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html, monitor-instance-
state-changes and https://docs.aws.amazon.com/health/latest/ug/aws-health-events-json-schema.html (event shapes).
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from spotwright.errors import InvalidRequest
from spotwright.model.quoting import quote

# EC2 takes a spot instance back two minutes after its warning.
SPOT_WARNING: Final = timedelta(seconds=120)
_HEALTH_TIME: Final = "%a, %d %b %Y %H:%M:%S %Z"


class NoticeKind(StrEnum):
    SPOT_INTERRUPTED = "spot_interrupted"
    CAPACITY_RESERVATION_INTERRUPTED = "capacity_reservation_interrupted"
    INSTANCE_STOPPED = "instance_stopped"
    INSTANCE_TERMINATED = "instance_terminated"
    REBALANCE_RECOMMENDATION = "rebalance_recommendation"
    SCHEDULED_CHANGE = "scheduled_change"


# EC2 takes the instance back at a time that it names: a replacement is launched before.
REPLACED_KINDS: Final = frozenset((NoticeKind.SPOT_INTERRUPTED, NoticeKind.CAPACITY_RESERVATION_INTERRUPTED))


class Notice(msgspec.Struct, frozen=True):
    """What was announced. ``at``: when EventBridge took it; ``deadline``: when it happens, None = not said.

    ``instance_ids``: at least one, in the message's order. ``event``: EventBridge's id, the same in a redelivery.
    ``ended``: the instance has stopped or terminated; before, it was about to.
    """

    kind: NoticeKind
    instance_ids: tuple[str, ...]
    at: datetime
    event: str
    deadline: datetime | None = None
    ended: bool = False


_STATES: Final = {
    "stopping": NoticeKind.INSTANCE_STOPPED,
    "stopped": NoticeKind.INSTANCE_STOPPED,
    "shutting-down": NoticeKind.INSTANCE_TERMINATED,
    "terminated": NoticeKind.INSTANCE_TERMINATED,
}
_ENDED: Final = ("stopped", "terminated")


def parse_notice(envelope: Mapping[str, Any]) -> Notice | None:
    """The notice in an EventBridge envelope; None for a message that concerns no instance of ours.

    Raises InvalidRequest naming the field for an envelope, or one of the five messages, that is not as documented.
    """
    match (_text(envelope, "source"), _text(envelope, "detail-type")):
        case ("aws.ec2", "EC2 Spot Instance Interruption Warning"):
            return _instance(envelope, NoticeKind.SPOT_INTERRUPTED, SPOT_WARNING)
        case ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"):
            return _instance(envelope, NoticeKind.CAPACITY_RESERVATION_INTERRUPTED, SPOT_WARNING)
        case ("aws.ec2", "EC2 Instance Rebalance Recommendation"):
            return _instance(envelope, NoticeKind.REBALANCE_RECOMMENDATION)
        case ("aws.ec2", "EC2 Instance State-change Notification"):
            state = _text(_detail(envelope), "state", "detail.")
            kind = _STATES.get(state)
            return _instance(envelope, kind, ended=state in _ENDED) if kind else None
        case ("aws.health", "AWS Health Event"):
            return _health(envelope)
    return None


def _instance(
    envelope: Mapping[str, Any], kind: NoticeKind, notice_period: timedelta | None = None, *, ended: bool = False
) -> Notice:
    at = _time(envelope)
    instance_id = _text(_detail(envelope), "instance-id", "detail.")
    deadline = at + notice_period if notice_period else None
    return Notice(kind, (instance_id,), at, _text(envelope, "id"), deadline, ended)


def _health(envelope: Mapping[str, Any]) -> Notice | None:
    """Only scheduled changes to EC2 instances; the event says when, in its own time format."""
    detail = _detail(envelope)
    if detail.get("service") != "EC2" or detail.get("eventTypeCategory") != "scheduledChange":
        return None
    entities = detail.get("affectedEntities") or ()
    if not isinstance(entities, list | tuple):
        raise InvalidRequest("detail.affectedEntities: must be a list")
    values = (entity.get("entityValue") for entity in entities if isinstance(entity, Mapping))
    ids = tuple(value for value in values if isinstance(value, str) and value.startswith("i-"))
    if not ids:
        return None
    start = _health_time(detail.get("startTime"))
    return Notice(NoticeKind.SCHEDULED_CHANGE, ids, _time(envelope), _text(envelope, "id"), start)


def _health_time(text: object) -> datetime | None:
    try:
        return datetime.strptime(str(text), _HEALTH_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def _detail(envelope: Mapping[str, Any]) -> Mapping[str, Any]:
    detail = envelope.get("detail")
    if not isinstance(detail, Mapping):
        raise InvalidRequest("detail: must be an object")
    return detail


def _text(where: Mapping[str, Any], field: str, path: str = "") -> str:
    value = where.get(field)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{path}{field}: must be a text that is not empty, found {quote(value)}")
    return value


def _time(envelope: Mapping[str, Any]) -> datetime:
    text = _text(envelope, "time")
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise InvalidRequest(f"time: must be an ISO 8601 time, found {quote(text)}") from None
