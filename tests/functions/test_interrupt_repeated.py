"""Messages about an instance that come doubled, in any order, late, or after one that was acted on."""

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from spotwright.simulation.world import World
from spotwright.workflows.ports.rows import NoticeRow
from tests.functions.handlers import Context, failed_messages, load_handler, sqs_event
from tests.functions.interrupt_messages import REBALANCE, SPOT, STATE, change, envelope, kept


def sent(event: dict[str, Any], after: timedelta, id: str) -> dict[str, Any]:
    """Another message of the same kind, so long after nine."""
    at = datetime.fromisoformat("2026-01-05T09:00:00+00:00") + after
    return event | {"time": at.isoformat(), "id": id}


@pytest.mark.parametrize(
    ("bodies", "severest"),
    [
        ([envelope(REBALANCE), change(), envelope(SPOT)], ("spot_interrupted", False)),
        (
            [envelope(REBALANCE), envelope(SPOT), envelope(STATE, state="stopping"), envelope(STATE, state="stopped")],
            ("instance_stopped", True),
        ),
        (
            [
                envelope(SPOT),
                envelope(STATE, state="shutting-down"),
                envelope(STATE, state="terminated"),
                change(),
            ],
            ("instance_terminated", True),
        ),
    ],
)
def test_doubled_reordered_and_late_messages_end_in_the_severest_notice(
    world: World, bodies: list[dict[str, Any]], severest: tuple[str, bool]
) -> None:
    """In one batch, and over two of which the second repeats some of the first."""
    handler = load_handler("interrupt", world).handler
    for order in itertools.permutations(bodies):
        for cut in range(len(order) + 1):
            world.state.rows.clear()
            for batch in ([*order[:cut], *order[:1]], [*order[cut:], *order[:cut]]):
                assert failed_messages(handler(sqs_event(batch), Context())) == []
            assert kept(world) == severest


def test_a_warning_is_kept_beside_the_end_of_its_instance_in_every_order(world: World) -> None:
    """In one batch and in two, doubled."""
    ends = [envelope(STATE, state=state) for state in ("stopping", "shutting-down", "terminated")]
    handler = load_handler("interrupt", world).handler
    for order in itertools.permutations([envelope(SPOT), envelope(REBALANCE), *ends]):
        for cut in range(1, len(order) + 1):
            world.state.rows.clear()
            for batch in (order[:cut], [*order[cut:], *order[:cut]]):
                assert failed_messages(handler(sqs_event(batch), Context())) == []
            row = world.state.notice("i-1")
            assert row is not None
            assert (row.kind, row.ended, row.warning) == ("instance_terminated", True, "spot_interrupted"), order
            assert row.deadline == datetime.fromisoformat("2026-01-05T09:02:00+00:00").timestamp() * 1000
            assert len(set(row.events)) == len(row.events)


def test_what_was_done_about_a_warning_is_kept_when_its_instance_ends(world: World) -> None:
    """And when the warning began, with which its offering counts as interrupted once."""
    warning = envelope(SPOT)
    received(world, [warning])
    row = world.state.notice("i-1")
    assert row is not None
    world.state.save(msgspec.structs.replace(row, phase="replacing", command="c", claim="n", attempt=1, created=7))
    received(world, [envelope(STATE, state="stopping"), warning], [envelope(STATE, state="terminated"), warning])
    row = world.state.notice("i-1")
    assert row is not None
    assert (row.kind, row.phase, row.warning) == ("instance_terminated", "new", "spot_interrupted")
    assert (row.command, row.claim, row.attempt, row.created) == ("c", "n", 1, 7)


def test_a_warning_that_is_finished_is_not_acted_on_again_when_its_instance_ends(world: World) -> None:
    warning = envelope(SPOT)
    received(world, [warning])
    finish(world)
    received(world, [envelope(STATE, state="terminated"), warning])
    row = world.state.notice("i-1")
    assert row is not None
    assert (row.kind, row.phase, row.warning) == ("instance_terminated", "new", "")


def test_a_warning_after_an_end_that_was_acted_on_is_acted_on_once(world: World) -> None:
    """The end may not have been confirmed: the instance runs on until EC2 takes it."""
    end = sent(envelope(STATE, state="stopping"), MINUTE, "e-2")
    received(world, [end])
    finish(world)
    assert received(world, [envelope(SPOT)], [end]) == "new"
    assert kept(world) == ("spot_interrupted", False)
    finish(world)
    assert received(world, [envelope(SPOT), end]) == "done"


def test_of_scheduled_changes_the_earliest_counts_in_every_order(world: World) -> None:
    handler = load_handler("interrupt", world).handler
    changes = [
        change(startTime=f"{day}, {9 + number} Jan 2026 09:00:00 GMT")
        for number, day in enumerate(("Fri", "Sat", "Sun"))
    ]
    for order in itertools.permutations(changes):
        for cut in range(4):
            world.state.rows.clear()
            for batch in (order[:cut], order[cut:]):
                assert failed_messages(handler(sqs_event(batch), Context())) == []
            row = world.state.notice("i-1")
            assert row is not None
            assert row.deadline == datetime.fromisoformat("2026-01-09T09:00:00+00:00").timestamp() * 1000


