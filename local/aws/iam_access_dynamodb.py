"""DynamoDB: tables, indexes and, for fine-grained policies, the partition keys a call touches."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from moto.dynamodb.models import dynamodb_backends

from local.aws.iam_policy import ANY_RESOURCE, Access
from local.aws.request import AwsRequest
from local.aws.world import World

_TRANSACT = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
    "Get": "GetItem",
}
_EQUALS = re.compile(r"([#\w.]+)\s*=\s*(:\w+)")


def of(world: World, request: AwsRequest) -> list[Access]:
    params, action = request.params, request.action
    if action in ("TransactWriteItems", "TransactGetItems"):
        return [_item(world, _TRANSACT[kind], call) for kind, call in _transacted(params)]
    if action in ("BatchWriteItem", "BatchGetItem"):
        return [
            _access(world, action, table, _batch_keys(world, table, asked))
            for table, asked in params.get("RequestItems", {}).items()
        ]
    if "TableName" not in params:
        return [Access(f"dynamodb:{action}", ANY_RESOURCE)]
    return [_item(world, action, params)]


def _transacted(params: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    return ((kind, call) for item in params.get("TransactItems", []) for kind, call in item.items() if call)


def _item(world: World, action: str, call: Mapping[str, Any]) -> Access:
    table = call["TableName"]
    key = _partition_key(world, table)
    if action == "Query":
        leading = _queried(call, _partition_key(world, table, call.get("IndexName")))
    else:
        leading = _leading([call.get("Key") or call.get("Item") or {}], key)
    return _access(world, action, table, leading, call.get("IndexName"))


def _access(world: World, action: str, table: str, leading: tuple[str, ...], index: str | None = None) -> Access:
    name = table.rsplit("/", 1)[-1]
    resource = f"arn:aws:dynamodb:{world.region}:{world.account}:table/{name}"
    context = {"dynamodb:leadingkeys": leading} if leading else {}
    return Access(f"dynamodb:{action}", f"{resource}/index/{index}" if index else resource, context)


def _partition_key(world: World, table: str, index: str | None = None) -> str:
    """Name of the partition key attribute of a table or of one of its indexes; "" when there is no such."""
    found = dynamodb_backends[world.account][world.region].tables.get(table.rsplit("/", 1)[-1])
    if found is None:
        return ""
    if index is None:
        return str(found.hash_key_attr)
    schemas = [item.schema for item in [*found.global_indexes, *found.indexes] if item.name == index]
    names = [part["AttributeName"] for schema in schemas for part in schema if part["KeyType"] == "HASH"]
    return str(names[0]) if names else ""


def _leading(items: Iterable[Mapping[str, Any]], key: str) -> tuple[str, ...]:
    return tuple(str(next(iter(item[key].values()))) for item in items if item.get(key))


def _batch_keys(world: World, table: str, asked: Any) -> tuple[str, ...]:
    if isinstance(asked, Mapping):
        items = list(asked.get("Keys", []))
    else:
        items = [
            (write.get("PutRequest") or {}).get("Item") or (write.get("DeleteRequest") or {}).get("Key") or {}
            for write in asked
        ]
    return _leading(items, _partition_key(world, table))


def _queried(call: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The partition key value in a key condition expression."""
    names = call.get("ExpressionAttributeNames") or {}
    values = call.get("ExpressionAttributeValues") or {}
    for name, placeholder in _EQUALS.findall(call.get("KeyConditionExpression") or ""):
        if names.get(name, name) == key and placeholder in values:
            return (str(next(iter(values[placeholder].values()))),)
    return ()
