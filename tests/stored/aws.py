"""DynamoDB and SQS in memory: what our adapters write there, and what they read of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import boto3
import msgspec
from moto import mock_aws

from forwarder.doorbells import QueuedDoorbell
from forwarder.epoch import Epoch
from forwarder.sender import DoorbellSender, write_heartbeat
from spotwright.adapters.aws.dynamodb.items import Item
from spotwright.adapters.aws.dynamodb.pause import PauseRow
from spotwright.adapters.aws.dynamodb.state import DynamoState
from spotwright.adapters.aws.sqs import SqsDoorbells
from spotwright.simulation import builders
from spotwright.simulation.clock import Clock
from spotwright.simulation.effects import Effects
from spotwright.simulation.state import FakeState
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import Row
from tests.contract import tables

REGION: Final = "ap-northeast-2"
NAME: Final = "table"
# Attributes that adapters take from the process's own clock, by sort key, and what is recorded in their place.
_CLOCK: Final = {"heartbeat": {"expires": {"N": "1767690000"}}, "pause": {"at": {"S": "2026-01-05T09:00:00+00:00"}}}


def write(state: FakeState) -> list[Item]:
    """The items of a table after the adapter wrote this state there, sorted by key."""
    with _table() as table:
        _write_cluster(table, state)
        for row in state.rows.values():
            table.create(row)
        _write_account(table, state)
        _write_catalog_and_breaker(table, state)
        if state.cluster_row.paused:
            PauseRow(_client("dynamodb"), table=NAME, cluster=builders.CLUSTER).pause("recorded")
        if state.heartbeat_at:
            now = state.heartbeat_at / 1000
            write_heartbeat(
                _client("dynamodb"), table=NAME, cluster=builders.CLUSTER, now=now, epoch=Epoch(7), sequence=0
            )
        items: list[Item] = _client("dynamodb").scan(TableName=NAME)["Items"]
    timeless = (item | _CLOCK.get(item["sk"]["S"], {}) for item in items)
    return sorted(timeless, key=lambda item: (item["pk"]["S"], item["sk"]["S"]))


def read(items: Sequence[Item]) -> FakeState:
    """What the adapter reads in a table that holds these items."""
    with hold(items) as table:
        return _read(table, items)


@contextmanager
def hold(items: Sequence[Item]) -> Iterator[DynamoState]:
    """The adapter over a table that holds these items."""
    with _table() as table:
        for item in items:
            _client("dynamodb").put_item(TableName=NAME, Item=item)
        yield table


@contextmanager
def _table() -> Iterator[DynamoState]:
    """The adapter over an empty table, for the cluster of the simulation."""
    with mock_aws():
        tables.create_table(_client("dynamodb"), NAME)
        yield DynamoState(_client("dynamodb"), table=NAME, cluster=builders.CLUSTER)


@cache
def _client(service: str) -> Any:
    """Made once, for that takes long; of use only where AWS is mocked, and everything in AWS is new each time."""
    with mock_aws():
        return boto3.client(
            service,  # type: ignore[call-overload]
            region_name=REGION, aws_access_key_id="memory", aws_secret_access_key="memory",
        )  # fmt: skip


def _write_cluster(table: DynamoState, state: FakeState) -> None:
    """Commit as often as the cluster's version says; the simulation knows the keys of the last decisions only."""
    row = state.cluster_row
    keys = [*row.pending_decisions] if row.pending_decisions else [row.head] if row.head else []
    keys = [*(f"decisions/earlier/{number}" for number in range(row.version - len(keys))), *keys]
    for version, key in enumerate(keys):
        table.commit(expected_version=version, key=key)
        if key not in row.pending_decisions:
            table.mark_acted(key)
    for _ in range(row.planning_requests):
        table.request_planning()
    if row.served_requests:
        table.mark_served(row.served_requests)


def _write_account(table: DynamoState, state: FakeState) -> None:
    """Write each row once for each of its versions, for the adapter takes no version but the next."""
    for health in state.health.values():
        for version in range(health.version):
            table.save_offering_health(msgspec.structs.replace(health, version=version))
    for rate in state.rates.values():
        for version in range(rate.version):
            table.save_call_rate(msgspec.structs.replace(rate, version=version))


def _write_catalog_and_breaker(table: DynamoState, state: FakeState) -> None:
    for version in range(state.stored_breaker.version):
        table.save_breaker(msgspec.structs.replace(state.stored_breaker, version=version))
    if state.current_catalog_key:
        table.set_catalog_key(state.current_catalog_key, state.catalog_time)
    if state.region_read_began:
        table.begin_region_read(state.region_read_began, since=0)


def _read(table: DynamoState, items: Sequence[Item]) -> FakeState:
    state = FakeState(builders.CLUSTER, Effects(Clock()))
    state.cluster_row = table.cluster()
    state.rows = dict(_read_rows(table, items))
    state.health = {health.key: health for health in table.offering_health(0)}
    actions = [item["sk"]["S"] for item in items if item["pk"]["S"] == "rate"]
    state.rates = {action: rate for action in actions if (rate := table.call_rate(action)) is not None}
    state.heartbeat_at, state.stored_breaker = table.heartbeat(), table.breaker()
    state.current_catalog_key, state.catalog_time = table.catalog_key(), table.catalog_stored_at()
    state.region_read_began = next((int(item["began"]["N"]) for item in items if "began" in item), 0)
    return state


def _read_rows(table: DynamoState, items: Sequence[Item]) -> Iterator[tuple[str, Row]]:
    """Sort key → row, of history as well as of rows that wait."""
    readers: Mapping[str, Callable[[str], Row | None]] = {
        "launch": table.launch, "command": table.command, "notice": table.notice, "nomination": table.nomination,
    }  # fmt: skip
    for key in (item["sk"]["S"] for item in items if item["pk"]["S"] == builders.CLUSTER):
        kind, _, name = key.partition("#")
        if kind in readers and (row := readers[kind](name)) is not None:
            yield key, row


def send(bells: Sequence[Doorbell]) -> list[str]:
    """The bodies of the messages by which functions ring these doorbells, in their order."""
    with _queue() as (client, url):
        doorbells, bodies = SqsDoorbells(client, urls={"queue": url}), []
        for bell in bells:
            doorbells.ring("queue", [bell])
            bodies.append(_take(client, url))
    return bodies


def forward(bells: Sequence[QueuedDoorbell]) -> list[str]:
    """The bodies of the messages by which the forwarder rings, in their order."""
    with _queue() as (client, url):
        sender, bodies = DoorbellSender(client, cluster=builders.CLUSTER, urls={bell.queue: url for bell in bells}), []
        for bell in bells:
            sender.send([bell])
            bodies.append(_take(client, url))
    return bodies


@contextmanager
def _queue() -> Iterator[tuple[Any, str]]:
    """A client, and the URL of an empty queue."""
    with mock_aws():
        yield _client("sqs"), _client("sqs").create_queue(QueueName="queue")["QueueUrl"]


def _take(client: Any, url: str) -> str:
    """The body of the only message in a queue."""
    (message,) = client.receive_message(QueueUrl=url)["Messages"]
    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return str(message["Body"])
