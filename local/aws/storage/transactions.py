"""moto's TransactWriteItems of puts: the same answers without a copy of the whole table for each item.

All conditions are judged before anything is written, so that nothing has to be taken back. Items are measured, one by
one and together. Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from moto.dynamodb.comparisons import get_filter_expression
from moto.dynamodb.exceptions import (
    MockValidationException,
    MultipleTransactionsException,
    TooManyTransactionsException,
    TransactionCanceledException,
)
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import DynamoType

from local.aws.emulator import Emulator
from local.aws.storage.large_tables import size

MAXIMUM_ITEMS: Final = 100
MAXIMUM_ITEM_BYTES: Final = 400 * 1024
MAXIMUM_BYTES: Final = 4 * 1024 * 1024
_REFUSED: Final = ("ConditionalCheckFailed", "The conditional request failed")
_TOO_LARGE: Final = ("ValidationError", "Item size has exceeded the maximum allowed size")
_original: Final[Any] = DynamoDBBackend.transact_write_items


def add(_emulator: Emulator) -> None:
    DynamoDBBackend.transact_write_items = transact_write_items  # type: ignore[method-assign, assignment]


def transact_write_items(backend: DynamoDBBackend, transact_items: list[dict[str, Any]]) -> None:
    """moto's own where something else than puts is asked for."""
    puts = [item["Put"] for item in transact_items if item.keys() == {"Put"}]
    if len(puts) < len(transact_items):
        _original(backend, transact_items)
        return
    if len(puts) > MAXIMUM_ITEMS:
        raise TooManyTransactionsException
    keys = [_key(backend, put) for put in puts]
    if len({(put["TableName"], *_values(key)) for put, key in zip(puts, keys, strict=True)}) < len(puts):
        raise MultipleTransactionsException
    sizes = [size({name: DynamoType(value) for name, value in put["Item"].items()}) for put in puts]
    if sum(sizes) > MAXIMUM_BYTES:
        raise MockValidationException("Collection size exceeded")
    reasons = [_reason(backend, put, key, size) for put, key, size in zip(puts, keys, sizes, strict=True)]
    if any(reasons):
        raise TransactionCanceledException([(*reason, {}) if reason else (None, None, None) for reason in reasons])
    for put in puts:
        backend.put_item(put["TableName"], put["Item"])


def _key(backend: DynamoDBBackend, put: Mapping[str, Any]) -> dict[str, Any]:
    table = backend.get_table(put["TableName"])
    names = (table.hash_key_attr, table.range_key_attr)
    return {name: put["Item"][name] for name in names if name is not None}


def _values(key: Mapping[str, Any]) -> Sequence[str]:
    return [f"{kind}:{value}" for typed in key.values() for kind, value in typed.items()]


def _reason(
    backend: DynamoDBBackend, put: Mapping[str, Any], key: dict[str, Any], item_bytes: int
) -> tuple[str, str] | None:
    """Why the item is not put; None where nothing is in its way."""
    if item_bytes > MAXIMUM_ITEM_BYTES:
        return _TOO_LARGE
    condition = get_filter_expression(
        put.get("ConditionExpression"), put.get("ExpressionAttributeNames"), put.get("ExpressionAttributeValues")
    )
    return None if condition.expr(backend.get_item(put["TableName"], key)) else _REFUSED
