"""Rows that DynamoDB leaves out of a batch, as when it throttles, are asked for again, and never taken for missing."""

from typing import Any, cast

import pytest

from spotwright.adapters.aws.dynamodb import table
from spotwright.adapters.aws.dynamodb.items import encode_row
from spotwright.adapters.aws.dynamodb.state import DynamoState
from spotwright.errors import Throttled
from spotwright.workflows.ports.rows import NoticeRow

INSTANCES = [f"i-{number}" for number in range(6)]


class Client:
    """DynamoDB with a notice of each instance, of which it reads so many in a call."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self.asked: list[int] = []

    def batch_get_item(self, RequestItems: dict[str, Any]) -> dict[str, Any]:
        asked = RequestItems["table"]
        assert asked["ConsistentRead"]
        keys = asked["Keys"]
        self.asked.append(len(keys))
        rows = [
            encode_row(NoticeRow(key["sk"]["S"].removeprefix("notice#"), "blue", "spot_interrupted"), "blue")
            for key in keys[: self._at_once]
        ]
        left = keys[self._at_once :]
        return {
            "Responses": {"table": rows},
            "UnprocessedKeys": {"table": {"Keys": left, "ConsistentRead": True}} if left else {},
        }


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_BATCH_PAUSES_SECONDS", (0.0, 0.0, 0.0))


def notices(client: Client) -> list[str]:
    state = DynamoState(cast("Any", client), table="table", cluster="blue")
    return [row.instance_id for row in state.notices_of(INSTANCES)]


def test_rows_that_were_left_out_are_asked_for_again() -> None:
    client = Client(at_once=2)
    assert notices(client) == INSTANCES
    assert client.asked == [6, 4, 2]


def test_rows_that_are_left_out_every_time_are_an_error() -> None:
    client = Client(at_once=1)
    with pytest.raises(Throttled, match="left over"):
        notices(client)
    assert client.asked == [6, 5, 4, 3]
