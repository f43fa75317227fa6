"""The state of a cluster in DynamoDB (StatePort).

A table with the key ``pk``/``sk``; ``body`` is the JSON of a row's Struct, ``version`` its optimistic lock. ``due``
(epoch milliseconds) and ``timer`` exist only while a row waits, so that the index ``due`` holds exactly the timers.
Finished rows stay for a day as history (``expires``, epoch seconds).
"""

import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from spotwright.adapters.aws.dynamodb.account_state import AccountState
from spotwright.adapters.aws.dynamodb.items import (
    Item,
    decode_row,
    decode_timer_row,
    encode_row,
    number_attribute,
    text_attribute,
)
from spotwright.adapters.aws.dynamodb.table import Table, translate_table_errors
from spotwright.aws.token_bucket import TokenBucket
from spotwright.disruption.breaker import Breaker
from spotwright.errors import Conflict, Throttled
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.workflows.ports.rows import ClusterRow, CommandRow, LaunchRow, NominationRow, NoticeRow, Row

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient

# Pauses before keys that a batch left unprocessed are requested again, at most.
_BATCH_PAUSES_SECONDS: Final = (0.05, 0.1, 0.2)


class DynamoState:
    """See StatePort. ``memory_table``: see ``account_state``; "" = the cell's own table."""

    def __init__(self, client: "DynamoDBClient", *, table: str, cluster: str, memory_table: str = "") -> None:
        self._client, self._table, self._cluster = client, Table(client, table), cluster
        self._account = AccountState(self._table, Table(client, memory_table) if memory_table else None)

    def cluster(self) -> ClusterRow:
        rows = self._get_rows("cluster", "pause")
        item, paused = rows.get("cluster", {}), "pause" in rows
        return ClusterRow(
            cluster=self._cluster,
            version=number_attribute(item, "version"),
            head=text_attribute(item, "head"),
            pending_decisions=_unacted(item),
            planning_requests=number_attribute(item, "requested"),
            served_requests=number_attribute(item, "served"),
            paused=paused,
        )

    def request_planning(self) -> int:
        answer = self._update("ADD requested :one", {":one": {"N": "1"}}, returns="UPDATED_NEW")
        return int(answer["Attributes"]["requested"]["N"])

    def mark_served(self, requested: int) -> None:
        try:
            self._update(
                "SET served = :n",
                {":n": {"N": str(requested)}},
                condition="attribute_not_exists(served) OR served < :n",
            )
        except Conflict:
            return

    def commit(self, *, expected_version: int, key: str) -> None:
        first = "attribute_not_exists(version) OR version = :v" if expected_version == 0 else "version = :v"
        self._update(
            "SET version = :w, head = :h, unacted = list_append(if_not_exists(unacted, :none), :d)",
            {
                ":v": {"N": str(expected_version)},
                ":w": {"N": str(expected_version + 1)},
                ":h": {"S": key},
                ":none": {"L": []},
                ":d": {"L": [{"S": key}]},
            },
            condition=first,
        )

    def mark_acted(self, key: str) -> None:
        # Decisions are acted on in their order, so that position 0 is tried before the row is read.
        position: int | None = 0
        for _ in range(5):
            if position is None:
                return
            try:
                self._update(
                    f"REMOVE unacted[{position}]",
                    {":d": {"S": key}},
                    condition=f"unacted[{position}] = :d",
                )
            except Conflict:
                unacted = _unacted(self._table.get(self._cluster, "cluster") or {})
                position = next((n for n, decision in enumerate(unacted) if decision == key), None)
                continue
            return
        raise Conflict(f"cluster row of {self._cluster}: too many writers at once", code="ConditionalCheckFailed")

    def create(self, row: Row) -> bool:
        try:
            self._put(row, "attribute_not_exists(pk)", {})
        except Conflict:
            return False
        return True

    def save[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](self, row: R) -> R:
        after = msgspec.structs.replace(row, version=row.version + 1)
        self._put(after, "version = :v", {":v": {"N": str(row.version)}})
        return after

    def launch(self, id: str) -> LaunchRow | None:
        return self._row(f"launch#{id}", LaunchRow)

    def launches(self) -> tuple[LaunchRow, ...]:
        return tuple(self._open("launch#", LaunchRow))

    def command(self, id: str) -> CommandRow | None:
        return self._row(f"command#{id}", CommandRow)

    def commands(self) -> tuple[CommandRow, ...]:
        return tuple(self._open("command#", CommandRow))

    def notice(self, instance_id: str) -> NoticeRow | None:
        return self._row(f"notice#{instance_id}", NoticeRow)

    def notices(self) -> tuple[NoticeRow, ...]:
        return tuple(self._open("notice#", NoticeRow))

    def nomination(self, claim: str) -> NominationRow | None:
        return self._row(f"nomination#{claim}", NominationRow)

    def nominations(self) -> tuple[NominationRow, ...]:
        return tuple(self._open("nomination#", NominationRow))

    def due_rows(self, before: int) -> tuple[Row, ...]:
        items = self._table.query(
            IndexName="due",
            KeyConditionExpression="timer = :c AND due <= :t",
            ExpressionAttributeValues={":c": {"S": self._cluster}, ":t": {"N": str(before)}},
        )
        return tuple(decode_timer_row(item) for item in items)

    def offering_health(self, now: int) -> tuple[OfferingHealth, ...]:
        return self._account.offering_health(now)

    def save_offering_health(self, health: OfferingHealth) -> None:
        self._account.save_offering_health(health)

    def call_rate(self, action: str) -> TokenBucket | None:
        return self._account.call_rate(action)

    def save_call_rate(self, rate: TokenBucket) -> None:
        self._account.save_call_rate(rate)

    def heartbeat(self) -> int:
        item = self._table.get(f"forwarder#{self._cluster}", "heartbeat")
        return 0 if item is None else number_attribute(item, "at")

    def breaker(self) -> Breaker:
        item = self._table.get(self._cluster, "breaker")
        return Breaker() if item is None else msgspec.json.decode(item["body"]["S"], type=Breaker)

    def save_breaker(self, breaker: Breaker) -> None:
        after = msgspec.structs.replace(breaker, version=breaker.version + 1)
        request: dict[str, Any] = {
            "TableName": self._table.name,
            "Item": {
                "pk": {"S": self._cluster}, "sk": {"S": "breaker"}, "schema": {"N": str(after.schema)},
                "version": {"N": str(after.version)}, "body": {"S": msgspec.json.encode(after).decode()},
            },
            "ConditionExpression": "attribute_not_exists(pk)",
        }  # fmt: skip
        if breaker.version:
            request |= {
                "ConditionExpression": "version = :v",
                "ExpressionAttributeValues": {":v": {"N": str(breaker.version)}},
            }
        with translate_table_errors(f"PutItem {self._cluster} breaker"):
            self._client.put_item(**request)

    def catalog_key(self) -> str:
        item = self._table.get("catalog", self._cluster)
        return "" if item is None else text_attribute(item, "key")

    def set_catalog_key(self, key: str, at: int) -> None:
        item: Item = {
            "pk": {"S": "catalog"}, "sk": {"S": self._cluster}, "schema": {"N": "1"},
            "key": {"S": key}, "at": {"N": str(at)},
        }  # fmt: skip
        with translate_table_errors("PutItem catalog"):
            self._client.put_item(TableName=self._table.name, Item=item)

    def catalog_stored_at(self) -> int:
        item = self._table.get("catalog", self._cluster)
        return 0 if item is None else number_attribute(item, "at")

    def begin_region_read(self, now: int, *, since: int) -> bool:
        try:
            self._put_reading(
                now,
                ConditionExpression="attribute_not_exists(began) OR began <= :s",
                ExpressionAttributeValues={":s": {"N": str(since)}},
            )
        except Conflict:
            return False
        return True

    def end_region_read(self) -> None:
        self._put_reading(0)

    def _put_reading(self, began: int, **condition: Any) -> None:
        key = {"pk": {"S": "catalog"}, "sk": {"S": f"{self._cluster}#reading"}}
        item: Item = key | {"schema": {"N": "1"}, "began": {"N": str(began)}}
        with translate_table_errors("PutItem catalog reading"):
            self._client.put_item(TableName=self._table.name, Item=item, **condition)

    def _row[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](self, sort: str, kind: type[R]) -> R | None:
        item = self._table.get(self._cluster, sort)
        return None if item is None else decode_row(item, kind)

    def _open[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](self, prefix: str, kind: type[R]) -> Iterator[R]:
        """Rows that are not finished, ordered by id."""
        items = self._table.query(
            ConsistentRead=True,
            KeyConditionExpression="pk = :p AND begins_with(sk, :s)",
            FilterExpression="attribute_not_exists(expires)",
            ExpressionAttributeValues={":p": {"S": self._cluster}, ":s": {"S": prefix}},
        )
        return (decode_row(item, kind) for item in items)

    def _get_rows(self, *sorts: str) -> dict[str, Item]:
        """Rows of this cluster by sort key, in a single call; missing rows are left out."""
        keys: Any = [{"pk": {"S": self._cluster}, "sk": {"S": sort}} for sort in sorts]
        rows: dict[str, Item] = {}
        for pause_seconds in (*_BATCH_PAUSES_SECONDS, None):
            with translate_table_errors(f"BatchGetItem {self._cluster} {' '.join(sorts)}"):
                request: Any = {self._table.name: {"Keys": keys, "ConsistentRead": True}}
                answer = self._client.batch_get_item(RequestItems=request)
            rows |= {item["sk"]["S"]: item for item in answer["Responses"].get(self._table.name, ())}
            unprocessed = answer.get("UnprocessedKeys", {}).get(self._table.name)
            if not unprocessed:
                return rows
            keys = unprocessed["Keys"]
            if pause_seconds is not None:
                time.sleep(random.uniform(0, pause_seconds))
        raise Throttled(f"BatchGetItem {self._cluster}: keys were left over every time", code="UnprocessedKeys")

    def _update(self, expression: str, values: Item, *, condition: str = "", returns: str = "NONE") -> Any:
        """Update this cluster's row; Conflict when ``condition`` does not hold."""
        request: dict[str, Any] = {
            "TableName": self._table.name,
            "Key": {"pk": {"S": self._cluster}, "sk": {"S": "cluster"}},
            "UpdateExpression": expression,
            "ExpressionAttributeValues": values,
            "ReturnValues": returns,
        }
        if condition:
            request["ConditionExpression"] = condition
        with translate_table_errors(f"UpdateItem {self._cluster} cluster"):
            return self._client.update_item(**request)

    def _put(self, row: Row, condition: str, values: Item) -> None:
        request: dict[str, Any] = {
            "TableName": self._table.name, "Item": encode_row(row, self._cluster), "ConditionExpression": condition,
        }  # fmt: skip
        if values:
            request["ExpressionAttributeValues"] = values
        with translate_table_errors(f"PutItem {request['Item']['sk']['S']}"):
            self._client.put_item(**request)


def _unacted(item: Item) -> tuple[str, ...]:
    return tuple(decision["S"] for decision in item.get("unacted", {}).get("L", ()))