def finish(world: World) -> None:
    """What lifecycle does with a row in the end."""
    row = world.state.notice("i-1")
    assert row is not None
    world.state.save(msgspec.structs.replace(row, phase="done", due=0))


def received(world: World, *batches: Sequence[dict[str, Any]]) -> str:
    """The phase of the row after these batches, a minute apart."""
    handler = load_handler("interrupt", world).handler
    for batch in batches:
        world.clock.advance(60)
        assert failed_messages(handler(sqs_event(batch), Context())) == []
    row = world.state.notice("i-1")
    assert row is not None
    return row.phase


MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "event",
    [envelope(REBALANCE), change(), envelope(SPOT), envelope(STATE, state="stopping")],
    ids=["rebalance", "change", "spot", "stopping"],
)
def test_a_notice_after_a_finished_one_of_its_kind_is_acted_on_and_neither_is_again(
    world: World, event: dict[str, Any]
) -> None:
    first, second = sent(event, timedelta(), "e-1"), sent(event, 3 * HOUR, "e-2")
    received(world, [first])
    finish(world)
    world.clock.advance(3 * 3600)
    assert received(world, [first], [first]) == "done"
    world.doorbells.receive("notices")
    assert received(world, [first, second]) == "new"
    assert [bell.key for bell in world.doorbells.receive("notices")] == ["i-1"]
    assert received(world, [first], [second, first]) == "new"
    finish(world)
    assert received(world, [first], [second], [first, second], [second, first]) == "done"


def test_a_change_after_a_finished_one_is_acted_on_whatever_its_time(world: World) -> None:
    """In the batch there is the finished one, too, which is earlier and thus the severer."""
    first, second = change(), sent(change(startTime="Mon, 19 Jan 2026 09:00:00 GMT"), HOUR, "e-2")
    received(world, [first])
    finish(world)
    world.clock.advance(3600)
    assert received(world, [first, second]) == "new"
    row = world.state.notice("i-1")
    assert row is not None
    assert row.deadline == datetime.fromisoformat("2026-01-19T09:00:00+00:00").timestamp() * 1000


def test_a_lighter_notice_after_a_finished_one_is_acted_on_and_the_finished_one_is_not_again(world: World) -> None:
    """A spot warning of an instance that ran on, or that no NodeClaim had."""
    warning, recommendation = envelope(SPOT), sent(envelope(REBALANCE), HOUR, "e-2")
    received(world, [warning])
    finish(world)
    world.clock.advance(3600)
    assert received(world, [warning, recommendation], [warning]) == "new"
    assert kept(world) == ("rebalance_recommendation", False)


@pytest.mark.parametrize("late", [change(startTime="Wed, 07 Jan 2026 09:00:00 GMT"), envelope(REBALANCE)])
def test_what_was_announced_before_a_finished_notice_was_recorded_does_not_begin_it_again(
    world: World, late: dict[str, Any]
) -> None:
    world.clock.advance(3600)
    received(world, [sent(change(), 30 * MINUTE, "e-2")])
    finish(world)
    assert received(world, [late]) == "done"


def test_a_severer_notice_is_acted_on_however_late_it_is(world: World) -> None:
    world.clock.advance(3600)
    received(world, [sent(envelope(REBALANCE), HOUR, "e-2")])
    finish(world)
    assert received(world, [envelope(SPOT)]) == "new"
    assert kept(world) == ("spot_interrupted", False)


def test_a_message_from_ahead_of_the_clock_is_recorded_as_of_now_and_not_again(world: World) -> None:
    warning = sent(envelope(SPOT), HOUR, "e-1")
    received(world, [warning])
    row = world.state.notice("i-1")
    assert row is not None
    assert row.deadline == row.created + 120_000
    finish(world)
    assert received(world, [warning]) == "done"


def test_a_row_that_another_version_finished_is_lighter_than_what_comes_later(world: World) -> None:
    """It does not know its events."""
    received(world, [envelope(REBALANCE)])
    finish(world)
    row = world.state.notice("i-1")
    assert row is not None
    world.state.rows["notice#i-1"] = msgspec.structs.replace(row, events=())
    assert received(world, [envelope(REBALANCE)]) == "done"
    assert received(world, [sent(envelope(REBALANCE), 2 * MINUTE, "e-2")]) == "new"


def test_a_row_keeps_the_last_few_events(world: World) -> None:
    for number in range(20):
        received(world, [sent(envelope(REBALANCE), (number + 1) * MINUTE, f"e-{number}")])
        finish(world)
    row = world.state.notice("i-1")
    assert row is not None
    assert row.events == tuple(f"e-{number}" for number in range(12, 20))


def test_a_row_that_expires_between_two_reads_is_written_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = world.state.notice

    def notice(instance_id: str) -> NoticeRow | None:
        monkeypatch.setattr(world.state, "notice", usual)
        world.state.rows.clear()
        return None

    received(world, [envelope(REBALANCE)])
    finish(world)
    monkeypatch.setattr(world.state, "notice", notice)
    assert received(world, [sent(envelope(REBALANCE), MINUTE, "e-2")]) == "new"
