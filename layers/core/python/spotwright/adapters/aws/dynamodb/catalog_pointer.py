"""The rows of a cluster's catalog: the key of the newest catalog, and when a first read of the region began."""

from typing import Any

from spotwright.adapters.aws.dynamodb.items import Item, number_attribute, text_attribute
from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.errors import Conflict


class CatalogPointer:
    """See StatePort."""

    def __init__(self, table: Table, cluster: str) -> None:
        self._table, self._cluster = table, cluster

    def key(self) -> str:
        item = self._table.get("catalog", self._cluster)
        return "" if item is None else text_attribute(item, "key")

    def set_key(self, key: str, at: int) -> None:
        item: Item = {"pk": {"S": "catalog"}, "sk": {"S": self._cluster}, "schema": {"N": "1"}}
        self._table.put(item | {"key": {"S": key}, "at": {"N": str(at)}})

    def stored_at(self) -> int:
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
        item: Item = {"pk": {"S": "catalog"}, "sk": {"S": f"{self._cluster}#reading"}, "schema": {"N": "1"}}
        self._table.put(item | {"began": {"N": str(began)}}, **condition)
