"""Rows are written a hundred at a time, and alone where that is refused."""

from collections.abc import Sequence

from spotwright.workflows.ports.rows import NoticeRow
from spotwright.workflows.ports.state import ROWS_TOGETHER
from spotwright.workflows.rows_together import write_rows


def rows(number: int) -> list[NoticeRow]:
    return [NoticeRow(f"i-{index:03}", "blue", "spot_interrupted") for index in range(number)]


def test_each_row_is_written_once_and_alone_only_where_its_batch_was_refused() -> None:
    batches: list[int] = []
    alone: list[str] = []

    def together(batch: Sequence[NoticeRow]) -> bool:
        batches.append(len(batch))
        return "i-150" not in {row.instance_id for row in batch}

    write_rows(together, lambda row: alone.append(row.instance_id), rows(2 * ROWS_TOGETHER + 30))
    assert sorted(batches) == [30, ROWS_TOGETHER, ROWS_TOGETHER]
    assert sorted(alone) == [row.instance_id for row in rows(2 * ROWS_TOGETHER)[ROWS_TOGETHER:]]


def test_a_single_row_is_no_transaction_which_would_cost_twice_as_much() -> None:
    alone: list[str] = []

    def together(batch: Sequence[NoticeRow]) -> bool:
        raise AssertionError(f"{len(batch)} rows are written by a transaction")

    write_rows(together, lambda row: alone.append(row.instance_id), rows(1))
    assert alone == ["i-000"]


def test_no_rows_are_no_writes() -> None:
    write_rows(lambda _: True, lambda _: None, [])
