"""The bill of an hour: what calls and invocations cost by list price."""

from typing import Any

import pytest

from bench.hours.spending import PER_LOG_BYTE, PER_READ_UNIT, PER_SQS_REQUEST, PER_WRITE_UNIT, Item, bill
from bench.memory_price import invocation

REPORT = (
    "REPORT RequestId: 1\tDuration: 100.20 ms\tMemory Size: 512 MB\tMax Memory Used: 52 MB\tProcessor Time: 4.68 ms\n"
)


def call(service: str, action: str, status: int = 200, **request: Any) -> dict[str, Any]:
    return {"service": service, "action": action, "status": status, "request": request}


def billed(*calls: dict[str, Any], logs: tuple[str, ...] = (), queues: int = 0) -> dict[str, Item]:
    return {item.what: item for item in bill(calls, logs, queues=queues, minutes=2)}


def test_nothing_done_costs_the_polls_of_the_queues() -> None:
    items = billed(queues=7)
    assert items.pop("SQS: requests") == Item("SQS: requests", 7 * 15 * 2, 210 * PER_SQS_REQUEST)
    assert all((item.count, item.dollars) == (0, 0.0) for item in items.values())


def test_a_message_is_sent_received_and_deleted() -> None:
    batch = call("sqs", "SendMessageBatch", Entries=[{"Id": "0"}, {"Id": "1"}])
    assert billed(batch)["SQS: requests"].count == 1 + 2 * 2
    assert billed(call("sqs", "SendMessage", MessageBody="{}"))["SQS: requests"].count == 1 + 2


def test_reads_count_their_keys() -> None:
    batch = call("dynamodb", "BatchGetItem", RequestItems={"t": {"Keys": [{}, {}, {}]}})
    items = billed(batch, call("dynamodb", "GetItem"), call("dynamodb", "Query"))
    assert items["DynamoDB: read units"] == Item("DynamoDB: read units", 5, 5 * PER_READ_UNIT)


def test_writes_count_their_size_also_where_a_condition_refuses_them_and_transactions_twice() -> None:
    large = call("dynamodb", "PutItem", status=400, Item={"body": {"S": "x" * 2_000}})
    transaction = call("dynamodb", "TransactWriteItems", TransactItems=[{"Put": {}}, {"Update": {}}])
    items = billed(large, transaction, call("dynamodb", "UpdateItem", status=500))
    assert items["DynamoDB: write units"] == Item("DynamoDB: write units", 2 + 4, 6 * PER_WRITE_UNIT)


def test_invocations_cost_what_they_report_and_logs_their_bytes() -> None:
    items = billed(logs=(REPORT + "{}\n" + REPORT, REPORT))
    assert items["Lambda: invocations"].count == 3
    assert items["Lambda: invocations"].dollars == pytest.approx(3 * invocation(100.2, 512))
    assert items["CloudWatch Logs: bytes"].dollars == pytest.approx((3 * len(REPORT) + 3) * PER_LOG_BYTE)
