"""Indexes of DynamoDB's tables: what was written a moment ago is not in them yet.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.html#GSI.Writes
"""

from collections.abc import Iterator, Mapping
from typing import Any

from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.dynamo_type import Item
from moto.dynamodb.models.table import Table

from local.aws.calls.request import AwsRequest, AwsResponse
from local.aws.emulator import Emulator
from local.aws.storage import large_tables
from local.aws.strictness import Rule, Strictness


def add(emulator: Emulator) -> None:
    emulator.react_after(lambda request, response: _note(emulator, request, response))
    Table.query = _lagging(emulator.strictness)  # type: ignore[method-assign]


def _note(emulator: Emulator, request: AwsRequest, response: AwsResponse) -> None:
    if request.service != "dynamodb" or response.status >= 400:
        return
    for table_name, item in _written(request):
        table = dynamodb_backends[emulator.account][emulator.region].tables.get(table_name.rpartition("/")[2])
        if table is not None and table.global_indexes:
            names = (table.hash_key_attr, table.range_key_attr)
            values = [next(iter(item[name].values())) for name in names if name and name in item]
            emulator.strictness.note(Rule.INDEX_PROPAGATION, _about(table, values))


def _written(request: AwsRequest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Table and item (or key) of each write of a call."""
    params = request.params
    match request.action:
        case "PutItem" | "UpdateItem":
            yield params["TableName"], params.get("Item") or params["Key"]
        case "TransactWriteItems":
            for step in params["TransactItems"]:
                for write in (step.get("Put"), step.get("Update")):
                    if write:
                        yield write["TableName"], write.get("Item") or write["Key"]
        case "BatchWriteItem":
            for name, writes in params["RequestItems"].items():
                for write in writes:
                    if "PutRequest" in write:
                        yield name, write["PutRequest"]["Item"]


def _lagging(strictness: Strictness) -> Any:
    """The query, without what an index does not show yet."""

    def query(table: Table, *arguments: Any, **more: Any) -> tuple[list[Item], int, dict[str, Any] | None]:
        found, count, last = large_tables.query(table, *arguments, **more)
        name = more["index_name"] if "index_name" in more else arguments[7]
        if name in {index.name for index in table.global_indexes}:
            found = [item for item in found if strictness.is_seen(Rule.INDEX_PROPAGATION, _key(table, item))]
        return found, count, last

    return query


def _key(table: Table, item: Item) -> str:
    return _about(table, [key.value for key in (item.hash_key, item.range_key) if key is not None])


def _about(table: Table, values: list[Any]) -> str:
    return " ".join((table.name, *map(str, values)))
