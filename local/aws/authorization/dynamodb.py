"""DynamoDB: tables, indexes and, for fine-grained policies, the partition keys a call touches."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from moto.dynamodb.models import dynamodb_backends

from local.aws.calls.request import AwsRequest
from local.aws.emulator import Emulator
from local.aws.iam.policies import ANY_RESOURCE, AccessRequest

_TRANSACT = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
    "Get": "GetItem",
}
_EQUALS = re.compile(r"([#\w.]+)\s*=\s*(:\w+)")


def required_access(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    params, action = request.params, request.action
    if action in ("TransactWriteItems", "TransactGetItems"):
        return [_item(emulator, _TRANSACT[kind], call) for kind, call in _transacted(params)]
    if action in ("BatchWriteItem", "BatchGetItem"):
        return [
            _access(emulator, action, table, _batch_keys(emulator, table, asked))
            for table, asked in params.get("RequestItems", {}).items()
        ]
    if "TableName" not in params:
        return [AccessRequest(f"dynamodb:{action}", ANY_RESOURCE)]
    return [_item(emulator, action, params)]


def _transacted(params: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    return ((kind, call) for item in params.get("TransactItems", []) for kind, call in item.items() if call)


def _item(emulator: Emulator, action: str, call: Mapping[str, Any]) -> AccessRequest:
    table = call["TableName"]
    key = _partition_key(emulator, table)
    if action == "Query":
        leading = _queried(call, _partition_key(emulator, table, call.get("IndexName")))
    else:
        leading = _leading([call.get("Key") or call.get("Item") or {}], key)
    return _access(emulator, action, table, leading, call.get("IndexName"))


def _access(
    emulator: Emulator, action: str, table: str, leading: tuple[str, ...], index: str | None = None
) -> AccessRequest:
    name = table.rsplit("/", 1)[-1]
    resource = f"arn:aws:dynamodb:{emulator.region}:{emulator.account}:table/{name}"
    context = {"dynamodb:leadingkeys": leading} if leading else {}
    return AccessRequest(f"dynamodb:{action}", f"{resource}/index/{index}" if index else resource, context)


def _partition_key(emulator: Emulator, table: str, index: str | None = None) -> str:
    """Name of the partition key attribute of a table or of one of its indexes; "" when there is no such."""
    found = dynamodb_backends[emulator.account][emulator.region].tables.get(table.rsplit("/", 1)[-1])
    if found is None:
        return ""
    if index is None:
        return str(found.hash_key_attr)
    schemas = [item.schema for item in [*found.global_indexes, *found.indexes] if item.name == index]
    names = [part["AttributeName"] for schema in schemas for part in schema if part["KeyType"] == "HASH"]
    return str(names[0]) if names else ""


def _leading(items: Iterable[Mapping[str, Any]], key: str) -> tuple[str, ...]:
    return tuple(str(next(iter(item[key].values()))) for item in items if item.get(key))


def _batch_keys(emulator: Emulator, table: str, asked: Any) -> tuple[str, ...]:
    if isinstance(asked, Mapping):
        items = list(asked.get("Keys", []))
    else:
        items = [
            (write.get("PutRequest") or {}).get("Item") or (write.get("DeleteRequest") or {}).get("Key") or {}
            for write in asked
        ]
    return _leading(items, _partition_key(emulator, table))


def _queried(call: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The partition key value in a key condition expression."""
    names = call.get("ExpressionAttributeNames") or {}
    values = call.get("ExpressionAttributeValues") or {}
    for name, placeholder in _EQUALS.findall(call.get("KeyConditionExpression") or ""):
        if names.get(name, name) == key and placeholder in values:
            return (str(next(iter(values[placeholder].values()))),)
    return ()
