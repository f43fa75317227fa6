"""EventBridge messages into interrupt: notice rows with their deadline, a batch in one write and one ring."""

from datetime import datetime
from math import inf
from typing import Any

import pytest

from spotwright.adapters import time_limit
from spotwright.errors import ApiError, Conflict, Throttled, Unavailable
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.ports.rows import NoticeRow, Row
from tests.functions.handlers import Context, failed_messages, load_handler, sqs_event
from tests.functions.interrupt_messages import REBALANCE, SPOT, STATE, change, envelope, notices


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


def test_aws_is_waited_for_until_shortly_before_the_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A try may take twelve seconds otherwise, and the function has ten."""
    module, left = load_handler("interrupt", world), list[float]()

    def record_batch(*_: object, **__: object) -> dict[str, ApiError]:
        left.append(time_limit.seconds_left(0))
        return {}

    monkeypatch.setattr(module, "record_batch", record_batch)
    module.handler(sqs_event([envelope(SPOT)]), Context(10))
    assert left == [pytest.approx(9.5, abs=0.5)]
    assert time_limit.seconds_left(0) == inf


def test_a_notice_that_cannot_be_written_comes_back(world: World) -> None:
    for action in ("create_together", "create"):
        world.effects.inject(Fault("state", action, Unavailable("no table"), times=1))
    bodies = [envelope(SPOT), envelope(SPOT, **{"instance-id": "i-2"})]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == ["m0"]
    assert list(world.state.rows) == ["notice#i-2"]


def rung(world: World) -> list[str]:
    """The calls that rang for notices, each with all its doorbells."""
    return [effect.subject for effect in world.effects.select("doorbells", "ring")]


def test_a_batch_rings_once_after_all_its_rows_are_there(world: World) -> None:
    bodies = [
        *notices(10),
        envelope(REBALANCE, **{"instance-id": "i-03"}),
        envelope(REBALANCE, **{"instance-id": "i-10"}),
    ]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == []
    assert rung(world) == ["notices/notice:i-00 notices/notice:i-10"], "all that EC2 takes back is one plan"
    assert world.effects.log[-1].action == "ring"
    assert len(world.state.rows) == 11


def test_the_rows_of_a_batch_are_one_write_and_another_where_one_is_there_already(world: World) -> None:
    handler = load_handler("interrupt", world).handler
    assert failed_messages(handler(sqs_event(notices(10)), Context())) == []
    assert [effect.action for effect in world.effects.select("state", "*")] == ["create_together"]
    bodies = [*notices(3), envelope(STATE, state="stopping", **{"instance-id": "i-02"}), *notices(12)[10:]]
    assert failed_messages(handler(sqs_event(bodies), Context())) == []
    assert [effect.action for effect in world.effects.select("state", "*")] == ["create_together", "save_together"]
    assert len(world.state.rows) == 12
    row = world.state.notice("i-02")
    assert row is not None
    assert row.kind == "instance_stopped"


@pytest.mark.parametrize("first_is_lighter", [True, False])
def test_of_two_notices_of_an_instance_in_a_batch_the_severer_is_written_alone(
    world: World, first_is_lighter: bool
) -> None:
    bodies = [envelope(REBALANCE), envelope(STATE, state="stopping")]
    load_handler("interrupt", world).handler(sqs_event(bodies if first_is_lighter else bodies[::-1]), Context())
    assert [effect.action for effect in world.effects.select("state", "*")] == ["create"]
    row = world.state.notice("i-1")
    assert row is not None
    assert row.kind == "instance_stopped"


def test_a_severer_notice_that_is_written_meanwhile_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = load_handler("interrupt", world).handler
    handler(sqs_event([envelope(REBALANCE)]), Context())
    usual = world.state.save

    def save(row: Row) -> None:
        monkeypatch.setattr(world.state, "save", usual)
        handler(sqs_event([envelope(SPOT)]), Context())
        raise Conflict("the row was written meanwhile", code="ConditionalCheckFailedException")

    monkeypatch.setattr(world.state, "save", save)
    assert failed_messages(handler(sqs_event([change()]), Context())) == []
    row = world.state.notice("i-1")
    assert row is not None
    assert row.kind == "spot_interrupted"


def test_rows_that_fail_fail_their_messages_and_the_others_are_rung_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = world.state.create

    def create(row: Row) -> bool:
        if isinstance(row, NoticeRow) and row.instance_id in ("i-02", "i-05"):
            raise Throttled("slow down")
        return usual(row)

    monkeypatch.setattr(world.state, "create", create)
    world.effects.inject(Fault("state", "create_together", Throttled("slow down"), times=9))
    bodies = [*notices(8), envelope(REBALANCE, **{"instance-id": "i-05"})]
    answer = load_handler("interrupt", world).handler(sqs_event(bodies), Context())
    assert failed_messages(answer) == ["m2", "m5", "m8"]
    assert rung(world) == ["notices/notice:i-00"]
    world.effects.log.clear()
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies[1:4]), Context())) == ["m1"]
    assert rung(world) == ["notices/notice:i-01"], "of a row that was written"


def test_what_there_is_no_time_for_comes_back(world: World) -> None:
    bodies = [envelope(SPOT), envelope(STATE, state="running")]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context(1))) == ["m0"]
    assert not world.state.rows
