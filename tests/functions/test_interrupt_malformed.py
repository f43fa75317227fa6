"""Messages that are not as documented: refused alone, or named and counted."""

import json
from typing import Any

import pytest

from spotwright.simulation.world import World
from tests.functions.handlers import Context, failed_messages, load_handler, sqs_event
from tests.functions.interrupt_messages import SPOT, STATE, change, envelope, kept, notices


def test_what_concerns_no_instance_is_taken_and_forgotten(world: World) -> None:
    bodies = [envelope(STATE, state="running"), envelope("Scheduled Event", source="aws.events")]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == []
    assert not world.state.rows


def test_malformed_messages_fail_alone(world: World) -> None:
    bodies = ["{", {"source": "aws.ec2"}, envelope(SPOT), {**envelope(SPOT), "detail": {"instance-id": 5}}, "[]"]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == [
        "m0",
        "m1",
        "m3",
        "m4",
    ]
    assert list(world.state.rows) == ["notice#i-1"]


def changed(event: dict[str, Any], **fields: object) -> dict[str, Any]:
    return event | fields


UNREADABLE = {
    "no JSON": "{",
    "no object": "[]",
    "too deep": '{"source": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "half a character": '{"source": "\ud83d"}',
    "a number too large": '{"source": 1' + "0" * 5000 + "}",
    "no source": {},
    "source is a list": changed(envelope(SPOT), source=["aws.ec2"]),
    "id is too long": changed(envelope(SPOT), id="e" * 1_000),
    "detail is null": changed(envelope(SPOT), detail=None),
    "time before the first": changed(envelope(SPOT), time="0001-01-01T00:00:00+14:00"),
    "time after the last": changed(envelope(SPOT), time="9999-12-31T23:59:59Z"),
    "time after the last elsewhere": changed(envelope(SPOT), time="9999-12-31T23:59:59-14:00"),
    "time is a number": changed(envelope(SPOT), time=10**30),
    "instance is null": changed(envelope(SPOT), detail={"instance-id": None}),
    "instance is nested": changed(envelope(SPOT), detail={"instance-id": {"instance-id": "i-1"}}),
    "instance is too long": changed(envelope(SPOT), detail={"instance-id": "i-" + "x" * 3_000}),
    "instance is half a character": json.dumps(changed(envelope(SPOT), detail={"instance-id": "i-\ud83d"})),
    "state is a list": envelope(STATE, state=["stopping"]),
    "service is a list": change(service=["EC2"]),
    "category is null": change(eventTypeCategory=None),
    "entities are an object": change(affectedEntities={}),
    "entities are a text": change(affectedEntities="i-1"),
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_of_ten_messages_exactly_the_malformed_one_fails(
    world: World, body: object, capsys: pytest.CaptureFixture[str]
) -> None:
    others = notices(9)
    answer = load_handler("interrupt", world).handler(sqs_event([*others[:4], body, *others[4:]]), Context())
    assert failed_messages(answer) == ["m4"]
    assert sorted(world.state.rows) == [f"notice#i-{number:02}" for number in range(9)]
    lines = capsys.readouterr().out
    assert "failed to record interruption notice" in lines
    assert '"WorkFailed":[1.0]' in lines


LEFT_OUT = {
    "closed": (change(statusCode="closed"), "ChangesIgnored"),
    "resolved": (change(affectedEntities=[{"entityValue": "i-1", "status": "RESOLVED"}]), "ChangesIgnored"),
    "a volume": (change(affectedEntities=[{"entityValue": "vol-1"}]), "ChangesIgnored"),
    "no entities": (change(affectedEntities=None), "ChangesIgnored"),
    "entities are texts": (change(affectedEntities=["i-1"]), "ChangesUnreadable"),
    "entities without value": (change(affectedEntities=[{"status": "PENDING"}]), "ChangesUnreadable"),
    "unknown status": (change(statusCode="moved"), "ChangesUnreadable"),
    "no time": (change(startTime=None), "ChangesUnreadable"),
    "localized time": (change(startTime="lun., 12 janv. 2026 09:00:00 GMT"), "ChangesUnreadable"),
    "time after the last": (change(startTime="9999-12-31T23:59:59-14:00"), "ChangesUnreadable"),
}


@pytest.mark.parametrize(("body", "metric"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_a_change_that_begins_nothing_is_named_and_counted(
    world: World, body: object, metric: str, capsys: pytest.CaptureFixture[str]
) -> None:
    others = notices(9)
    answer = load_handler("interrupt", world).handler(sqs_event([*others[:4], body, *others[4:]]), Context())
    assert failed_messages(answer) == []
    assert sorted(world.state.rows) == [f"notice#i-{number:02}" for number in range(9)]
    lines = capsys.readouterr().out
    assert f'"{metric}":[1.0]' in lines
    assert "AWS_EC2_INSTANCE_STOP_SCHEDULED" in lines


def test_a_recorded_change_is_reported_with_its_event_type_code(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    body = change(eventTypeCode="AWS_EC2_NEVER_HEARD_OF")
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event([body]), Context())) == []
    assert "AWS_EC2_NEVER_HEARD_OF" in capsys.readouterr().out
    assert kept(world) == ("scheduled_change", False)
