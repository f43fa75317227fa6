"""A DynamoDB table with the key ``pk``/``sk``: reads, queries, and writes conditional on a row's version."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spotwright.adapters.aws import errors
from spotwright.adapters.aws.dynamodb.items import Item
from spotwright.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient


class Table:
    def __init__(self, client: "DynamoDBClient", name: str) -> None:
        self._client, self.name = client, name

    def get(self, pk: str, sk: str) -> Item | None:
        """The row, read consistently."""
        with translate_table_errors(f"GetItem {pk} {sk}"):
            answer = self._client.get_item(
                TableName=self.name, Key={"pk": {"S": pk}, "sk": {"S": sk}}, ConsistentRead=True
            )
        return answer.get("Item")

    def query(self, **query: Any) -> Iterator[Item]:
        """All rows of a Query, page by page."""
        while True:
            with translate_table_errors("Query"):
                page = self._client.query(TableName=self.name, **query)
            yield from page["Items"]
            if not page.get("LastEvaluatedKey"):
                return
            query["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def put_versioned(self, item: Item, before: int) -> None:
        """Replace a row of version ``before``; 0 = there is no row, or an expired row of version 0."""
        first = "attribute_not_exists(version) OR " if before == 0 else ""
        with translate_table_errors(f"PutItem {item['pk']['S']} {item['sk']['S']}"):
            self._client.put_item(
                TableName=self.name,
                Item=item,
                ConditionExpression=f"{first}version = :v",
                ExpressionAttributeValues={":v": {"N": str(before)}},
            )


@contextmanager
def translate_table_errors(what: str) -> Iterator[None]:
    """Like ``translate_errors``, but NotFound becomes Unavailable: the table is missing, not a row."""
    try:
        with errors.translate_errors(what):
            yield
    except NotFound as missing:
        raise Unavailable(str(missing), code=missing.code) from missing
