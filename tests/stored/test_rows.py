"""Rows in DynamoDB: what was written is read, and what is written of it again are the same items."""

from typing import assert_never

import pytest

from spotwright.adapters.aws.dynamodb.state import DynamoState
from spotwright.simulation import builders
from spotwright.workflows.ports.rows import CommandRow, LaunchRow, NominationRow, NoticeRow, Row
from tests.stored import aws
from tests.stored.recorded import FULL, parse_row, read_rows, read_state, read_stores

# Every phase in which a row waits, and those after which it is history.
PHASES = {
    "launch": {"planned", "claimed", "launched", "done"},
    "command": {"proposed", "planned", "waiting", "done", "aborted"},
    "notice": {"new", "replacing", "done"},
    "nomination": {"promised", "nominated", "done"},
}


@pytest.mark.parametrize("name", read_stores())
def test_every_row_is_read_and_written_as_it_was(name: str) -> None:
    assert [parse_row(row) for row in aws.write(read_state(name))] == [
        parse_row(row) for row in read_stores()[name].rows
    ]


@pytest.mark.parametrize("name", [FULL, "nomination-nominated", "drain-begun", "command-proposed"])
def test_every_row_is_changed_under_the_version_that_it_has(name: str) -> None:
    """If the adapter did not find the version where it was written, each change would count as a lost race."""
    state = read_state(name)
    with aws.hold(read_stores()[name].rows) as table:
        for row in state.rows.values():
            assert save(table, row).version == row.version + 1
        for health in state.health.values():
            table.save_offering_health(health)
        for rate in state.rates.values():
            table.save_call_rate(rate)
        table.save_breaker(state.stored_breaker)
        table.commit(expected_version=state.cluster_row.version, key="decisions/next")
        assert table.cluster().pending_decisions == (*state.cluster_row.pending_decisions, "decisions/next")


def save(table: DynamoState, row: Row) -> Row:
    match row:
        case LaunchRow():
            return table.save(row)
        case CommandRow():
            return table.save(row)
        case NoticeRow():
            return table.save(row)
        case NominationRow():
            return table.save(row)
    assert_never(row)


def test_there_are_rows_in_every_phase() -> None:
    phases: dict[str, set[str]] = {}
    for row in read_rows():
        if "phase" in row:
            phases.setdefault(row["sk"]["S"].partition("#")[0], set()).add(row["phase"]["S"])
    assert phases == PHASES


def test_there_is_a_row_of_every_other_kind() -> None:
    keys = {(row["pk"]["S"], row["sk"]["S"]) for row in read_rows() if "phase" not in row}
    of_cluster = {(builders.CLUSTER, name) for name in ("cluster", "pause", "breaker")}
    of_catalog = {("catalog", builders.CLUSTER), ("catalog", f"{builders.CLUSTER}#reading")}
    assert keys >= of_cluster | of_catalog | {(f"forwarder#{builders.CLUSTER}", "heartbeat")}
    assert {pk for pk, _ in keys} >= {"offering", "rate"}


def test_there_are_notices_of_every_kind() -> None:
    assert {row.kind for row in read_state(FULL).notices()} == {
        "spot_interrupted", "capacity_reservation_interrupted", "rebalance_recommendation", "instance_stopped",
        "instance_terminated", "scheduled_change",
    }  # fmt: skip


def test_a_cluster_that_was_stopped_is_still_stopped() -> None:
    state = read_state(FULL)
    assert state.cluster_row.paused
    assert state.stored_breaker.open_until_ms > 0
