"""Batches about instances of which there are rows already: read by one call, and what is news is written by one."""

from collections.abc import Collection, Sequence
from itertools import permutations
from typing import Any

import msgspec
import pytest

from spotwright.errors import ApiError, Conflict, Throttled, Unavailable
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.ports.rows import NoticeRow, Row
from spotwright.workflows.ports.state import ROWS_TOGETHER
from tests.functions.counted_state import CountedState
from tests.functions.handlers import Context, failed_messages, load_handler, sqs_event
from tests.functions.interrupt_messages import REBALANCE, SPOT, STATE, change, envelope

TEN = [f"i-{number:02}" for number in range(10)]
# Before EC2 is asked about what is not expected, and then as rows are by then.
READ = ["notices_of", "notices_of"]


@pytest.fixture
def calls(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What DynamoDB is asked for."""
    counted = CountedState(world.state)
    monkeypatch.setattr(world, "state", counted)
    return counted.calls


def of(state: str, instances: Collection[str]) -> list[dict[str, Any]]:
    return [envelope(STATE, state=state, **{"instance-id": instance}) for instance in instances]


def receive(world: World, bodies: Sequence[dict[str, Any]], left_seconds: float = 60) -> list[str]:
    """The messages that come back."""
    return failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context(left_seconds)))


def row_of(world: World, instance: str) -> NoticeRow:
    row = world.state.notice(instance)
    assert row is not None
    return row


def ended(world: World) -> set[str]:
    return {row.instance_id for row in world.state.notices() if row.ended}


def test_instances_that_end_cost_two_reads_and_a_write_as_they_begin_and_when_they_have(
    world: World, calls: list[str]
) -> None:
    assert receive(world, of("shutting-down", TEN)) == []
    assert calls == [*READ, "save_together"]
    calls.clear()
    assert receive(world, of("terminated", TEN)) == []
    assert calls == [*READ, "save_together"]
    assert ended(world) == set(TEN)
    assert {row.version for row in world.state.notices()} == {1}


def test_new_rows_and_those_that_are_there_are_one_write(world: World, calls: list[str]) -> None:
    receive(world, of("shutting-down", TEN[:4]))
    calls.clear()
    assert receive(world, of("terminated", TEN)) == []
    assert calls == [*READ, "save_together"]
    assert ended(world) == set(TEN)
    assert [row_of(world, instance).version for instance in TEN] == [1] * 4 + [0] * 6


def test_rows_of_which_nothing_is_news_are_not_written(world: World, calls: list[str]) -> None:
    receive(world, of("terminated", TEN))
    calls.clear()
    assert receive(world, of("terminated", TEN)) == []
    assert calls == READ
    assert receive(world, [*of("terminated", TEN[:5]), envelope(SPOT, **{"instance-id": "i-03"})]) == []
    assert {row.instance_id: row.warning for row in world.state.notices() if row.version} == {
        "i-03": "spot_interrupted"
    }


def test_a_single_row_is_written_alone(world: World, calls: list[str]) -> None:
    receive(world, of("shutting-down", TEN[:1]))
    calls.clear()
    assert receive(world, of("terminated", TEN[:1])) == []
    assert calls == ["notices_of", "notice", "save"]
    calls.clear()
    assert receive(world, of("terminated", TEN[1:2])) == []
    assert calls == ["notices_of", "notice", "create"]


def test_what_is_said_after_the_end_was_acted_on_is_not_written(world: World, calls: list[str]) -> None:
    receive(world, of("terminated", TEN[:2]))
    for instance in TEN[:2]:
        world.state.save(msgspec.structs.replace(row_of(world, instance), phase="done", due=0))
    calls.clear()
    assert receive(world, [envelope(REBALANCE, **{"instance-id": instance}) for instance in TEN[:2]]) == []
    assert calls == ["create_together", "notices_of"]


def test_rows_are_read_first_where_one_of_them_is_an_end(world: World, calls: list[str]) -> None:
    bodies = [envelope(SPOT, **{"instance-id": TEN[0]}), *of("shutting-down", TEN[1:2])]
    assert receive(world, bodies) == []
    assert calls == [*READ, "save_together"]
    assert {row.kind for row in world.state.notices()} == {"spot_interrupted", "instance_terminated"}


def test_ends_that_are_read_are_not_written_when_no_time_is_left(world: World, calls: list[str]) -> None:
    assert receive(world, of("terminated", TEN), left_seconds=1) == [f"m{number}" for number in range(10)]
    assert calls == READ
    assert not world.state.notices()


def test_more_rows_than_a_transaction_takes_are_written_alone(world: World, calls: list[str]) -> None:
    """Of a message of AWS Health, which may name any number of instances."""
    entities = [{"entityValue": f"i-{number:03}"} for number in range(ROWS_TOGETHER + 1)]
    assert receive(world, [change(affectedEntities=entities)]) == []
    assert calls == ["create"] * len(entities)
    assert len(world.state.notices()) == len(entities)


def test_what_is_rung_for_is_what_was_written(world: World) -> None:
    """A message that repeats what was acted on is no news beside a lighter one that is."""
    receive(world, [envelope(SPOT, **{"instance-id": instance}) for instance in TEN[:2]])
    for instance in TEN[:2]:
        world.state.save(msgspec.structs.replace(row_of(world, instance), phase="done", due=0))
    world.clock.advance(3600)
    world.doorbells.receive("notices")
    lighter = [
        envelope(REBALANCE, **{"instance-id": instance}) | {"time": "2026-01-05T10:00:00Z"} for instance in TEN[:2]
    ]
    repeated = [envelope(SPOT, **{"instance-id": instance}) for instance in TEN[:2]]
    assert receive(world, [*repeated, *lighter]) == []
    assert {row.kind for row in world.state.notices()} == {"rebalance_recommendation"}
    assert [bell.key for bell in world.doorbells.receive("notices")] == TEN[:2]


def test_rows_that_another_writes_meanwhile_are_written_alone(
    world: World, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    receive(world, of("shutting-down", TEN))
    calls.clear()
    usual = world.state.save_together

    def save_together(rows: Sequence[Row], *, created: Sequence[Row] = ()) -> bool:
        world.state.save(msgspec.structs.replace(row_of(world, "i-07"), claim="looked-at"))
        calls.clear()
        return usual(rows, created=created)

    monkeypatch.setattr(world.state, "save_together", save_together)
    assert receive(world, of("terminated", TEN)) == []
    assert calls == ["notice", "save"] * 10
    assert ended(world) == set(TEN)
    assert [row_of(world, instance).version for instance in TEN] == [1] * 7 + [2] + [1] * 2


@pytest.mark.parametrize("action", ["notices_of", "save_together"])
@pytest.mark.parametrize("error", [Throttled("slow down"), Unavailable("no answer"), Conflict("another", code="C")])
def test_rows_that_cannot_be_read_or_written_together_are_written_alone(
    world: World, action: str, error: ApiError
) -> None:
    receive(world, of("shutting-down", TEN))
    world.effects.inject(Fault("state", action, error, times=2))
    world.effects.inject(Fault("state", "save", Throttled("slow down"), times=1))
    assert receive(world, of("terminated", TEN)) == ["m0"]
    assert ended(world) == set(TEN[1:])


def test_rows_whose_write_has_no_answer_are_found_written(world: World) -> None:
    receive(world, of("shutting-down", TEN))
    world.effects.inject(Fault("state", "save_together", Unavailable("no answer"), after_change=True))
    assert receive(world, of("terminated", TEN)) == []
    assert {(row.ended, row.version) for row in world.state.notices()} == {(True, 1)}


def test_rows_are_not_read_when_no_time_is_left(world: World, calls: list[str]) -> None:
    warnings = [envelope(SPOT, **{"instance-id": instance}) for instance in TEN]
    receive(world, [envelope(REBALANCE, **{"instance-id": instance}) for instance in TEN])
    calls.clear()
    assert receive(world, warnings, left_seconds=1) == [f"m{number}" for number in range(10)]
    assert calls == ["create_together"]
    assert {row.kind for row in world.state.notices()} == {"rebalance_recommendation"}


def test_rows_say_the_same_whether_they_are_written_together_or_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages about three instances in every order, in two batches; the row of one is acted on after each of them."""
    kinds = [(SPOT, {}), (REBALANCE, {}), (STATE, {"state": "shutting-down"}), (STATE, {"state": "terminated"})]

    def rows(order: Sequence[tuple[str, dict[str, str]]], cut: int, phase: str) -> dict[str, Row]:
        world.state.rows.clear()
        for batch in (order[:cut], [*order[cut:], *order[:1]]):
            bodies = [
                envelope(kind, **{"instance-id": instance}, **detail)
                for instance, some in (("i-1", batch), ("i-2", batch[::-1]), ("i-3", batch[1:]))
                for kind, detail in some
            ]
            assert receive(world, bodies) == []
            if (found := world.state.notice("i-1")) is not None and found.phase == "new":
                world.state.save(msgspec.structs.replace(found, phase=phase, claim="n", attempt=1))
        return dict(world.state.rows)

    cases = [(order, cut, phase) for order in permutations(kinds) for cut in (1, 2, 3) for phase in ("new", "done")]
    together = [rows(*case) for case in cases]
    monkeypatch.setattr(world.state, "save_together", lambda rows, created=(): False)
    assert [rows(*case) for case in cases] == together
