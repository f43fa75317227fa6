"""moto's DynamoDB where a table has thousands of rows: the same answers in a fraction of the time.

moto's Query sorts and measures every row of the table or of an index, asks of each value what kind of value it is up
to eight times, and its serializer looks every attribute up under eight names and their spellings. The tests say what
stays the same.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from moto.core.serialize import JSONSerializer
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import Table

from local.aws.emulator import Emulator

# Attribute values that hold nothing but strings; a number is a string in JSON, too.
_TEXTS: Final = frozenset({"S", "N"})
# Values that nothing changes in their place: a copy may share them.
_SCALARS: Final = frozenset({"S", "N", "B", "BOOL", "NULL"})
_query: Final[Any] = Table.query
_value: Final[Any] = DynamoType.cast_value
_copy: Final = DynamoType.__deepcopy__
_serialize_structure: Final = JSONSerializer._serialize_type_structure


def query(
    table: Table,
    hash_key: Any,
    range_comparison: str | None,
    range_objs: list[Any],
    limit: int | None,
    start_key: Any,
    forward: bool,
    projection: Any,
    index_name: str | None = None,
    *rest: Any,
    **conditions: Any,
) -> Any:
    """``Table.query`` on no more rows than have the key that is asked for; index_propagation puts it in its place.

    With a limit moto's own is asked, since it says by the rows beyond whether there are more.
    """
    if range_comparison and not limit and table.range_key_attr:
        wanted = _rows_of_index if index_name else _rows
        rows = wanted(table, hash_key, lambda value: value.compare(range_comparison, range_objs), index_name)
        table = copy.copy(table)
        table.items = rows
    return _query(
        table, hash_key, range_comparison, range_objs, limit, start_key, forward, projection, index_name,
        *rest, **conditions,
    )  # fmt: skip


type _Rows = defaultdict[Any, dict[Any, Item]]


def _rows(table: Table, hash_key: Any, is_wanted: Callable[[DynamoType], bool], _index: str | None) -> _Rows:
    # Other threads write rows meanwhile.
    rows = list(table.items.get(hash_key, {}).items())
    return defaultdict(dict, {hash_key: {key: row for key, row in rows if is_wanted(row.range_key)}})


def _rows_of_index(
    table: Table, hash_key: Any, is_wanted: Callable[[DynamoType], bool], index_name: str | None
) -> _Rows:
    """Those in whose partition and range of the index the query looks; all rows where it has further keys."""
    schema = next((index.schema for index in table.all_indexes() if index.name == index_name), [])
    names = [key["AttributeName"] for kind in ("HASH", "RANGE") for key in schema if key["KeyType"] == kind]
    if len(names) != 2:
        return table.items
    hash_name, range_name = names
    found: _Rows = defaultdict(dict)
    for partition, rows in list(table.items.items()):
        for key, row in list(rows.items()):
            place, value = row.attrs.get(hash_name), row.attrs.get(range_name)
            if place is not None and value is not None and place == hash_key and is_wanted(value):
                found[partition][key] = row
    return found


def cast_value(typed: DynamoType) -> Any:
    """``DynamoType.cast_value``: a text is itself."""
    return typed.value if typed.type == "S" else _value.fget(typed)


def size(attributes: Mapping[str, DynamoType]) -> int:
    """The bytes of an item, without a copy of each text in bytes."""
    return sum(_text_size(name) + _value_size(typed) for name, typed in attributes.items())


def _value_size(typed: DynamoType) -> int:
    return _text_size(typed.value) if typed.type in _TEXTS and isinstance(typed.value, str) else typed.size()


def _text_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def copied(typed: DynamoType, memo: dict[int, Any]) -> DynamoType:
    """``copy.deepcopy`` of a value."""
    return typed if typed.type in _SCALARS else _copy(typed, memo)


def serialize_structure(serializer: JSONSerializer, serialized: Any, value: Any, shape: Any, key: str) -> None:
    """A text of DynamoDB as it is; everything else as moto does it."""
    if key and shape.name == "AttributeValue" and isinstance(value, dict) and len(value) == 1:
        ((kind, text),) = value.items()
        if kind in _TEXTS and isinstance(text, str):
            serialized[key] = {kind: text}
            return
    _serialize_structure(serializer, serialized, value, shape, key)


def add(_emulator: Emulator) -> None:
    DynamoType.cast_value = property(cast_value)  # type: ignore[method-assign, assignment]
    DynamoType.__deepcopy__ = copied  # type: ignore[method-assign, assignment]
    Item.size = lambda row: size(row.attrs)  # type: ignore[method-assign, assignment]
    JSONSerializer._serialize_type_structure = serialize_structure  # type: ignore[method-assign, assignment]
