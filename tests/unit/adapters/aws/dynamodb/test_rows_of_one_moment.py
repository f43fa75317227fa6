"""Rows that the steps of an invocation ask for side by side are read by few calls."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any, cast

import msgspec
from botocore.exceptions import ClientError

from spotwright.adapters.aws.dynamodb.items import Item, encode_row
from spotwright.adapters.aws.dynamodb.state import DynamoState
from spotwright.errors import Throttled
from spotwright.workflows.ports.rows import CommandRow, NominationRow, NoticeRow, Row, sort_key

CLUSTER = "a"


def nomination(claim: str, due: int = 1) -> NominationRow:
    return NominationRow(claim, CLUSTER, {"default/p": "u"}, due=due)


class Client:
    """DynamoDB with some rows. The first call waits for ``open``; ``refusal``: with what calls of several are refused.
    ``calls``: the sort keys of each."""

    def __init__(self, *rows: Row, refusal: str = "") -> None:
        self.items: dict[str, Item] = {sort_key(row): encode_row(row, CLUSTER) for row in rows}
        self.calls: list[list[str]] = []
        self.open = Event()
        self._refusal = refusal

    def get_item(self, *, Key: Mapping[str, Any], **request: Any) -> dict[str, Any]:
        found = self._read([Key], request)
        return {"Item": found[0]} if found else {}

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:
        ((table, request),) = RequestItems.items()
        if self._refusal:
            raise ClientError({"Error": {"Code": self._refusal, "Message": ""}}, "BatchGetItem")
        return {"Responses": {table: self._read(request["Keys"], request)}}

    def _read(self, keys: list[Mapping[str, Any]], request: Mapping[str, Any]) -> list[Item]:
        assert request["ConsistentRead"] is True
        assert {key["pk"]["S"] for key in keys} == {CLUSTER}
        sorts = [key["sk"]["S"] for key in keys]
        self.calls.append(sorts)
        if len(self.calls) == 1:
            assert self.open.wait(10)
        return [self.items[sort] for sort in sorts if sort in self.items]


def read_beside_another(client: Client, *reads: Callable[[DynamoState], Row | None]) -> list[Future[Row | None]]:
    """The answers to reads that are asked for, in this order, while another is under way."""
    state = DynamoState(cast("Any", client), table="t", cluster=CLUSTER)
    with ThreadPoolExecutor(len(reads) + 1) as threads:
        threads.submit(state.launch, "first")
        while not client.calls:
            time.sleep(0.01)
        asked = list[Future[Row | None]]()
        for read in reads:
            asked.append(threads.submit(read, state))
            time.sleep(0.02)
        client.open.set()
    return asked


def of_claim(claim: str) -> Callable[[DynamoState], Row | None]:
    return lambda state: state.nomination(claim)


def test_rows_that_are_asked_for_at_the_same_moment_are_read_by_one_call() -> None:
    claims = [f"claim-{number}" for number in range(9)]
    client = Client(*map(nomination, claims))
    found = read_beside_another(client, *map(of_claim, [*claims, "none"]))
    assert [row.result() for row in found] == [*map(nomination, claims), None]
    assert client.calls == [["launch#first"], [f"nomination#{claim}" for claim in [*claims, "none"]]]


def test_rows_of_several_kinds_and_the_same_row_are_one_call() -> None:
    rows = (
        nomination("x"),
        CommandRow("x", CLUSTER, decision="d", reason="Drifted", candidates=("c",)),
        NoticeRow("x", CLUSTER, kind="spot_interrupted"),
    )
    client = Client(*rows)
    found = read_beside_another(
        client,
        of_claim("x"),
        lambda state: state.command("x"),
        lambda state: state.notice("x"),
        of_claim("x"),
    )
    assert [row.result() for row in found] == [*rows, rows[0]]
    assert client.calls[1:] == [["nomination#x", "command#x", "notice#x"]]


def test_a_row_that_was_written_after_a_read_began_is_read_as_it_was_written() -> None:
    client = Client(nomination("x", due=1))

    def write_and_read(state: DynamoState) -> Row | None:
        client.items["nomination#x"] = encode_row(nomination("x", due=2), CLUSTER)
        return state.nomination("x")

    (found,) = read_beside_another(client, write_and_read)
    assert found.result() == nomination("x", due=2)


def test_a_row_that_cannot_be_read_does_not_keep_the_others() -> None:
    client = Client(nomination("x"), nomination("y"))
    client.items["nomination#x"]["body"] = {"S": "no row"}
    found = read_beside_another(client, of_claim("x"), of_claim("y"))
    assert isinstance(found[0].exception(), msgspec.DecodeError)
    assert found[1].result() == nomination("y")


def test_a_call_that_fails_is_the_failure_of_all_who_wait_for_it() -> None:
    client = Client(nomination("x"), nomination("y"), refusal="ThrottlingException")
    found = read_beside_another(client, of_claim("x"), of_claim("y"))
    assert [type(row.exception()) for row in found] == [Throttled, Throttled]


def test_more_rows_than_a_call_may_ask_for_are_several() -> None:
    claims = [f"claim-{number:03}" for number in range(101)]
    client = Client(*map(nomination, claims))
    state = DynamoState(cast("Any", client), table="t", cluster=CLUSTER)
    with ThreadPoolExecutor(102) as threads:
        threads.submit(state.launch, "first")
        while not client.calls:
            time.sleep(0.01)
        found = [threads.submit(state.nomination, claim) for claim in claims]
        time.sleep(0.5)
        client.open.set()
    assert [row.result() for row in found] == [*map(nomination, claims)]
    assert [len(sorts) for sorts in client.calls] == [1, 100, 1]
