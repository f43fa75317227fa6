"""EventBridge messages as AWS documents them."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.aws import interruption_messages
from spotwright.aws.interruption_messages import LeftOut, Notice, NoticeKind
from spotwright.errors import InvalidRequest

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
RECEIVED = AT + timedelta(seconds=2)


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


def parse(event: dict[str, Any], now: datetime = RECEIVED) -> Notice | None:
    return interruption_messages.parse_notice(event, now=now)


def changed(event: dict[str, Any], **detail: Any) -> dict[str, Any]:
    return event | {"detail": event["detail"] | detail}


def test_a_spot_warning_leaves_two_minutes() -> None:
    notice = parse(SPOT)
    assert notice == Notice(
        NoticeKind.SPOT_INTERRUPTED, ("i-1",), AT, "event-1", datetime(2026, 1, 1, 12, 2, tzinfo=UTC)
    )


def test_a_rebalance_recommendation_has_no_deadline() -> None:
    notice = parse(message("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": "i-1"}))
    assert notice is not None
    assert (notice.kind, notice.deadline) == (NoticeKind.REBALANCE_RECOMMENDATION, None)


def test_a_capacity_reservation_warning() -> None:
    kind = "EC2 Capacity Reservation Instance Interruption Warning"
    notice = parse(message("aws.ec2", kind, {"instance-id": "i-1", "instance-action": "terminate"}))
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
    notice = parse(event)
    assert (notice.kind if notice else None) == kind


def test_a_scheduled_change_concerns_every_instance_it_names() -> None:
    notice = parse(HEALTH)
    assert notice is not None
    assert (notice.kind, notice.instance_ids) == (NoticeKind.SCHEDULED_CHANGE, ("i-1", "i-2"))
    assert notice.deadline == datetime(2026, 1, 15, 6, 2, 51, tzinfo=UTC)


@pytest.mark.parametrize("change", [{"service": "RDS"}, {"eventTypeCategory": "issue"}])
def test_other_health_events_are_not_ours(change: dict[str, Any]) -> None:
    assert parse(changed(HEALTH, **change)) is None


def test_what_is_no_instance_is_named() -> None:
    notice = parse(HEALTH)
    assert notice is not None
    assert notice.left_out == (LeftOut("it is not an instance", ("vol-1",)),)
    assert notice.code == "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED"


@pytest.mark.parametrize("status", ["open", "upcoming"])
def test_an_event_that_is_to_come_is_acted_on(status: str) -> None:
    notice = parse(changed(HEALTH, statusCode=status))
    assert notice is not None
    assert notice.instance_ids == ("i-1", "i-2")


@pytest.mark.parametrize(
    ("status", "is_unreadable"), [("closed", False), ("postponed", True), (7, True), (["open"], True)]
)
def test_an_event_in_another_status_begins_nothing(status: object, is_unreadable: bool) -> None:
    notice = parse(changed(HEALTH, statusCode=status))
    assert notice is not None
    assert notice.instance_ids == ()
    (_, left_out) = sorted(notice.left_out, key=lambda part: "i-1" in part.entities)
    assert (left_out.entities, left_out.is_unreadable) == (("i-1", "i-2"), is_unreadable)
    assert left_out.reason.startswith("statusCode of the event is ")


@pytest.mark.parametrize(
    ("status", "is_unreadable"),
    [
        ("IMPAIRED", None),
        ("PENDING", None),
        ("UNKNOWN", None),
        ("RESOLVED", False),
        ("UNIMPAIRED", False),
        ("AWAY", True),
        ({}, True),
    ],
)
def test_an_entity_for_which_it_is_over_begins_nothing_and_others_do(status: str, is_unreadable: bool | None) -> None:
    entities = [{"entityValue": "i-1", "status": status}, {"entityValue": "i-2", "status": "PENDING"}]
    notice = parse(changed(HEALTH, affectedEntities=entities))
    assert notice is not None
    assert notice.instance_ids == (("i-1", "i-2") if is_unreadable is None else ("i-2",))
    assert [part.is_unreadable for part in notice.left_out] == ([] if is_unreadable is None else [is_unreadable])


@pytest.mark.parametrize(
    "start",
    [
        "Thu, 15 Jan 2026 06:02:51 GMT",
        "Thu, 15 Jan 2026 06:02:51 +0000",
        "15 Jan 2026 06:02:51 UT",
        "2026-01-15T06:02:51Z",
        "2026-01-15T15:02:51+09:00",
    ],
)
def test_the_time_of_a_change_is_read_in_both_formats_whatever_the_locale(start: str) -> None:
    notice = parse(changed(HEALTH, startTime=start))
    assert notice is not None
    assert notice.deadline == datetime(2026, 1, 15, 6, 2, 51, tzinfo=UTC)


@pytest.mark.parametrize(
    "start",
    [
        None,
        "",
        "soon",
        "jeu., 15 janv. 2026 06:02:51 GMT",
        "周四, 15 1月 2026 06:02:51 GMT",
        "2026-01-15",
        "2026-01-15T06:02:51",
        "Thu, 15 Jan 2026 06:02:51",
        "Thu, 15 Jan 99999999999 06:02:51 GMT",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        1_768_456_971,
        {"at": "2026-01-15T06:02:51Z"},
    ],
)
def test_a_change_whose_time_cannot_be_read_begins_nothing(start: object) -> None:
    """What EC2 itself says of the instance has a time, and is read every minute."""
    notice = parse(changed(HEALTH, startTime=start))
    assert notice is not None
    assert notice.instance_ids == ()
    assert [part.entities for part in notice.left_out if part.is_unreadable] == [("i-1", "i-2")]


@pytest.mark.parametrize("entities", [None, []])
def test_a_change_without_entities_is_left_out_as_a_whole(entities: object) -> None:
    notice = parse(changed(HEALTH, affectedEntities=entities))
    assert notice is not None
    assert (notice.instance_ids, notice.left_out) == ((), (LeftOut("it names no entities"),))


def test_entities_that_cannot_be_read_are_named_and_the_others_acted_on() -> None:
    entities = [None, 1, "i-1", {"entityValue": 5}, {"status": "PENDING"}, {"entityValue": "i-2"}]
    notice = parse(changed(HEALTH, affectedEntities=entities))
    assert notice is not None
    assert notice.instance_ids == ("i-2",)
    (left_out,) = notice.left_out
    assert (left_out.entities, left_out.is_unreadable) == (
        ("null", "1", "i-1", "5", '{"status":"PENDING"}'), True,
    )  # fmt: skip


@pytest.mark.parametrize("entities", [{}, {"entityValue": "i-1"}, "i-1", "", 0, False])
def test_entities_that_are_no_list_are_refused(entities: object) -> None:
    with pytest.raises(InvalidRequest, match=r"^detail\.affectedEntities:"):
        parse(changed(HEALTH, affectedEntities=entities))


def test_an_event_type_code_that_is_no_text_is_quoted() -> None:
    notice = parse(changed(HEALTH, eventTypeCode={"a": 1}))
    assert notice is not None
    assert notice.code == '{"a":1}'


@pytest.mark.parametrize("ahead_seconds", [3, 300, 3600])
def test_a_spot_warning_never_leaves_more_than_two_minutes_from_when_it_was_received(ahead_seconds: int) -> None:
    notice = parse(SPOT, now=AT - timedelta(seconds=ahead_seconds))
    assert notice is not None
    assert notice.at == AT - timedelta(seconds=ahead_seconds)
    assert notice.deadline == notice.at + timedelta(seconds=120)


def test_a_late_spot_warning_keeps_its_deadline() -> None:
    notice = parse(SPOT, now=AT + timedelta(days=3))
    assert notice is not None
    assert (notice.at, notice.deadline) == (AT, AT + timedelta(seconds=120))


def test_a_time_without_an_offset_is_utc() -> None:
    notice = parse(SPOT | {"time": "2026-01-01T12:00:00"})
    assert notice is not None
    assert notice.at == AT


@pytest.mark.parametrize(("source", "kind"), [("aws.s3", "Object Created"), ("aws.ec2", "EBS Snapshot Notification")])
def test_an_unknown_message_is_nothing(source: str, kind: str) -> None:
    assert parse(message(source, kind, {})) is None


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("source",), None, "source"),
        (("detail-type",), 7, "detail-type"),
        (("id",), "", "id"),
        (("id",), "e" * 129, "id"),
        (("time",), "yesterday", "time"),
        (("time",), "0001-01-01T00:00:00+14:00", "time"),
        (("time",), "1969-12-31T23:58:00Z", "time"),
        (("time",), "9999-12-31T23:59:59Z", "time"),
        (("time",), "9999-12-31T23:59:59-14:00", "time"),
        (("time",), "2026-01-03T12:00:00Z", "time"),
        (("time",), 1_767_225_600, "time"),
        (("detail",), "text", "detail"),
        (("detail", "instance-id"), None, "detail.instance-id"),
        (("detail", "instance-id"), ["i-1"], "detail.instance-id"),
        (("detail", "instance-id"), {"a": {"a": 1}}, "detail.instance-id"),
        (("detail", "instance-id"), "vol-1", "detail.instance-id"),
        (("detail", "instance-id"), "i-" + "x" * 3000, "detail.instance-id"),
        (("detail", "instance-id"), "i-\ud83d", "detail.instance-id"),
        (("detail", "instance-id"), "i-1\n", "detail.instance-id"),
    ],
)
def test_a_malformed_message_is_refused_by_field(path: tuple[str, ...], value: object, field: str) -> None:
    event: Any = copy.deepcopy(SPOT)
    inner = event
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    with pytest.raises(InvalidRequest, match=rf"^{field}:"):
        parse(event)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
TIMES = st.datetimes().map(str) | st.from_regex(
    r"[A-Z][a-z]{2}, [0-9]{1,5} [A-Z][a-z]{2} [0-9]{1,9} [0-9:]{1,9} .{0,9}"
)


@given(
    event=st.sampled_from([SPOT, HEALTH]),
    outer=st.dictionaries(st.sampled_from([*SPOT]), JSON | TIMES, max_size=2),
    inner=st.dictionaries(st.sampled_from([*HEALTH["detail"], "statusCode", "instance-id"]), JSON | TIMES, max_size=3),
)
def test_whatever_a_message_holds_it_is_a_notice_or_refused(
    event: dict[str, Any], outer: dict[str, Any], inner: dict[str, Any]
) -> None:
    try:
        notice = parse(changed(event, **inner) | outer)
    except InvalidRequest:
        return
    if notice is not None and notice.instance_ids:
        assert notice.at <= RECEIVED
        assert notice.deadline is None or notice.deadline.timestamp() > 0
        assert all(id.startswith("i-") and id.isascii() for id in notice.instance_ids)
