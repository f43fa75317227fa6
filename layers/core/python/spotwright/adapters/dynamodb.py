"""The state of one cluster in DynamoDB (StatePort).

One table, key ``pk``/``sk``; a row's value is the JSON of its Struct in ``body``, its optimistic lock in ``version``.
``due`` (epoch milliseconds) and ``timer`` exist only while a row waits, so the index ``due`` holds exactly the timers.
Rows that are finished keep for a day as history (``expires``, epoch seconds).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from spotwright.adapters import aws_failures
from spotwright.aws.health import MEMORY_SECONDS
from spotwright.aws.rate import CallRate
from spotwright.failures import Conflict, NotFound, Unavailable
from spotwright.workflows.ports import (
    Breaker,
    ClusterRow,
    CommandRow,
    LaunchRow,
    NominationRow,
    NoticeRow,
    OfferingHealth,
    Row,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient

HISTORY_SECONDS: Final = 24 * 3600
FINAL_PHASES: Final = frozenset({"done", "failed", "aborted"})

type Item = dict[str, Any]

_TYPES: Final[Mapping[str, type[Row]]] = {
    "launch": LaunchRow,
    "command": CommandRow,
    "notice": NoticeRow,
    "nomination": NominationRow,
}


class DynamoState:
    """See StatePort for what each method promises."""

    def __init__(self, client: "DynamoDBClient", *, table: str, cluster: str) -> None:
        self._client, self._table, self._cluster = client, table, cluster

    def cluster(self) -> ClusterRow:
        item = self._get(self._cluster, "cluster")
        pause = self._get(self._cluster, "pause")
        if item is None:
            return ClusterRow(self._cluster, paused=pause is not None)
        return ClusterRow(
            cluster=self._cluster,
            version=_number(item, "version"),
            head=_text(item, "head"),
            unacted=tuple(one["S"] for one in item.get("unacted", {}).get("L", ())),
            requested=_number(item, "requested"),
            served=_number(item, "served"),
            paused=pause is not None,
        )

    def request(self) -> int:
        answer = self._update("ADD requested :one", {":one": {"N": "1"}}, returns="UPDATED_NEW")
        return int(answer["Attributes"]["requested"]["N"])

    def served(self, requested: int) -> None:
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

    def acted(self, key: str) -> None:
        for _ in range(4):
            unacted = self.cluster().unacted
            position = next((n for n, one in enumerate(unacted) if one == key), None)
            if position is None:
                return
            try:
                self._update(
                    f"REMOVE unacted[{position}]",
                    {":d": {"S": key}},
                    condition=f"unacted[{position}] = :d",
                )
            except Conflict:
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

    def due(self, before: int) -> tuple[Row, ...]:
        items = self._query(
            IndexName="due",
            KeyConditionExpression="timer = :c AND due <= :t",
            ExpressionAttributeValues={":c": {"S": self._cluster}, ":t": {"N": str(before)}},
        )
        return tuple(_waiting(item) for item in items)

    def offering_health(self, now: int) -> tuple[OfferingHealth, ...]:
        items = self._query(
            ConsistentRead=True,
            KeyConditionExpression="pk = :p",
            FilterExpression="expires > :t",
            ExpressionAttributeValues={":p": {"S": "offering"}, ":t": {"N": str(now // 1000)}},
        )
        return tuple(msgspec.json.decode(item["body"]["S"], type=OfferingHealth) for item in items)

    def mark_offering(self, health: OfferingHealth) -> None:
        after = msgspec.structs.replace(health, version=health.version + 1)
        item: Item = {
            "pk": {"S": "offering"},
            "sk": {"S": health.key},
            "schema": {"N": "1"},
            "version": {"N": str(after.version)},
            "body": {"S": msgspec.json.encode(after).decode()},
            "expires": {"N": str(max(after.until, after.at) // 1000 + MEMORY_SECONDS)},
        }
        self._put_versioned(item, health.version)

    def _put_versioned(self, item: Item, before: int) -> None:
        """Put over a row of that version; 0 also where there is no row, or one whose time is over."""
        first = "attribute_not_exists(version) OR " if before == 0 else ""
        with translated(f"PutItem {item['pk']['S']} {item['sk']['S']}"):
            self._client.put_item(
                TableName=self._table,
                Item=item,
                ConditionExpression=f"{first}version = :v",
                ExpressionAttributeValues={":v": {"N": str(before)}},
            )

    def call_rate(self, action: str) -> CallRate | None:
        item = self._get("rate", action)
        return None if item is None else msgspec.json.decode(item["body"]["S"], type=CallRate)

    def save_call_rate(self, rate: CallRate) -> None:
        after = msgspec.structs.replace(rate, version=rate.version + 1)
        item: Item = {
            "pk": {"S": "rate"},
            "sk": {"S": rate.action},
            "schema": {"N": "1"},
            "version": {"N": str(after.version)},
            "body": {"S": msgspec.json.encode(after).decode()},
            "expires": {"N": str(rate.at // 1000 + HISTORY_SECONDS)},
        }
        self._put_versioned(item, rate.version)

    def heartbeat(self) -> int:
        item = self._get(f"forwarder#{self._cluster}", "heartbeat")
        return 0 if item is None else _number(item, "at")

    def breaker(self) -> Breaker:
        item = self._get(self._cluster, "breaker")
        return Breaker() if item is None else msgspec.json.decode(item["body"]["S"], type=Breaker)

    def save_breaker(self, breaker: Breaker) -> None:
        after = msgspec.structs.replace(breaker, version=breaker.version + 1)
        request: dict[str, Any] = {
            "TableName": self._table,
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
        with translated(f"PutItem {self._cluster} breaker"):
            self._client.put_item(**request)

    def catalog_key(self) -> str:
        item = self._get("catalog", self._cluster)
        return "" if item is None else _text(item, "key")

    def set_catalog_key(self, key: str, at: int) -> None:
        item: Item = {
            "pk": {"S": "catalog"}, "sk": {"S": self._cluster}, "schema": {"N": "1"},
            "key": {"S": key}, "at": {"N": str(at)},
        }  # fmt: skip
        with translated("PutItem catalog"):
            self._client.put_item(TableName=self._table, Item=item)

    def _row[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](self, sort: str, kind: type[R]) -> R | None:
        item = self._get(self._cluster, sort)
        return None if item is None else _decoded(item, kind)

    def _open[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](self, prefix: str, kind: type[R]) -> Iterator[R]:
        """Rows that are not finished, ordered by id."""
        items = self._query(
            ConsistentRead=True,
            KeyConditionExpression="pk = :p AND begins_with(sk, :s)",
            FilterExpression="attribute_not_exists(expires)",
            ExpressionAttributeValues={":p": {"S": self._cluster}, ":s": {"S": prefix}},
        )
        return (_decoded(item, kind) for item in items)

    def _get(self, pk: str, sk: str) -> Item | None:
        with translated(f"GetItem {pk} {sk}"):
            answer = self._client.get_item(
                TableName=self._table, Key={"pk": {"S": pk}, "sk": {"S": sk}}, ConsistentRead=True
            )
        return answer.get("Item")

    def _query(self, **query: Any) -> Iterator[Item]:
        while True:
            with translated("Query"):
                page = self._client.query(TableName=self._table, **query)
            yield from page["Items"]
            if not page.get("LastEvaluatedKey"):
                return
            query["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _update(self, expression: str, values: Item, *, condition: str = "", returns: str = "NONE") -> Any:
        """Update this cluster's row; Conflict when ``condition`` does not hold."""
        request: dict[str, Any] = {
            "TableName": self._table,
            "Key": {"pk": {"S": self._cluster}, "sk": {"S": "cluster"}},
            "UpdateExpression": expression,
            "ExpressionAttributeValues": values,
            "ReturnValues": returns,
        }
        if condition:
            request["ConditionExpression"] = condition
        with translated(f"UpdateItem {self._cluster} cluster"):
            return self._client.update_item(**request)

    def _put(self, row: Row, condition: str, values: Item) -> None:
        request: dict[str, Any] = {
            "TableName": self._table, "Item": _item(row, self._cluster), "ConditionExpression": condition,
        }  # fmt: skip
        if values:
            request["ExpressionAttributeValues"] = values
        with translated(f"PutItem {request['Item']['sk']['S']}"):
            self._client.put_item(**request)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """As everywhere; but what DynamoDB does not find is the table, which says nothing about a row."""
    try:
        with aws_failures.translated(what):
            yield
    except NotFound as missing:
        raise Unavailable(str(missing), code=missing.code) from missing


