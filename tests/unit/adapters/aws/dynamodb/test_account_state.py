"""Another deployment's table that is of no use is said once, then left alone."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from spotwright.adapters.aws.dynamodb.account_state import AccountState
from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.aws.token_bucket import TokenBucket
from spotwright.errors import ApiError, Conflict, Unavailable
from spotwright.telemetry import log_lines


class Client:
    """DynamoDB without the table ``gone``."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_item(self, **request: Any) -> dict[str, Any]:
        self.asked.append(request["TableName"])
        if request["TableName"] == "gone":
            raise ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": "no such table"}}, "GetItem")
        return {}


def test_a_shared_table_that_is_gone_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    state = AccountState(Table(cast("Any", client), "own"), Table(cast("Any", client), "gone"))
    assert state.call_rate("CreateFleet") is None
    assert state.call_rate("CreateFleet") is None
    assert client.asked == ["gone", "own", "own"]
    (line,) = caplog.records
    assert line.message == log_lines.MEMORY_TABLE_UNUSABLE.message
    assert vars(line)["table"] == "gone"


def test_threads_that_find_it_gone_at_the_same_time_use_the_own_one() -> None:
    together = Barrier(2, timeout=60)

    class Waiting(Client):
        def get_item(self, **request: Any) -> dict[str, Any]:
            if request["TableName"] == "gone":
                together.wait()
            return super().get_item(**request)

    client = Waiting()
    state = AccountState(Table(cast("Any", client), "own"), Table(cast("Any", client), "gone"))
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(state.call_rate, "CreateFleet") for _ in range(2)]
        assert [call.result(60) for call in calls] == [None, None]
    assert sorted(client.asked) == ["gone", "gone", "own", "own"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("TransactionCanceledException", Conflict),
        ("TransactionConflictException", Conflict),
        ("ConditionalCheckFailedException", Conflict),
        ("TransactionInProgressException", Unavailable),
    ],
)
def test_rates_that_meet_another_write_are_a_conflict_and_their_own_write_may_have_been_made(
    code: str, error: type[ApiError]
) -> None:
    """DynamoDB refuses a transaction for a row that changed, and for one that another transaction is writing; and one
    that is repeated while it is written.
    """

    class Refusing(Client):
        def transact_write_items(self, **request: Any) -> dict[str, Any]:
            self.asked += [step["Put"]["TableName"] for step in request["TransactItems"]]
            raise ClientError({"Error": {"Code": code, "Message": "[None, TransactionConflict]"}}, "TransactWriteItems")

    client = Refusing()
    state = AccountState(Table(cast("Any", client), "own"), Table(cast("Any", client), "shared"))
    with pytest.raises(error):
        state.save_call_rates([TokenBucket(action, 1, 1, updated_at_ms=1) for action in ("A", "B")])
    assert client.asked == ["shared", "shared"]


def test_rates_go_to_the_own_table_when_the_shared_one_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    class Writing(Client):
        def transact_write_items(self, **request: Any) -> dict[str, Any]:
            tables = [step["Put"]["TableName"] for step in request["TransactItems"]]
            self.asked += tables
            if "gone" in tables:
                raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": ""}}, "TransactWriteItems")
            return {}

    client = Writing()
    state = AccountState(Table(cast("Any", client), "own"), Table(cast("Any", client), "gone"))
    state.save_call_rates([TokenBucket(action, 1, 1, updated_at_ms=1) for action in ("A", "B")])
    assert client.asked == ["gone", "gone", "own", "own"]
    assert caplog.messages == [log_lines.MEMORY_TABLE_UNUSABLE.message]
