"""EventBridge messages as AWS documents them."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from spotwright.aws import interruption_messages
from spotwright.aws.interruption_messages import NoticeKind
from spotwright.errors import InvalidRequest

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def message(source: str, kind: str, detail: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": "0",
        "id": "event-1",
        "detail-type": kind,
        "source": source,
        "account": "123456789012",
        "time": "2026-01-01T12:00:00Z",
        "region": "ap-northeast-2",
        "resources": ["arn:aws:ec2:ap-northeast-2a:instance/i-1"],
        "detail": detail,
    }


SPOT = message(
    "aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": "i-1", "instance-action": "terminate"}
)
HEALTH = message(
    "aws.health",
    "AWS Health Event",
    {
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "startTime": "Thu, 15 Jan 2026 06:02:51 GMT",
        "affectedEntities": [{"entityValue": "i-1"}, {"entityValue": "i-2"}, {"entityValue": "vol-1"}],
    },
)


def test_a_spot_warning_leaves_two_minutes() -> None:
    notice = interruption_messages.parse_notice(SPOT)
    assert notice == interruption_messages.Notice(
        NoticeKind.SPOT_INTERRUPTED, ("i-1",), AT, "event-1", datetime(2026, 1, 1, 12, 2, tzinfo=UTC)
    )


def test_a_rebalance_recommendation_has_no_deadline() -> None:
    notice = interruption_messages.parse_notice(
        message("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": "i-1"})
    )
    assert notice is not None
    assert (notice.kind, notice.deadline) == (NoticeKind.REBALANCE_RECOMMENDATION, None)


def test_a_capacity_reservation_warning() -> None:
    kind = "EC2 Capacity Reservation Instance Interruption Warning"
    notice = interruption_messages.parse_notice(
        message("aws.ec2", kind, {"instance-id": "i-1", "instance-action": "terminate"})
    )
    assert notice is not None
    assert notice.kind == NoticeKind.CAPACITY_RESERVATION_INTERRUPTED


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("pending", None),
        ("running", None),
        ("stopping", NoticeKind.INSTANCE_STOPPED),
        ("stopped", NoticeKind.INSTANCE_STOPPED),
        ("shutting-down", NoticeKind.INSTANCE_TERMINATED),
        ("terminated", NoticeKind.INSTANCE_TERMINATED),
    ],
)
def test_state_changes_that_end_an_instance(state: str, kind: NoticeKind | None) -> None:
    event = message("aws.ec2", "EC2 Instance State-change Notification", {"instance-id": "i-1", "state": state})
    notice = interruption_messages.parse_notice(event)
    assert (notice.kind if notice else None) == kind


def test_a_scheduled_change_concerns_every_instance_it_names() -> None:
    notice = interruption_messages.parse_notice(HEALTH)
    assert notice is not None
    assert (notice.kind, notice.instance_ids) == (NoticeKind.SCHEDULED_CHANGE, ("i-1", "i-2"))
    assert notice.deadline == datetime(2026, 1, 15, 6, 2, 51, tzinfo=UTC)


@pytest.mark.parametrize("change", [{"service": "RDS"}, {"eventTypeCategory": "issue"}, {"affectedEntities": []}])
def test_other_health_events_are_not_ours(change: dict[str, Any]) -> None:
    assert interruption_messages.parse_notice(HEALTH | {"detail": HEALTH["detail"] | change}) is None


@pytest.mark.parametrize(("source", "kind"), [("aws.s3", "Object Created"), ("aws.ec2", "EBS Snapshot Notification")])
def test_an_unknown_message_is_nothing(source: str, kind: str) -> None:
    assert interruption_messages.parse_notice(message(source, kind, {})) is None


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("source",), None, "source"),
        (("detail-type",), 7, "detail-type"),
        (("id",), "", "id"),
        (("time",), "yesterday", "time"),
        (("detail",), "text", "detail"),
        (("detail", "instance-id"), None, "detail.instance-id"),
        (("detail", "instance-id"), ["i-1"], "detail.instance-id"),
    ],
)
def test_a_malformed_message_is_refused_by_field(path: tuple[str, ...], value: object, field: str) -> None:
    event: Any = copy.deepcopy(SPOT)
    inner = event
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    with pytest.raises(InvalidRequest, match=rf"^{field}:"):
        interruption_messages.parse_notice(event)