def _item(row: Row, cluster: str) -> Item:
    item: Item = {
        "pk": {"S": cluster},
        "sk": {"S": sort_key(row)},
        "schema": {"N": str(row.schema)},
        "version": {"N": str(row.version)},
        "phase": {"S": row.phase},
        "body": {"S": msgspec.json.encode(row, order="deterministic").decode()},
    }
    if row.due:
        item |= {"due": {"N": str(row.due)}, "timer": {"S": cluster}}
    if row.phase in FINAL_PHASES:
        item["expires"] = {"N": str(row.created // 1000 + HISTORY_SECONDS)}
    return item


def sort_key(row: Row) -> str:
    match row:
        case LaunchRow():
            return f"launch#{row.id}"
        case CommandRow():
            return f"command#{row.id}"
        case NoticeRow():
            return f"notice#{row.instance_id}"
        case NominationRow():
            return f"nomination#{row.claim}"


def _decoded[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](item: Item, kind: type[R]) -> R:
    return msgspec.json.decode(item["body"]["S"], type=kind)


def _waiting(item: Item) -> Row:
    kind: type[Row] = _TYPES[item["sk"]["S"].partition("#")[0]]
    return msgspec.json.decode(item["body"]["S"], type=kind)


def _number(item: Item, name: str) -> int:
    return int(item.get(name, {}).get("N", "0"))


def _text(item: Item, name: str) -> str:
    return str(item.get(name, {}).get("S", ""))
