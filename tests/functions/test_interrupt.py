"""EventBridge messages into interrupt: notice rows with their deadline, a doorbell each, foreign ones refused alone."""

from datetime import datetime
from typing import Any

import pytest

from spotwright.errors import Unavailable
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from tests.functions.handlers import Context, failed_messages, load_handler, sqs_event

SPOT = "EC2 Spot Instance Interruption Warning"
STATE = "EC2 Instance State-change Notification"
REBALANCE = "EC2 Instance Rebalance Recommendation"


def envelope(detail_type: str, source: str = "aws.ec2", **detail: Any) -> dict[str, Any]:
    return {
        "version": "0", "id": "e-1", "detail-type": detail_type, "source": source, "account": "123456789012",
        "time": "2026-01-05T09:00:00Z", "region": "ap-northeast-2", "resources": [],
        "detail": {"instance-id": "i-1"} | detail,
    }  # fmt: skip


def test_a_spot_warning_becomes_a_row_with_two_minutes_and_a_doorbell(world: World) -> None:
    answer = load_handler("interrupt", world).handler(
        sqs_event([envelope(SPOT, **{"instance-action": "terminate"})]), Context()
    )
    assert failed_messages(answer) == []
    row = world.state.notice("i-1")
    assert row is not None
    assert (row.kind, row.phase) == ("spot_interrupted", "new")
    assert row.deadline == datetime.fromisoformat("2026-01-05T09:02:00+00:00").timestamp() * 1000
    assert [(doorbell.kind, doorbell.key) for doorbell in world.doorbells.receive("notices")] == [("notice", "i-1")]


def test_the_same_message_again_leaves_the_row_as_it_is(world: World) -> None:
    handler = load_handler("interrupt", world).handler
    handler(sqs_event([envelope(SPOT)]), Context())
    before = world.state.notice("i-1")
    handler(sqs_event([envelope(SPOT)]), Context())
    assert world.state.notice("i-1") == before


@pytest.mark.parametrize(
    ("first", "then", "kept"),
    [
        (envelope(REBALANCE), envelope(SPOT), "spot_interrupted"),
        (envelope(SPOT), envelope(REBALANCE), "spot_interrupted"),
        (envelope(SPOT), envelope(STATE, state="terminated"), "instance_terminated"),
    ],
)
def test_the_graver_notice_counts(world: World, first: dict[str, Any], then: dict[str, Any], kept: str) -> None:
    load_handler("interrupt", world).handler(sqs_event([first, then]), Context())
    row = world.state.notice("i-1")
    assert row is not None
    assert row.kind == kept


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


def test_a_notice_that_cannot_be_written_comes_back(world: World) -> None:
    world.effects.inject(Fault("state", "create", Unavailable("no table"), times=1))
    bodies = [envelope(SPOT), envelope(SPOT, **{"instance-id": "i-2"})]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == ["m0"]
    assert list(world.state.rows) == ["notice#i-2"]
