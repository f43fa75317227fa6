"""A DynamoDB table with the key ``pk``/``sk``: reads, queries, and writes conditional on a row's version."""

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from spotwright.adapters.aws import errors
from spotwright.adapters.aws.dynamodb.items import Item
from spotwright.errors import Conflict, InvalidRequest, NotFound, Throttled, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient

_CANCELLED: Final = "TransactionCanceledException"
# Pauses before keys that a batch left unprocessed are requested again, at most.
_BATCH_PAUSES_SECONDS: Final = (0.05, 0.1, 0.2)


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

    def get_rows(self, pk: str, *sks: str) -> dict[str, Item]:
        """Rows by sort key, in a single consistent call; missing rows are left out."""
        keys: Any = [{"pk": {"S": pk}, "sk": {"S": sk}} for sk in sks]
        rows: dict[str, Item] = {}
        for pause_seconds in (*_BATCH_PAUSES_SECONDS, None):
            with translate_table_errors(f"BatchGetItem {pk} {' '.join(sks)}"):
                request: Any = {self.name: {"Keys": keys, "ConsistentRead": True}}
                answer = self._client.batch_get_item(RequestItems=request)
            rows |= {item["sk"]["S"]: item for item in answer["Responses"].get(self.name, ())}
            unprocessed = answer.get("UnprocessedKeys", {}).get(self.name)
            if not unprocessed:
                return rows
            keys = unprocessed["Keys"]
            if pause_seconds is not None:
                time.sleep(random.uniform(0, pause_seconds))
        raise Throttled(f"BatchGetItem {pk}: keys were left over every time", code="UnprocessedKeys")

    def put(self, item: Item, **condition: Any) -> None:
        """Put a row; ``condition``: ConditionExpression and its values. Raises Conflict when it does not hold."""
        with translate_table_errors(f"PutItem {item['pk']['S']} {item['sk']['S']}"):
            self._client.put_item(TableName=self.name, Item=item, **condition)

    def put_together(self, puts: Iterable[Mapping[str, Any]]) -> bool:
        """Put these rows, each under its condition, by a transaction; False when DynamoDB refuses or cancels it.

        ``puts``: the requests of a PutItem without their table. The SDK repeats a transaction under the same token, so
        that one whose answer was lost is not refused for its own rows.
        """
        try:
            self._transact(puts)
        except (Conflict, InvalidRequest):
            return False
        except Throttled as throttled:
            # The SDK has not repeated a transaction that was cancelled, as it does writes of single rows.
            if throttled.code != _CANCELLED:
                raise
            return False
        return True

    def put_versioned(self, item: Item, before: int) -> None:
        """Replace a row of version ``before``; 0 = there is no row, or an expired row of version 0."""
        self.put(item, **_has_version(before))

    def put_all_versioned(self, puts: Iterable[tuple[Item, int]]) -> None:
        """Replace all these rows as ``put_versioned``, or none, by a transaction."""
        self._transact([{"Item": item, **_has_version(before)} for item, before in puts])

    def _transact(self, puts: Iterable[Mapping[str, Any]]) -> None:
        """Raises Conflict when a condition does not hold, or somebody else is writing one of the rows; Throttled."""
        steps: Any = [{"Put": {"TableName": self.name, **put}} for put in puts]
        with translate_table_errors(f"TransactWriteItems of {len(steps)} rows"):
            self._client.transact_write_items(TransactItems=steps)

    def update(
        self, pk: str, sk: str, expression: str, values: Item, *, condition: str = "", returns: str = "NONE"
    ) -> Any:
        """Update a row. Raises Conflict when ``condition`` does not hold."""
        request: dict[str, Any] = {"ReturnValues": returns} | ({"ConditionExpression": condition} if condition else {})
        return self._update(pk, sk, expression, values, request)

    def try_update(
        self, pk: str, sk: str, expression: str, values: Item, *, condition: str, names: Mapping[str, str]
    ) -> Item | None:
        """Update a row; None when ``condition`` held, else the row as it is, empty where DynamoDB does not show it.

        ``names``: attributes by their placeholders in both expressions, which may be any text.
        """
        request = {
            "ConditionExpression": condition,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            "ExpressionAttributeNames": names,
        }
        try:
            self._update(pk, sk, expression, values, request)
        except Conflict as conflict:
            return refused_row(conflict)
        return None

    def _update(self, pk: str, sk: str, expression: str, values: Item, options: dict[str, Any]) -> Any:
        with translate_table_errors(f"UpdateItem {pk} {sk}"):
            return self._client.update_item(
                TableName=self.name,
                Key={"pk": {"S": pk}, "sk": {"S": sk}},
                UpdateExpression=expression,
                ExpressionAttributeValues=values,
                **options,
            )


def _has_version(before: int) -> dict[str, Any]:
    """The condition of a write."""
    first = "attribute_not_exists(version) OR " if before == 0 else ""
    return {
        "ConditionExpression": f"{first}version = :v",
        "ExpressionAttributeValues": {":v": {"N": str(before)}},
    }


def refused_row(conflict: Conflict) -> Item:
    """The row as the condition of a write met it that asked for ALL_OLD; empty where DynamoDB does not show it."""
    refusal = conflict.__cause__
    return refusal.response.get("Item", {}) if isinstance(refusal, ClientError) else {}  # type: ignore[return-value]


@contextmanager
def translate_table_errors(what: str) -> Iterator[None]:
    """Like ``translate_errors``, but NotFound becomes Unavailable: the table is missing, not a row."""
    try:
        with errors.translate_errors(what):
            yield
    except NotFound as missing:
        raise Unavailable(str(missing), code=missing.code) from missing
